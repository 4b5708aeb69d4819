//! The table of known errors against the messages in the source of the programs and against the guide.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::{
    fs,
    path::{Path, PathBuf},
};
use view_cluster::{By, KNOWN_ERRORS};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// Appends the Rust source of a folder.
fn sources(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|it| it == "rs") {
            text.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}

/// Joins the lines of string literals that end with a backslash.
fn joined(source: &str) -> String {
    let mut lines = source.split("\\\n");
    let first = lines.next().unwrap().to_owned();
    lines.fold(first, |text, line| text + line.trim_start())
}

#[test]
fn each_explained_error_exists_in_the_programs() {
    let mut source = String::new();
    for folder in [
        "cni/src",
        "ipamd/core/src",
        "ipamd/daemon/src",
        "ipamd/rpc/src",
        "ipamd/npa/src",
        "datapath/rpc/src",
    ] {
        sources(&root().join(folder), &mut source);
    }
    let source = joined(&source);
    let ours = KNOWN_ERRORS.iter().filter(|known| known.by == By::Us);
    let missing: Vec<&str> =
        ours.map(|known| known.part).filter(|it| !source.contains(it)).collect();
    assert!(missing.is_empty(), "no program has the messages {missing:?}");
}

#[test]
fn the_guide_has_every_row_and_every_code() {
    let page = read("docs/guide/troubleshooting.md");
    for known in KNOWN_ERRORS {
        let message = known.part.trim();
        assert!(page.contains(message), "docs/guide/troubleshooting.md lacks {message:?}");
    }
    let fault = read("cni/src/fault.rs");
    let codes = fault.lines().filter_map(|line| {
        let (_, number) = line.trim().strip_prefix("Self::")?.split_once(" => ")?;
        number.strip_suffix(',')?.parse::<u32>().ok()
    });
    let codes: Vec<u32> = codes.collect();
    assert!(codes.len() > 10, "{codes:?}");
    for code in codes {
        assert!(
            page.contains(&format!("| {code} |")),
            "docs/guide/troubleshooting.md lacks {code}"
        );
    }
}

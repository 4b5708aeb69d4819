//! What the guide and the tool say of kubelet's words are words that the programs write.

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

/// All Rust of a folder, its texts in one line each.
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

/// What a backslash at the end of a line of a text leaves out.
fn joined(source: &str) -> String {
    let mut lines = source.split("\\\n");
    let first = lines.next().unwrap().to_owned();
    lines.fold(first, |text, line| text + line.trim_start())
}

#[test]
fn what_is_explained_is_what_the_programs_say() {
    let mut said = String::new();
    for folder in [
        "cni/src",
        "ipamd/core/src",
        "ipamd/daemon/src",
        "ipamd/rpc/src",
        "ipamd/npa/src",
        "datapath/rpc/src",
    ] {
        sources(&root().join(folder), &mut said);
    }
    let said = joined(&said);
    let ours = KNOWN_ERRORS.iter().filter(|word| word.by == By::Us);
    let unsaid: Vec<&str> = ours.map(|word| word.said).filter(|it| !said.contains(it)).collect();
    assert!(unsaid.is_empty(), "nobody says {unsaid:?}");
}

#[test]
fn the_guide_has_every_row_and_every_code() {
    let page = read("docs/guide/troubleshooting.md");
    for word in KNOWN_ERRORS {
        let said = word.said.trim();
        assert!(page.contains(said), "docs/guide/troubleshooting.md lacks {said:?}");
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

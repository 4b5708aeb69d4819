//! The next release, for tests in which plugin and daemon are one release apart. It is this source with another version
//! number, a newer protocol and unknown fields in its messages. A copy is built, so no production program has a branch
//! for it.

use crate::{cargo, generate, say};
use anyhow::{Context as _, Result, bail, ensure};
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

/// The edits that produce the next release: file, text that occurs there exactly once, replacement.
const EDITS: &[(&str, &str, &str)] = &[
    ("Cargo.toml", "[workspace.package]\nversion = \"", "[workspace.package]\nversion = \"10"),
    (
        "ipamd/rpc/src/version.rs",
        "Versions { oldest: 1, newest: 1 };",
        "Versions { oldest: 1, newest: 2 };",
    ),
    // In every request.
    (
        "ipamd/rpc/proto/ipamd.proto",
        "  uint32 newest = 2;\n",
        "  uint32 newest = 2;\n  uint64 next = 100;\n",
    ),
    (
        "ipamd/rpc/src/message/conversion.rs",
        "        Self { oldest, newest }\n",
        "        Self { oldest, newest, next: u64::MAX }\n",
    ),
    (
        "ipamd/rpc/src/message/conversion.rs",
        "let wire::Versions { oldest, newest } =",
        "let wire::Versions { oldest, newest, .. } =",
    ),
    ("ipamd/rpc/proto/ipamd.proto", "message Pod {\n", "message Pod {\n  string next = 100;\n"),
    (
        "ipamd/rpc/src/message/conversion.rs",
        "            namespace: pod.name.namespace,\n",
        "            next: \"of the next release\".to_owned(),\n            namespace: pod.name.namespace,\n",
    ),
    // In replies.
    (
        "ipamd/rpc/proto/ipamd.proto",
        "message ReserveReply {\n",
        "message ReserveReply {\n  string next = 100;\n",
    ),
    (
        "ipamd/rpc/src/server/service.rs",
        "wire::ReserveReply { version, ",
        "wire::ReserveReply { next: \"of the next release\".to_owned(), version, ",
    ),
    (
        "ipamd/rpc/proto/ipamd.proto",
        "message ConfirmReply {\n",
        "message ConfirmReply {\n  repeated uint64 next = 100;\n",
    ),
    (
        "ipamd/rpc/src/server/service.rs",
        "wire::ConfirmReply { version, ",
        "wire::ConfirmReply { next: vec![u64::MAX; 3], version, ",
    ),
    (
        "ipamd/rpc/proto/ipamd.proto",
        "message ReleaseReply {\n",
        "message ReleaseReply {\n  bool next = 100;\n",
    ),
    (
        "ipamd/rpc/src/message/conversion.rs",
        "wire::ReleaseReply { version, ",
        "wire::ReleaseReply { next: true, version, ",
    ),
    (
        "ipamd/rpc/proto/ipamd.proto",
        "message StatusReply {\n",
        "message StatusReply {\n  map<string, string> next = 100;\n",
    ),
    (
        "ipamd/rpc/src/message/conversion.rs",
        "wire::StatusReply { version, ",
        "wire::StatusReply { next: [(\"next\".to_owned(), \"release\".to_owned())].into(), version, ",
    ),
];

/// A test program with few dependencies.
const SMALL_TEST: &str = "dashboard";

/// Builds the daemon and plugin, and gathers them in a folder.
///
/// # Errors
/// If an edit no longer matches the source, or the build fails.
pub(crate) fn build() -> Result<PathBuf> {
    let started = Instant::now();
    let dir = cargo::target_dir().join("ferrule").join("next");
    let source = dir.join("source");
    say::step("building the next release (its version, protocol and messages differ)");
    copy_source(&source)?;
    // Compiled crates are shared with this release, so only the crates of the workspace are compiled again. Both builds
    // must have the features of the workspace with its tests. Cargo selects them only if a test is among the targets,
    // so a small one is.
    // The output has another folder, since the programs have the same names.
    let out = dir.join("target");
    let status = cargo::command()
        .current_dir(&source)
        .args(["build", "--offline", "--workspace", "--test", SMALL_TEST])
        .args(["--bin", "ferrule-ipamd", "--bin", "ferrule-cni"])
        .env("CARGO_TARGET_DIR", &out)
        .env("CARGO_BUILD_BUILD_DIR", cargo::target_dir())
        .stdout(Stdio::from(std::io::stderr()))
        .status()
        .context("start cargo")?;
    ensure!(status.success(), "the next release could not be built; cargo's output is above");
    for name in ["ferrule-ipamd", "ferrule-cni"] {
        cargo::place(&out.join("debug").join(name), &dir.join(name))?;
    }
    say::good(&format!("built in {}", say::took(started)));
    Ok(dir)
}

/// Copies the source with the edits and removes other files. An unchanged file is not touched, because cargo compares
/// modification times.
fn copy_source(to: &Path) -> Result<()> {
    let listed = Command::new("git")
        .current_dir(generate::root())
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .output()
        .context("ask git for the files of the source")?;
    ensure!(listed.status.success(), "git: {}", String::from_utf8_lossy(&listed.stderr).trim());
    let mut copied = BTreeSet::new();
    for file in listed.stdout.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let file = std::str::from_utf8(file).context("a file's name is not UTF-8")?;
        // git still lists a file that was removed without a commit.
        let Ok(bytes) = fs::read(generate::root().join(file)) else { continue };
        let bytes = edited(file, bytes)?;
        let path = to.join(file);
        copied.insert(path.clone());
        if fs::read(&path).is_ok_and(|there| there == bytes) {
            continue;
        }
        let folder = path.parent().context("a file without a folder")?;
        fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
        fs::write(&path, bytes).with_context(|| format!("write {}", path.display()))?;
    }
    remove_others(to, &copied)
}

/// Removes every other file below the folder.
fn remove_others(folder: &Path, these: &BTreeSet<PathBuf>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))?;
    for entry in entries {
        let path = entry.with_context(|| format!("list {}", folder.display()))?.path();
        if path.is_dir() && !path.is_symlink() {
            remove_others(&path, these)?;
        } else if !these.contains(&path) {
            fs::remove_file(&path).with_context(|| format!("remove {}", path.display()))?;
        }
    }
    Ok(())
}

fn edited(file: &str, bytes: Vec<u8>) -> Result<Vec<u8>> {
    let edits: Vec<_> = EDITS.iter().filter(|(of, ..)| *of == file).collect();
    if edits.is_empty() {
        return Ok(bytes);
    }
    let mut text = String::from_utf8(bytes).with_context(|| format!("{file} is not UTF-8"))?;
    for (_, from, to) in edits {
        let count = text.matches(from).count();
        if count != 1 {
            bail!(
                "{file} has {from:?} {count} times, not once: see EDITS in xtask/src/next_release.rs"
            );
        }
        text = text.replacen(from, to, 1);
    }
    Ok(text.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_longer_belongs_to_the_source_goes() {
        let folder = std::env::temp_dir().join(format!("ferrule-next-{}", std::process::id()));
        let (stays, goes) = (folder.join("a/stays.rs"), folder.join("a/goes.rs"));
        fs::create_dir_all(folder.join("a")).expect("a folder");
        for file in [&stays, &goes] {
            fs::write(file, "").expect("a file");
        }
        remove_others(&folder, &BTreeSet::from([stays.clone()])).expect("files to remove");
        let left = (stays.exists(), goes.exists());
        fs::remove_dir_all(&folder).expect("a folder to remove");
        assert_eq!(left, (true, false));
    }

    #[test]
    fn every_edit_fits_the_source() {
        for (file, ..) in EDITS {
            let bytes = fs::read(generate::root().join(file)).expect("a file of the source");
            assert_ne!(edited(file, bytes.clone()).expect("edits that fit"), bytes);
        }
    }
}

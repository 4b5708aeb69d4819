//! The CNI versions that a plugin supports.

use std::{
    collections::BTreeSet,
    io::{Read as _, Write as _},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// The CNI versions in a plugin's answer to VERSION. `None` if it does not answer in time or cannot be executed here.
pub(crate) fn versions(plugin: &Path) -> Option<BTreeSet<String>> {
    let mut child = Command::new(plugin)
        .env_clear()
        .env("CNI_COMMAND", "VERSION")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    // A plugin that exits without reading may answer anyway.
    let _ = child.stdin.take().map(|mut stdin| stdin.write_all(QUESTION));
    let give_up = Instant::now() + PATIENCE;
    let ended = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status.success(),
            Ok(None) if Instant::now() < give_up => thread::sleep(BETWEEN_LOOKS),
            Ok(None) | Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                break false;
            }
        }
    };
    if !ended {
        return None;
    }
    let mut answer = Vec::new();
    // The answer is short and fits the pipe, so the plugin did not block on it.
    child.stdout.take()?.take(MOST).read_to_end(&mut answer).ok()?;
    parse(&answer)
}

fn parse(answer: &[u8]) -> Option<BTreeSet<String>> {
    let answer: serde_json::Value = serde_json::from_slice(answer).ok()?;
    let versions = answer["supportedVersions"].as_array()?;
    versions.iter().map(|version| version.as_str().map(str::to_owned)).collect()
}

const QUESTION: &[u8] = br#"{"cniVersion":"1.0.0"}"#;
const PATIENCE: Duration = Duration::from_secs(5);
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);
const MOST: u64 = 1 << 14;

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt as _};

    #[test]
    fn a_plugin_that_does_not_answer_has_no_versions() {
        let folder = tempfile::tempdir().unwrap();
        let versions_of = |script: &str| {
            let path = folder.path().join("plugin");
            fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            versions(&path)
        };
        let answer =
            r#"echo "{\"cniVersion\":\"1.0.0\",\"supportedVersions\":[\"0.4.0\",\"1.0.0\"]}""#;
        let expected = ["0.4.0", "1.0.0"].map(str::to_owned).into();
        let asked = format!("[ \"$CNI_COMMAND\" = VERSION ] || exit 1; {answer}");
        assert_eq!(versions_of(&asked), Some(expected));
        for bad in [
            "exit 1".to_owned(),
            format!("{answer}; exit 1"),
            "echo no JSON".to_owned(),
            "echo '{}'".to_owned(),
            "kill -9 $$".to_owned(),
        ] {
            assert_eq!(versions_of(&bad), None, "{bad}");
        }
        assert_eq!(versions(&folder.path().join("absent")), None);
    }
}

//! The `Containerfile`, for an existing base and existing programs.

use crate::generate;
use anyhow::{Context as _, Result, ensure};
use std::{fs, path::Path};

/// Writes the file with that image as its base, and with the programs of that folder of the context.
///
/// # Errors
/// If the file cannot be read or written, or lacks the two stages that are replaced.
pub(super) fn write(to: &Path, base: &str, programs: &str) -> Result<()> {
    let text = fs::read_to_string(generate::root().join("Containerfile"));
    let text = with(&text.context("read Containerfile")?, base, programs)?;
    fs::write(to, text).with_context(|| format!("write {}", to.display()))
}

fn with(text: &str, base: &str, programs: &str) -> Result<String> {
    let mut text = text.to_owned();
    for (stage, instead) in [
        (BASE, format!("FROM {base} AS base\n")),
        (PROGRAMS, format!("FROM scratch AS programs\nCOPY {programs}/ /\n")),
    ] {
        ensure!(text.matches(stage).count() == 1, "Containerfile has not once:\n{stage}");
        text = text.replace(stage, &instead);
    }
    Ok(text)
}

/// The two stages in the file. Arguments cannot select them, as buildah 1.28 skips a stage that only an argument names.
const BASE: &str = "FROM scratch AS base\nCOPY --from=debian /base /\n";
const PROGRAMS: &str = "FROM scratch AS programs\nCOPY --from=build /gathered/ /\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_base_is_pinned_by_a_digest() {
        let text = fs::read_to_string(generate::root().join("Containerfile")).expect("a file");
        let bases: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("ARG ")?.split_once("=docker.io/"))
            .map(|(_, base)| base)
            .collect();
        assert_eq!(bases.len(), 3, "{bases:?}");
        for base in bases {
            let digest = base.split_once("@sha256:").map_or("", |(_, digest)| digest);
            let is_hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
            assert!(digest.len() == 64 && digest.chars().all(is_hex), "{base} has no digest");
        }
        // The base of a stage is one of them, another stage, or nothing.
        let names = ["${RUST}", "${GO}", "${DEBIAN}", "scratch", "base"];
        for line in text.lines().filter_map(|line| line.strip_prefix("FROM ")) {
            let from = line.split(' ').find(|word| !word.starts_with("--")).unwrap_or_default();
            assert!(names.contains(&from), "{line}");
        }
    }

    #[test]
    fn two_stages_are_replaced_and_the_last_is_as_it_was() {
        let folder = tempfile::tempdir().expect("a folder");
        let to = folder.path().join("Containerfile");
        write(&to, "localhost/b:1", "there").expect("a file");
        let text = fs::read_to_string(&to).expect("what was written");
        assert!(text.contains("FROM localhost/b:1 AS base\n") && text.contains("COPY there/ /\n"));
        assert!(!text.contains("--from=debian") && text.contains("\nFROM base\n"), "{text}");
        assert!(with("FROM scratch\n", "b", "p").is_err());
    }
}

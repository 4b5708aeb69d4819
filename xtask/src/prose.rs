//! The prose lint: the rules of `docs/style.md` that a program can check.
//!
//! [`rules`] is the table of rules for sentences, [`names`] the table for identifiers, and [`renamed`] the table of words
//! that must not return. [`source`] reads the text of a file, [`messages`] the messages in Rust source. [`check`] is the
//! step of lane `lint`.

mod messages;
mod names;
mod passage;
mod renamed;
mod report;
mod rule;
mod rules;
mod sentence;
mod source;
mod tokens;

use crate::{generate, say};
use anyhow::{Context as _, Result};
use regex::Regex;
use report::Finding;
use rule::Compiled;
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Path prefixes whose text is not converted to the rules yet. Findings there are counted and do not fail the lint.
/// A folder leaves the list when its last finding is gone; the list ends empty.
const NOT_YET: &[&str] = &[];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Files and folders to check, converted or not; none means the whole repository
    paths: Vec<PathBuf>,
    /// Print the number of findings per rule and per top-level folder
    #[arg(long)]
    count: bool,
    /// Only findings of this rule
    #[arg(long)]
    rule: Option<String>,
    /// Output format
    #[arg(short, long, default_value = "text")]
    output: Output,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    Text,
    Json,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let root = generate::root();
    let selected = selected(&root, &args.paths)?;
    let mut findings = findings(&root)?;
    findings.retain(|finding| {
        let is_selected = |path: &String| is_below(&finding.path, path);
        let has_rule = args.rule.as_ref().is_none_or(|rule| rule == finding.rule);
        has_rule && (selected.is_empty() || selected.iter().any(is_selected))
    });
    let failing: Vec<&Finding> =
        findings.iter().filter(|f| !selected.is_empty() || !is_exempt(&f.path)).collect();
    match (args.output, args.count) {
        (Output::Json, _) => say::result(&report::json(&findings, is_exempt)?),
        (Output::Text, true) => report::counts(&findings).iter().for_each(|line| say::result(line)),
        (Output::Text, false) => {
            failing.iter().for_each(|finding| say::result(&finding.to_string()))
        }
    }
    note_exempt(findings.len() - failing.len());
    if !failing.is_empty() {
        say::fail(&format!("{} findings; the rules are in docs/style.md", failing.len()));
    }
    Ok(if failing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns true if converted text has no finding, and prints the findings otherwise.
///
/// # Errors
/// When git cannot list the files.
pub(crate) fn check() -> Result<bool> {
    check_at(&generate::root())
}

fn check_at(root: &Path) -> Result<bool> {
    let findings = findings(root)?;
    let (exempt, failing): (Vec<_>, Vec<_>) = findings.iter().partition(|f| is_exempt(&f.path));
    for finding in &failing {
        say::fail(&finding.to_string());
    }
    note_exempt(exempt.len());
    Ok(failing.is_empty())
}

/// Prints the number of exempt findings.
fn note_exempt(exempt: usize) {
    if exempt > 0 {
        say::note(&format!("{exempt} findings in folders of NOT_YET (xtask/src/prose.rs)"));
    }
}

fn is_exempt(path: &str) -> bool {
    NOT_YET.iter().any(|prefix| path.starts_with(prefix))
}

/// Returns all findings, in the order of the files.
fn findings(root: &Path) -> Result<Vec<Finding>> {
    let rules = rules::RULES.iter().map(Compiled::new).collect::<Result<Vec<_>>>()?;
    let renamed = renamed_words()?;
    let mut found = Vec::new();
    for path in source::files(root)? {
        let Some(text) = source::read(root, &path) else { continue };
        found.extend(missing_header(&path, &text));
        if path != renamed::PATH {
            found.extend(returned_words(&path, &text, &renamed));
        }
        let mut passages = source::passages_of(&path, &text);
        if path.ends_with(".rs") {
            let tokens = tokens::tokens(&text);
            found.extend(names::findings(&path, &tokens));
            passages.extend(messages::messages(&tokens));
        }
        for passage in passages {
            for sentence in sentence::sentences(&passage) {
                let rejecting = rules.iter().filter(|rule| rule.rejects(&sentence));
                found.extend(rejecting.map(|rule| Finding::of(&path, rule.rule, &sentence)));
            }
        }
    }
    Ok(found)
}

/// The root file of a crate needs a header `//!` with the purpose of the crate.
fn missing_header(path: &str, text: &str) -> Option<Finding> {
    let is_root = path.ends_with("src/lib.rs") || path.ends_with("src/main.rs");
    (is_root && !text.starts_with("//!")).then(|| Finding {
        path: path.to_owned(),
        line: 1,
        rule: "crate header",
        sentence: text.lines().next().unwrap_or_default().to_owned(),
        hint: "start the file with //! and the purpose of the crate".to_owned(),
    })
}

fn renamed_words() -> Result<Option<Regex>> {
    let words: Vec<String> = renamed::RENAMED.iter().map(|(old, _)| regex::escape(old)).collect();
    let pattern = format!(r"\b({})\b", words.join("|"));
    if words.is_empty() {
        return Ok(None);
    }
    Ok(Some(Regex::new(&pattern).context("cannot compile the table RENAMED")?))
}

fn returned_words(path: &str, text: &str, renamed: &Option<Regex>) -> Vec<Finding> {
    let Some(renamed) = renamed else { return Vec::new() };
    if !renamed.is_match(text) {
        return Vec::new();
    }
    let lines = text.lines().enumerate();
    let hits =
        lines.flat_map(|(index, line)| renamed.find_iter(line).map(move |hit| (index, line, hit)));
    let finding = |(index, line, hit): (usize, &str, regex::Match<'_>)| {
        let new = renamed::RENAMED.iter().find(|(old, _)| *old == hit.as_str());
        Finding {
            path: path.to_owned(),
            line: index + 1,
            rule: "renamed",
            sentence: line.trim().to_owned(),
            hint: format!("{} is {} now", hit.as_str(), new.map_or("gone", |(_, new)| *new)),
        }
    };
    hits.map(finding).collect()
}

/// Returns the paths of the command line, relative to the root.
fn selected(root: &Path, paths: &[PathBuf]) -> Result<Vec<String>> {
    let root = root.canonicalize().with_context(|| format!("cannot resolve {}", root.display()))?;
    let relative = |path: &PathBuf| {
        let full =
            path.canonicalize().with_context(|| format!("cannot find {}", path.display()))?;
        let below = full.strip_prefix(&root).with_context(|| {
            format!("cannot check {}: not in {}", full.display(), root.display())
        })?;
        Ok(below.display().to_string())
    };
    paths.iter().map(relative).collect()
}

fn is_below(path: &str, folder: &str) -> bool {
    let rest = path.strip_prefix(folder);
    folder.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, process::Command};

    fn repository(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        let made = Command::new("git").args(["init", "-q"]).current_dir(folder.path()).status();
        assert!(made.expect("git to start").success());
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("a parent folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        }
        folder
    }

    #[test]
    fn a_planted_bad_sentence_fails_the_lint() {
        let good =
            [("new/page.md", "The daemon logs each rule.\n"), ("new/src/lib.rs", "//! A crate.\n")];
        let folder = repository(&good);
        assert!(check_at(folder.path()).expect("a check"));
        for (path, text) in [
            ("new/page.md", "The daemon logs each rule.\n\nNobody is told of it.\n"),
            ("new/src/lib.rs", "//! A crate.\n\n/// Its name.\npub struct Name;\n"),
            ("new/src/lib.rs", "pub struct Name;\n"),
            ("new/wire.proto", "// Who the node is its token says.\nmessage Hello {}\n"),
            ("new/page.md", "| column |\n|---|\n| Whose address it is |\n"),
            ("new/src/lib.rs", "//! A crate.\n\npub fn tell() {}\n"),
            ("new/src/lib.rs", "//! A crate.\n\nfn f() {\n    panic!(\"the pod was told\")\n}\n"),
        ] {
            let folder = repository(&good);
            fs::write(folder.path().join(path), text).expect("a file");
            assert!(!check_at(folder.path()).expect("a check"), "{path}: {text}");
        }
    }

    #[test]
    fn a_bad_sentence_in_a_folder_that_is_not_converted_is_only_counted() {
        let first = NOT_YET.iter().find(|prefix| prefix.ends_with('/'));
        let Some(folder) = first else { return };
        let path = format!("{folder}page.md");
        let repository = repository(&[(&path, "Nobody is told of it.\n")]);
        assert_eq!(findings(repository.path()).expect("findings").len(), 2);
        assert!(check_at(repository.path()).expect("a check"));
    }

    #[test]
    fn a_renamed_word_is_found_in_any_text_file_and_only_as_a_whole_word() {
        let (old, _) = renamed::RENAMED.first().expect("a renamed word");
        let text = format!("use {old}::Disk;\nlet my_{old} = 1;\n");
        let folder = repository(&[("new/a.txt", &text)]);
        let found = findings(folder.path()).expect("findings");
        let places: Vec<_> = found.iter().map(|f| (f.path.as_str(), f.line, f.rule)).collect();
        assert_eq!(places, [("new/a.txt", 1, "renamed")]);
    }

    #[test]
    fn a_finding_names_its_line() {
        let text = "# Page\n\nThe daemon logs each rule\nof the node. Each pod is told\nof it.\n";
        let folder = repository(&[("new/page.md", text)]);
        let found = findings(folder.path()).expect("findings");
        let places: Vec<_> = found.iter().map(|f| (f.path.as_str(), f.line, f.rule)).collect();
        assert_eq!(places, [("new/page.md", 4, "told")]);
    }

    #[test]
    fn a_path_selects_its_folder_and_no_other() {
        assert!(is_below("docs/style.md", "docs"));
        assert!(is_below("docs/style.md", ""));
        assert!(!is_below("docs-old/style.md", "docs"));
    }
}

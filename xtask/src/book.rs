//! `cargo xtask book`: builds the pages of `docs` as a book with mdbook.

use crate::{cargo, generate, say};
use anyhow::{Context as _, Result, bail, ensure};
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

pub(crate) fn run() -> Result<ExitCode> {
    say::result(&build()?.join("index.html").display().to_string());
    Ok(ExitCode::SUCCESS)
}

/// Builds the book and returns its folder.
///
/// # Errors
/// If mdbook prints a warning, or a page of the summary is missing from the book.
pub(crate) fn build() -> Result<PathBuf> {
    let program = program()?;
    let book = cargo::target_dir().join("book");
    say::step("the pages as a book");
    let mut mdbook = Command::new(program);
    mdbook.arg("build").arg(generate::root().join("docs")).arg("--dest-dir").arg(&book);
    // mdbook prints warnings at its default level.
    let output = mdbook.env_remove("RUST_LOG").stdin(Stdio::null()).output();
    let output = output.context("start mdbook")?;
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    say::note(said.trim_end());
    ensure!(output.status.success() && !warns(&said), "mdbook warns: its words are above");
    let summary = generate::root().join("docs/SUMMARY.md");
    let summary = fs::read_to_string(&summary).context("read docs/SUMMARY.md")?;
    let pages = pages(&summary);
    let missing: Vec<_> = pages.iter().filter(|page| !book.join(page).is_file()).collect();
    if pages.is_empty() || !missing.is_empty() {
        bail!("{} pages are in the summary; not in {}: {missing:?}", pages.len(), book.display());
    }
    say::good(&format!("{} pages", pages.len()));
    Ok(book)
}

fn warns(said: &str) -> bool {
    said.lines().any(|line| ["WARN", "ERROR"].iter().any(|word| line.contains(word)))
}

/// The output paths of the pages in a summary.
fn pages(summary: &str) -> BTreeSet<String> {
    let links = summary.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    links.filter_map(|to| to.strip_suffix(".md")).map(|page| format!("{page}.html")).collect()
}

/// Returns mdbook, built once from its crate into the user's cache.
fn program() -> Result<PathBuf> {
    let root = crate::image::cache()?.join("mdbook").join(VERSION);
    let program = root.join("bin/mdbook");
    if !program.is_file() {
        say::step(&format!("building mdbook {VERSION}, once: some minutes"));
        install(&root)?;
    }
    Ok(program)
}

fn install(root: &Path) -> Result<()> {
    let work = tempfile::tempdir().context("make a folder to build mdbook in")?;
    let mut cargo = cargo::command();
    cargo.args(["install", "--quiet", "--locked", "--no-default-features", "--features", "search"]);
    cargo.args(["mdbook", "--version", VERSION, "--root"]).arg(root);
    let status = cargo.env("CARGO_TARGET_DIR", work.path()).status().context("start cargo")?;
    ensure!(status.success(), "mdbook could not be built: cargo's words are above");
    Ok(())
}

const VERSION: &str = "0.5.4";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_of_a_summary_are_those_it_links_to() {
        let summary =
            "# Summary\n\n[Top](guide/index.md)\n\n- [One](one.md)\n  - [Two](a/two.md)\n";
        let wanted = ["a/two.html", "guide/index.html", "one.html"].map(str::to_owned);
        assert_eq!(pages(summary), wanted.into());
    }

    #[test]
    fn a_warning_is_found() {
        assert!(warns(" WARN Invalid configuration\n INFO Book building has started\n"));
        assert!(!warns(" INFO HTML book written to `/book`\n"));
    }
}

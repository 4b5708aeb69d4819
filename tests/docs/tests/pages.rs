//! Every page is in the book, every link has a target, and every block matches its language.

use anyhow::{Context as _, Result};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};
use tests_docs::{page::Page, pages, root};

fn by_path() -> Result<BTreeMap<PathBuf, Page>> {
    let by_path = pages()?.into_iter().map(|page| Ok((page.path.canonicalize()?, page)));
    by_path.collect()
}

/// Returns the path relative to the repository.
fn name(path: &Path) -> String {
    let root = root().canonicalize().unwrap_or_default();
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}

#[test]
fn every_page_of_the_book_is_in_its_summary_and_no_other() -> Result<()> {
    let docs = root().join("docs").canonicalize()?;
    let all = by_path()?;
    let summary = docs.join("SUMMARY.md");
    let linked = &all.get(&summary).context("docs/SUMMARY.md")?.links;
    let linked: Vec<PathBuf> = linked.iter().map(|link| docs.join(&link.to)).collect();
    let once: BTreeSet<&PathBuf> = linked.iter().collect();
    assert_eq!(once.len(), linked.len(), "docs/SUMMARY.md lists a page twice");
    let there: BTreeSet<&PathBuf> =
        all.keys().filter(|path| path.starts_with(&docs) && **path != summary).collect();
    let names = |of: Vec<&&PathBuf>| of.into_iter().map(|path| name(path)).collect::<Vec<_>>();
    let missing = names(there.difference(&once).collect());
    assert!(missing.is_empty(), "not in docs/SUMMARY.md: {missing:?}");
    let unknown = names(once.difference(&there).collect());
    assert!(unknown.is_empty(), "missing pages of docs/SUMMARY.md: {unknown:?}");
    Ok(())
}

#[test]
fn every_link_leads_to_a_file_and_every_anchor_to_a_heading() -> Result<()> {
    let all = by_path()?;
    let docs = root().join("docs").canonicalize()?;
    let mut wrong = Vec::new();
    let mut seen = 0;
    for (path, page) in &all {
        for link in &page.links {
            if link.to.contains("://") || link.to.starts_with("mailto:") {
                continue;
            }
            seen += 1;
            let (file, anchor) = link.to.split_once('#').unwrap_or((&link.to, ""));
            let folder = path.parent().context("a page without a folder")?;
            let to =
                if file.is_empty() { Ok(path.clone()) } else { folder.join(file).canonicalize() };
            let anchors = to.as_ref().ok().and_then(|to| all.get(to)).map(|page| &page.anchors);
            let known = anchors.is_some_and(|anchors| anchors.contains(anchor));
            // The book cannot link to folders, or to files outside of it.
            let in_book = |to: &PathBuf| to.starts_with(&docs) && to.is_file();
            let lost = path.starts_with(&docs) && !to.as_ref().is_ok_and(in_book);
            if to.is_err() || lost || !(anchor.is_empty() || known) {
                wrong.push(format!("{}:{}: {}", name(path), link.line, link.to));
            }
        }
    }
    assert!(seen > 50, "only {seen} links");
    assert!(wrong.is_empty(), "links without a target:\n{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn every_block_of_json_or_yaml_parses() -> Result<()> {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for (path, page) in &by_path()? {
        for block in &page.blocks {
            let fault = match block.language.as_str() {
                "json" => serde_json::from_str::<serde_json::Value>(&block.text)
                    .err()
                    .map(|e| e.to_string()),
                "yaml" => serde_saphyr::from_multiple::<serde_json::Value>(&block.text)
                    .err()
                    .map(|error| error.to_string()),
                _ => continue,
            };
            seen += 1;
            if let Some(fault) = fault {
                wrong.push(format!("{}:{}: {fault}", name(path), block.line));
            }
        }
    }
    assert!(seen > 3, "only {seen} blocks");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn every_block_of_code_has_a_language() -> Result<()> {
    let mut wrong = Vec::new();
    for (path, page) in &by_path()? {
        wrong.extend(page.indented.iter().map(|line| format!("{}:{line}", name(path))));
    }
    assert!(wrong.is_empty(), "indented code without a language: {wrong:?}");
    Ok(())
}

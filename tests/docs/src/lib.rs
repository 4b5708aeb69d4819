//! Parsed pages of the documentation: links, anchors, blocks of code, command lines.
//!
//! Start in [`page`]. [`command`] parses the shell syntax that these pages use.

pub mod command;
pub mod page;

use anyhow::{Context as _, Result};
use page::Page;
use std::path::{Path, PathBuf};

/// Returns the folder of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Reads every page in `docs` and in the root folder.
///
/// # Errors
/// If a page cannot be read.
pub fn pages() -> Result<Vec<Page>> {
    let mut found = Vec::new();
    gather(&root(), false, &mut found)?;
    gather(&root().join("docs"), true, &mut found)?;
    found.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(found)
}

fn gather(folder: &Path, deeper: bool, found: &mut Vec<Page>) -> Result<()> {
    let read = || format!("cannot read {}", folder.display());
    for entry in std::fs::read_dir(folder).with_context(read)? {
        let path = entry.with_context(read)?.path();
        if deeper && path.is_dir() {
            gather(&path, true, found)?;
        } else if path.extension().is_some_and(|ending| ending == "md") {
            let text = std::fs::read_to_string(&path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            found.push(Page::of(path, &text));
        }
    }
    Ok(())
}

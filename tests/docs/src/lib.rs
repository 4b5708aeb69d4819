//! The pages that people read, as a test sees them: links, anchors, blocks of code, command lines.
//!
//! Start in [`page`]; [`command`] takes a block's lines apart as a shell would, as far as these pages go.

pub mod command;
pub mod page;

use anyhow::{Context as _, Result};
use page::Page;
use std::path::{Path, PathBuf};

/// The repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every page: those of `docs`, and those at the root.
///
/// # Errors
/// When one cannot be read.
pub fn pages() -> Result<Vec<Page>> {
    let mut found = Vec::new();
    gather(&root(), false, &mut found)?;
    gather(&root().join("docs"), true, &mut found)?;
    found.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(found)
}

fn gather(folder: &Path, deeper: bool, found: &mut Vec<Page>) -> Result<()> {
    let read = || format!("read {}", folder.display());
    for entry in std::fs::read_dir(folder).with_context(read)? {
        let path = entry.with_context(read)?.path();
        if deeper && path.is_dir() {
            gather(&path, true, found)?;
        } else if path.extension().is_some_and(|ending| ending == "md") {
            let text = std::fs::read_to_string(&path)
                .with_context(|| format!("read {}", path.display()))?;
            found.push(Page::of(path, &text));
        }
    }
    Ok(())
}

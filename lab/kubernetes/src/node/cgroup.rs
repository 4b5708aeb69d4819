//! The cgroups below which a node's pods are.

use crate::node::wait_for;
use anyhow::{Context as _, Result};
use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

/// The trees of cgroups: one for each controller with version 1, and version 2's.
fn roots() -> Result<Vec<PathBuf>> {
    let top = Path::new("/sys/fs/cgroup");
    let mut roots = vec![top.to_owned()];
    for entry in fs::read_dir(top).with_context(|| format!("list {}", top.display()))? {
        let path = entry.with_context(|| format!("list {}", top.display()))?.path();
        // Controllers' other names are links.
        if path.join("cgroup.procs").is_file() && !path.is_symlink() {
            roots.push(path);
        }
    }
    roots.retain(|root| root.join("cgroup.procs").is_file());
    Ok(roots)
}

/// Makes a cgroup in every tree.
pub(super) fn make(name: &str) -> Result<()> {
    for root in roots()? {
        let path = root.join(name);
        fs::create_dir_all(&path).with_context(|| format!("make {}", path.display()))?;
        // With version 1 a new one has no processors until it is told which.
        for file in ["cpuset.cpus", "cpuset.mems"] {
            let (from, to) = (root.join(file), path.join(file));
            if to.is_file() && from.is_file() {
                let text = fs::read(&from).with_context(|| format!("read {}", from.display()))?;
                fs::write(&to, text).with_context(|| format!("write {}", to.display()))?;
            }
        }
    }
    Ok(())
}

/// Removes every cgroup whose name begins so, once nothing runs in it.
pub(super) fn remove(prefix: &str) -> Result<()> {
    for root in roots()? {
        for entry in fs::read_dir(&root).with_context(|| format!("list {}", root.display()))? {
            let path = entry.with_context(|| format!("list {}", root.display()))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with(prefix) && path.is_dir() {
                wait_for(PATIENCE, || remove_tree(&path))?;
            }
        }
    }
    Ok(())
}

/// A cgroup's files go with it; only its folders are removed, the deepest first.
fn remove_tree(path: &Path) -> Result<()> {
    for entry in fs::read_dir(path).with_context(|| format!("list {}", path.display()))? {
        let inner = entry.with_context(|| format!("list {}", path.display()))?.path();
        if inner.is_dir() {
            remove_tree(&inner)?;
        }
    }
    fs::remove_dir(path).with_context(|| format!("remove {}", path.display()))
}

const PATIENCE: Duration = Duration::from_secs(20);

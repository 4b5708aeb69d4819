//! The cgroups below which a node's pods are.

use crate::node::wait_for;
use anyhow::{Context as _, Result};
use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

/// The cgroup trees below `top`. Version 1 has one for each controller. With version 2, `top` is the only tree and
/// the folders in it are other cgroups.
fn roots(top: &Path) -> Result<Vec<PathBuf>> {
    let mut roots = vec![top.to_owned()];
    if top.join(CONTROLLERS).is_file() {
        return Ok(roots);
    }
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
    make_below(Path::new(TOP), name)
}

fn make_below(top: &Path, name: &str) -> Result<()> {
    for root in roots(top)? {
        hand_down(&root)?;
        let path = root.join(name);
        fs::create_dir_all(&path).with_context(|| format!("make {}", path.display()))?;
        // With version 1 a new cgroup has no processors until they are set.
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

/// Removes every cgroup with this name prefix after its last process has ended.
pub(super) fn remove(prefix: &str) -> Result<()> {
    remove_below(Path::new(TOP), prefix)
}

fn remove_below(top: &Path, prefix: &str) -> Result<()> {
    for root in roots(top)? {
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

/// With version 2, lets the cgroups below have the controllers that a kubelet asks for.
fn hand_down(root: &Path) -> Result<()> {
    let Ok(there) = fs::read_to_string(root.join(CONTROLLERS)) else { return Ok(()) };
    let path = root.join("cgroup.subtree_control");
    let given = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let has = |list: &str, name: &str| list.split_whitespace().any(|of| of == name);
    for name in NEEDED.iter().filter(|name| has(&there, name) && !has(&given, name)) {
        fs::write(&path, format!("+{name}"))
            .with_context(|| format!("hand the controller {name} down from {}", root.display()))?;
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

const TOP: &str = "/sys/fs/cgroup";
/// Version 2's own file.
const CONTROLLERS: &str = "cgroup.controllers";
const NEEDED: [&str; 6] = ["cpuset", "cpu", "io", "memory", "hugetlb", "pids"];
const PATIENCE: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    /// Folders as both versions have them; what the kernel makes in a new one is not there.
    fn top(files: &[&str]) -> tempfile::TempDir {
        let top = tempfile::tempdir().unwrap();
        for file in files {
            let path = top.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        top
    }

    #[test]
    fn with_version_2_others_cgroups_are_left_alone() {
        let files = ["cgroup.controllers", "cgroup.procs", "system.slice/cgroup.procs"];
        let top = top(&files);
        let control = top.path().join("cgroup.subtree_control");
        fs::write(top.path().join("cgroup.controllers"), "cpu memory rdma\n").unwrap();
        fs::write(&control, "cpu\n").unwrap();
        make_below(top.path(), "lab.node1").unwrap();
        assert_eq!(fs::read_to_string(&control).unwrap(), "+memory");
        assert!(top.path().join("lab.node1").is_dir());
        assert!(!top.path().join("system.slice/lab.node1").exists());
        remove_below(top.path(), "lab.").unwrap();
        assert!(!top.path().join("lab.node1").exists());
        assert!(top.path().join("system.slice").is_dir());
    }

    #[test]
    fn with_version_1_each_controller_has_one() {
        let top = top(&["cpu/cgroup.procs", "memory/cgroup.procs", "not-one/file"]);
        make_below(top.path(), "lab.node1").unwrap();
        let has = |of: &str| top.path().join(of).join("lab.node1").is_dir();
        assert_eq!(["cpu", "memory", "not-one"].map(has), [true, true, false]);
        remove_below(top.path(), "lab.").unwrap();
        assert_eq!(["cpu", "memory"].map(has), [false, false]);
    }
}

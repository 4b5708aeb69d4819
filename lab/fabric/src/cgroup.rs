//! The nodes' cgroups in the machine's tree of cgroup v2.
//!
//! Each node has one. Programs that enter the node join its child [`SYSTEM`], and a kubelet creates those of pods
//! beside it. With version 2 a cgroup that hands controllers down has no processes itself. Without trees of version 1 the
//! node's cgroup is the root of a cgroup namespace, in which all programs of the node are.

use crate::{FabricError, state::make_folder};
use nix::{
    errno::Errno,
    sys::statfs::{CGROUP2_SUPER_MAGIC, statfs},
    unistd::{AccessFlags, access},
};
use std::{
    fs, io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

/// Returns the start of the names of all cgroups of the lab in this state directory. Contains the name of the folder
/// above it, and a number that distinguishes labs of one name.
pub fn cgroup_prefix(state_dir: &Path) -> String {
    let folder = state_dir.parent().and_then(Path::file_name).unwrap_or_default();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    let label: String =
        folder.to_string_lossy().chars().map(|c| if is_plain(c) { c } else { '-' }).collect();
    // FNV-1a.
    let number =
        state_dir.as_os_str().as_bytes().iter().fold(0x811c_9dc5_u32, |hash, byte| {
            (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
        });
    format!("ferrule-lab.{label}.{number:08x}.")
}

/// Returns the root of cgroup v2 as the calling thread sees it. `None` on a machine without it, and if it is read-only.
pub(crate) fn root() -> Option<PathBuf> {
    root_below(Path::new(TOP))
}

/// True if version 1 has trees beside that of version 2. Runtimes then use this root for the membership of processes
/// only, and controllers are in the trees of version 1.
pub(crate) fn is_beside_version_1(root: &Path) -> bool {
    root != Path::new(TOP)
}

fn root_below(top: &Path) -> Option<PathBuf> {
    let is_root = |path: &PathBuf| {
        statfs(path).is_ok_and(|of| of.filesystem_type() == CGROUP2_SUPER_MAGIC)
            && access(path, AccessFlags::W_OK).is_ok()
    };
    [top.to_owned(), top.join(UNIFIED)].into_iter().find(is_root)
}

/// Creates a node's cgroup with the one for its programs.
pub(crate) fn create(cgroup: &Path) -> Result<(), FabricError> {
    make_folder(&cgroup.join(SYSTEM))
}

/// Moves the calling process, which has a single thread, into the cgroup for programs of a node.
pub(crate) fn join(cgroup: &Path) -> Result<(), FabricError> {
    join_itself(&cgroup.join(SYSTEM))
}

/// Moves the calling process, which has a single thread, into a cgroup.
pub(crate) fn join_itself(cgroup: &Path) -> Result<(), FabricError> {
    let path = cgroup.join(MEMBERS);
    fs::write(&path, "0").map_err(|cause| FabricError::File { action: "write", path, cause })
}

/// Removes a node's cgroup with those below it; absence is success. Waits for the end of processes that were killed.
pub(crate) fn remove(cgroup: &Path) -> Result<(), FabricError> {
    let until = Instant::now() + PATIENCE;
    loop {
        match remove_tree(cgroup) {
            Ok(()) => return Ok(()),
            Err(_) if !cgroup.exists() => return Ok(()),
            // A cgroup below can also vanish between the list and its removal.
            Err(_) if Instant::now() < until => thread::sleep(POLL),
            Err(cause) if is_in_use(&cause) => {
                let (path, pids) = (cgroup.to_owned(), members(cgroup));
                return Err(FabricError::CgroupInUse { path, pids });
            }
            Err(cause) => {
                let path = cgroup.to_owned();
                return Err(FabricError::File { action: "remove the cgroup", path, cause });
            }
        }
    }
}

/// Removes all cgroups whose names start with this.
pub(crate) fn remove_all(prefix: &str) -> Result<(), FabricError> {
    let Some(root) = root() else { return Ok(()) };
    for name in crate::state::folder_names(&root)? {
        let path = root.join(&name);
        if name.starts_with(prefix) && path.is_dir() {
            remove(&path)?;
        }
    }
    Ok(())
}

/// The kernel's files go with a cgroup; only its folders are removed, the deepest first.
fn remove_tree(path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(path)
}

fn is_in_use(cause: &io::Error) -> bool {
    cause.raw_os_error() == Some(Errno::EBUSY as i32)
}

/// The processes of a cgroup and of those below it.
fn members(path: &Path) -> Vec<i32> {
    let text = fs::read_to_string(path.join(MEMBERS)).unwrap_or_default();
    let own = text.lines().filter_map(|line| line.parse().ok());
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let folders = entries.map(|entry| entry.path()).filter(|path| path.is_dir());
    own.chain(folders.flat_map(|folder| members(&folder))).collect()
}

/// The folder with the cgroup trees.
pub(crate) const TOP: &str = "/sys/fs/cgroup";
/// Version 2's tree beside those of version 1.
pub(crate) const UNIFIED: &str = "unified";
/// The cgroup of a node's programs, below the node's.
const SYSTEM: &str = "system";
const MEMBERS: &str = "cgroup.procs";
const PATIENCE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labs_of_one_name_in_two_folders_have_different_cgroups() {
        let of = |dir: &str| cgroup_prefix(Path::new(dir));
        let (one, other) = (of("/run/one/web/fabric"), of("/run/other/web/fabric"));
        assert!(one.starts_with("ferrule-lab.web.") && one.ends_with('.'), "{one}");
        assert!(other.starts_with("ferrule-lab.web.") && one != other, "{one} {other}");
        assert!(of("/run/a b.c/fabric").starts_with("ferrule-lab.a-b-c."));
    }

    #[test]
    fn a_folder_of_another_file_system_is_no_root() {
        assert_eq!(root_below(&std::env::temp_dir()), None);
    }
}

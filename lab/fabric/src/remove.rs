//! Taking a lab down from its state directory alone.

use crate::{
    FabricError, Node,
    cgroup::{self, cgroup_prefix},
    namespace::{self, mounts},
    process,
    state::{State, delete_folder, folder_names},
};
use nix::mount::{MntFlags, umount2};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};

/// Objects that were found and removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Processes ended.
    pub processes: usize,
    /// Mounts taken away.
    pub mounts: usize,
}

/// Time limit for a lab's own processes to end by themselves.
const GRACE: Duration = Duration::from_secs(3);

pub(crate) fn remove(state_dir: &Path) -> Result<Removed, FabricError> {
    if !State::exists(state_dir) {
        return Ok(Removed::default());
    }
    let state = State::at(state_dir);
    let recorded = process::recorded(state_dir)?;
    process::end(&recorded, GRACE)?;
    let mut removed = Removed { processes: recorded.len(), mounts: 0 };
    for name in state.node_names()? {
        if let Some(spec) = state.node_spec(&name)? {
            removed.processes += Node::new(state.clone(), &name, spec).kill_all()?;
        }
    }
    let pins: Vec<PathBuf> =
        folder_names(&state.pins())?.iter().map(|pin| state.pins().join(pin)).collect();
    removed.processes += process::kill_in_namespaces(&process::inodes(&pins))?;
    // A courtesy: what cannot be done here happens when the namespace ends.
    let _ = detach_links(&state);
    removed.mounts = unmount_below(state_dir)?;
    // The state names every node that has one, but a killed lab can have lost the record of its last node.
    cgroup::remove_all(&cgroup_prefix(state_dir))?;
    delete_folder(state_dir)?;
    Ok(removed)
}

/// The mount namespace of an unrelated process can hold a copy of a pinned namespace. Without links that namespace
/// has no effect.
fn detach_links(state: &State) -> Result<(), FabricError> {
    let pin = state.vpc_pin();
    if !namespace::is_pinned(&pin) {
        return Ok(());
    }
    namespace::NamespaceSet::net("vpc", &pin).try_run(|| {
        let ports: Vec<String> = crate::router::observe()?.ports.into_keys().collect();
        crate::router::remove_ports(&ports)
    })
}

/// Unmounts everything below, so that deleting the folder can reach nothing but its own files.
fn unmount_below(folder: &Path) -> Result<usize, FabricError> {
    let mut unmounted = 0;
    // Each round removes the uppermost mount of the stack. The bound is fixed, because a mount that reappears must
    // not cause an endless loop.
    for _ in 0..ROUNDS {
        let found: Vec<PathBuf> = mounts()?
            .into_iter()
            .map(|mount| mount.path)
            .filter(|path| path.starts_with(folder))
            .collect();
        if found.is_empty() {
            return Ok(unmounted);
        }
        for path in found.into_iter().rev() {
            if umount2(&path, MntFlags::MNT_DETACH).is_ok() {
                unmounted += 1;
            }
        }
    }
    Err(FabricError::StateDir {
        path: folder.to_owned(),
        why: "something is still mounted below it".to_owned(),
    })
}

const ROUNDS: usize = 16;

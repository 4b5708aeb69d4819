//! The node's files, for a command that runs in a container.

use anyhow::{Context as _, Result, ensure};
use nix::unistd::{chdir, chroot};
use std::path::Path;

/// Makes the mount point of the node's files the root of this process. All paths of the command are the node's then.
///
/// The program itself is loaded already, and needs no other file of the node.
///
/// # Errors
/// The folder is not a node's root, or this process may not change its root.
pub(super) fn enter(root: &Path) -> Result<()> {
    if root == Path::new("/") {
        return Ok(());
    }
    let at = root.display();
    ensure!(
        root.join("proc/self/ns/net").exists(),
        "cannot use {at} as the node's root: it has no procfs; mount the node's `/` there with all mounts below it, as \
         `kubectl debug node/NODE` does at `/host`"
    );
    chroot(root).with_context(|| {
        format!(
            "cannot enter the node's root {at}; run this as user 0 in a privileged container with the node's network"
        )
    })?;
    chdir("/").with_context(|| format!("cannot enter the node's root {at}"))
}

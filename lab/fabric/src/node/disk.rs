//! The files of a node: the machine's tree under a separate root.
//!
//! The root is a small tmpfs into which the machine's top-level folders are bound. `/etc`, `/opt` and `/var` are
//! overlays. Mount points can be created in them, and changes there do not reach the machine. [`OWN_FOLDERS`] are
//! bound on top.
//!
//! With a separate root the node drops every other mount of the machine, also the pins of other namespaces.

use super::{Node, OWN_FOLDERS};
use crate::{
    FabricError, cgroup,
    enter::HOST_PROC_SYS_NET,
    namespace::{bind, bind_file, do_mount, forget_namespaces, make_private},
    state::make_folder,
};
use nix::{
    mount::{MntFlags, MsFlags, umount2},
    unistd::{chdir, pivot_root},
};
use std::{
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

impl Node {
    /// Runs in the node's fresh mount and network namespaces; afterwards `root` is `/`.
    pub(super) fn mount_disk(&self, root: &Path) -> Result<(), FabricError> {
        make_private()?;
        tmpfs(root, "mode=755")?;
        // Left out when a folder above it is bound into it.
        do_mount(None, root, None, MsFlags::MS_UNBINDABLE, None, "make unbindable")?;
        // Of its own, since an overlay takes no part of an unbindable mount.
        make_folder(&root.join(CHANGES))?;
        tmpfs(&root.join(CHANGES), "mode=700")?;
        for entry in machine_root()? {
            self.mirror(&entry, root)?;
        }
        for folder in OWN_FOLDERS {
            let target = below(root, folder);
            make_folder(&target)?;
            bind(&self.own_folder(folder), &target, false)?;
        }
        make_folder(&below(root, HOST_PROC_SYS_NET))?;
        bind(&self.boot_id_file(), &below(root, BOOT_ID), false)?;
        switch_root(root)?;
        forget_namespaces()
    }

    fn mirror(&self, entry: &Path, root: &Path) -> Result<(), FabricError> {
        let failed = |cause| FabricError::File { action: "mirror", path: entry.to_owned(), cause };
        let target = below(root, entry);
        let kind = entry.symlink_metadata().map_err(failed)?.file_type();
        if kind.is_symlink() {
            return fs::read_link(entry).and_then(|to| symlink(to, &target)).map_err(failed);
        }
        if !kind.is_dir() {
            return bind_file(entry, &target);
        }
        make_folder(&target)?;
        match entry.to_str() {
            Some("/run") => Ok(()),
            Some("/etc" | "/opt" | "/var") => overlay(entry, &target, root),
            Some("/sys") => self.sysfs(&target),
            _ => bind(entry, &target, true),
        }
    }

    /// A sysfs shows the links of the network namespace that mounted it.
    fn sysfs(&self, target: &Path) -> Result<(), FabricError> {
        let source = Some(Path::new("sysfs"));
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        do_mount(source, target, Some("sysfs"), flags, None, "mount a sysfs on")?;
        let (from, to) = (Path::new(cgroup::TOP), target.join("fs/cgroup"));
        if from.is_dir() && to.is_dir() {
            self.cgroups(from, &to)?;
        }
        bpffs(&target.join("fs/bpf"))
    }

    /// Mounts the node's cgroup as the root of version 2, beside the machine's trees of version 1.
    fn cgroups(&self, from: &Path, to: &Path) -> Result<(), FabricError> {
        let Some(root) = cgroup::root() else { return bind(from, to, true) };
        let own = root.join(self.cgroup_name());
        if !cgroup::is_beside_version_1(&root) {
            return bind(&own, to, false);
        }
        bind(from, to, true)?;
        bind(&own, &to.join(cgroup::UNIFIED), false)
    }
}

fn machine_root() -> Result<Vec<PathBuf>, FabricError> {
    let root = Path::new("/");
    let list = || -> io::Result<Vec<PathBuf>> {
        fs::read_dir(root)?.map(|entry| Ok(entry?.path())).collect()
    };
    list().map_err(|cause| FabricError::File { action: "list", path: root.to_owned(), cause })
}

fn below(root: &Path, inside: impl AsRef<Path>) -> PathBuf {
    root.join(inside.as_ref().strip_prefix("/").unwrap_or(inside.as_ref()))
}

fn tmpfs(target: &Path, options: &str) -> Result<(), FabricError> {
    let source = Some(Path::new("ferrule-lab"));
    do_mount(source, target, Some("tmpfs"), MsFlags::empty(), Some(options), "mount a tmpfs on")
}

/// The changes are in the root's tmpfs: an overlay cannot be on another overlay, such as a container's root.
fn overlay(lower: &Path, target: &Path, root: &Path) -> Result<(), FabricError> {
    let name = lower.strip_prefix("/").unwrap_or(lower);
    let (upper, work) =
        (root.join(CHANGES).join("upper").join(name), root.join(CHANGES).join("work").join(name));
    make_folder(&upper)?;
    make_folder(&work)?;
    let (lower, upper, work) = (lower.display(), upper.display(), work.display());
    let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
    let source = Some(Path::new("ferrule-lab"));
    do_mount(
        source,
        target,
        Some("overlay"),
        MsFlags::empty(),
        Some(&options),
        "mount an overlay on",
    )
}

/// Each mount is a file system of its own. Its pins end with the node's mount namespace, as those of a host end with a
/// boot. The mode is that of systemd's mount. The folder exists if the kernel has this file system.
fn bpffs(target: &Path) -> Result<(), FabricError> {
    if !target.is_dir() {
        return Ok(());
    }
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    let source = Some(Path::new("bpf"));
    do_mount(source, target, Some("bpf"), flags, Some("mode=700"), "mount a bpffs on")
}

fn switch_root(root: &Path) -> Result<(), FabricError> {
    let failed = |cause: nix::Error| FabricError::Mount {
        action: "switch the root to",
        path: root.to_owned(),
        cause: cause.into(),
    };
    let machine = root.join(".machine");
    make_folder(&machine)?;
    pivot_root(root, &machine).map_err(failed)?;
    chdir("/").map_err(failed)?;
    umount2("/.machine", MntFlags::MNT_DETACH).map_err(failed)?;
    fs::remove_dir("/.machine").map_err(|cause| FabricError::File {
        action: "delete",
        path: "/.machine".into(),
        cause,
    })
}

/// Folder for a node's changes in the folders that it overlays.
const CHANGES: &str = ".changes";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

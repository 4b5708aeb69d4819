//! Namespaces that live without a process: made by a thread, pinned by a bind mount, entered by
//! threads.

use crate::FabricError;
use nix::{
    errno::Errno,
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, setns, unshare},
    sys::statfs::{NSFS_MAGIC, statfs},
};
use serde::{Deserialize, Serialize};
use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
};

/// A set of namespaces that a thread or process can enter; what is `None` stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NamespaceSet {
    /// Its name in errors.
    pub(crate) name: String,
    /// The pin of the mount namespace.
    pub(crate) mnt: Option<PathBuf>,
    /// The pin of the UTS namespace.
    pub(crate) uts: Option<PathBuf>,
    /// The pin of the network namespace.
    pub(crate) net: Option<PathBuf>,
    /// The pin of the cgroup namespace.
    pub(crate) cgroup: Option<PathBuf>,
    /// The path of a network namespace within the mount namespace; entered last.
    pub(crate) pod: Option<PathBuf>,
}

impl NamespaceSet {
    /// A network namespace alone.
    pub(crate) fn net(name: &str, pin: &Path) -> Self {
        Self { name: name.to_owned(), net: Some(pin.to_owned()), ..Self::default() }
    }

    /// Enters with the calling thread, which must not have shared its file-system attributes by
    /// choice: they are unshared.
    pub(crate) fn enter(&self) -> Result<(), FabricError> {
        let failed =
            |cause| FabricError::Namespace { action: "enter", name: self.name.clone(), cause };
        let join = |file: &File, kind| setns(file, kind).map_err(io::Error::from);
        let open = |pin: &Option<PathBuf>| pin.as_ref().map(File::open).transpose();
        let (mnt, uts, net) = open(&self.mnt)
            .and_then(|mnt| Ok((mnt, open(&self.uts)?, open(&self.net)?)))
            .map_err(failed)?;
        let cgroup = open(&self.cgroup).map_err(failed)?;
        if let Some(mnt) = mnt {
            // The kernel refuses a new mount namespace to whom shares root and cwd with others.
            unshare(CloneFlags::CLONE_FS).map_err(io::Error::from).map_err(failed)?;
            join(&mnt, CloneFlags::CLONE_NEWNS).map_err(failed)?;
        }
        if let Some(uts) = uts {
            join(&uts, CloneFlags::CLONE_NEWUTS).map_err(failed)?;
        }
        if let Some(net) = net {
            join(&net, CloneFlags::CLONE_NEWNET).map_err(failed)?;
        }
        if let Some(cgroup) = cgroup {
            join(&cgroup, CloneFlags::CLONE_NEWCGROUP).map_err(failed)?;
        }
        let pod = open(&self.pod).map_err(failed)?;
        pod.map_or(Ok(()), |pod| join(&pod, CloneFlags::CLONE_NEWNET).map_err(failed))
    }

    /// Runs `task` on a thread of its own that has entered.
    pub(crate) fn run<T: Send>(&self, task: impl FnOnce() -> T + Send) -> Result<T, FabricError> {
        on_thread(|| self.enter().map(|()| task()))
    }

    /// As [`NamespaceSet::run`], for a task that can fail itself.
    pub(crate) fn try_run<T: Send>(
        &self,
        task: impl FnOnce() -> Result<T, FabricError> + Send,
    ) -> Result<T, FabricError> {
        self.run(task)?
    }
}

/// Runs `task` on a thread of its own, whose namespaces end with it.
pub(crate) fn on_thread<T: Send>(task: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| match scope.spawn(task).join() {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// Type of the namespace that a pin holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Network.
    Net,
    /// Mount.
    Mnt,
    Uts,
}

impl Kind {
    /// Its file under `/proc/PID/ns`.
    pub(crate) fn file(self) -> &'static str {
        match self {
            Self::Net => "net",
            Self::Mnt => "mnt",
            Self::Uts => "uts",
        }
    }

    fn flag(self) -> CloneFlags {
        match self {
            Self::Net => CloneFlags::CLONE_NEWNET,
            Self::Mnt => CloneFlags::CLONE_NEWNS,
            Self::Uts => CloneFlags::CLONE_NEWUTS,
        }
    }
}

/// Makes new namespaces, runs `set_up` in them, and pins them if that worked.
pub(crate) fn create<T: Send>(
    name: &str,
    pins: &[(Kind, PathBuf)],
    set_up: impl FnOnce() -> Result<T, FabricError> + Send,
) -> Result<T, FabricError> {
    let failed = |action| {
        let name = name.to_owned();
        move |cause: nix::Error| FabricError::Namespace { action, name, cause: cause.into() }
    };
    let flags = pins.iter().fold(CloneFlags::empty(), |flags, (kind, _)| flags | kind.flag());
    let (ready, wait_ready) = mpsc::channel();
    let (pinned, wait_pinned) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let create_failed = failed("create");
        let maker = scope.spawn(move || {
            unshare(flags).map_err(create_failed)?;
            let value = set_up()?;
            // The main thread binds what this one holds; it may end only afterwards.
            let _ = ready.send(nix::unistd::gettid());
            let _ = wait_pinned.recv();
            Ok(value)
        });
        let outcome = match wait_ready.recv() {
            Ok(thread) => pins.iter().try_for_each(|(kind, pin)| {
                let source = format!("/proc/self/task/{thread}/ns/{}", kind.file());
                bind_file(Path::new(&source), pin)
            }),
            Err(mpsc::RecvError) => Ok(()),
        };
        drop(pinned);
        let made = match maker.join() {
            Ok(made) => made,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        if outcome.is_err() {
            for (_, pin) in pins {
                unpin(pin)?;
            }
        }
        outcome.and(made)
    })
}

/// True if a pin holds a namespace.
pub(crate) fn is_pinned(pin: &Path) -> bool {
    statfs(pin).is_ok_and(|fs| fs.filesystem_type() == NSFS_MAGIC)
}

/// Lets go of a pinned namespace; absence is success.
pub(crate) fn unpin(pin: &Path) -> Result<(), FabricError> {
    while is_pinned(pin) {
        umount2(pin, MntFlags::MNT_DETACH).map_err(|cause| FabricError::Mount {
            action: "unmount",
            path: pin.to_owned(),
            cause: cause.into(),
        })?;
    }
    match fs::remove_file(pin) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
            Err(FabricError::File { action: "delete", path: pin.to_owned(), cause })
        }
        _ => Ok(()),
    }
}

/// The number that identifies the namespace of a pin, as in `net:[4026531840]`.
pub(crate) fn inode(pin: &Path) -> Option<u64> {
    is_pinned(pin).then(|| fs::metadata(pin).ok()).flatten().map(|pin| pin.ino())
}

/// Binds a file on an empty file that is made for it.
pub(crate) fn bind_file(source: &Path, target: &Path) -> Result<(), FabricError> {
    File::create(target).map_err(|cause| FabricError::File {
        action: "create",
        path: target.to_owned(),
        cause,
    })?;
    bind(source, target, false)
}

/// Binds `source` on `target`, with what is mounted below when `deep`.
pub(crate) fn bind(source: &Path, target: &Path, deep: bool) -> Result<(), FabricError> {
    let flags = if deep { MsFlags::MS_BIND | MsFlags::MS_REC } else { MsFlags::MS_BIND };
    do_mount(Some(source), target, None, flags, None, "bind on")
}

/// Cuts the calling thread's mount namespace off from the one it was copied from.
pub(crate) fn make_private() -> Result<(), FabricError> {
    let flags = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    do_mount(None, Path::new("/"), None, flags, None, "make private")
}

/// `mount(2)`; the error contains the attempted action.
pub(crate) fn do_mount(
    source: Option<&Path>,
    target: &Path,
    fstype: Option<&str>,
    flags: MsFlags,
    data: Option<&str>,
    action: &'static str,
) -> Result<(), FabricError> {
    mount(source, target, fstype, flags, data).map_err(|cause| FabricError::Mount {
        action,
        path: target.to_owned(),
        cause: cause.into(),
    })
}

/// One line of `mountinfo`.
pub(crate) struct MountPoint {
    pub(crate) path: PathBuf,
    /// The file system's type.
    pub(crate) fstype: String,
}

/// Mounts of the calling thread's mount namespace, in the order of mounting.
pub(crate) fn mounts() -> Result<Vec<MountPoint>, FabricError> {
    let path = Path::new("/proc/thread-self/mountinfo");
    let text = fs::read_to_string(path).map_err(|cause| FabricError::File {
        action: "read",
        path: path.to_owned(),
        cause,
    })?;
    Ok(text.lines().filter_map(mount_point).collect())
}

fn mount_point(line: &str) -> Option<MountPoint> {
    let (before, after) = line.split_once(" - ")?;
    let path = PathBuf::from(unescape(before.split(' ').nth(4)?));
    Some(MountPoint { path, fstype: after.split(' ').next()?.to_owned() })
}

/// The kernel writes space, tab, newline and backslash as `\040` and so on.
fn unescape(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

/// Drops the calling thread's copies of pinned namespaces: a mount namespace that keeps them would
/// keep pods and nodes alive that were deleted.
pub(crate) fn forget_namespaces() -> Result<(), FabricError> {
    for mount in mounts()?.into_iter().rev().filter(|mount| mount.fstype == "nsfs") {
        match umount2(&mount.path, MntFlags::MNT_DETACH) {
            // The owner of the pin, perhaps another lab, has deleted it since the listing. The kernel removes a
            // deleted file's mounts everywhere.
            Ok(()) | Err(Errno::ENOENT | Errno::EINVAL) => {}
            Err(cause) => {
                return Err(FabricError::Mount {
                    action: "unmount",
                    path: mount.path,
                    cause: cause.into(),
                });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_read_with_their_escapes() {
        let line = "42 27 0:4 net:[4026532291] /run/a\\040b rw shared:1 - nsfs nsfs rw";
        let mount = mount_point(line).expect("a mount point");
        assert_eq!((mount.path.as_path(), mount.fstype.as_str()), (Path::new("/run/a b"), "nsfs"));
    }
}

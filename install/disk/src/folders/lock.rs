//! The lock of the installers of one node.

use crate::InstallError;
use nix::fcntl::OFlag;
use std::{
    fs::{self, File, OpenOptions, Permissions, TryLockError},
    io,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

/// A locked file. The kernel releases the lock when the process exits.
///
/// A process locks a file that it can open. The networks' folder can be opened by everybody, this file by root only.
pub(super) struct Lock {
    path: PathBuf,
    _file: File,
}

impl Lock {
    /// Locks the file of this folder, without waiting.
    pub(super) fn take(folder: &Path) -> Result<Self, InstallError> {
        let path = folder.join(LOCK_FILE);
        loop {
            let file =
                open(&path).map_err(|cause| InstallError::NoLock { path: path.clone(), cause })?;
            match file.try_lock() {
                Ok(()) if is_at(&file, &path) => return Ok(Self { path, _file: file }),
                // The previous owner has removed the file since it was opened.
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(InstallError::Locked { path }),
                Err(TryLockError::Error(cause)) => {
                    return Err(InstallError::NoLock { path, cause });
                }
            }
        }
    }

    /// Removes the file. The lock stays with the file that other processes may have open.
    pub(super) fn remove(&self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(false).mode(MODE);
    let file = options.custom_flags(OFlag::O_NOFOLLOW.bits()).open(path)?;
    if file.metadata()?.mode() & 0o7777 != MODE {
        file.set_permissions(Permissions::from_mode(MODE))?;
    }
    Ok(file)
}

fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(ours), Ok(there)) = (file.metadata(), fs::symlink_metadata(path)) else { return false };
    (ours.dev(), ours.ino()) == (there.dev(), there.ino())
}

/// Runtimes read names with other endings, without a leading dot.
pub(super) const LOCK_FILE: &str = ".ferrule.lock";
const MODE: u32 = 0o600;

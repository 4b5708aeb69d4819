//! The few verbs that change a folder, so that a test can end between any two.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Write as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
};

/// The operations on a disk.
pub trait Disk {
    /// An empty file, for its owner alone, in place of one that has its name.
    ///
    /// # Errors
    /// When there can be none.
    fn create(&self, path: &Path) -> io::Result<File>;

    ///
    /// # Errors
    /// When some of the bytes may not be there.
    fn append(&self, file: &mut File, bytes: &[u8]) -> io::Result<()>;

    /// Sets who may do what.
    ///
    /// # Errors
    /// When it stays as it was.
    fn set_mode(&self, file: &File, mode: u32) -> io::Result<()>;

    /// Makes a file durable.
    ///
    /// # Errors
    /// When it may not be.
    fn sync(&self, file: &File) -> io::Result<()>;

    /// Renames, in place of what has the new name.
    ///
    /// # Errors
    /// When it keeps its name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// When it is still there, or was not.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes the names of a folder durable.
    ///
    /// # Errors
    /// When they may not be.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;
}

/// The machine's own disk.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn create(&self, path: &Path) -> io::Result<File> {
        // A leftover could be a link to another place.
        match fs::remove_file(path) {
            Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
            Ok(()) | Err(_) => {}
        }
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
    }

    fn append(&self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        file.write_all(bytes)
    }

    fn set_mode(&self, file: &File, mode: u32) -> io::Result<()> {
        // By itself: what `open` is given loses the bits of the umask.
        file.set_permissions(Permissions::from_mode(mode))
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }
}

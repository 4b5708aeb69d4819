//! The folder of the file: few enough verbs that a test can carry them out too, and cut the power between any two.

use super::OpenError;
use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

/// What is done with the folder. Nothing is durable before it is synced: neither a file's bytes nor the folder's names.
pub(crate) trait Folder: Send + 'static {
    /// A file that is written.
    type File: Written;

    /// All of a file; an error also when there is none.
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;

    /// An empty file of that name, in place of one that has it.
    fn create(&self, name: &str) -> io::Result<Self::File>;

    /// Gives the file another name, at once and in place of one that has it.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Takes a file away.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes the names durable.
    fn sync(&self) -> io::Result<()>;

    /// How people find a file of it.
    fn path(&self, name: &str) -> PathBuf;
}

/// A file that is written to its end.
pub(crate) trait Written: Send + 'static {
    /// Appends; after an error some of the bytes may be there.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Makes all that was appended durable.
    fn sync(&mut self) -> io::Result<()>;
}

/// A folder on disk; holds a lock against a second agent.
#[derive(Debug)]
pub(crate) struct DiskFolder {
    path: PathBuf,
    _lock: Flock<File>,
}

impl DiskFolder {
    /// Makes the folder if need be and locks it.
    pub(crate) fn open(path: &Path) -> Result<Self, OpenError> {
        let disk = |attempt, path: &Path| {
            let path = path.to_owned();
            move |cause| OpenError::Disk { attempt, path, cause }
        };
        fs::create_dir_all(path).map_err(disk("create folder", path))?;
        if let Some(above) = path.parent() {
            File::open(above).and_then(|above| above.sync_all()).map_err(disk("sync", above))?;
        }
        let lock = path.join(LOCK);
        let file = private().create(true).truncate(false).open(&lock);
        let file = file.map_err(disk("open", &lock))?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(Self { path: path.to_owned(), _lock: lock }),
            Err((_, Errno::EWOULDBLOCK)) => Err(OpenError::InUse { folder: path.to_owned() }),
            Err((_, errno)) => Err(disk("lock", &lock)(errno.into())),
        }
    }
}

impl Folder for DiskFolder {
    type File = File;

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        fs::read(self.path.join(name))
    }

    fn create(&self, name: &str) -> io::Result<File> {
        private().create(true).truncate(true).open(self.path.join(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Written for File {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options
}

const LOCK: &str = "lock";

use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};
use thiserror::Error;

/// What is done with the folder. Nothing is durable before it is synced: neither a
/// file's bytes nor the folder's names.
pub trait Folder: Clone + Send + 'static {
    /// A file that is written.
    type File: Written;

    /// All of a file.
    ///
    /// # Errors
    /// Also when there is none.
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;

    /// An empty file of that name, in place of one that has it.
    ///
    /// # Errors
    /// When there can be none.
    fn create(&self, name: &str) -> io::Result<Self::File>;

    /// An empty file of a name that nothing has yet.
    ///
    /// # Errors
    /// Also when something has it.
    fn create_new(&self, name: &str) -> io::Result<Self::File>;

    /// Gives the file another name, at once and in place of one that has it.
    ///
    /// # Errors
    /// When it keeps its name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Takes a file away.
    ///
    /// # Errors
    /// Also when there is none.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes the names durable.
    ///
    /// # Errors
    /// When they may not be.
    fn sync(&self) -> io::Result<()>;

    /// How people find a file of it.
    fn path(&self, name: &str) -> PathBuf;
}

/// A file that is written to its end.
pub trait Written: Send + 'static {
    /// Appends.
    ///
    /// # Errors
    /// When some of the bytes may not be there.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Makes all that was appended durable.
    ///
    /// # Errors
    /// When it may not be.
    fn sync(&mut self) -> io::Result<()>;
}

/// Why a program's folder cannot be used.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Another process has it.
    #[error("{} is in use by another process", folder.display())]
    InUse {
        /// The folder.
        folder: PathBuf,
    },
    /// The disk refuses.
    #[error("{attempt} {}", path.display())]
    Disk {
        /// What was tried.
        attempt: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        #[source]
        cause: io::Error,
    },
}

/// A folder on disk; holds a lock against a second process for as long as a clone of it lives.
#[derive(Clone, Debug)]
pub struct DiskFolder {
    path: PathBuf,
    _lock: Arc<Flock<File>>,
}

impl DiskFolder {
    /// Makes the folder if need be, durably, and locks it.
    ///
    /// # Errors
    /// When another process has it, or the disk refuses.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let disk = |attempt, path: &Path| {
            let path = path.to_owned();
            move |cause| OpenError::Disk { attempt, path, cause }
        };
        create_durably(path).map_err(disk("create folder", path))?;
        let lock = path.join(LOCK);
        let file = private().create(true).truncate(false).open(&lock);
        let file = file.map_err(disk("open", &lock))?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(held) => Ok(Self { path: path.to_owned(), _lock: Arc::new(held) }),
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

    fn create_new(&self, name: &str) -> io::Result<File> {
        private().create_new(true).open(self.path.join(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync(&self) -> io::Result<()> {
        sync_folder(&self.path)
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

/// Makes a folder and those above it where they are missing, such that they outlive a loss of
/// power: a folder is durable when the one that names it has been synced.
///
/// # Errors
/// When the disk refuses.
pub fn create_durably(folder: &Path) -> io::Result<()> {
    let mut made = Vec::new();
    let mut level = Some(folder);
    while let Some(path) = level.filter(|path| !path.as_os_str().is_empty() && !path.is_dir()) {
        made.push(path);
        level = path.parent();
    }
    fs::create_dir_all(folder)?;
    for path in made.iter().rev() {
        let above = path.parent().filter(|above| !above.as_os_str().is_empty());
        sync_folder(above.unwrap_or_else(|| Path::new(".")))?;
    }
    Ok(())
}

fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options
}

const LOCK: &str = "lock";

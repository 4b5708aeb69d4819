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

/// The operations on a folder. A file's bytes and the folder's names are durable only after their sync.
pub trait Folder: Clone + Send + 'static {
    /// A file that is open for appending.
    type File: Written;

    /// Reads a whole file.
    ///
    /// # Errors
    /// Also if the file does not exist.
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;

    /// Creates an empty file and replaces one of the same name.
    ///
    /// # Errors
    /// If the file cannot be created.
    fn create(&self, name: &str) -> io::Result<Self::File>;

    /// Renames a file atomically and replaces one of the new name.
    ///
    /// # Errors
    /// If the file keeps its name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Gives the file a second name.
    ///
    /// # Errors
    /// Also if the second name exists.
    fn link(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// Also if the file does not exist.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes the names durable.
    ///
    /// # Errors
    /// If they may not be durable.
    fn sync(&self) -> io::Result<()>;

    /// The path of a file, for messages.
    fn path(&self, name: &str) -> PathBuf;
}

/// A file that is open for appending.
pub trait Written: Send + 'static {
    /// Appends bytes.
    ///
    /// # Errors
    /// If some of the bytes may be missing.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Makes all appended bytes durable.
    ///
    /// # Errors
    /// If they may not be durable.
    fn sync(&mut self) -> io::Result<()>;
}

/// The reason why a folder cannot be used.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Another process has locked it.
    #[error("cannot lock {}: another process uses it", folder.display())]
    InUse { folder: PathBuf },
    #[error("cannot {attempt} {}", path.display())]
    Disk {
        /// Verb and object, such as `create folder`.
        attempt: &'static str,
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
}

/// A locked folder on disk. The lock excludes other processes until the last clone is dropped.
#[derive(Clone, Debug)]
pub struct DiskFolder {
    path: PathBuf,
    _lock: Arc<Flock<File>>,
}

impl DiskFolder {
    /// Creates the folder durably if it does not exist, and locks it.
    ///
    /// # Errors
    /// If another process has locked it, or the disk refuses.
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

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn link(&self, from: &str, to: &str) -> io::Result<()> {
        fs::hard_link(self.path.join(from), self.path.join(to))
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

/// Creates a folder and its missing parents such that they outlive a power cut: a folder is durable after its
/// parent has been synced.
///
/// # Errors
/// If the disk refuses.
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

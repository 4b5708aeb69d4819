//! Bytes on disk: append and sync, or replace the whole atomically.

use super::frame::{self, Damage, Recovered};
use ipamd_core::{Checkpoint, Record};
use nix::fcntl::{Flock, FlockArg};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

/// Where durable bytes go.
pub trait Journal: Send + 'static {
    /// Appends. On return the bytes outlive this process; with `sync` also a loss of power, and all
    /// that was appended before with them. After an error nothing is known of the end of the file,
    /// and [`Journal::replace`] comes next.
    ///
    /// # Errors
    /// When the bytes may not be there.
    fn append(&mut self, bytes: &[u8], sync: bool) -> io::Result<()>;

    /// Replaces everything; after a crash either the old or the new bytes are there.
    ///
    /// # Errors
    /// When the new bytes may not be durable.
    fn replace(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// How many bytes there are.
    fn size(&self) -> usize;
}

/// The checkpoint file; holds a lock against a second daemon for as long as it lives.
#[derive(Debug)]
pub struct FileJournal {
    folder: PathBuf,
    file: File,
    size: usize,
    _lock: Flock<File>,
}

/// A checkpoint that was opened.
#[derive(Debug)]
pub struct Opened {
    /// Where to write on.
    pub journal: FileJournal,
    /// What the records add up to.
    pub checkpoint: Checkpoint,
    /// Whether there was a checkpoint at all.
    pub found: bool,
    /// What was wrong with it, and where the damaged file is kept.
    pub damage: Option<(Damage, Option<PathBuf>)>,
}

/// Why the checkpoint cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error("another daemon uses {}", folder.display())]
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

impl FileJournal {
    /// Opens, reads, and brings the file into its shortest form.
    ///
    /// # Errors
    /// When another daemon has it, or the disk refuses. A damaged file is no error: it is kept
    /// aside, what can be read of it counts, and the damage is told.
    pub fn open(folder: &Path) -> Result<Opened, OpenError> {
        let disk = |attempt, path: &Path| {
            let path = path.to_owned();
            move |cause| OpenError::Disk { attempt, path, cause }
        };
        fs::create_dir_all(folder).map_err(disk("create folder", folder))?;
        let lock = lock(folder)?;
        let path = folder.join(FILE);
        let (bytes, found) = match fs::read(&path) {
            Ok(bytes) => (bytes, true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => (Vec::new(), false),
            Err(e) => return Err(disk("read", &path)(e)),
        };
        let Recovered { records, damage } = frame::decode(&bytes);
        let damage = match damage {
            None => None,
            Some(torn @ Damage::TornTail { .. }) => Some((torn, None)),
            Some(worse @ (Damage::Corrupt { .. } | Damage::Foreign)) => {
                let aside = keep_aside(folder, &bytes).map_err(disk("keep aside", &path))?;
                Some((worse, Some(aside)))
            }
        };
        let checkpoint = Checkpoint::replay(records);
        let compact = image(&checkpoint.compact());
        let file = replace(folder, &compact).map_err(disk("write", &path))?;
        let journal = Self { folder: folder.to_owned(), file, size: compact.len(), _lock: lock };
        Ok(Opened { journal, checkpoint, found, damage })
    }
}

impl Journal for FileJournal {
    fn append(&mut self, bytes: &[u8], sync: bool) -> io::Result<()> {
        self.file.write_all(bytes)?;
        if sync {
            self.file.sync_data()?;
        }
        self.size += bytes.len();
        Ok(())
    }

    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file = replace(&self.folder, bytes)?;
        self.size = bytes.len();
        Ok(())
    }

    fn size(&self) -> usize {
        self.size
    }
}

/// A whole file of these records.
pub(crate) fn image(records: &[Record]) -> Vec<u8> {
    let mut bytes = frame::HEADER.to_vec();
    records.iter().for_each(|record| frame::encode(record, &mut bytes));
    bytes
}

fn lock(folder: &Path) -> Result<Flock<File>, OpenError> {
    let path = folder.join(LOCK);
    let file = private().create(true).truncate(false).open(&path);
    let file =
        file.map_err(|cause| OpenError::Disk { attempt: "open", path: path.clone(), cause })?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| {
        if errno == nix::errno::Errno::EWOULDBLOCK {
            OpenError::InUse { folder: folder.to_owned() }
        } else {
            OpenError::Disk { attempt: "lock", path, cause: errno.into() }
        }
    })
}

fn replace(folder: &Path, bytes: &[u8]) -> io::Result<File> {
    let (new, path) = (folder.join(NEW), folder.join(FILE));
    let mut file = private().create(true).truncate(true).open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, &path)?;
    File::open(folder)?.sync_all()?;
    Ok(file)
}

fn keep_aside(folder: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
    for number in 1.. {
        let path = folder.join(format!("{FILE}.damaged-{number}"));
        match private().create_new(true).open(&path) {
            Ok(mut file) => {
                file.write_all(bytes)?;
                file.sync_all()?;
                File::open(folder)?.sync_all()?;
                return Ok(path);
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && number < DAMAGED_MAX => {}
            Err(e) => return Err(e),
        }
    }
    unreachable!("the loop above returns")
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options
}

const FILE: &str = "checkpoint.log";
const NEW: &str = "checkpoint.new";
const LOCK: &str = "lock";
/// As many damaged files are kept; then a person should have looked.
const DAMAGED_MAX: u32 = 100;

//! Bytes on disk: append and sync, or replace the whole atomically.

use super::{
    folder::{DiskFolder, Folder, Written as _},
    frame::{self, Damage, Recovered},
};
use ipamd_core::{Checkpoint, Record};
use std::{
    io,
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

/// The checkpoint file.
#[derive(Debug)]
pub struct FileJournal<F: Folder = DiskFolder> {
    folder: F,
    file: F::File,
    size: usize,
}

/// A checkpoint that was opened.
#[derive(Debug)]
pub struct Opened<J = FileJournal> {
    /// Where to write on.
    pub journal: J,
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
        Self::open_in(DiskFolder::open(folder)?)
    }
}

impl<F: Folder> FileJournal<F> {
    /// The same in a folder that is ours already.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn open_in(folder: F) -> Result<Opened<Self>, OpenError> {
        let path = folder.path(FILE);
        let disk = |attempt| {
            let path = path.clone();
            move |cause| OpenError::Disk { attempt, path, cause }
        };
        let (bytes, found) = match folder.read(FILE) {
            Ok(bytes) => (bytes, true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => (Vec::new(), false),
            Err(e) => return Err(disk("read")(e)),
        };
        let Recovered { records, damage } = frame::decode(&bytes);
        let damage = match damage {
            None => None,
            Some(torn @ Damage::TornTail { .. }) => Some((torn, None)),
            Some(worse @ (Damage::Corrupt { .. } | Damage::Foreign)) => {
                let aside = keep_aside(&folder, &bytes).map_err(disk("keep aside"))?;
                Some((worse, Some(aside)))
            }
        };
        let checkpoint = Checkpoint::replay(records);
        let compact = image(&checkpoint.compact());
        let file = replace(&folder, &compact).map_err(disk("write"))?;
        let journal = Self { folder, file, size: compact.len() };
        Ok(Opened { journal, checkpoint, found, damage })
    }
}

impl<F: Folder> Journal for FileJournal<F> {
    fn append(&mut self, bytes: &[u8], sync: bool) -> io::Result<()> {
        self.file.append(bytes)?;
        if sync {
            self.file.sync()?;
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

fn replace<F: Folder>(folder: &F, bytes: &[u8]) -> io::Result<F::File> {
    let mut file = folder.create(NEW)?;
    file.append(bytes)?;
    file.sync()?;
    folder.rename(NEW, FILE)?;
    folder.sync()?;
    Ok(file)
}

fn keep_aside<F: Folder>(folder: &F, bytes: &[u8]) -> io::Result<PathBuf> {
    for number in 1.. {
        let name = format!("{FILE}.damaged-{number}");
        match folder.create_new(&name) {
            Ok(mut file) => {
                file.append(bytes)?;
                file.sync()?;
                folder.sync()?;
                return Ok(folder.path(&name));
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && number < DAMAGED_MAX => {}
            Err(e) => return Err(e),
        }
    }
    unreachable!("the loop above returns")
}

const FILE: &str = "checkpoint.log";
const NEW: &str = "checkpoint.new";
/// As many damaged files are kept; then a person should have looked.
const DAMAGED_MAX: u32 = 100;

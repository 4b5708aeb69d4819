//! Bytes on disk: append and sync, or replace the whole atomically.

use ipamd_core::{
    Checkpoint, Record,
    frame::{self, Damage, Recovered},
};
use runtime_journal::{DiskFolder, Folder, OpenError, Written as _};
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

/// A checkpoint that was read, and is still as it was.
#[derive(Debug)]
pub struct Opened<F: Folder = DiskFolder> {
    folder: F,
    /// What the records add up to.
    pub checkpoint: Checkpoint,
    /// Whether there was a checkpoint at all.
    pub found: bool,
    /// What was wrong with it.
    pub damage: Option<Damage>,
    bytes: Vec<u8>,
}

impl Opened {
    /// Opens and reads.
    ///
    /// # Errors
    /// When another daemon has it, or the disk refuses. A damaged file is no error: what can be read
    /// of it counts, and the damage is told.
    pub fn at(folder: &Path) -> Result<Self, OpenError> {
        Self::within(DiskFolder::open(folder)?)
    }
}

impl<F: Folder> Opened<F> {
    /// The same in a folder that is ours already.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn within(folder: F) -> Result<Self, OpenError> {
        let (bytes, found) = match folder.read(FILE) {
            Ok(bytes) => (bytes, true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => (Vec::new(), false),
            Err(cause) => {
                return Err(OpenError::Disk { attempt: "read", path: folder.path(FILE), cause });
            }
        };
        let none = Recovered { records: Vec::new(), damage: None };
        let Recovered { records, damage } = if found { frame::decode(&bytes) } else { none };
        let checkpoint = Checkpoint::replay(records);
        Ok(Self { folder, checkpoint, found, damage, bytes })
    }

    /// Whether the checkpoint tells of every pod. If not, it stays as it is until
    /// [`Opened::begin`]: who crashes before has lost nothing.
    pub fn is_trusted(&self) -> bool {
        self.found && self.damage.is_none()
    }

    /// Writes the file in its shortest form, with what is known by now. One that is damaged is kept
    /// aside; tells where.
    ///
    /// # Errors
    /// When the disk refuses; then it may be tried again.
    pub fn begin(
        &self,
        checkpoint: &Checkpoint,
    ) -> Result<(FileJournal<F>, Option<PathBuf>), OpenError> {
        let disk = |attempt| {
            let path = self.folder.path(FILE);
            move |cause| OpenError::Disk { attempt, path, cause }
        };
        let aside = match self.damage {
            Some(Damage::Corrupt { .. } | Damage::Foreign) => {
                Some(keep_aside(&self.folder, &self.bytes).map_err(disk("keep aside"))?)
            }
            Some(Damage::TornTail { .. }) | None => None,
        };
        let bytes = image(&checkpoint.compact());
        let file = replace(&self.folder, &bytes).map_err(disk("write"))?;
        Ok((FileJournal { folder: self.folder.clone(), file, size: bytes.len() }, aside))
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

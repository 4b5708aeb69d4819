//! The checkpoint: the state of the address book that survives this process.
//!
//! A record is *durable* if it outlives this process, and also a power cut where `Record::outlives_the_boot` requires
//! that. A reply or a cloud call that depends on a record leaves only after the record is durable.
//!
//! One write carries all records that arrived during the write before, so a burst of ADDs costs a few syncs. The file
//! is compacted from time to time. The checkpoint is a hint at start: the core compares it with EC2 and the kernel.

mod writer;

pub use ipamd_core::frame::{Damage, HEADER, decode, encode};
pub use ipamd_node::Durable;
pub use runtime_journal::{DiskFolder, Folder, Journal, OpenError, Written, create_durably};
pub use writer::{Progress, Writer};

use ipamd_core::{Checkpoint, Record};
use runtime_journal::Layout;
use std::path::{Path, PathBuf};

/// A checkpoint that was read. The file is unchanged until [`Opened::rewrite`].
#[derive(Debug)]
pub struct Opened<F: Folder = DiskFolder> {
    /// The journal accepts records after [`Opened::rewrite`].
    pub journal: Journal<Record, F>,
    /// The sum of its records.
    pub checkpoint: Checkpoint,
    /// The file existed.
    pub found: bool,
    /// Records around the damage still count.
    pub damage: Option<Damage>,
}

impl Opened {
    /// Locks the folder and reads the checkpoint.
    ///
    /// # Errors
    /// If another daemon uses the folder, or the disk refuses. A damaged file is not an error.
    pub fn at(folder: &Path) -> Result<Self, OpenError> {
        Self::within(DiskFolder::open(folder)?)
    }
}

impl<F: Folder> Opened<F> {
    /// Reads the checkpoint in a folder that is locked already.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn within(folder: F) -> Result<Self, OpenError> {
        let runtime_journal::Opened { journal, records, found, damage } =
            Journal::open(folder, LAYOUT)?;
        Ok(Self { journal, checkpoint: Checkpoint::replay(records), found, damage })
    }

    /// The checkpoint lists every pod. If not, the daemon finds the pods elsewhere before it rewrites the file: a crash
    /// in between loses nothing.
    pub fn is_trusted(&self) -> bool {
        self.found && self.damage.is_none()
    }

    /// Writes the file in its shortest form. Returns the path at which a damaged file was kept aside.
    ///
    /// # Errors
    /// If the disk refuses. It may be tried again.
    pub fn rewrite(&mut self, checkpoint: &Checkpoint) -> Result<Option<PathBuf>, OpenError> {
        let path = self.journal.path();
        let written = self.journal.rewrite(&checkpoint.compact());
        written.map_err(|cause| OpenError::Disk { attempt: "write", path, cause })
    }
}

const LAYOUT: Layout = Layout { name: "checkpoint", short: 256 * 1024 };

#[cfg(test)]
mod tests;

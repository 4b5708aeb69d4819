//! Records to a journal, and their sum, from which the journal can be written anew.

use super::journal::{Journal, image};
use ipamd_core::{Checkpoint, Record, frame};
use std::io;

/// A journal and what its records add up to.
#[derive(Debug)]
pub(crate) struct Ledger<J> {
    journal: J,
    sum: Checkpoint,
    compacted: usize,
}

impl<J: Journal> Ledger<J> {
    /// `sum` is what the journal's records add up to.
    pub(crate) fn new(journal: J, sum: Checkpoint) -> Self {
        let compacted = journal.size();
        Self { journal, sum, compacted }
    }

    /// Appends the batch, and syncs it if one of its records must outlive the machine's power.
    /// Its records count in the sum either way.
    ///
    /// # Errors
    /// When it may not be there; [`Ledger::rewrite`] comes next.
    pub(crate) fn append(&mut self, batch: &[Record]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for record in batch {
            frame::encode(record, &mut bytes);
            self.sum.apply(record);
        }
        self.journal.append(&bytes, needs_sync(batch))
    }

    /// Writes the journal anew in its shortest form.
    ///
    /// # Errors
    /// When the old form may still be there.
    pub(crate) fn rewrite(&mut self) -> io::Result<()> {
        let bytes = image(&self.sum.compact());
        self.journal.replace(&bytes)?;
        self.compacted = bytes.len();
        Ok(())
    }

    /// Whether the journal has grown so far beyond its shortest form that writing it anew costs
    /// each record since only a constant.
    pub(crate) fn is_long(&self) -> bool {
        self.journal.size() > COMPACT_FLOOR.max(self.compacted.saturating_mul(COMPACT_FACTOR))
    }
}

/// Whether a batch must be on disk before anything that follows from it is told.
pub(crate) fn needs_sync(batch: &[Record]) -> bool {
    batch.iter().any(Record::outlives_the_boot)
}

const COMPACT_FLOOR: usize = 256 * 1024;
const COMPACT_FACTOR: usize = 4;

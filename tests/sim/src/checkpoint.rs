//! The disk: what is on its way, what outlives the process, what outlives the power.
//!
//! It holds records where the daemon's file holds their frames; that a torn frame is noticed and
//! only the tail is lost is the daemon's own test.

use crate::dice::Rng;
use config_model::{EniId, PodKey};
use ipamd_core::{Checkpoint, Record};
use std::collections::BTreeSet;

/// The file.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    records: Vec<Record>,
    /// How many of them outlive a loss of power.
    synced: usize,
    /// The write under way: it is in the file when it is done, or all of it never.
    writing: Option<Vec<Record>>,
    /// What the synced records promise.
    promised: Promised,
    /// Whether there was ever a file.
    pub(crate) exists: bool,
}

/// What may leave the process once it is on disk.
#[derive(Debug, Default)]
struct Promised {
    reserved: BTreeSet<PodKey>,
    asked: BTreeSet<String>,
    leaving: BTreeSet<EniId>,
}

/// After so many records the file is replaced by the shortest with the same meaning.
const COMPACT_ABOVE: usize = 400;

impl Disk {
    pub(crate) fn begin(&mut self, batch: Vec<Record>) {
        self.writing = Some(batch);
        self.exists = true;
    }

    /// The write is done; how many records it had.
    pub(crate) fn done(&mut self) -> u64 {
        let Some(batch) = self.writing.take() else { return 0 };
        let count = batch.len() as u64;
        let sync = batch.iter().any(Record::outlives_the_boot);
        self.records.extend(batch);
        if sync {
            self.sync();
        }
        if self.records.len() > COMPACT_ABOVE {
            self.records = Checkpoint::replay(self.records.drain(..)).compact();
            self.synced = self.records.len();
        }
        count
    }

    fn sync(&mut self) {
        for record in &self.records[self.synced.min(self.records.len())..] {
            self.promised.take_in(record);
        }
        self.synced = self.records.len();
    }

    /// The process is gone: what it was writing is there, or is not.
    pub(crate) fn process_died(&mut self, rng: &mut Rng) {
        if let Some(batch) = self.writing.take()
            && rng.percent(50)
        {
            self.records.extend(batch);
        }
    }

    /// The power is gone: what was not synced is there as far as some record.
    pub(crate) fn power_lost(&mut self, rng: &mut Rng) {
        self.process_died(rng);
        let unsynced = self.records.len().saturating_sub(self.synced) as u64;
        let kept = usize::try_from(rng.between(0, unsynced)).unwrap_or(0);
        self.records.truncate(self.synced + kept);
        self.synced = self.records.len();
    }

    /// What a new process reads.
    pub(crate) fn read(&mut self) -> Checkpoint {
        // Whoever opens the file syncs it.
        self.sync();
        Checkpoint::replay(self.records.iter().cloned())
    }

    /// Whether a power cut now would leave word that the key has these addresses.
    pub(crate) fn knows_reserved(&self, key: &PodKey) -> bool {
        self.promised.reserved.contains(key)
    }

    /// Whether a power cut now would leave word of the ENI that was asked for with this token.
    pub(crate) fn knows_asked(&self, token: &str) -> bool {
        self.promised.asked.contains(token)
    }

    /// Whether a power cut now would leave word that the ENI is on its way out.
    pub(crate) fn knows_leaving(&self, eni: &EniId) -> bool {
        self.promised.leaving.contains(eni)
    }
}

impl Promised {
    fn take_in(&mut self, record: &Record) {
        match record {
            Record::Reserved { key, .. }
            | Record::ReservedV6 { key, .. }
            | Record::ReservedBranch { key, .. } => {
                self.reserved.insert(key.clone());
            }
            Record::EniAsked { token, .. } => {
                self.asked.insert(token.clone());
            }
            Record::EniLeaving { eni } => {
                self.leaving.insert(eni.clone());
            }
            _ => {}
        }
    }
}

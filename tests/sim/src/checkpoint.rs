//! The disk: data under way, data that survives the process, data that survives a power loss.
//!
//! It holds records instead of their frames. The daemon's own tests cover torn frames.

use crate::random::Rng;
use config_model::{EniId, PodKey};
use ipamd_core::{Checkpoint, Record};
use std::collections::BTreeSet;

/// The checkpoint file.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    records: Vec<Record>,
    /// The number of records that survive a power loss.
    synced: usize,
    /// The write under way. It is in the file completely or not at all.
    writing: Option<Vec<Record>>,
    /// The guarantees of the synced records.
    promised: Guarantees,
    /// True once the file has existed.
    pub(crate) exists: bool,
}

/// The facts on which replies and calls may depend.
#[derive(Debug, Default)]
struct Guarantees {
    reserved: BTreeSet<PodKey>,
    asked: BTreeSet<String>,
    leaving: BTreeSet<EniId>,
}

/// The number of records after which the file is replaced by its compaction.
const COMPACT_ABOVE: usize = 400;

impl Disk {
    pub(crate) fn begin(&mut self, batch: Vec<Record>) {
        self.writing = Some(batch);
        self.exists = true;
    }

    /// Ends the write and returns the number of its records.
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

    /// Ends the process: the write under way is in the file, or is not.
    pub(crate) fn process_died(&mut self, rng: &mut Rng) {
        if let Some(batch) = self.writing.take()
            && rng.percent(50)
        {
            self.records.extend(batch);
        }
    }

    /// Ends the power: unsynced records survive up to a random one.
    pub(crate) fn power_lost(&mut self, rng: &mut Rng) {
        self.process_died(rng);
        let unsynced = self.records.len().saturating_sub(self.synced) as u64;
        let kept = usize::try_from(rng.between(0, unsynced)).unwrap_or(0);
        self.records.truncate(self.synced + kept);
        // The next process may depend on the records that survived.
        self.sync();
    }

    /// Reads the file at the start of a process.
    pub(crate) fn read(&mut self) -> Checkpoint {
        // Opening the file syncs it.
        self.sync();
        Checkpoint::replay(self.records.iter().cloned())
    }

    /// Returns whether the reservation would survive a power loss now.
    pub(crate) fn knows_reserved(&self, key: &PodKey) -> bool {
        self.promised.reserved.contains(key)
    }

    /// Returns whether the request for an ENI with this token would survive a power loss now.
    pub(crate) fn knows_asked(&self, token: &str) -> bool {
        self.promised.asked.contains(token)
    }

    /// Returns whether the removal of the ENI would survive a power loss now.
    pub(crate) fn knows_leaving(&self, eni: &EniId) -> bool {
        self.promised.leaving.contains(eni)
    }
}

impl Guarantees {
    fn take_in(&mut self, record: &Record) {
        match record {
            Record::Reserved { key, .. }
            | Record::ReservedV6 { key, .. }
            | Record::ReservedCidr { key, .. }
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

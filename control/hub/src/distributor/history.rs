//! Changes of each object that has a history, as far back as a node may need them.

use control_wire::{Entry, ObjectId};
use std::collections::{BTreeMap, VecDeque};

/// Bound on the history of all objects together, in bytes. An object whose history was dropped is sent whole.
const KEPT_BYTES: usize = 32 << 20;

#[derive(Debug, Default)]
pub(crate) struct History {
    objects: BTreeMap<ObjectId, Past>,
    /// The changes of all objects in the order of their generations.
    order: VecDeque<(u64, ObjectId)>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Past {
    /// All changes after this generation are present.
    since: u64,
    changes: VecDeque<(u64, Entry)>,
}

impl History {
    pub(crate) fn add(&mut self, object: &ObjectId, generation: u64, entry: Entry) {
        self.bytes += entry.len();
        self.order.push_back((generation, object.clone()));
        let past = self.objects.entry(object.clone()).or_default();
        past.changes.push_back((generation, entry));
        while self.bytes > KEPT_BYTES {
            self.drop_oldest();
        }
    }

    /// Starts the history of a new object, which no node has yet.
    pub(crate) fn begin(&mut self, object: &ObjectId, generation: u64) {
        self.end(object);
        self.objects.insert(object.clone(), Past { since: generation, changes: VecDeque::new() });
    }

    /// Drops the history of a removed object.
    pub(crate) fn end(&mut self, object: &ObjectId) {
        if let Some(past) = self.objects.remove(object) {
            self.bytes -= past.changes.iter().map(|(_, entry)| entry.len()).sum::<usize>();
        }
    }

    /// Returns all changes of an object after a generation. `None` if the object has no history or some of them were
    /// dropped: the object is sent whole then.
    pub(crate) fn after(&self, object: &ObjectId, generation: u64) -> Option<Vec<Entry>> {
        let past = self.objects.get(object).filter(|past| past.since <= generation)?;
        let after = past.changes.iter().filter(|(of, _)| *of > generation);
        Some(after.map(|(_, entry)| entry.clone()).collect())
    }

    /// Drops the changes up to this generation, which no node needs.
    pub(crate) fn forget(&mut self, upto: u64) {
        while self.order.front().is_some_and(|(of, _)| *of <= upto) {
            self.drop_oldest();
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn drop_oldest(&mut self) {
        let Some((generation, object)) = self.order.pop_front() else { return };
        let Some(past) = self.objects.get_mut(&object) else { return };
        // Another object of the same id may have started since.
        while past.changes.front().is_some_and(|(of, _)| *of <= generation) {
            if let Some((of, entry)) = past.changes.pop_front() {
                self.bytes -= entry.len();
                past.since = past.since.max(of);
            }
        }
    }
}

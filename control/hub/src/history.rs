//! Changes of each address group, as far back as a node may need them.

use control_wire::Entry;
use policy_core::index::GroupId;
use std::collections::{BTreeMap, VecDeque};

/// Bound on the history of all groups together, in bytes. A group whose history was dropped is sent whole.
pub(crate) const KEPT_BYTES: usize = 32 << 20;

#[derive(Debug, Default)]
pub(crate) struct History {
    groups: BTreeMap<GroupId, Past>,
    /// In which order the changes came.
    order: VecDeque<(u64, GroupId)>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Past {
    /// Changes after this generation are all here.
    since: u64,
    changes: VecDeque<(u64, Entry)>,
}

impl History {
    /// A group changed.
    pub(crate) fn add(&mut self, group: GroupId, generation: u64, entry: Entry) {
        self.bytes += entry.len();
        self.order.push_back((generation, group));
        self.groups.entry(group).or_default().changes.push_back((generation, entry));
        while self.bytes > KEPT_BYTES {
            self.drop_oldest();
        }
    }

    /// Starts the history of a new group, which no node has yet.
    pub(crate) fn begin(&mut self, group: GroupId, generation: u64) {
        self.end(group);
        self.groups.insert(group, Past { since: generation, changes: VecDeque::new() });
    }

    /// A group is gone.
    pub(crate) fn end(&mut self, group: GroupId) {
        if let Some(past) = self.groups.remove(&group) {
            self.bytes -= past.changes.iter().map(|(_, entry)| entry.len()).sum::<usize>();
        }
    }

    /// All that changed of a group after a generation; `None` if that is no longer known.
    pub(crate) fn after(&self, group: GroupId, generation: u64) -> Option<Vec<Entry>> {
        let Some(past) = self.groups.get(&group) else { return Some(Vec::new()) };
        let after = past.changes.iter().filter(|(of, _)| *of > generation);
        (past.since <= generation).then(|| after.map(|(_, entry)| entry.clone()).collect())
    }

    /// No node needs what is not after this generation.
    pub(crate) fn forget(&mut self, upto: u64) {
        while self.order.front().is_some_and(|(of, _)| *of <= upto) {
            self.drop_oldest();
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn drop_oldest(&mut self) {
        let Some((generation, group)) = self.order.pop_front() else { return };
        let Some(past) = self.groups.get_mut(&group) else { return };
        // Another group of the same id may have started since.
        while past.changes.front().is_some_and(|(of, _)| *of <= generation) {
            if let Some((of, entry)) = past.changes.pop_front() {
                self.bytes -= entry.len();
                past.since = past.since.max(of);
            }
        }
    }
}

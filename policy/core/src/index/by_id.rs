//! Groups by their ids.

use super::{
    delta::GroupId,
    groups::Group,
    table::{Mark, Seed, Table},
};
use hashbrown::HashTable;

#[derive(Debug)]
pub(super) struct ById {
    found: HashTable<(Mark, u32)>,
    seed: Seed,
}

impl ById {
    pub(super) fn new(seed: u64) -> Self {
        Self { found: HashTable::new(), seed: Seed::new(seed) }
    }

    pub(super) fn loaded(&mut self, groups: &Table<Group>) {
        self.found = HashTable::with_capacity(groups.len());
        groups.ids().for_each(|group| self.insert(groups[group].id, group));
    }

    pub(super) fn insert(&mut self, id: GroupId, group: u32) {
        let mark = self.seed.hash(id);
        self.found.insert_unique(mark.spread(), (mark, group), |(mark, _)| mark.spread());
    }

    pub(super) fn remove(&mut self, id: GroupId, group: u32) {
        let spread = self.seed.hash(id).spread();
        if let Ok(found) = self.found.find_entry(spread, |(_, other)| *other == group) {
            found.remove();
        }
    }

    pub(super) fn find(&self, groups: &Table<Group>, id: GroupId) -> Option<u32> {
        let is = |(_, group): &(Mark, u32)| groups[*group].id == id;
        self.found.find(self.seed.hash(id).spread(), is).map(|(_, group)| *group)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.found.len()
    }
}

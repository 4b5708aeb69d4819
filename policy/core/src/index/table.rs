//! Values by number: each once, counted by its users, its number given to another when nobody is left.

use hashbrown::HashTable;
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    ops,
};

/// What a value is found by.
pub(super) trait Keyed {
    /// The part that no other value of the table has.
    type Key<'a>: Hash + Eq
    where
        Self: 'a;

    fn key(&self) -> Self::Key<'_>;
}

impl Keyed for Box<str> {
    type Key<'a> = &'a str;

    fn key(&self) -> &str {
        self
    }
}

#[derive(Debug)]
struct Slot<T> {
    value: Option<T>,
    uses: u32,
}

/// Nothing iterates over the hash table, so its order is nobody's; the seed keeps those who choose names
/// from choosing them so that they collide.
#[derive(Debug)]
pub(super) struct Table<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    found: HashTable<u32>,
    seed: u64,
}

pub(super) fn hash(seed: u64, key: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write_u64(seed);
    key.hash(&mut hasher);
    hasher.finish()
}

impl<T: Keyed> Table<T> {
    pub(super) fn new(seed: u64) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), found: HashTable::new(), seed }
    }

    pub(super) fn find<'a>(&'a self, key: T::Key<'a>) -> Option<u32> {
        let hash = hash(self.seed, &key);
        self.found.find(hash, |id| self[*id].key() == key).copied()
    }

    /// The number of the value that has this one's key, which may not be there yet.
    pub(super) fn intern(&mut self, value: T) -> u32 {
        match self.find(value.key()) {
            Some(id) => id,
            None => self.insert(value),
        }
    }

    /// A value whose key is not there.
    pub(super) fn insert(&mut self, value: T) -> u32 {
        let (slots, seed) = (&mut self.slots, self.seed);
        let at = hash(seed, value.key());
        let slot = Slot { value: Some(value), uses: 0 };
        let id = match self.free.pop() {
            Some(id) => {
                slots[id as usize] = slot;
                id
            }
            None => {
                slots.push(slot);
                number(slots.len() - 1)
            }
        };
        let key = |id: &u32| slots[*id as usize].value.as_ref().map_or(0, |v| hash(seed, v.key()));
        self.found.insert_unique(at, id, key);
        id
    }

    pub(super) fn hold(&mut self, id: u32) -> u32 {
        self.slots[id as usize].uses += 1;
        id
    }

    /// One user less; the value, if it was the last.
    pub(super) fn release(&mut self, id: u32) -> Option<T> {
        let slot = &mut self.slots[id as usize];
        slot.uses = slot.uses.saturating_sub(1);
        if slot.uses == 0 { self.remove(id) } else { None }
    }

    pub(super) fn get(&self, id: u32) -> Option<&T> {
        self.slots.get(id as usize)?.value.as_ref()
    }

    /// Whether there is one user alone.
    pub(super) fn is_last(&self, id: u32) -> bool {
        self.slots[id as usize].uses <= 1
    }

    /// The value, whoever uses it.
    pub(super) fn remove(&mut self, id: u32) -> Option<T> {
        let value = self.slots[id as usize].value.take()?;
        let hash = hash(self.seed, value.key());
        if let Ok(entry) = self.found.find_entry(hash, |found| *found == id) {
            entry.remove();
        }
        self.free.push(id);
        Some(value)
    }

    /// Numbers of all values.
    pub(super) fn ids(&self) -> impl Iterator<Item = u32> + use<T> {
        let there: Vec<u32> = (0..number(self.slots.len()))
            .filter(|id| self.slots[*id as usize].value.is_some())
            .collect();
        there.into_iter()
    }

    pub(super) fn len(&self) -> usize {
        self.found.len()
    }
}

impl<T> ops::Index<u32> for Table<T> {
    type Output = T;

    fn index(&self, id: u32) -> &T {
        self.slots[id as usize].value.as_ref().expect("a number is held as long as it is used")
    }
}

impl<T> ops::IndexMut<u32> for Table<T> {
    fn index_mut(&mut self, id: u32) -> &mut T {
        self.slots[id as usize].value.as_mut().expect("a number is held as long as it is used")
    }
}

/// Tables end at 2³² values.
pub(super) fn number(length: usize) -> u32 {
    u32::try_from(length).expect("no cluster has four thousand million objects")
}

//! Numbered values: each is stored once with a count of its users. A number without users is reused.

use foldhash::{SharedSeed, quality::FoldHasher};
use hashbrown::HashTable;
use std::{
    hash::{Hash, Hasher},
    ops,
};

/// Key of a value in the table.
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
    mark: Mark,
}

/// Seed against deliberate hash collisions by users who choose names. All input of the hasher besides the key
/// comes from it.
#[derive(Clone, Debug)]
pub(super) struct Seed {
    own: u64,
    shared: SharedSeed,
}

/// Digits of the golden ratio: no seed that anybody would choose is this.
const NOT_ZERO: u64 = 0x9e37_79b9_7f4a_7c15;

impl Seed {
    pub(super) fn new(seed: u64) -> Self {
        // The hasher starts with this value, and a start of zero makes its products zero.
        Self { own: seed.rotate_left(32) ^ NOT_ZERO, shared: SharedSeed::from_u64(seed) }
    }

    pub(super) fn hash(&self, key: impl Hash) -> Mark {
        let mut hasher = FoldHasher::with_seed(self.own, &self.shared);
        key.hash(&mut hasher);
        Mark((hasher.finish() >> 32) as u32)
    }
}

/// The half of a hash that is stored with a number. It distinguishes values, and the table grows, without access to
/// the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark(u32);

impl Mark {
    /// The whole that a hash table asks for.
    pub(super) fn spread(self) -> u64 {
        u64::from(self.0).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// Iteration over the hash table does not occur, so its order has no effect.
#[derive(Debug)]
pub(super) struct Table<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    found: HashTable<(Mark, u32)>,
    seed: Seed,
}

impl<T: Keyed> Table<T> {
    pub(super) fn find<'a>(&'a self, key: T::Key<'a>) -> Option<u32> {
        self.seek(key).ok()
    }

    /// The number of the value that has a key, or the key's mark, to insert it with.
    pub(super) fn seek<'a>(&'a self, key: T::Key<'a>) -> Result<u32, Mark> {
        let mark = self.mark(&key);
        let is = |(other, id): &(Mark, u32)| *other == mark && self[*id].key() == key;
        self.found.find(mark.spread(), is).map(|(_, id)| *id).ok_or(mark)
    }

    /// The number of the value that has this one's key, which may not be there yet.
    pub(super) fn intern(&mut self, value: T) -> u32 {
        match self.seek(value.key()) {
            Ok(id) => id,
            Err(mark) => self.insert_marked(mark, value),
        }
    }

    /// A value whose key is not there.
    pub(super) fn insert(&mut self, value: T) -> u32 {
        self.insert_marked(self.mark(value.key()), value)
    }
}

impl<T> Table<T> {
    pub(super) fn new(seed: u64) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), found: HashTable::new(), seed: Seed::new(seed) }
    }

    /// The mark of a key, in whatever words.
    pub(super) fn mark(&self, key: impl Hash) -> Mark {
        self.seed.hash(key)
    }

    /// The value of this mark that is meant.
    pub(super) fn find_marked(&self, mark: Mark, is: impl Fn(&T) -> bool) -> Option<u32> {
        let same = |(other, id): &(Mark, u32)| *other == mark && is(&self[*id]);
        self.found.find(mark.spread(), same).map(|(_, id)| *id)
    }

    /// A value whose key has this mark and is not there.
    pub(super) fn insert_marked(&mut self, mark: Mark, value: T) -> u32 {
        let slots = &mut self.slots;
        let slot = Slot { value: Some(value), uses: 0, mark };
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
        self.found.insert_unique(mark.spread(), (mark, id), |(mark, _)| mark.spread());
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

    /// True if the value has exactly one user.
    pub(super) fn is_last(&self, id: u32) -> bool {
        self.slots[id as usize].uses <= 1
    }

    /// Removes the value, independent of its users, and frees its number.
    pub(super) fn remove(&mut self, id: u32) -> Option<T> {
        let value = self.slots[id as usize].value.take()?;
        let mark = self.slots[id as usize].mark;
        if let Ok(entry) = self.found.find_entry(mark.spread(), |(_, found)| *found == id) {
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

//! Sorted sets that mostly have one item. A `BTreeSet` allocates a node of eleven items for it.

use service_objects::{ObjectName, Service, Slice};
use std::{cmp::Ordering, sync::Arc};

/// A sorted set without spare room.
#[derive(Clone, Debug)]
pub(super) struct Few<T>(Vec<T>);

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Ord> Few<T> {
    /// Adds an item, unless an equal one is in the set.
    pub(super) fn insert(&mut self, item: T) {
        if let Err(at) = self.0.binary_search(&item) {
            self.0.reserve_exact(1);
            self.0.insert(at, item);
        }
    }

    /// Returns true if the item was in the set.
    pub(super) fn remove(&mut self, item: &T) -> bool {
        let found = self.0.binary_search(item);
        found.map(|at| self.0.remove(at)).is_ok()
    }

    pub(super) fn first(&self) -> Option<&T> {
        self.0.first()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a, T> IntoIterator for &'a Few<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

/// An object that is sorted, and equal to another one, by its name alone.
#[derive(Clone, Debug)]
pub(super) struct ByName<T>(pub(super) Arc<T>);

pub(super) trait Named {
    fn name(&self) -> &ObjectName;
}

impl Named for Service {
    fn name(&self) -> &ObjectName {
        &self.name
    }
}

impl Named for Slice {
    fn name(&self) -> &ObjectName {
        &self.name
    }
}

impl<T: Named> PartialEq for ByName<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0.name() == other.0.name()
    }
}

impl<T: Named> Eq for ByName<T> {}

impl<T: Named> PartialOrd for ByName<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T: Named> Ord for ByName<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.name().cmp(other.0.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_sorted_and_unique_and_take_no_spare_room() {
        let mut few = Few::default();
        for item in [3, 1, 2, 1, 3] {
            few.insert(item);
            assert_eq!(few.0.capacity(), few.0.len());
        }
        assert_eq!(few.into_iter().copied().collect::<Vec<_>>(), [1, 2, 3]);
        assert!(few.remove(&1) && !few.remove(&1));
        assert_eq!(few.first(), Some(&2));
        assert!(few.remove(&2) && few.remove(&3) && few.is_empty());
    }
}

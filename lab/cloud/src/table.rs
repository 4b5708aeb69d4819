//! Objects by id that remember what they were.

use config_model::Time;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

/// Start of a change's visibility; `None` if earlier states cannot be read, so that the old value need not be kept.
pub(crate) type Stamp = Option<Time>;

/// The changes of an object, oldest first, each with what it was until then.
type History<V> = VecDeque<(Time, Option<Arc<V>>)>;

/// Objects as they are now, and what each was before its latest changes.
///
/// Looking and changing cost as much as in a `BTreeMap`, however many objects there are: only what
/// changed is kept twice.
#[derive(Debug)]
pub(crate) struct Table<K, V> {
    now: BTreeMap<K, Arc<V>>,
    before: BTreeMap<K, History<V>>,
    /// Changed objects, in the order of time.
    changed: VecDeque<(Time, K)>,
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self { now: BTreeMap::new(), before: BTreeMap::new(), changed: VecDeque::new() }
    }
}

impl<K: Ord + Clone, V: Clone> Table<K, V> {
    pub(crate) fn get(&self, id: &K) -> Option<&Arc<V>> {
        self.now.get(id)
    }

    pub(crate) fn contains_key(&self, id: &K) -> bool {
        self.now.contains_key(id)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Arc<V>> {
        self.now.values()
    }

    pub(crate) fn insert(&mut self, stamp: Stamp, id: K, object: V) {
        let old = self.now.insert(id.clone(), Arc::new(object));
        self.keep(stamp, id, old);
    }

    pub(crate) fn remove(&mut self, stamp: Stamp, id: &K) -> Option<Arc<V>> {
        let old = self.now.remove(id)?;
        self.keep(stamp, id.clone(), Some(Arc::clone(&old)));
        Some(old)
    }

    /// Changes an object, if it is there.
    pub(crate) fn change<R>(
        &mut self,
        stamp: Stamp,
        id: &K,
        change: impl FnOnce(&mut V) -> R,
    ) -> Option<R> {
        if stamp.is_some() {
            let old = Arc::clone(self.now.get(id)?);
            self.keep(stamp, id.clone(), Some(old));
        }
        self.now.get_mut(id).map(|object| change(Arc::make_mut(object)))
    }

    fn keep(&mut self, stamp: Stamp, id: K, old: Option<Arc<V>>) {
        let Some(at) = stamp else { return };
        let before = self.before.entry(id.clone()).or_default();
        // Of several changes at one time only the first has the value before them.
        if before.back().is_none_or(|(last, _)| *last != at) {
            before.push_back((at, old));
            self.changed.push_back((at, id));
        }
    }

    /// Deletes history that reads of `then` or later do not need.
    pub(crate) fn forget_before(&mut self, then: Time) {
        while let Some((_, id)) = self.changed.pop_front_if(|(at, _)| *at <= then) {
            if let Some(before) = self.before.get_mut(&id) {
                before.pop_front();
                if before.is_empty() {
                    self.before.remove(&id);
                }
            }
        }
    }

    pub(crate) fn forget_all(&mut self) {
        self.before.clear();
        self.changed.clear();
    }

    /// The objects as they were then: with all changes of that time, and none after it.
    pub(crate) fn at(&self, then: Option<Time>) -> TableView<'_, K, V> {
        TableView { table: self, then }
    }
}

/// A [`Table`] as it was; as it is if `then` is `None`.
#[derive(Debug)]
pub(crate) struct TableView<'a, K, V> {
    table: &'a Table<K, V>,
    then: Option<Time>,
}

impl<K, V> Clone for TableView<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for TableView<'_, K, V> {}

impl<'a, K: Ord + Clone, V: Clone> TableView<'a, K, V> {
    pub(crate) fn get(self, id: &K) -> Option<&'a Arc<V>> {
        match self.replaced(id) {
            Some(before) => before,
            None => self.table.now.get(id),
        }
    }

    /// The old value, if it has changed since.
    fn replaced(self, id: &K) -> Option<Option<&'a Arc<V>>> {
        let then = self.then?;
        let changes = self.table.before.get(id)?;
        let next = changes.partition_point(|(at, _)| *at <= then);
        changes.get(next).map(|(_, before)| before.as_ref())
    }

    pub(crate) fn contains_key(self, id: &K) -> bool {
        self.get(id).is_some()
    }

    /// In the order of their ids.
    pub(crate) fn values(self) -> impl Iterator<Item = &'a Arc<V>> {
        let mut present = self.table.now.iter().peekable();
        let mut past = self.then.map(|_| self.table.before.keys()).into_iter().flatten().peekable();
        std::iter::from_fn(move || {
            loop {
                let Some(id) = past.peek() else { return present.next().map(|(_, object)| object) };
                if let Some((_, object)) = present.next_if(|(other, _)| other < id) {
                    return Some(object);
                }
                let same = present.next_if(|(other, _)| other == id).map(|(_, object)| object);
                let before = self.replaced(id);
                past.next();
                if let Some(object) = before.unwrap_or(same) {
                    return Some(object);
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(table: &Table<u8, &'static str>, then: u64) -> Vec<&'static str> {
        let past = table.at(Some(Time(then)));
        let values: Vec<&str> = past.values().map(|object| **object).collect();
        let by_id: Vec<&str> =
            (0..9).filter_map(|id| past.get(&id)).map(|object| **object).collect();
        assert_eq!(values, by_id);
        values
    }

    #[test]
    fn the_past_stays_as_it_was() {
        let mut table = Table::default();
        table.insert(Some(Time(1)), 2, "a");
        table.insert(Some(Time(2)), 4, "b");
        table.insert(Some(Time(2)), 1, "c");
        table.change(Some(Time(3)), &2, |text| *text = "x");
        table.change(Some(Time(3)), &2, |text| *text = "y");
        table.remove(Some(Time(4)), &4);
        table.insert(Some(Time(5)), 4, "d");
        let all = [
            (0, vec![]),
            (1, vec!["a"]),
            (2, vec!["c", "a", "b"]),
            (3, vec!["c", "y", "b"]),
            (4, vec!["c", "y"]),
            (5, vec!["c", "y", "d"]),
        ];
        for (then, wanted) in all.clone() {
            assert_eq!(seen(&table, then), wanted, "{then}");
        }
        table.forget_before(Time(3));
        for (then, wanted) in all.into_iter().skip(3) {
            assert_eq!(seen(&table, then), wanted, "{then}");
        }
        table.forget_before(Time(9));
        assert!(table.before.is_empty() && table.changed.is_empty());
    }

    #[test]
    fn an_old_version_without_a_reader_is_dropped() {
        let mut table = Table::default();
        table.insert(None, 1, "a");
        table.change(None, &1, |text| *text = "b");
        assert_eq!(seen(&table, 0), ["b"]);
        assert!(table.before.is_empty());
    }
}

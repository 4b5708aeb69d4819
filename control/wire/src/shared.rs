//! A sorted map whose clones share their entries.

use rpds::RedBlackTreeMapSync;
use std::{borrow::Borrow, fmt, ops::Index};

/// A sorted map. A clone costs one reference count, and a change copies a path of logarithmic length. So a reader
/// that keeps the last snapshot does not make the next generation expensive.
#[derive(Clone, PartialEq, Eq)]
pub struct SharedMap<K: Ord, V>(RedBlackTreeMapSync<K, V>);

impl<K: Ord, V> SharedMap<K, V> {
    /// The value of a key.
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.0.get(key)
    }

    /// True if the map has a value for the key.
    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.0.contains_key(key)
    }

    /// Sets the value of a key.
    pub fn insert(&mut self, key: K, value: V) {
        self.0.insert_mut(key, value);
    }

    /// Removes a key; returns whether there was a value.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.0.remove_mut(key)
    }

    /// Removes the first key.
    pub fn pop_first(&mut self)
    where
        K: Clone,
    {
        if let Some(key) = self.0.first().map(|(key, _)| key.clone()) {
            self.0.remove_mut(&key);
        }
    }

    /// The entries in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter()
    }

    /// The keys in their order.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    /// The values in the order of their keys.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.0.size()
    }

    /// True if the map has no entry.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<K: Ord, V> Default for SharedMap<K, V> {
    fn default() -> Self {
        Self(RedBlackTreeMapSync::new_sync())
    }
}

impl<K: Ord + fmt::Debug, V: fmt::Debug> fmt::Debug for SharedMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for SharedMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut map = Self::default();
        map.extend(entries);
        map
    }
}

impl<K: Ord, V> Extend<(K, V)> for SharedMap<K, V> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        entries.into_iter().for_each(|(key, value)| self.insert(key, value));
    }
}

impl<'a, K: Ord, V> IntoIterator for &'a SharedMap<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = Box<dyn Iterator<Item = (&'a K, &'a V)> + 'a>;

    fn into_iter(self) -> Self::IntoIter {
        Box::new(self.iter())
    }
}

impl<K: Ord + Borrow<Q>, Q: Ord + ?Sized, V> Index<&Q> for SharedMap<K, V> {
    type Output = V;

    #[expect(
        clippy::expect_used,
        reason = "an index of a map panics without a value, as std's does"
    )]
    fn index(&self, key: &Q) -> &V {
        self.get(key).expect("no value for this key")
    }
}

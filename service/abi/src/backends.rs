//! Rows of backends, and the numbers of those that are present.

use crate::BackendRow;
use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    ops::Index,
};

/// The rows of backends, with their numbers as indices. The numbers start at 0 and are used again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backends {
    /// The last element is never `None`, so that equal rows have equal vectors.
    rows: Vec<Option<BackendRow>>,
}

impl Backends {
    pub fn get(&self, number: u32) -> Option<&BackendRow> {
        self.rows.get(number as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut BackendRow> {
        self.rows.get_mut(number as usize)?.as_mut()
    }

    pub fn insert(&mut self, number: u32, row: BackendRow) {
        let at = number as usize;
        if at >= self.rows.len() {
            self.rows.resize(at + 1, None);
        }
        self.rows[at] = Some(row);
    }

    pub fn remove(&mut self, number: u32) {
        if let Some(row) = self.rows.get_mut(number as usize) {
            *row = None;
        }
        let last = self.rows.iter().rposition(Option::is_some);
        self.rows.truncate(last.map_or(0, |last| last + 1));
    }

    /// The rows in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &BackendRow)> {
        (0..).zip(&self.rows).filter_map(|(number, row)| Some((number, row.as_ref()?)))
    }

    /// The rows of backends that were not removed.
    pub fn present(&self) -> impl Iterator<Item = (u32, &BackendRow)> {
        self.iter().filter(|(_, row)| row.is_present)
    }
}

impl Index<u32> for Backends {
    type Output = BackendRow;

    #[expect(clippy::expect_used, reason = "an index panics without a value, as std's does")]
    fn index(&self, number: u32) -> &BackendRow {
        self.get(number).expect("no row has this number")
    }
}

/// The numbers of present backends by address.
#[derive(Clone, Debug, Default)]
pub(crate) struct Numbers(BTreeMap<At, u32>);

/// A smaller key than a `SocketAddr`, which has room for a scope.
type At = (IpAddr, u16);

impl Numbers {
    /// The first of two present rows with one address has the entry.
    pub(crate) fn of(rows: &Backends) -> Self {
        let mut numbers = BTreeMap::new();
        for (number, row) in rows.present() {
            if let Some(at) = row.at {
                numbers.entry((at.ip(), at.port())).or_insert(number);
            }
        }
        Self(numbers)
    }

    pub(crate) fn get(&self, at: SocketAddr) -> Option<u32> {
        self.0.get(&(at.ip(), at.port())).copied()
    }

    pub(crate) fn insert(&mut self, at: SocketAddr, number: u32) {
        self.0.insert((at.ip(), at.port()), number);
    }

    /// Removes the number of an address, if it is this one.
    pub(crate) fn remove(&mut self, at: SocketAddr, number: u32) {
        if self.get(at) == Some(number) {
            self.0.remove(&(at.ip(), at.port()));
        }
    }
}

/// The uses of each backend by number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Uses(Vec<u32>);

impl Uses {
    pub(crate) fn has(&self, number: u32) -> bool {
        self.0.get(number as usize).is_some_and(|uses| *uses > 0)
    }

    pub(crate) fn begin(&mut self, number: u32) {
        let at = number as usize;
        if at >= self.0.len() {
            self.0.resize(at + 1, 0);
        }
        self.0[at] += 1;
    }

    pub(crate) fn end(&mut self, number: u32) {
        if let Some(uses) = self.0.get_mut(number as usize) {
            *uses = uses.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(last: u8) -> BackendRow {
        let at = SocketAddr::from(([10, 0, 0, last], 80));
        BackendRow { at: Some(at), is_present: true, life: 1 }
    }

    #[test]
    fn rows_are_equal_whatever_was_removed() {
        let mut rows = Backends::default();
        [0, 1, 5].into_iter().for_each(|number| rows.insert(number, row(1)));
        rows.remove(5);
        let mut fewer = Backends::default();
        [0, 1].into_iter().for_each(|number| fewer.insert(number, row(1)));
        assert_eq!(rows, fewer);
        rows.remove(0);
        rows.remove(9);
        assert_eq!(rows.iter().collect::<Vec<_>>(), [(1, &row(1))]);
        assert!(rows.get(0).is_none() && rows[1] == row(1));
    }

    #[test]
    fn each_present_address_has_one_number() {
        let mut rows = Backends::default();
        for (number, last) in (0..).zip([1, 2, 1, 2]) {
            rows.insert(number, row(last));
        }
        rows.insert(0, BackendRow { is_present: false, ..row(1) });
        let mut numbers = Numbers::of(&rows);
        let at = |last: u8| row(last).at.expect("an address");
        assert_eq!([1, 2, 3].map(|last| numbers.get(at(last))), [Some(2), Some(1), None]);
        // Another number has the address.
        numbers.remove(at(2), 3);
        assert_eq!(numbers.get(at(2)), Some(1));
        numbers.remove(at(2), 1);
        assert_eq!(numbers.get(at(2)), None);
    }
}

//! Numbers of tables and rules in the maps.

use crate::{
    bytes::{LargeTable, SmallTable},
    limits::{Full, Limits},
};
use std::collections::{BTreeMap, BTreeSet};

/// The numbers of tables and rules by content. A content keeps its number as long as it is in use. A number gets another
/// content only after two calls of [`Held::release`](crate::Held::release), because the kernel may still look up the earlier one.
#[derive(Clone, Debug)]
pub struct Numbers {
    pub(crate) small: Pool<SmallTable>,
    pub(crate) large: Pool<LargeTable>,
    pub(crate) rules: Pool<u64>,
}

#[derive(Clone, Debug)]
pub(crate) struct Pool<C> {
    map: &'static str,
    limit: u32,
    numbers: BTreeMap<C, u32>,
    /// The first number that was never used.
    next: u32,
    free: BTreeSet<u32>,
    /// Numbers that become free with the next call of `retain`.
    leaving: BTreeSet<u32>,
}

impl<C: Ord + Clone> Pool<C> {
    fn new(map: &'static str, limit: u32) -> Self {
        Self {
            map,
            limit,
            numbers: BTreeMap::new(),
            next: 0,
            free: BTreeSet::new(),
            leaving: BTreeSet::new(),
        }
    }

    /// The number of a content, a new one if it has none.
    pub(crate) fn number(&mut self, content: &C) -> Result<u32, Full> {
        if let Some(number) = self.numbers.get(content) {
            return Ok(*number);
        }
        let number = match self.free.pop_first() {
            Some(number) => number,
            None if self.next < self.limit => {
                self.next += 1;
                self.next - 1
            }
            None => {
                let (map, limit) = (self.map, self.limit);
                return Err(Full { map, limit, needed: limit.saturating_add(1) });
            }
        };
        self.numbers.insert(content.clone(), number);
        Ok(number)
    }

    /// A content that the kernel has already.
    pub(crate) fn observe(&mut self, content: C, number: u32) {
        self.free.extend(self.next..number);
        self.next = self.next.max(number + 1);
        self.free.remove(&number);
        self.numbers.insert(content, number);
    }

    fn retain(&mut self, used: &BTreeSet<u32>) {
        self.free.append(&mut self.leaving);
        let leaving = &mut self.leaving;
        self.numbers.retain(|_, number| {
            let is_used = used.contains(number);
            if !is_used {
                leaving.insert(*number);
            }
            is_used
        });
    }
}

impl Numbers {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            small: Pool::new("small_tables", limits.small_tables),
            large: Pool::new("large_tables", limits.large_tables),
            rules: Pool::new("rules", limits.rules),
        }
    }

    /// The same numbers, and as many others as are needed.
    pub(crate) fn without_limit(&self) -> Self {
        let mut numbers = self.clone();
        numbers.small.limit = u32::MAX;
        numbers.large.limit = u32::MAX;
        numbers.rules.limit = u32::MAX;
        numbers
    }

    /// The rows that a map needs for the numbers so far; 0 if it has no numbers.
    pub(crate) fn count(&self, map: &str) -> u32 {
        [
            (self.small.map, self.small.next),
            (self.large.map, self.large.next),
            (self.rules.map, self.rules.next),
        ]
        .into_iter()
        .find(|(of, _)| *of == map)
        .map_or(0, |(_, next)| next)
    }

    /// Releases the numbers of contents that are out of use.
    pub(crate) fn retain(
        &mut self,
        small: &BTreeSet<u32>,
        large: &BTreeSet<u32>,
        rules: &BTreeSet<u32>,
    ) {
        self.small.retain(small);
        self.large.retain(large);
        self.rules.retain(rules);
    }
}

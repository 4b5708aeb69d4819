//! Numbers that are not in use.

use std::collections::BTreeSet;

/// The free numbers below a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Free {
    /// Free numbers below `next`.
    returned: BTreeSet<u32>,
    /// All numbers from here to the limit are free.
    next: u32,
    limit: u32,
}

impl Free {
    pub(crate) fn new(used: &BTreeSet<u32>, limit: u32) -> Self {
        let next = used.last().map_or(0, |last| last + 1);
        Self { returned: (0..next).filter(|number| !used.contains(number)).collect(), next, limit }
    }

    pub(crate) fn len(&self) -> usize {
        self.returned.len() + self.limit.saturating_sub(self.next) as usize
    }

    /// The smallest free number.
    pub(crate) fn take(&mut self) -> Option<u32> {
        if let Some(number) = self.returned.pop_first() {
            return Some(number);
        }
        let number = self.next;
        (number < self.limit).then(|| {
            self.next += 1;
            number
        })
    }

    pub(crate) fn put(&mut self, number: u32) {
        self.returned.insert(number);
    }
}

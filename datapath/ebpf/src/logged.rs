//! Items that are logged once while they exist.

use std::collections::BTreeSet;

/// Returns the items to log now. `logged` has those of `present` that were logged, and these. Items beyond the limit follow
/// in later calls.
pub(crate) fn remember<T: Clone + Ord>(logged: &mut BTreeSet<T>, present: &BTreeSet<T>) -> Vec<T> {
    logged.retain(|item| present.contains(item));
    let new: Vec<T> = present.difference(logged).take(LOGGED).cloned().collect();
    logged.extend(new.iter().cloned());
    new
}

/// The number of items that one call returns at most.
const LOGGED: usize = 16;

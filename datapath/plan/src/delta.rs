//! The difference of two compilations.

use crate::{
    cut::{Address, Prefix},
    tables::{ClassId, SetId},
};
use std::collections::BTreeSet;

/// The keys of [`Tables`](crate::Tables) whose values may differ from those of the earlier compilation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delta {
    pub addresses: BTreeSet<Address>,
    pub prefixes: BTreeSet<Prefix>,
    pub services: BTreeSet<Address>,
    /// Sets that were added or removed, or whose table for addresses without a row differs.
    pub sets: BTreeSet<SetId>,
    /// Rows of sets by set, class and Service.
    pub rows: BTreeSet<(SetId, ClassId, u64)>,
    /// Pods that were added or removed, or that have other sets.
    pub pods: BTreeSet<String>,
}

impl Delta {
    /// True if both compilations are the same.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

//! The tables of a node.

use crate::{
    cut::{Address, Prefix},
    rules::RuleName,
    traffic::IntervalTable,
};
use std::{collections::BTreeMap, sync::Arc};

/// The class of an address. Class 0 is that of all addresses without a row: no peer of a rule matches them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(pub u64);

/// A policy set. Set 0 allows everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SetId(pub u64);

impl SetId {
    /// True if some of the set's rules name Services.
    pub fn names_services(self) -> bool {
        self.0 & 1 == 1
    }
}

/// An interval table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub u32);

/// Everything that a node's kernel looks up. The numbers of tables and rules are those of one compilation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    /// Classes of single addresses; they win over [`prefixes`](Self::prefixes).
    pub addresses: BTreeMap<Address, ClassId>,
    /// Classes of ranges; the longest prefix of an address wins. Without one the class is 0.
    pub prefixes: BTreeMap<Prefix, ClassId>,
    /// Classes of the Services' addresses: which rules about Services match a packet that was sent to one.
    pub services: BTreeMap<Address, u64>,
    /// Rows of the sets. Set 0 has none.
    pub sets: BTreeMap<SetId, SetRows>,
    /// Interval tables.
    pub tables: BTreeMap<TableId, Arc<IntervalTable>>,
    /// Names of the rules, by number.
    pub rules: Vec<RuleName>,
    /// The sets of each pod, by UID.
    pub pods: BTreeMap<String, PodSets>,
}

/// The rows of a set. A row that equals the one that is looked up instead is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetRows {
    /// For addresses whose class has no row.
    pub default: TableId,
    /// By the class of the other end and the class of the Service's address: 0 if no Service was asked for. Without the
    /// row of both, that of the class decides, and then that of the Service for class 0.
    pub rows: BTreeMap<(ClassId, u64), TableId>,
}

/// The sets of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodSets {
    pub ingress: SetId,
    pub egress: SetId,
    /// For packets of the pod that a Service leads back to it.
    pub hairpin_ingress: SetId,
    pub hairpin_egress: SetId,
}

impl PodSets {
    /// The sets in the order of a pod's row.
    pub fn all(&self) -> [SetId; 4] {
        let Self { ingress, egress, hairpin_ingress, hairpin_egress } = *self;
        [ingress, egress, hairpin_ingress, hairpin_egress]
    }
}

impl SetRows {
    /// The table for a class and a Service.
    pub fn table(&self, class: ClassId, service: u64) -> TableId {
        let row = |class, service| self.rows.get(&(class, service));
        let of_class = row(class, service).or_else(|| row(class, 0));
        *of_class.or_else(|| row(ClassId(0), service)).unwrap_or(&self.default)
    }
}

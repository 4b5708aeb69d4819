//! The rows that a change can affect.

use crate::held::Write;
use datapath_plan::Address;
use std::collections::BTreeSet;

/// The rows of the maps that may differ from their target, or whose halves may differ. All other rows are those of the
/// target, in both halves. The node's own addresses are always compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    pub(crate) classes: BTreeSet<Address>,
    pub(crate) services: BTreeSet<Address>,
    /// Of prefixes all are meant: the value of one depends on others.
    pub(crate) prefixes: bool,
    pub(crate) set_rows: BTreeSet<(u64, u64, u64)>,
    pub(crate) rules: BTreeSet<u32>,
    /// Of pods all are meant: their links, and their rows in both halves.
    pub(crate) pods: bool,
}

impl Scope {
    /// Adds the rows of a later change.
    pub fn extend(&mut self, later: Self) {
        let Self { classes, services, prefixes, set_rows, rules, pods } = later;
        self.classes.extend(classes);
        self.services.extend(services);
        self.prefixes |= prefixes;
        self.set_rows.extend(set_rows);
        self.rules.extend(rules);
        self.pods |= pods;
    }

    /// Adds the rows of pods.
    pub fn extend_pods(&mut self) {
        self.pods = true;
    }

    /// Adds rules that no table names any longer.
    pub fn extend_rules(&mut self, rules: BTreeSet<u32>) {
        self.rules.extend(rules);
    }

    /// Adds the rows of writes.
    pub fn extend_writes<'a>(&mut self, writes: impl IntoIterator<Item = &'a Write>) {
        for write in writes {
            match write {
                Write::Rule(number, _) => drop(self.rules.insert(*number)),
                Write::SetRow(key, _) => drop(self.set_rows.insert(*key)),
                Write::Class(address, _) => drop(self.classes.insert(*address)),
                Write::Service(address, _) => drop(self.services.insert(*address)),
                Write::Prefix(..) => self.prefixes = true,
                // Rows of pods are written only if the scope has them.
                Write::SmallTable(..)
                | Write::LargeTable(..)
                | Write::Row(..)
                | Write::Share(_)
                | Write::OwnAddress(..)
                | Write::Node(..)
                | Write::Flip(_)
                | Write::Endpoint(..) => {}
            }
        }
    }

    /// True if rows of sets may differ, so that numbers of tables may be out of use.
    pub fn has_set_rows(&self) -> bool {
        !self.set_rows.is_empty()
    }
}

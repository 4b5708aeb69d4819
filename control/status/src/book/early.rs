//! Policies that nodes report of before they are known: few in all, and of each node.

use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of early policies.
const ALL: usize = 4_096;
/// Maximum number of early policies of one node, so that a node with invented ones leaves room for others.
const OF_NODE: usize = 256;

/// Nodes and the early policies that they report.
#[derive(Debug, Default)]
pub(super) struct Early {
    nodes: BTreeMap<String, BTreeSet<u32>>,
    uids: BTreeMap<u32, BTreeSet<String>>,
}

impl Early {
    /// True if a node's report about an early policy is accepted: the node has it, or no longer has it.
    pub(super) fn takes(&mut self, node: u32, uid: &str, gone: bool) -> bool {
        if gone { self.remove(node, uid) } else { self.put(node, uid) }
    }

    /// Adds a node's report about a policy. Returns true if there is room for it.
    fn put(&mut self, node: u32, uid: &str) -> bool {
        let Self { nodes, uids } = self;
        let of_node = uids.get(&node);
        if of_node.is_some_and(|uids| uids.contains(uid)) {
            return true;
        }
        let is_full = of_node.is_some_and(|uids| uids.len() >= OF_NODE);
        if is_full || (nodes.len() >= ALL && !nodes.contains_key(uid)) {
            return false;
        }
        nodes.entry(uid.to_owned()).or_default().insert(node);
        uids.entry(node).or_default().insert(uid.to_owned());
        true
    }

    /// Removes a node's report about a policy. Returns true if there was one.
    fn remove(&mut self, node: u32, uid: &str) -> bool {
        without(&mut self.nodes, uid, &node);
        without(&mut self.uids, &node, uid)
    }

    /// One is known now, or gone.
    pub(super) fn over(&mut self, uid: &str) {
        for node in self.nodes.remove(uid).into_iter().flatten() {
            without(&mut self.uids, &node, uid);
        }
    }

    /// Drops all reports of a node.
    pub(super) fn forget(&mut self, node: u32) {
        for uid in self.uids.remove(&node).into_iter().flatten() {
            without(&mut self.nodes, uid.as_str(), &node);
        }
    }
}

/// Removes a value from its set, and the set if it is then empty. Returns true if the value was there.
fn without<K, V, Q, R>(sets: &mut BTreeMap<K, BTreeSet<V>>, key: &Q, value: &R) -> bool
where
    K: Ord + std::borrow::Borrow<Q>,
    V: Ord + std::borrow::Borrow<R>,
    Q: Ord + ?Sized,
    R: Ord + ?Sized,
{
    let Some(set) = sets.get_mut(key) else { return false };
    let was_there = set.remove(value);
    if set.is_empty() {
        sets.remove(key);
    }
    was_there
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_node_leaves_room_and_all_together_are_bounded() {
        let mut early = Early::default();
        let of = |node: u32| (0..ALL).map(move |at| (node, format!("{node}-{at}")));
        let nodes = u32::try_from(ALL / OF_NODE).unwrap_or(u32::MAX);
        for node in 0..nodes {
            let taken = of(node).filter(|(node, uid)| early.put(*node, uid)).count();
            assert_eq!(taken, OF_NODE);
        }
        assert!(!early.put(nodes, "p"));
        // A policy that another node reports as well takes no additional room.
        assert!(early.put(nodes, "0-0"));
        early.forget(nodes);
        early.over("1-0");
        assert!(early.put(nodes, "p") && !early.put(nodes, "q"));
        assert!(early.remove(nodes, "p") && !early.remove(nodes, "p"));
        assert!(early.put(1, "q"));
        (0..=nodes).for_each(|node| early.forget(node));
        assert!(early.nodes.is_empty() && early.uids.is_empty());
    }
}

//! Policies that nodes report of before they are known: few in all, and of each node.

use std::collections::{BTreeMap, BTreeSet};

/// How many there may be.
const ALL: usize = 4_096;
/// How many of them one node may report of, so that one that makes them up leaves room for the others.
const OF_NODE: usize = 256;

/// Which nodes report of which.
#[derive(Debug, Default)]
pub(super) struct Early {
    nodes: BTreeMap<String, BTreeSet<u32>>,
    uids: BTreeMap<u32, BTreeSet<String>>,
}

impl Early {
    /// Whether what a node says of one is to be taken: that it has it, or no longer.
    pub(super) fn takes(&mut self, node: u32, uid: &str, gone: bool) -> bool {
        if gone { self.remove(node, uid) } else { self.put(node, uid) }
    }

    /// A node reports of one. Says whether there is room for it.
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

    /// A node reports of one no longer. Says whether it did.
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

    /// Nothing that a node said holds.
    pub(super) fn forget(&mut self, node: u32) {
        for uid in self.uids.remove(&node).into_iter().flatten() {
            without(&mut self.nodes, uid.as_str(), &node);
        }
    }
}

/// Takes one out of its set, and the set with it if it is the last. Says whether it was there.
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
        // What another reports of as well takes no more room.
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

//! Objects of any kind with a span: sources other than policy give them to the hub encoded.

use control_wire::{Entry, ObjectId};
use std::collections::{BTreeMap, BTreeSet};

/// The objects by id, and by the nodes in their spans.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    objects: BTreeMap<ObjectId, Object>,
    nodes: BTreeMap<String, BTreeSet<ObjectId>>,
}

#[derive(Debug)]
struct Object {
    entry: Entry,
    span: BTreeSet<String>,
}

/// The nodes that a change of an object concerns.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Moves {
    pub(crate) entered: Vec<String>,
    pub(crate) left: Vec<String>,
    pub(crate) changed: Vec<String>,
}

impl Moves {
    pub(crate) fn is_empty(&self) -> bool {
        self.entered.is_empty() && self.left.is_empty() && self.changed.is_empty()
    }
}

impl Objects {
    /// Adds or replaces an object.
    pub(crate) fn put(&mut self, id: &ObjectId, entry: Entry, span: BTreeSet<String>) -> Moves {
        let before = self.take(id);
        let nodes = before.as_ref().map(|before| before.span.clone()).unwrap_or_default();
        let is_same = before.is_some_and(|before| before.entry == entry);
        let stayed = nodes.intersection(&span).filter(|_| !is_same);
        let moves = Moves {
            entered: span.difference(&nodes).cloned().collect(),
            left: nodes.difference(&span).cloned().collect(),
            changed: stayed.cloned().collect(),
        };
        for node in &span {
            self.nodes.entry(node.clone()).or_default().insert(id.clone());
        }
        self.objects.insert(id.clone(), Object { entry, span });
        moves
    }

    /// Removes an object.
    pub(crate) fn remove(&mut self, id: &ObjectId) -> Moves {
        let left = self.take(id).map(|object| object.span.into_iter().collect());
        Moves { left: left.unwrap_or_default(), ..Moves::default() }
    }

    /// The encoding of an object.
    pub(crate) fn get(&self, id: &ObjectId) -> Option<&Entry> {
        self.objects.get(id).map(|object| &object.entry)
    }

    /// The objects that a node needs.
    pub(crate) fn of_node(&self, node: &str) -> impl Iterator<Item = (&ObjectId, &Entry)> {
        let ids = self.nodes.get(node).into_iter().flatten();
        ids.filter_map(|id| self.get(id).map(|entry| (id, entry)))
    }

    fn take(&mut self, id: &ObjectId) -> Option<Object> {
        let object = self.objects.remove(id)?;
        for node in &object.span {
            if let Some(ids) = self.nodes.get_mut(node) {
                ids.remove(id);
                if ids.is_empty() {
                    self.nodes.remove(node);
                }
            }
        }
        Some(object)
    }
}

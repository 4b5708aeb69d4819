//! A source of objects that its caller encodes, each with an explicit span.

use crate::{
    distributor::{Generation, Pending},
    source::{Recipient, Source},
};
use control_wire::{Digest, Entry, ObjectId};
use std::collections::{BTreeMap, BTreeSet};

/// Objects by id, and by the nodes in their spans. It suits a source whose objects are small and seldom change.
#[derive(Debug, Default)]
pub struct EncodedObjects {
    objects: BTreeMap<ObjectId, Object>,
    nodes: BTreeMap<String, BTreeSet<ObjectId>>,
}

#[derive(Debug)]
struct Object {
    entry: Entry,
    span: BTreeSet<String>,
}

impl EncodedObjects {
    /// Adds or replaces an object: its encoding, which all nodes share, and the nodes that need it. An equal encoding
    /// is not sent again.
    pub fn put(
        &mut self,
        id: &ObjectId,
        entry: Entry,
        span: BTreeSet<String>,
        generation: &mut Generation<'_>,
    ) {
        let before = self.take(id);
        let is_same = before.as_ref().is_some_and(|before| before.entry == entry);
        let nodes = before.map(|before| before.span).unwrap_or_default();
        let left: Vec<&String> = nodes.difference(&span).collect();
        let entered: Vec<&String> = span.difference(&nodes).collect();
        let changed: Vec<&String> = nodes.intersection(&span).filter(|_| !is_same).collect();
        // An empty report would make a generation.
        if !left.is_empty() || !entered.is_empty() || !changed.is_empty() {
            generation.left(id, left);
            generation.entered(id, entered);
            generation.changed(id, changed);
        }
        for node in &span {
            self.nodes.entry(node.clone()).or_default().insert(id.clone());
        }
        self.objects.insert(id.clone(), Object { entry, span });
    }

    /// Removes an object.
    pub fn remove(&mut self, id: &ObjectId, generation: &mut Generation<'_>) {
        let span = self.take(id).map(|object| object.span).unwrap_or_default();
        if !span.is_empty() {
            generation.left(id, &span);
        }
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

impl Source for EncodedObjects {
    fn needs(&mut self, recipient: &Recipient<'_>) -> Vec<(ObjectId, Digest)> {
        let ids = self.nodes.get(recipient.node).into_iter().flatten();
        let objects = ids.filter_map(|id| Some((id, self.objects.get(id)?)));
        objects.map(|(id, object)| (id.clone(), object.entry.digest())).collect()
    }

    fn encode(
        &mut self,
        _recipient: &Recipient<'_>,
        objects: &[(ObjectId, Pending)],
        changes: &mut Vec<Entry>,
    ) {
        let own = objects.iter().filter_map(|(id, _)| self.objects.get(id));
        changes.extend(own.map(|object| object.entry.clone()));
    }
}

//! The report of a change: from a source to the queues of nodes.

use super::{queue::Transition, state::State};
use control_wire::{Entry, ObjectId};

/// The generation that one change of a source makes. Its number is the next one from the first report on.
///
/// A report about a node without a stream has no effect: the node's content is compared when it opens one. Before
/// the first lists are read no report has an effect.
#[derive(Debug)]
pub struct Generation<'a> {
    state: &'a mut State,
    has_begun: bool,
}

impl<'a> Generation<'a> {
    pub(super) fn new(state: &'a mut State) -> Self {
        Self { state, has_begun: false }
    }

    /// Starts the generation, also if no node gets a pending object from it. Every other report does the same.
    pub fn begin(&mut self) {
        if !self.has_begun && self.state.is_loaded {
            self.has_begun = true;
            self.state.generation += 1;
        }
    }

    /// True if reports about this node have an effect. A source may skip work for other nodes.
    pub fn follows(&self, node: &str) -> bool {
        self.state.nodes.contains_key(node)
    }

    /// Reports that these nodes have another version of an object, or need an object that they have not received.
    pub fn changed<'n>(&mut self, object: &ObjectId, nodes: impl IntoIterator<Item = &'n String>) {
        self.mark(object, nodes, Transition::Changed);
    }

    /// Reports that these nodes need an object and did not need it before. They receive it whole.
    pub fn entered<'n>(&mut self, object: &ObjectId, nodes: impl IntoIterator<Item = &'n String>) {
        self.mark(object, nodes, Transition::Entered);
    }

    /// Reports that these nodes no longer need an object. They receive its removal.
    pub fn left<'n>(&mut self, object: &ObjectId, nodes: impl IntoIterator<Item = &'n String>) {
        self.mark(object, nodes, Transition::Left);
    }

    /// Reports one element that was added to a node's version of an object, or removed from it. The source finds
    /// all of them in [`Pending::elements`](super::Pending::elements). An object has elements or a history, not both.
    pub fn element(&mut self, object: &ObjectId, node: &str, element: &str, is_added: bool) {
        self.begin();
        if let Some(queue) = self.state.nodes.get_mut(node) {
            queue.element(object, element, is_added);
            self.state.touched.insert(node.to_owned());
        }
    }

    /// Adds an encoded change to the history of an object. Nodes that have the version before it receive the change in
    /// place of the whole object. The nodes in the span are reported with [`changed`](Self::changed).
    pub fn record(&mut self, object: &ObjectId, change: Entry) {
        self.begin();
        if self.state.is_loaded {
            self.state.history.add(object, self.state.generation, change);
        }
    }

    /// Starts the history of a new object, which no node has.
    pub fn begin_history(&mut self, object: &ObjectId) {
        self.begin();
        self.state.history.begin(object, self.state.generation);
    }

    /// Ends the history of a removed object.
    pub fn end_history(&mut self, object: &ObjectId) {
        self.begin();
        self.state.history.end(object);
    }

    /// [`Self::changed`] for all nodes.
    pub fn changed_everywhere(&mut self, object: &ObjectId) {
        self.mark_everywhere(object, Transition::Changed);
    }

    /// [`Self::entered`] for all nodes.
    pub fn entered_everywhere(&mut self, object: &ObjectId) {
        self.mark_everywhere(object, Transition::Entered);
    }

    /// [`Self::left`] for all nodes.
    pub fn left_everywhere(&mut self, object: &ObjectId) {
        self.mark_everywhere(object, Transition::Left);
    }

    /// Nodes whose agents do not know the kind get nothing.
    fn mark_everywhere(&mut self, object: &ObjectId, transition: Transition) {
        self.begin();
        let State { nodes, touched, .. } = &mut *self.state;
        for (node, queue) in nodes.iter_mut().filter(|(_, of)| of.kinds().contains(&object.kind)) {
            queue.mark(object, transition);
            if !touched.contains(node) {
                touched.insert(node.clone());
            }
        }
    }

    fn mark<'n>(
        &mut self,
        object: &ObjectId,
        nodes: impl IntoIterator<Item = &'n String>,
        transition: Transition,
    ) {
        self.begin();
        for node in nodes {
            if let Some(queue) = self.state.nodes.get_mut(node) {
                queue.mark(object, transition);
                self.state.touched.insert(node.clone());
            }
        }
    }
}

//! The request of an operator.

use super::observation::{Node, Observation};
use std::collections::BTreeSet;

/// The proxy of the nodes after the last step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    Ferrule,
    KubeProxy,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub goal: Goal,
    /// True if kube-proxy's DaemonSet is deleted once no node needs it.
    pub remove: bool,
    /// Only these nodes; empty for all.
    pub nodes: BTreeSet<String>,
}

impl Request {
    /// Returns the nodes of the request.
    pub(super) fn of<'a>(
        &'a self,
        seen: &'a Observation,
    ) -> impl Iterator<Item = (&'a String, &'a Node)> {
        seen.nodes.iter().filter(|(name, _)| self.names(name))
    }

    /// Returns true if the request has the node.
    pub(super) fn names(&self, node: &str) -> bool {
        self.nodes.is_empty() || self.nodes.contains(node)
    }
}

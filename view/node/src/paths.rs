//! The paths of a pod's connections.

use serde::{Deserialize, Serialize};

/// The open connections of a pod by the path of their packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Paths {
    /// Through the host's stack.
    pub stack: u64,
    /// On the fast path, to and from pods of the node.
    pub pods: u64,
    /// On the fast path, to and from other nodes.
    pub nodes: u64,
}

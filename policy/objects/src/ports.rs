//! Protocols and ports.

use serde::{Deserialize, Serialize};

/// A transport protocol that has ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

/// Ports from `first` to `last`, both included; `first` ≤ `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct PortRange {
    pub first: u16,
    pub last: u16,
}

/// The name of a container's port.
pub type PortName = String;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TargetPort {
    Numbers(PortRange),
    /// By the name that the destination pod's containers give it.
    Named(PortName),
}

impl PortRange {
    /// True if a port is in the range, ends included.
    pub fn contains(self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }
}

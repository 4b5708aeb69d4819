//! The state that is wanted.

use service_objects::Protocol;
use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

/// A destination at which a Service is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    Port(IpAddr, u16, Protocol),
    /// At each address of the node.
    NodePort(u16, Protocol),
    /// The other ports of a cluster IP.
    OtherPorts(IpAddr),
}

/// The answer to a client's first packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// One of these, each with the same share.
    Backends(Arc<[SocketAddr]>),
    NoEndpoints,
    NoLocalEndpoints,
    NoSuchPort,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frontend {
    /// For clients on the node.
    pub inside: Choice,
    /// For clients from outside.
    pub outside: Choice,
    /// Seconds for which a client keeps its backend; 0 without affinity.
    pub affinity: u32,
}

/// All frontends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    pub frontends: BTreeMap<Place, Frontend>,
}

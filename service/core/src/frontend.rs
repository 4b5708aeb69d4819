//! The answers of one node by destination.

use ipnet::IpNet;
use service_objects::{Family, ObjectName, Protocol};
use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

/// A destination at which a Service is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    Port(IpAddr, u16, Protocol),
    /// At each address of the node of this family.
    NodePort(Family, u16, Protocol),
    /// The other ports of a cluster IP.
    OtherPorts(IpAddr),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(address, port, protocol) => {
                write!(f, "{}/{protocol}", SocketAddr::new(*address, *port))
            }
            Self::NodePort(family, port, protocol) => {
                write!(f, "node port {port}/{protocol} ({family})")
            }
            Self::OtherPorts(address) => write!(f, "other ports of {address}"),
        }
    }
}

/// The answer to a client's first packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// One of these, each with the same share. They are sorted and never empty, and at most [`MOST_BACKENDS`].
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
    /// The clients that are served; `None` is every client. A packet of another client is dropped.
    pub sources: Option<Arc<[IpNet]>>,
}

/// A claim of a Service without effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Taken<'a> {
    pub service: &'a ObjectName,
    pub place: Place,
    /// The Service that has the place.
    pub owner: &'a ObjectName,
}

/// The largest number of backends of a choice.
pub const MOST_BACKENDS: usize = 8_191;

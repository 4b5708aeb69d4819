//! Packets as inputs of a verdict.

use policy_objects::{Named, Protocol};
use serde::Serialize;
use std::{fmt, net::IpAddr};

/// A packet, where policy sees it: behind any translation of its destination.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Packet {
    /// Sender of the packet. It decides exemptions; the source address never does.
    pub origin: Origin,
    /// Its source address, by which peers of ingress rules are known.
    pub source: IpAddr,
    /// Its destination, after translation.
    pub destination: IpAddr,
    /// The Service's address that was asked for, before translation.
    pub service: Option<IpAddr>,
    pub segment: Segment,
    /// State in connection tracking.
    pub state: State,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Origin {
    /// A pod; one with the network of its node counts as a process of that node.
    Pod(Named),
    /// A process of this node.
    Node(String),
    /// The packet is forwarded from elsewhere, independent of its source address.
    Forwarded,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Segment {
    /// TCP, UDP or SCTP.
    Ports {
        protocol: Protocol,
        /// The sender's port.
        source: u16,
        /// The port at the destination, after translation.
        destination: u16,
    },
    /// ICMP over IPv4, ICMPv6 over IPv6.
    Icmp {
        /// The type, by the numbers of its family.
        kind: u8,
        code: u8,
    },
    /// Another protocol, by its number.
    Other(u8),
}

/// State of a packet in connection tracking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    New,
    /// The packet continues a connection in its original direction. It is judged like a first packet, since a
    /// policy may have changed since then.
    Established,
    /// The packet goes against that direction: it follows its flow.
    Reply,
    /// An error about a flow: it follows it.
    Related,
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} from {} ({}) to {}",
            self.segment, self.source, self.origin, self.destination
        )?;
        self.service.map_or(Ok(()), |address| write!(f, ", asked for as {address}"))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod(Named { namespace, name }) => write!(f, "pod {namespace}/{name}"),
            Self::Node(name) => write!(f, "node {name}"),
            Self::Forwarded => write!(f, "forwarded"),
        }
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ports { protocol, source, destination } => {
                write!(f, "{} {source} to {destination}", crate::text::protocol(*protocol))
            }
            Self::Icmp { kind, code } => write!(f, "ICMP type {kind} code {code}"),
            Self::Other(number) => write!(f, "protocol {number}"),
        }
    }
}

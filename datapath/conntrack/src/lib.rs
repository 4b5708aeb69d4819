//! Lists the connections that the kernel tracks, each with its original direction.
//!
//! [`dump`] asks ctnetlink for the table of one network namespace. A backend reads it before it enforces a pod for the
//! first time, and judges the existing connections in their original direction.
//!
//! The table has limits that a caller must know:
//!
//! - The kernel tracks a namespace only while a rule there needs connections, such as NAT or a match of `ct state`. The
//!   table of another namespace is empty.
//! - The original direction is that of the first packet that was tracked. A TCP connection that is older than the first
//!   such rule can have it reversed. The kernel also accepts packets from the middle of a connection
//!   (`nf_conntrack_tcp_loose`).
//! - A connection that starts or ends during a dump may be in the result or not. The kernel can repeat a connection.
//! - If two first datagrams of a flow race through NAT, the kernel keeps the loser for a second and does not list it.
//!
//! [`reply`] parses the kernel's reply, and accepts any bytes.

mod entry;
pub mod reply;
mod socket;

pub use socket::{DumpError, dump, dump_if};

use std::{net::IpAddr, time::Duration};

/// A tracked connection of zone 0.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Connection {
    /// Number of the protocol over IP, such as 6 for TCP.
    pub protocol: u8,
    /// The first packet's addresses and ports, before NAT.
    pub original: Tuple,
    /// The addresses and ports of a reply before its own NAT. Without NAT they are the original ones, exchanged.
    pub reply: Tuple,
    /// True if a packet was tracked in the reply direction.
    pub is_answered: bool,
    /// True if the kernel keeps the connection when the table is full.
    pub is_assured: bool,
    /// `None` for another protocol, and for a connection in a flow table: the kernel does not report its state.
    pub tcp_state: Option<TcpState>,
    /// Time until the entry expires without a packet, in whole seconds. `None` for a connection in a flow table.
    pub timeout: Option<Duration>,
}

/// The addresses and ports of one direction, from its sender to its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tuple {
    pub source: IpAddr,
    pub destination: IpAddr,
    /// The identifier for ICMP; zero for a protocol without ports.
    pub source_port: u16,
    /// The identifier for ICMP; zero for a protocol without ports.
    pub destination_port: u16,
    /// `None` for a protocol other than ICMP and ICMPv6.
    pub icmp: Option<IcmpMessage>,
}

/// The kind of an ICMP or ICMPv6 message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IcmpMessage {
    /// Type of the message; an echo request has 8 in ICMP and 128 in ICMPv6.
    pub kind: u8,
    pub code: u8,
}

/// State of a TCP connection, as the packets of both directions show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TcpState {
    /// No packet was tracked yet.
    New,
    SynSent,
    SynReceived,
    Established,
    /// One end has sent a FIN.
    FinWait,
    /// The other end has acknowledged the FIN.
    CloseWait,
    /// Both ends have sent a FIN.
    LastAck,
    TimeWait,
    /// Reset.
    Close,
    /// Both ends have sent a SYN.
    SimultaneousOpen,
    /// A state that the kernel may add.
    Other(u8),
}

/// The connections of a network namespace, and a summary of the entries without a result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    pub connections: Vec<Connection>,
    pub left_out: LeftOut,
}

/// Entries of the table that are not in the result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Connections that a rule placed into a zone other than 0. The same tuple can exist once in each zone, so a packet
    /// without a zone must not match them.
    pub other_zones: usize,
    /// Connections that cannot be parsed. Their direction is unknown.
    pub unreadable: usize,
    /// The cause for the last connection that cannot be parsed.
    pub cause: Option<EntryError>,
}

/// Cause for which one connection cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// An attribute ends behind the attribute or message that contains it.
    #[error("truncated attribute")]
    Truncated,
    /// The kernel always sends this part.
    #[error("missing {0}")]
    Missing(&'static str),
    /// The value is shorter or longer than its type.
    #[error("wrong length of the {0}")]
    Length(&'static str),
    /// Addresses of both families, or two protocols.
    #[error("inconsistent addresses or protocols")]
    Inconsistent,
}

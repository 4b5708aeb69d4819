//! Lists the connected UDP sockets of a network namespace, and closes some of them. Lists the sockets that wait for packets
//! of any peer.
//!
//! [`Sockets`] asks sock_diag of the calling thread's network namespace. A backend closes the sockets whose peer is a
//! backend of a Service that was removed.
//!
//! The kernel has limits that a caller must know:
//!
//! - The modules `udp_diag` and `tcp_diag` list sockets. The kernel loads them at the first request.
//! - A kernel without CONFIG_INET_DIAG_DESTROY lists sockets and closes none.
//! - A socket that is connected or closed during a list may be in the result or not.
//! - The kernel finds a socket by its addresses and ports, and compares the cookie then. Of two sockets with the same
//!   addresses and ports it finds one only.
//! - A socket that loses its peer after the list, and keeps its port, is closed too.
//! - A closed socket stays open as a file, without a peer. A process that waits for it or receives gets ECONNABORTED once.
//!   A call of send gets EDESTADDRREQ.
//!
//! [`reply`] parses the kernel's reply, and accepts any bytes.

pub mod reply;
mod request;
mod socket;

pub use socket::{DiagError, Sockets};

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
};

/// The protocol of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Transport {
    Tcp,
    Udp,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        })
    }
}

/// A TCP socket that listens, or a UDP socket without a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Listener {
    pub transport: Transport,
    pub local: SocketAddr,
}

/// A UDP socket with a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Connected {
    /// The kernel's number of the socket. No other socket has it until the next boot.
    pub cookie: u64,
    /// An address of IPv6 for each socket of that family, also if it is mapped from IPv4.
    pub local: SocketAddr,
    /// Of the family of `local`.
    pub peer: SocketAddr,
    /// The number of the link to which the socket is bound; 0 for none.
    pub link: u32,
}

impl Connected {
    /// The peer. An IPv4 address that is mapped to IPv6 is an IPv4 address here.
    pub fn canonical_peer(&self) -> SocketAddr {
        SocketAddr::new(self.peer.ip().to_canonical(), self.peer.port())
    }

    fn is_unspecified(&self) -> bool {
        let address: IpAddr = self.canonical_peer().ip();
        address.is_unspecified() || self.peer.port() == 0
    }
}

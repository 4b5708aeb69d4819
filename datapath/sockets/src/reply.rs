//! Parses the kernel's reply to a request, datagram by datagram.
//!
//! A message that is cut is an error for the whole reply.

use crate::{Connected, request::cookie_of};
use datapath_netlink::Frames;
use netlink_packet_core::Parseable as _;
use netlink_packet_sock_diag::{SOCK_DIAG_BY_FAMILY, TCP_ESTABLISHED, inet::InetResponseHeader};
use std::net::SocketAddr;

/// The reply so far to the request with a certain number.
#[derive(Debug)]
pub struct Reply<K> {
    frames: Frames,
    keep: K,
    sockets: Vec<Connected>,
}

/// Cause for which a datagram cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    #[error(transparent)]
    Frame(#[from] datapath_netlink::Unreadable),
    /// A family that was not requested, or fewer bytes than a socket has.
    #[error("unreadable socket: {0}")]
    Socket(String),
}

impl<K: FnMut(&Connected) -> bool> Reply<K> {
    /// The empty reply to a request. It gets the sockets for which `keep` is true.
    pub fn to(sequence: u32, keep: K) -> Self {
        Self { frames: Frames::to(sequence), keep, sockets: Vec::new() }
    }

    /// Adds a datagram. Returns true if it completes the reply.
    ///
    /// # Errors
    /// The datagram cannot be parsed to its end. The whole reply is unusable then.
    pub fn read(&mut self, datagram: &[u8]) -> Result<bool, Unreadable> {
        let Self { frames, keep, sockets } = self;
        read(frames, datagram, |found| {
            let id = &found.socket_id;
            let socket = Connected {
                cookie: cookie_of(id.cookie),
                local: SocketAddr::new(id.source_address, id.source_port),
                peer: SocketAddr::new(id.destination_address, id.destination_port),
                link: id.interface_id,
            };
            let is_connected = found.state == TCP_ESTABLISHED && !socket.is_unspecified();
            if is_connected && keep(&socket) {
                sockets.push(socket);
            }
        })
    }

    /// The positive error number with which the kernel refused the request. `None` if the reply is complete.
    pub fn refusal(&self) -> Option<i32> {
        self.frames.refusal()
    }

    pub fn into_sockets(self) -> Vec<Connected> {
        self.sockets
    }
}

/// The reply so far to a request for sockets without a peer: their addresses.
#[derive(Debug)]
pub(crate) struct Unconnected<K> {
    frames: Frames,
    keep: K,
    pub(crate) locals: Vec<SocketAddr>,
}

impl<K: FnMut(SocketAddr) -> bool> Unconnected<K> {
    /// The empty reply to a request. It gets the addresses for which `keep` is true.
    pub(crate) fn to(sequence: u32, keep: K) -> Self {
        Self { frames: Frames::to(sequence), keep, locals: Vec::new() }
    }

    /// As [`Reply::read`].
    pub(crate) fn read(&mut self, datagram: &[u8]) -> Result<bool, Unreadable> {
        let Self { frames, keep, locals } = self;
        read(frames, datagram, |found| {
            let id = &found.socket_id;
            let local = SocketAddr::new(id.source_address, id.source_port);
            if id.destination_port == 0 && local.port() != 0 && keep(local) {
                locals.push(local);
            }
        })
    }

    /// As [`Reply::refusal`].
    pub(crate) fn refusal(&self) -> Option<i32> {
        self.frames.refusal()
    }
}

/// Reads the header of each socket only: no attribute was requested, and a kernel may add some.
fn read(
    frames: &mut Frames,
    datagram: &[u8],
    mut take: impl FnMut(&InetResponseHeader),
) -> Result<bool, Unreadable> {
    frames.read(datagram, |kind, payload| {
        if kind == SOCK_DIAG_BY_FAMILY {
            let found = InetResponseHeader::parse(payload);
            take(&found.map_err(|cause| Unreadable::Socket(cause.to_string()))?);
        }
        Ok(())
    })
}

#[cfg(test)]
pub(crate) mod tests;

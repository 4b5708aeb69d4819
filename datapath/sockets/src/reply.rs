//! Parses the kernel's reply to a request, datagram by datagram.
//!
//! A message that is cut is an error for the whole reply.

use crate::{Connected, request::cookie_of};
use netlink_packet_core::{NLMSG_DONE, NLMSG_ERROR, NLMSG_OVERRUN, NetlinkBuffer, Parseable as _};
use netlink_packet_sock_diag::{SOCK_DIAG_BY_FAMILY, TCP_ESTABLISHED, inet::InetResponseHeader};
use std::net::SocketAddr;

/// The reply so far to the request with a certain number.
#[derive(Debug)]
pub struct Reply<K> {
    sequence: u32,
    keep: K,
    sockets: Vec<Connected>,
    refusal: Option<i32>,
}

/// Cause for which a datagram cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// A message that ends behind the datagram, or that is shorter than its header.
    #[error("truncated message")]
    Message,
    /// A family that was not requested, or fewer bytes than a socket has.
    #[error("unreadable socket: {0}")]
    Socket(String),
    /// The datagram has this size and is longer than the receive buffer.
    #[error("a datagram of {0} bytes was truncated")]
    Datagram(usize),
    /// The kernel dropped a part of the reply.
    #[error("the kernel dropped a part of the reply")]
    Lost,
}

impl<K: FnMut(&Connected) -> bool> Reply<K> {
    /// The empty reply to a request. It gets the sockets for which `keep` is true.
    pub fn to(sequence: u32, keep: K) -> Self {
        Self { sequence, keep, sockets: Vec::new(), refusal: None }
    }

    /// Adds a datagram. Returns true if it completes the reply.
    ///
    /// # Errors
    /// The datagram cannot be parsed to its end. The whole reply is unusable then.
    pub fn read(&mut self, datagram: &[u8]) -> Result<bool, Unreadable> {
        let mut rest = datagram;
        while !rest.is_empty() {
            let message = NetlinkBuffer::new_checked(rest).map_err(|_| Unreadable::Message)?;
            let length = usize::try_from(message.length()).map_err(|_| Unreadable::Message)?;
            if message.sequence_number() == self.sequence && self.take(&message)? {
                return Ok(true);
            }
            rest = rest.get(length.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
        }
        Ok(false)
    }

    fn take(&mut self, message: &NetlinkBuffer<&[u8]>) -> Result<bool, Unreadable> {
        match message.message_type() {
            SOCK_DIAG_BY_FAMILY => self.add(message.payload())?,
            NLMSG_DONE | NLMSG_ERROR => {
                // A DONE may be empty.
                let code =
                    message.payload().first_chunk().map_or(0, |code| i32::from_ne_bytes(*code));
                self.refusal = (code != 0).then(|| code.saturating_neg());
                return Ok(true);
            }
            NLMSG_OVERRUN => return Err(Unreadable::Lost),
            _ => {}
        }
        Ok(false)
    }

    /// Reads the header only: no attribute was requested, and a kernel may add some.
    fn add(&mut self, payload: &[u8]) -> Result<(), Unreadable> {
        let found = InetResponseHeader::parse(payload);
        let found = found.map_err(|cause| Unreadable::Socket(cause.to_string()))?;
        let id = found.socket_id;
        let socket = Connected {
            cookie: cookie_of(id.cookie),
            local: SocketAddr::new(id.source_address, id.source_port),
            peer: SocketAddr::new(id.destination_address, id.destination_port),
            link: id.interface_id,
        };
        let is_connected = found.state == TCP_ESTABLISHED && !socket.is_unspecified();
        if is_connected && (self.keep)(&socket) {
            self.sockets.push(socket);
        }
        Ok(())
    }

    /// The positive error number with which the kernel refused the request. `None` if the reply is complete.
    pub fn refusal(&self) -> Option<i32> {
        self.refusal
    }

    pub fn into_sockets(self) -> Vec<Connected> {
        self.sockets
    }
}

/// linux/netlink.h: NLMSG_ALIGNTO
const ALIGNMENT: usize = 4;

#[cfg(test)]
pub(crate) mod tests;

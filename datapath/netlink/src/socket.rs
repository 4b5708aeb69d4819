//! The netlink socket.

use crate::Unreadable;
use netlink_sys::{Socket, SocketAddr};
use std::io;

/// Cause of a failed exchange with the kernel.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    #[error("cannot open a netlink socket")]
    Open(#[source] io::Error),
    #[error("cannot send to the kernel")]
    Send(#[source] io::Error),
    #[error("cannot receive the kernel's reply")]
    Receive(#[source] io::Error),
    #[error("cannot parse the kernel's reply")]
    Parse(#[from] Unreadable),
}

impl SocketError {
    /// True if the kernel lacks the protocol.
    pub fn is_without_protocol(&self) -> bool {
        matches!(self, Self::Open(cause) if cause.raw_os_error() == Some(EPROTONOSUPPORT))
    }
}

/// A socket that is connected to the kernel, in the network namespace of the thread that opened it.
pub struct KernelSocket {
    socket: Socket,
    buffer: Vec<u8>,
}

impl KernelSocket {
    /// Opens a socket of a protocol, such as `NETLINK_NETFILTER`.
    ///
    /// # Errors
    /// The kernel lacks the protocol, or the process has no room for a socket.
    pub fn open(protocol: isize) -> Result<Self, SocketError> {
        let socket = connected(protocol).map_err(SocketError::Open)?;
        Ok(Self { socket, buffer: Vec::with_capacity(RECEIVE_BYTES) })
    }

    /// # Errors
    /// The kernel does not take the request.
    pub fn send(&self, request: &[u8]) -> Result<(), SocketError> {
        self.socket.send(request, 0).map(drop).map_err(SocketError::Send)
    }

    /// Waits for the next datagram.
    ///
    /// # Errors
    /// The socket fails, or the datagram is longer than the buffer.
    pub fn receive(&mut self) -> Result<&[u8], SocketError> {
        self.buffer.clear();
        // With MSG_TRUNC the kernel returns the length of the datagram, even if the buffer is shorter.
        let received = loop {
            match self.socket.recv(&mut self.buffer, MSG_TRUNC) {
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
                received => break received.map_err(SocketError::Receive)?,
            }
        };
        Ok(self.buffer.get(..received).ok_or(Unreadable::Datagram(received))?)
    }
}

fn connected(protocol: isize) -> io::Result<Socket> {
    let mut socket = Socket::new(protocol)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    Ok(socket)
}

/// The kernel fills at most 32 KiB with one part of a dump.
const RECEIVE_BYTES: usize = 64 * 1024;
/// linux/socket.h
const MSG_TRUNC: i32 = 0x20;
/// asm-generic/errno.h
const EPROTONOSUPPORT: i32 = 93;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_protocol_that_no_kernel_has_is_reported() {
        let opened = KernelSocket::open(31).err();
        assert!(opened.is_some_and(|error| error.is_without_protocol()));
        let other = SocketError::Open(io::Error::from_raw_os_error(24));
        assert!(!other.is_without_protocol());
    }
}

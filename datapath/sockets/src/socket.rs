//! The netlink socket.

use crate::{
    Connected,
    reply::{Reply, Unreadable},
    request::{self, Family},
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_SOCK_DIAG};
use std::io;

/// Cause of a failed request.
#[derive(Debug, thiserror::Error)]
pub enum DiagError {
    #[error("cannot open a netlink socket")]
    Open(#[source] io::Error),
    #[error("cannot send to the kernel")]
    Send(#[source] io::Error),
    #[error("cannot receive the kernel's reply")]
    Receive(#[source] io::Error),
    #[error("cannot parse the kernel's reply")]
    Parse(#[from] Unreadable),
    #[error("cannot list UDP sockets: the kernel has no `udp_diag`; load this module")]
    NoList,
    #[error(
        "cannot close UDP sockets: the kernel lacks CONFIG_INET_DIAG_DESTROY; use a kernel with this option"
    )]
    NoClose,
    /// The capability is missing in the user namespace that owns the network namespace.
    #[error("cannot close UDP sockets: permission denied; add the capability NET_ADMIN")]
    Forbidden,
    #[error("cannot list UDP sockets")]
    ListRefused(#[source] io::Error),
    #[error("cannot close a UDP socket")]
    CloseRefused(#[source] io::Error),
}

impl DiagError {
    /// True if the kernel has no such request.
    pub fn is_unsupported(&self) -> bool {
        matches!(self, Self::NoList | Self::NoClose)
    }
}

/// The UDP sockets of the network namespace in which it was opened.
pub struct Sockets {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Sockets {
    /// # Errors
    /// If the kernel has no sock_diag, or the process has no room for a socket.
    pub fn open() -> Result<Self, DiagError> {
        let opened = match open() {
            Err(cause) if cause.raw_os_error() == Some(EPROTONOSUPPORT) => {
                return Err(DiagError::NoList);
            }
            opened => opened.map_err(DiagError::Open)?,
        };
        Ok(Self { socket: opened, sequence: 0, buffer: Vec::with_capacity(RECEIVE_BYTES) })
    }

    /// Lists the connected sockets of both families for which `keep` is true. Blocks until the kernel has sent all.
    ///
    /// # Errors
    /// If the kernel cannot list them, or the netlink socket fails.
    pub fn connected(
        &mut self,
        mut keep: impl FnMut(&Connected) -> bool,
    ) -> Result<Vec<Connected>, DiagError> {
        let mut sockets = Vec::new();
        for family in Family::ALL {
            let reply = self.ask(|sequence| request::list(family, sequence), &mut keep)?;
            match reply.refusal() {
                None => sockets.extend(reply.into_sockets()),
                Some(code) => return Err(list_fault(code)),
            }
        }
        Ok(sockets)
    }

    /// Closes a socket. Returns false if it has another peer now, or does not exist.
    ///
    /// # Errors
    /// If the kernel cannot close it, or the netlink socket fails.
    pub fn close(&mut self, socket: &Connected) -> Result<bool, DiagError> {
        let reply = self.ask(|sequence| request::close(socket, sequence), |_: &Connected| false)?;
        is_closed(reply.refusal())
    }

    fn ask<K: FnMut(&Connected) -> bool>(
        &mut self,
        request: impl FnOnce(u32) -> Vec<u8>,
        keep: K,
    ) -> Result<Reply<K>, DiagError> {
        self.sequence = self.sequence.wrapping_add(1);
        self.socket.send(&request(self.sequence), 0).map_err(DiagError::Send)?;
        let mut reply = Reply::to(self.sequence, keep);
        while !reply.read(self.receive()?)? {}
        Ok(reply)
    }

    fn receive(&mut self) -> Result<&[u8], DiagError> {
        self.buffer.clear();
        // With MSG_TRUNC the kernel returns the length of the datagram, even if the buffer is shorter.
        let received = loop {
            match self.socket.recv(&mut self.buffer, MSG_TRUNC) {
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
                received => break received.map_err(DiagError::Receive)?,
            }
        };
        Ok(self.buffer.get(..received).ok_or(Unreadable::Datagram(received))?)
    }
}

fn open() -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    Ok(socket)
}

fn list_fault(code: i32) -> DiagError {
    match code {
        // No module has registered UDP, or the family, and the kernel cannot load one.
        ENOENT => DiagError::NoList,
        code => DiagError::ListRefused(io::Error::from_raw_os_error(code)),
    }
}

fn is_closed(refusal: Option<i32>) -> Result<bool, DiagError> {
    match refusal {
        None => Ok(true),
        // No socket with these addresses and ports, or one with another cookie.
        Some(ENOENT | ESTALE) => Ok(false),
        Some(EPERM) => Err(DiagError::Forbidden),
        Some(EOPNOTSUPP) => Err(DiagError::NoClose),
        Some(code) => Err(DiagError::CloseRefused(io::Error::from_raw_os_error(code))),
    }
}

/// The kernel fills at most 32 KiB with one part of a list.
const RECEIVE_BYTES: usize = 64 * 1024;
/// linux/socket.h
const MSG_TRUNC: i32 = 0x20;
// asm-generic/errno-base.h and errno.h
const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const EPROTONOSUPPORT: i32 = 93;
const EOPNOTSUPP: i32 = 95;
const ESTALE: i32 = 116;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_to_close_has_its_meaning() {
        assert!(matches!(is_closed(None), Ok(true)));
        for gone in [ENOENT, ESTALE] {
            assert!(matches!(is_closed(Some(gone)), Ok(false)), "{gone}");
        }
        assert!(matches!(is_closed(Some(EPERM)), Err(DiagError::Forbidden)));
        let unsupported = is_closed(Some(EOPNOTSUPP)).err();
        assert!(unsupported.is_some_and(|error| error.is_unsupported()));
        let other = is_closed(Some(12)).err();
        assert!(other.is_some_and(|error| !error.is_unsupported()));
    }

    #[test]
    fn a_kernel_without_the_module_lists_nothing() {
        assert!(list_fault(ENOENT).is_unsupported());
        assert!(!list_fault(12).is_unsupported());
    }
}

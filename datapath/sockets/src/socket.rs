//! The netlink socket.

use crate::{
    Connected, Listener, Transport,
    reply::{Reply, Unconnected, Unreadable},
    request::{self, Family},
};
use datapath_netlink::{KernelSocket, SocketError};
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use std::{io, net::SocketAddr};

/// Cause of a failed request.
#[derive(Debug, thiserror::Error)]
pub enum DiagError {
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error("cannot parse the kernel's reply")]
    Parse(#[from] Unreadable),
    #[error("cannot list sockets: the kernel lacks `udp_diag` or `tcp_diag`; load these modules")]
    NoList,
    #[error(
        "cannot close UDP sockets: the kernel lacks CONFIG_INET_DIAG_DESTROY; use a kernel with this option"
    )]
    NoClose,
    /// The capability is missing in the user namespace that owns the network namespace.
    #[error("cannot close UDP sockets: permission denied; add the capability NET_ADMIN")]
    Forbidden,
    #[error("cannot list sockets")]
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

/// The sockets of the network namespace in which it was opened.
pub struct Sockets {
    kernel: KernelSocket,
    sequence: u32,
}

impl Sockets {
    /// # Errors
    /// If the kernel has no sock_diag, or the process has no room for a socket.
    pub fn open() -> Result<Self, DiagError> {
        match KernelSocket::open(NETLINK_SOCK_DIAG) {
            Err(error) if error.is_without_protocol() => Err(DiagError::NoList),
            opened => Ok(Self { kernel: opened?, sequence: 0 }),
        }
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
            let sequence = self.next();
            let mut reply = Reply::to(sequence, &mut keep);
            self.ask(&request::list(family, sequence), |datagram| reply.read(datagram))?;
            list_result(reply.refusal())?;
            sockets.extend(reply.into_sockets());
        }
        Ok(sockets)
    }

    /// Lists the TCP sockets that listen, and the UDP sockets without a peer, of both families, at the addresses for which
    /// `keep` is true. Blocks until the kernel has sent all.
    ///
    /// # Errors
    /// If the kernel cannot list them, or the netlink socket fails.
    pub fn listeners(
        &mut self,
        mut keep: impl FnMut(SocketAddr) -> bool,
    ) -> Result<Vec<Listener>, DiagError> {
        let mut listeners = Vec::new();
        for transport in [Transport::Tcp, Transport::Udp] {
            for family in Family::ALL {
                let sequence = self.next();
                let request = request::list_unconnected(family, transport, sequence);
                let mut reply = Unconnected::to(sequence, &mut keep);
                self.ask(&request, |datagram| reply.read(datagram))?;
                list_result(reply.refusal())?;
                let locals = reply.locals.into_iter();
                listeners.extend(locals.map(|local| Listener { transport, local }));
            }
        }
        Ok(listeners)
    }

    /// Closes a socket. Returns false if it has another peer now, or does not exist.
    ///
    /// # Errors
    /// If the kernel cannot close it, or the netlink socket fails.
    pub fn close(&mut self, socket: &Connected) -> Result<bool, DiagError> {
        let sequence = self.next();
        let mut reply = Reply::to(sequence, |_: &Connected| false);
        self.ask(&request::close(socket, sequence), |datagram| reply.read(datagram))?;
        is_closed(reply.refusal())
    }

    /// The number of the next request.
    fn next(&mut self) -> u32 {
        self.sequence = self.sequence.wrapping_add(1);
        self.sequence
    }

    /// Sends a request, and receives datagrams until one completes the reply.
    fn ask(
        &mut self,
        request: &[u8],
        mut read: impl FnMut(&[u8]) -> Result<bool, Unreadable>,
    ) -> Result<(), DiagError> {
        self.kernel.send(request)?;
        while !read(self.kernel.receive()?)? {}
        Ok(())
    }
}

/// The result of a list that the kernel ended with this error number.
fn list_result(refusal: Option<i32>) -> Result<(), DiagError> {
    refusal.map_or(Ok(()), |code| Err(list_fault(code)))
}

fn list_fault(code: i32) -> DiagError {
    match code {
        // No module has registered the protocol, or the family, and the kernel cannot load one.
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

// asm-generic/errno-base.h and errno.h
const EPERM: i32 = 1;
const ENOENT: i32 = 2;
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

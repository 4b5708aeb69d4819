//! The sockets of one prober: made inside its network namespace, used from anywhere.

use super::{
    Reason,
    packet::{Message, Request, parse},
};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{
        AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, recv, sendto,
        setsockopt, socket, sockopt,
    },
};
use std::{
    io,
    net::Ipv4Addr,
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd},
    time::Duration,
};

/// A socket that sends whole IP packets, and one that hears ICMP.
pub(super) struct EchoSocket {
    sender: OwnedFd,
    hearer: OwnedFd,
}

impl EchoSocket {
    /// Opens both in the calling thread's network namespace.
    pub(super) fn open() -> io::Result<Self> {
        let open = |protocol| {
            let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
            socket(AddressFamily::Inet, SockType::Raw, flags, protocol)
        };
        // A raw socket of protocol RAW takes packets with their IP header, flags and all.
        let (sender, hearer) = (open(SockProtocol::Raw)?, open(SockProtocol::Icmp)?);
        setsockopt(&hearer, sockopt::RcvBufForce, &RECEIVE_BUFFER)?;
        setsockopt(&sender, sockopt::SndBuf, &RECEIVE_BUFFER)?;
        Ok(Self { sender, hearer })
    }

    /// Sends one echo request.
    pub(super) fn send(
        &self,
        request: &mut Request,
        from: Ipv4Addr,
        to: Ipv4Addr,
    ) -> Result<(), Reason> {
        let [a, b, c, d] = to.octets();
        let at = SockaddrIn::new(a, b, c, d, 0);
        match sendto(self.sender.as_raw_fd(), request.between(from, to), &at, MsgFlags::empty()) {
            Ok(_) => Ok(()),
            Err(Errno::EMSGSIZE) => Err(Reason::TooBig),
            Err(Errno::ENETUNREACH | Errno::EHOSTUNREACH) => Err(Reason::Unreachable { from }),
            Err(other) => Err(Reason::Refused { error: other.desc().to_owned() }),
        }
    }

    /// What is there to be heard.
    fn drain(&self, buffer: &mut [u8]) -> io::Result<Vec<Message>> {
        let mut heard = Vec::new();
        loop {
            match recv(self.hearer.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(length) => heard.extend(parse(&buffer[..length])),
                Err(Errno::EAGAIN) => return Ok(heard),
                Err(Errno::EINTR) => {}
                Err(other) => return Err(other.into()),
            }
        }
    }
}

/// Waits until one of the sockets has something to be heard; what each heard, by its place.
pub(super) fn hear(
    sockets: &[&EchoSocket],
    patience: Duration,
) -> io::Result<Vec<(usize, Vec<Message>)>> {
    let mut polled: Vec<PollFd<'_>> = sockets
        .iter()
        .map(|socket| PollFd::new(socket.hearer.as_fd(), PollFlags::POLLIN))
        .collect();
    let timeout = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
    match poll(&mut polled, timeout) {
        Ok(_) => {}
        Err(Errno::EINTR) => return Ok(Vec::new()),
        Err(other) => return Err(other.into()),
    }
    // Errors only quote the packet: what does not fit is not looked at.
    let mut buffer = [0; 256];
    let ready = polled.iter().enumerate().filter(|(_, fd)| fd.any().unwrap_or(true));
    ready.map(|(at, _)| Ok((at, sockets[at].drain(&mut buffer)?))).collect()
}

/// Room for a few hundred full-size packets.
const RECEIVE_BUFFER: usize = 8 << 20;

//! The sockets of one prober: made inside its network namespace, used from anywhere.

use super::{
    Reason,
    packet::{Message, Request, parse, parse_v6},
};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{
        AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, SockaddrIn6, bind,
        recv, recvfrom, sendto, setsockopt, socket, sockopt,
    },
};
use std::{
    io,
    net::{IpAddr, Ipv6Addr, SocketAddrV6},
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd},
    time::Duration,
};

/// The socket that receives ICMP, and the one that sends.
pub(super) struct EchoSocket {
    hearer: OwnedFd,
    /// Sends whole IPv4 packets. ICMPv6 leaves by the receiving socket.
    sender: Option<OwnedFd>,
}

impl EchoSocket {
    /// Opens them in the calling thread's network namespace, to send from this address.
    pub(super) fn open(from: IpAddr) -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        if let IpAddr::V6(from) = from {
            let protocol = SockProtocol::IcmpV6;
            let hearer = socket(AddressFamily::Inet6, SockType::Raw, flags, protocol)?;
            bind(hearer.as_raw_fd(), &at_v6(from))?;
            setsockopt(&hearer, sockopt::Ipv6DontFrag, &true)?;
            setsockopt(&hearer, sockopt::RcvBufForce, &RECEIVE_BUFFER)?;
            setsockopt(&hearer, sockopt::SndBuf, &RECEIVE_BUFFER)?;
            return Ok(Self { hearer, sender: None });
        }
        let open = |protocol| socket(AddressFamily::Inet, SockType::Raw, flags, protocol);
        // A raw socket of protocol RAW takes packets with their IP header, flags and all.
        let (sender, hearer) = (open(SockProtocol::Raw)?, open(SockProtocol::Icmp)?);
        setsockopt(&hearer, sockopt::RcvBufForce, &RECEIVE_BUFFER)?;
        setsockopt(&sender, sockopt::SndBuf, &RECEIVE_BUFFER)?;
        Ok(Self { hearer, sender: Some(sender) })
    }

    /// Sends one echo request.
    pub(super) fn send(
        &self,
        request: &mut Request,
        from: IpAddr,
        to: IpAddr,
    ) -> Result<(), Reason> {
        let sent = match (from, to, &self.sender) {
            (IpAddr::V4(from), IpAddr::V4(to), Some(sender)) => {
                let [a, b, c, d] = to.octets();
                let at = SockaddrIn::new(a, b, c, d, 0);
                sendto(sender.as_raw_fd(), request.between(from, to), &at, MsgFlags::empty())
            }
            (IpAddr::V6(_), IpAddr::V6(to), None) => {
                sendto(self.hearer.as_raw_fd(), request.v6(), &at_v6(to), MsgFlags::empty())
            }
            _ => Err(Errno::EAFNOSUPPORT),
        };
        match sent {
            Ok(_) => Ok(()),
            Err(Errno::EMSGSIZE) => Err(Reason::TooBig),
            Err(Errno::ENETUNREACH | Errno::EHOSTUNREACH) => Err(Reason::Unreachable { from }),
            Err(other) => Err(Reason::Refused { error: other.desc().to_owned() }),
        }
    }

    /// All messages in the socket's queue.
    fn drain(&self, buffer: &mut [u8]) -> io::Result<Vec<Message>> {
        let mut received = Vec::new();
        while self.sender.is_none() {
            match recvfrom::<SockaddrIn6>(self.hearer.as_raw_fd(), buffer) {
                Ok((length, from)) => {
                    let from = from.map_or(Ipv6Addr::UNSPECIFIED, |from| from.ip());
                    received.extend(parse_v6(from, &buffer[..length.min(buffer.len())]));
                }
                Err(Errno::EAGAIN) => return Ok(received),
                Err(Errno::EINTR) => {}
                Err(other) => return Err(other.into()),
            }
        }
        loop {
            match recv(self.hearer.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(length) => received.extend(parse(&buffer[..length])),
                Err(Errno::EAGAIN) => return Ok(received),
                Err(Errno::EINTR) => {}
                Err(other) => return Err(other.into()),
            }
        }
    }
}

fn at_v6(address: Ipv6Addr) -> SockaddrIn6 {
    SockaddrIn6::from(SocketAddrV6::new(address, 0, 0, 0))
}

/// Waits until one of the sockets has a message. The result has the messages of each socket, at its index.
pub(super) fn receive(
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

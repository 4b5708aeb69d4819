//! Frames to pods.

use config_model::causes;
use nix::{
    ifaddrs::getifaddrs,
    sys::socket::{
        AddressFamily, LinkAddr, MsgFlags, SockFlag, SockType, SockaddrLike as _, sendto,
        setsockopt, socket, sockopt::Mark,
    },
};
use std::{
    collections::BTreeMap,
    os::fd::{AsRawFd as _, OwnedFd},
};

/// A packet socket. Its frames bypass the programs by their mark.
pub(super) struct Packets {
    socket: OwnedFd,
    mark: u32,
    links: BTreeMap<u32, LinkAddr>,
}

impl Packets {
    /// Opens the socket. It receives nothing.
    pub(super) fn open() -> Result<Self, String> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Packet, SockType::Raw, flags, None);
        let socket = socket.map_err(|error| {
            let why = causes(&error);
            format!("cannot open a packet socket: {why}; add CAP_NET_RAW to ferrule-agent")
        })?;
        let mut mark = [0; 4];
        let filled = rustix::rand::getrandom(&mut mark, rustix::rand::GetRandomFlags::empty());
        filled.map_err(|error| format!("cannot draw a random number: {}", causes(&error)))?;
        // 0 is the mark of other packets.
        let mark = u32::from_ne_bytes(mark) | 1;
        let marked = setsockopt(&socket, Mark, &mark);
        marked.map_err(|error| format!("cannot mark packets: {}", causes(&error)))?;
        Ok(Self { socket, mark, links: BTreeMap::new() })
    }

    /// The mark of these packets. It is random, and a pod cannot give its packets a mark that leaves its namespace.
    pub(super) fn mark(&self) -> u32 {
        self.mark
    }

    /// Sends a frame out of a link.
    pub(super) fn send(&mut self, link: u32, frame: &[u8]) -> Result<(), String> {
        let to = self.address(link)?;
        let sent = sendto(self.socket.as_raw_fd(), frame, &to, MsgFlags::MSG_DONTWAIT);
        sent.map(|_| ()).map_err(|error| causes(&error))
    }

    fn address(&mut self, link: u32) -> Result<LinkAddr, String> {
        if let Some(address) = self.links.get(&link) {
            return Ok(*address);
        }
        let all = getifaddrs().map_err(|error| causes(&error))?;
        let links = all.filter_map(|of| of.address?.as_link_addr().copied());
        // The protocol is 0 in them: the kernel reads it from the frame.
        self.links = links
            .filter(|address| address.family() == Some(AddressFamily::Packet))
            .filter_map(|address| Some((u32::try_from(address.ifindex()).ok()?, address)))
            .collect();
        self.links.get(&link).copied().ok_or_else(|| "the link does not exist".to_owned())
    }
}

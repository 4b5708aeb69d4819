//! Datagrams to another probe: round-trip times, and the largest packet that arrives.

use super::answer::{GREETING, Reached, greeted};
use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use routing_netlink::Socket;
use rustix::net::sockopt::{
    Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, set_ip_mtu_discover, set_ipv6_mtu_discover,
};
use std::{
    io,
    net::IpAddr,
    time::{Duration, Instant},
};
use tokio::{net::UdpSocket, time::timeout};

/// Sends a datagram and waits for its echo, then measures a few more.
pub(super) async fn echo(to: &str) -> io::Result<Reached> {
    let mut peer = Peer::connect(to).await?;
    // The first one also waits for neighbor and conntrack entries.
    let first = peer.round_trip(None).await?;
    let mut times = Vec::new();
    for _ in 0..ROUND_TRIPS {
        // A lost datagram lacks in the measurement.
        if let Ok(Ok(time)) = timeout(SHORT, peer.round_trip(None)).await {
            times.push(time);
        }
    }
    times.sort_unstable();
    let median = times.get(times.len() / 2).unwrap_or(&first);
    let micros = u64::try_from(median.as_micros()).unwrap_or(u64::MAX);
    Ok(Reached { micros: Some(micros), ..Reached::default() })
}

/// Sends a packet of the size of the interface's MTU. Neither this node nor a router may fragment it.
pub(super) async fn large(to: &str) -> io::Result<Reached> {
    let mut peer = Peer::connect(to).await?;
    peer.forbid_fragments()?;
    let mtu = peer.mtu()?;
    peer.round_trip(Some(mtu)).await?;
    Ok(Reached { mtu: Some(mtu), ..Reached::default() })
}

/// Returns the MTU of the interface and the size of the largest packet that arrives, up to that MTU; `None` if no packet
/// arrives.
pub(super) async fn largest(to: &str) -> io::Result<(u32, Option<u32>)> {
    let mut peer = Peer::connect(to).await?;
    peer.forbid_fragments()?;
    let mtu = peer.mtu()?;
    if !peer.gets(SMALLEST).await {
        return Ok((mtu, None));
    }
    let (mut arrived, mut lost) = (SMALLEST, mtu);
    while lost.saturating_sub(arrived) > 1 {
        let size = arrived.midpoint(lost);
        match peer.gets(size).await {
            true => arrived = size,
            false => lost = size,
        }
    }
    Ok((mtu, Some(arrived)))
}

/// Another probe.
struct Peer {
    socket: UdpSocket,
    local: IpAddr,
    /// The number of the last datagram. Its answer repeats the number.
    number: u32,
}

impl Peer {
    async fn connect(to: &str) -> io::Result<Self> {
        let family = if to.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
        let socket = UdpSocket::bind(family).await?;
        socket.connect(to).await?;
        let local = socket.local_addr()?.ip();
        Ok(Self { socket, local, number: 0 })
    }

    /// Sets DF, and ignores path MTUs that the kernel has learned.
    fn forbid_fragments(&self) -> io::Result<()> {
        match self.local {
            IpAddr::V4(_) => set_ip_mtu_discover(&self.socket, Ipv4PathMtuDiscovery::PROBE)?,
            IpAddr::V6(_) => set_ipv6_mtu_discover(&self.socket, Ipv6PathMtuDiscovery::PROBE)?,
        }
        Ok(())
    }

    async fn gets(&mut self, size: u32) -> bool {
        matches!(timeout(SHORT, self.round_trip(Some(size))).await, Ok(Ok(_)))
    }

    /// Returns the time until the answer to one datagram. `size` is that of the packet with its headers.
    async fn round_trip(&mut self, size: Option<u32>) -> io::Result<Duration> {
        self.number += 1;
        let head = format!("{GREETING} {:08}", self.number);
        let datagram = self.payload(&head, size.unwrap_or_default());
        let begun = Instant::now();
        self.socket.send(&datagram).await?;
        loop {
            let mut answer = [0; ANSWER];
            let length = self.socket.recv(&mut answer).await?;
            let time = begun.elapsed();
            let answer = answer.get(..length).unwrap_or_default();
            greeted(answer)?;
            // The answer to an earlier datagram can be late.
            if answer.starts_with(head.as_bytes()) {
                return Ok(time);
            }
        }
    }

    fn payload(&self, head: &str, size: u32) -> Vec<u8> {
        let headers = match self.local {
            IpAddr::V4(_) => 20 + UDP_HEADER,
            IpAddr::V6(_) => 40 + UDP_HEADER,
        };
        let size = usize::try_from(size).unwrap_or(PACKET_MAX).min(PACKET_MAX);
        let mut payload = head.as_bytes().to_vec();
        payload.resize(size.saturating_sub(headers).max(payload.len()), 0);
        payload
    }

    /// Returns the MTU of the interface that has the socket's address.
    fn mtu(&self) -> io::Result<u32> {
        let local = self.local;
        let mut interfaces = getifaddrs()?;
        let interface = interfaces.find(|it| address(it) == Some(local));
        let none = || io::Error::other(format!("no interface has {local}"));
        let name = interface.ok_or_else(none)?.interface_name;
        let link = Socket::open().and_then(|mut socket| socket.link_named(&name));
        let link = link.map_err(io::Error::other)?;
        link.map(|link| link.mtu).ok_or_else(none)
    }
}

fn address(interface: &InterfaceAddress) -> Option<IpAddr> {
    let storage = interface.address.as_ref()?;
    let v4 = storage.as_sockaddr_in().map(|it| IpAddr::V4(it.ip()));
    v4.or_else(|| storage.as_sockaddr_in6().map(|it| IpAddr::V6(it.ip())))
}

/// Every path of IPv6 carries this size, and in practice every path of IPv4.
const SMALLEST: u32 = 1280;
const UDP_HEADER: usize = 8;
/// The largest size of an IPv4 packet; the loopback's MTU is larger.
const PACKET_MAX: usize = 65_535;
const ROUND_TRIPS: usize = 5;
const SHORT: Duration = Duration::from_millis(500);
const ANSWER: usize = 64;

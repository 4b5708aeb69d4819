//! Requests from a network namespace, many at once.

use crate::proxy::NetworkNamespace;
use anyhow::{Context as _, Result};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, recvfrom, sendto,
    setsockopt, socket, sockopt::ReceiveTimeout,
};
use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
    os::fd::AsRawFd as _,
    sync::atomic::{AtomicU16, Ordering},
    time::{Duration, Instant},
};
use tokio::{
    io::AsyncReadExt as _,
    net::{TcpStream, UdpSocket},
    time::timeout,
};

/// A request without an answer in this time counts as dropped.
pub(crate) const SILENCE: Duration = Duration::from_millis(1500);
/// The interval between two datagrams of a request over UDP, which can be lost.
const AGAIN: Duration = Duration::from_millis(500);

/// The identifiers of echo requests. An answer to an earlier request has another one.
static NUMBERS: AtomicU16 = AtomicU16::new(1);

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ask {
    Tcp(SocketAddr),
    Udp(SocketAddr),
    /// An echo request.
    Icmp(Ipv4Addr),
}

/// Sends all requests at once from the namespace. Returns the answer to each: the text of the server, which is empty
/// for ICMP, or `None` without an answer.
pub(crate) fn ask_all(from: &NetworkNamespace, asks: &[Ask]) -> Result<Vec<Option<String>>> {
    from.within(|| {
        let echoes = asks.iter().filter_map(|ask| match ask {
            Ask::Icmp(to) => Some(*to),
            Ask::Tcp(_) | Ask::Udp(_) => None,
        });
        let echoed = echo(&echoes.collect())?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            // A task is polled on this thread, so its sockets are in the namespace.
            let tasks = asks.iter().map(|ask| {
                let ask = *ask;
                let is_echoed = matches!(ask, Ask::Icmp(to) if echoed.contains(&to));
                tokio::spawn(async move {
                    match ask {
                        Ask::Tcp(to) => tcp(to).await,
                        Ask::Udp(to) => udp(to).await,
                        Ask::Icmp(_) => is_echoed.then(String::new),
                    }
                })
            });
            let tasks: Vec<_> = tasks.collect();
            let mut answers = Vec::new();
            for task in tasks {
                answers.push(task.await.context("a request panicked")?);
            }
            Ok(answers)
        })
    })
}

async fn tcp(to: SocketAddr) -> Option<String> {
    let answer = async {
        let mut stream = TcpStream::connect(to).await.ok()?;
        let mut answer = [0; 64];
        let length = stream.read(&mut answer).await.ok().filter(|length| *length > 0)?;
        Some(String::from_utf8_lossy(&answer[..length]).into_owned())
    };
    timeout(SILENCE, answer).await.ok().flatten()
}

async fn udp(to: SocketAddr) -> Option<String> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await.ok()?;
    socket.connect(to).await.ok()?;
    let began = Instant::now();
    while began.elapsed() < SILENCE {
        // An ICMP error about the datagram before is an error of this call.
        let _ = socket.send(b"?").await;
        let mut answer = [0; 64];
        if let Ok(Ok(length)) = timeout(AGAIN, socket.recv(&mut answer)).await {
            return Some(String::from_utf8_lossy(&answer[..length]).into_owned());
        }
    }
    None
}

/// Sends an echo request to each address. Returns the addresses that answer.
fn echo(to: &BTreeSet<Ipv4Addr>) -> Result<BTreeSet<Ipv4Addr>> {
    let mut answered = BTreeSet::new();
    if to.is_empty() {
        return Ok(answered);
    }
    let raw = socket(AddressFamily::Inet, SockType::Raw, SockFlag::empty(), SockProtocol::Icmp)?;
    setsockopt(&raw, ReceiveTimeout, &nix::sys::time::TimeVal::new(0, 100_000))?;
    let id = NUMBERS.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    for address in to {
        let mut packet = [8, 0, 0, 0, id[0], id[1], 0, 1];
        let sum = checksum(&packet).to_be_bytes();
        packet[2..4].copy_from_slice(&sum);
        let address = SockaddrIn::from(SocketAddrV4::new(*address, 0));
        // A full queue or an ICMP error loses the request. The caller repeats it.
        let _ = sendto(raw.as_raw_fd(), &packet, &address, MsgFlags::empty());
    }
    let began = Instant::now();
    while began.elapsed() < SILENCE && answered.len() < to.len() {
        let mut packet = [0; 128];
        let Ok((length, Some(from))) = recvfrom::<SockaddrIn>(raw.as_raw_fd(), &mut packet) else {
            continue;
        };
        // The IPv4 header comes first.
        let start = usize::from(packet[0] & 15) * 4;
        let Some(icmp) = packet.get(start..length) else { continue };
        if icmp.first() == Some(&0) && icmp.get(4..6) == Some(&id[..]) {
            answered.insert(from.ip());
        }
    }
    Ok(answered)
}

fn checksum(packet: &[u8]) -> u16 {
    let words =
        packet.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum();
    let [_, carry, high, low] = sum.to_be_bytes();
    !(u16::from_be_bytes([high, low]).wrapping_add(u16::from(carry)))
}

//! The bytes of echo requests and of what comes back. Pure.

use super::Reason;
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    process,
    sync::atomic::{AtomicU16, Ordering},
};

/// A message of a raw ICMP socket that concerns a prober.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// The answer.
    Reply {
        /// Source address of the answer.
        from: IpAddr,
        /// The prober.
        id: u16,
    },
    /// An error about an echo.
    Error {
        /// The prober.
        id: u16,
        /// Destination of the echo.
        to: IpAddr,
        reason: Reason,
    },
}

/// An id that no other prober of this machine has just now.
pub(super) fn fresh_id() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let [_, _, high, low] = process::id().to_be_bytes();
    u16::from_be_bytes([high, low]).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed))
}

const IP_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
const ICMP_HEADER: usize = 8;
const ICMP: u8 = 1;
const ECHO_REPLY: u8 = 0;
const UNREACHABLE: u8 = 3;
const FRAGMENTATION_NEEDED: u8 = 4;
const ECHO_REQUEST: u8 = 8;
const DONT_FRAGMENT: u8 = 0x40;
const ICMP_V6: u8 = 58;
const UNREACHABLE_V6: u8 = 1;
const TOO_BIG_V6: u8 = 2;
const ECHO_REQUEST_V6: u8 = 128;
const ECHO_REPLY_V6: u8 = 129;

/// An echo request of this size, IP header included, that must not be fragmented.
///
/// Its ICMP part, checksum and all, is the same for every pair of one try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    packet: Vec<u8>,
    v6: Vec<u8>,
}

impl Request {
    pub(super) fn new(id: u16, seq: u16, bytes: u16) -> Self {
        let bytes = bytes.max(28);
        let mut packet = vec![0x5a; usize::from(bytes)];
        packet[..IP_HEADER].fill(0);
        packet[0] = 0x45;
        packet[2..4].copy_from_slice(&bytes.to_be_bytes());
        packet[6] = DONT_FRAGMENT;
        packet[8] = 64;
        packet[9] = ICMP;
        // The kernel fills the IP header's checksum, and leaves ICMP's to us.
        let icmp = &mut packet[IP_HEADER..];
        icmp[..4].copy_from_slice(&[ECHO_REQUEST, 0, 0, 0]);
        icmp[4..6].copy_from_slice(&id.to_be_bytes());
        icmp[6..8].copy_from_slice(&seq.to_be_bytes());
        let sum = checksum(icmp);
        icmp[2..4].copy_from_slice(&sum.to_be_bytes());
        let mut v6 = vec![0x5a; usize::from(bytes).max(IPV6_HEADER + ICMP_HEADER) - IPV6_HEADER];
        // The kernel fills ICMPv6's checksum.
        v6[..4].copy_from_slice(&[ECHO_REQUEST_V6, 0, 0, 0]);
        v6[4..6].copy_from_slice(&id.to_be_bytes());
        v6[6..8].copy_from_slice(&seq.to_be_bytes());
        Self { packet, v6 }
    }

    /// The ICMPv6 part, the same for every pair.
    pub(super) fn v6(&self) -> &[u8] {
        &self.v6
    }

    /// The bytes for one pair.
    pub(super) fn between(&mut self, from: Ipv4Addr, to: Ipv4Addr) -> &[u8] {
        self.packet[12..16].copy_from_slice(&from.octets());
        self.packet[16..20].copy_from_slice(&to.octets());
        &self.packet
    }
}

fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| match pair {
        [high, low] => u16::from_be_bytes([*high, *low]),
        [high] => u16::from_be_bytes([*high, 0]),
        _ => 0,
    });
    !words.fold(0, |sum: u16, word| {
        let (sum, carried) = sum.overflowing_add(word);
        sum + u16::from(carried)
    })
}

/// Reads an IP packet that a raw ICMP socket delivered.
pub(super) fn parse(packet: &[u8]) -> Option<Message> {
    let (from, _, icmp) = split(packet)?;
    let from = IpAddr::V4(from);
    let (kind, code) = (*icmp.first()?, *icmp.get(1)?);
    match kind {
        ECHO_REPLY => Some(Message::Reply { from, id: word(icmp, 4)? }),
        UNREACHABLE => {
            let (_, to, inner) = split(icmp.get(ICMP_HEADER..)?)?;
            let (id, _) = (word(inner, 4)?, word(inner, 6)?);
            let reason = if code == FRAGMENTATION_NEEDED {
                Reason::FragmentationNeeded { from, mtu: word(icmp, 6)? }
            } else {
                Reason::Unreachable { from }
            };
            let to = IpAddr::V4(to);
            (*inner.first()? == ECHO_REQUEST).then_some(Message::Error { id, to, reason })
        }
        _ => None,
    }
}

/// Reads an ICMPv6 message that a raw socket delivered.
pub(super) fn parse_v6(from: Ipv6Addr, icmp: &[u8]) -> Option<Message> {
    let from = IpAddr::V6(from);
    let reason = match *icmp.first()? {
        ECHO_REPLY_V6 => return Some(Message::Reply { from, id: word(icmp, 4)? }),
        UNREACHABLE_V6 => Reason::Unreachable { from },
        // The MTU has four bytes; none of ours needs more than the lower two.
        TOO_BIG_V6 => Reason::FragmentationNeeded { from, mtu: word(icmp, 6)? },
        _ => return None,
    };
    let quoted = icmp.get(ICMP_HEADER..)?;
    let to: [u8; 16] = quoted.get(24..IPV6_HEADER)?.try_into().ok()?;
    let inner = quoted.get(IPV6_HEADER..)?;
    let ours = *quoted.get(6)? == ICMP_V6 && *inner.first()? == ECHO_REQUEST_V6;
    let id = word(inner, 4)?;
    ours.then_some(Message::Error { id, to: IpAddr::from(to), reason })
}

/// Source, destination and what follows the IP header.
fn split(packet: &[u8]) -> Option<(Ipv4Addr, Ipv4Addr, &[u8])> {
    let header = usize::from(packet.first()? & 0x0f) * 4;
    let address = |at: usize| {
        let bytes: [u8; 4] = packet.get(at..at + 4)?.try_into().ok()?;
        Some(Ipv4Addr::from(bytes))
    };
    (*packet.get(9)? == ICMP).then_some(())?;
    Some((address(12)?, address(16)?, packet.get(header..)?))
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    const FROM: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 7);
    const TO: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 9);

    #[test]
    fn a_request_has_its_size_its_flag_and_a_right_checksum() {
        let mut request = Request::new(0xbeef, 2, 9001);
        let packet = request.between(FROM, TO);
        assert_eq!((packet.len(), packet[6]), (9001, DONT_FRAGMENT));
        assert_eq!(checksum(&packet[IP_HEADER..]), 0);
        assert_eq!(parse(packet), None, "a request is no answer");
    }

    #[test]
    fn an_error_is_identified_by_the_packet_that_it_quotes() {
        let router = Ipv4Addr::new(10, 0, 1, 1);
        let mut error = Request::new(0, 0, 28).between(router, FROM).to_vec();
        error[IP_HEADER..].copy_from_slice(&[
            UNREACHABLE,
            FRAGMENTATION_NEEDED,
            0,
            0,
            0,
            0,
            5,
            220,
        ]);
        error.extend_from_slice(&Request::new(0xbeef, 2, 9001).between(FROM, TO)[..28]);
        let reason = Reason::FragmentationNeeded { from: router.into(), mtu: 1500 };
        let told = Message::Error { id: 0xbeef, to: TO.into(), reason };
        assert_eq!(parse(&error).unwrap(), told);
        for cut in 0..error.len() {
            assert_eq!(parse(&error[..cut]), None, "cut at {cut}");
        }
    }

    #[test]
    fn an_ipv6_error_is_identified_by_the_packet_that_it_quotes() {
        let (router, to) = ("fe80::1".parse().unwrap(), "2001:db8::9".parse::<Ipv6Addr>().unwrap());
        let mut error = vec![TOO_BIG_V6, 0, 0, 0, 0, 0, 5, 220];
        let mut header = [0; IPV6_HEADER];
        header[6] = ICMP_V6;
        header[24..].copy_from_slice(&to.octets());
        error.extend_from_slice(&header);
        error.extend_from_slice(&Request::new(0xbeef, 2, 9001).v6()[..8]);
        let reason = Reason::FragmentationNeeded { from: IpAddr::V6(router), mtu: 1500 };
        let told = Message::Error { id: 0xbeef, to: to.into(), reason };
        assert_eq!(parse_v6(router, &error), Some(told));
        for cut in 0..error.len() - 2 {
            assert_eq!(parse_v6(router, &error[..cut]), None, "cut at {cut}");
        }
        assert_eq!(Request::new(1, 1, 9001).v6().len(), 9001 - IPV6_HEADER);
    }
}

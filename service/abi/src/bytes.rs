//! Rows as bytes.

use crate::{TableSize, TableSlot};
use ipnet::{IpNet, Ipv6Net};
use service_core::Place;
use service_objects::{Family, Protocol};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A key of the map `frontends`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FrontendKey(pub [u8; 24]);

/// A key of the map `socket_asked_addresses`: a socket and the backend to which a Service led it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SocketKey(pub [u8; 32]);

/// A row of the map `frontends`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrontendRow {
    /// The first of two words: for clients on the node, and from outside.
    pub word: u32,
    /// Seconds, below 2³¹.
    pub affinity: u32,
    /// True if only clients in the ranges of `word` are served. Without a range no client is.
    pub has_sources: bool,
}

/// A range of clients. IPv4 addresses are mapped to `::ffff:0:0/96`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceRange(Ipv6Net);

/// A key of the map `source_ranges`: a range of the frontend with this word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceKey {
    /// The length of the prefix in bits: 32 of the word, and those of the range.
    pub length: u32,
    /// The word, then the address.
    pub bytes: [u8; 20],
}

/// A row of the map `service_words`: the answer to first packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    Table { slot: TableSlot, count: u16 },
    NoEndpoints,
    NoLocalEndpoints,
    NoSuchPort,
}

/// A row of the map `backends`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackendRow {
    /// `None` for a number that has had no backend yet.
    pub at: Option<SocketAddr>,
    /// False for a backend that was removed. Its open connections continue.
    pub is_present: bool,
    /// Another one for each backend that has had the number.
    pub life: u32,
}

const TCP: u16 = 6;
const UDP: u16 = 17;
const SCTP: u16 = 132;

fn number_of(protocol: Protocol) -> u16 {
    match protocol {
        Protocol::Tcp => TCP,
        Protocol::Udp => UDP,
        Protocol::Sctp => SCTP,
    }
}

/// An address of either family. IPv4 is mapped to `::ffff:0:0/96`.
fn address(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// `None` for the unspecified address.
fn address_of(bytes: &[u8]) -> Option<IpAddr> {
    let octets: [u8; 16] = bytes.try_into().ok()?;
    let address = Ipv6Addr::from(octets);
    (!address.is_unspecified()).then(|| IpAddr::V6(address).to_canonical())
}

fn word_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|word| word.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

fn half_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).and_then(|half| half.try_into().ok()).map_or(0, u16::from_ne_bytes)
}

impl From<Place> for FrontendKey {
    fn from(place: Place) -> Self {
        let (of, port, protocol) = match place {
            Place::Port(of, port, protocol) => (address(of), port, number_of(protocol)),
            Place::NodePort(family, port, protocol) => {
                let any: IpAddr = match family {
                    Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
                    Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
                };
                (address(any), port, number_of(protocol))
            }
            Place::OtherPorts(of) => (address(of), 0, 0),
        };
        let mut bytes = [0; 24];
        bytes[..16].copy_from_slice(&of);
        bytes[16..18].copy_from_slice(&port.to_ne_bytes());
        bytes[18..20].copy_from_slice(&protocol.to_ne_bytes());
        Self(bytes)
    }
}

impl FrontendKey {
    /// `None` for a key that no release writes.
    pub fn place(&self) -> Option<Place> {
        let octets: [u8; 16] = self.0[..16].try_into().ok()?;
        let address = Ipv6Addr::from(octets).to_canonical();
        let port = half_at(&self.0, 16);
        let protocol = match half_at(&self.0, 18) {
            TCP => Some(Protocol::Tcp),
            UDP => Some(Protocol::Udp),
            SCTP => Some(Protocol::Sctp),
            _ => None,
        };
        let place = match protocol {
            Some(protocol) if address.is_unspecified() => {
                Place::NodePort(Family::of(address), port, protocol)
            }
            Some(protocol) => Place::Port(address, port, protocol),
            None => Place::OtherPorts(address),
        };
        let is_place = protocol.is_some() || !address.is_unspecified();
        (is_place && Self::from(place) == *self).then_some(place)
    }
}

impl SocketKey {
    /// The key of a UDP socket. `cookie` is the kernel's number of the socket.
    pub fn of_udp(cookie: u64, backend: SocketAddr) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&cookie.to_ne_bytes());
        bytes[8..24].copy_from_slice(&address(backend.ip()));
        bytes[24..26].copy_from_slice(&backend.port().to_ne_bytes());
        bytes[26..28].copy_from_slice(&UDP.to_ne_bytes());
        Self(bytes)
    }
}

/// `HAS_SOURCES` in `datapath/bpf/service.h`.
const HAS_SOURCES: u32 = 1 << 31;

impl FrontendRow {
    pub fn to_bytes(self) -> [u8; 8] {
        let flag = if self.has_sources { HAS_SOURCES } else { 0 };
        let affinity = self.affinity & !HAS_SOURCES | flag;
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&self.word.to_ne_bytes());
        bytes[4..].copy_from_slice(&affinity.to_ne_bytes());
        bytes
    }

    pub fn from_bytes(bytes: &[u8; 8]) -> Self {
        let affinity = word_at(bytes, 4);
        Self {
            word: word_at(bytes, 0),
            affinity: affinity & !HAS_SOURCES,
            has_sources: affinity & HAS_SOURCES != 0,
        }
    }
}

/// The length of a word in the prefix of a key.
const WORD_BITS: u32 = u32::BITS;
/// The length of the prefix of all mapped IPv4 addresses.
const MAPPED_BITS: u8 = 96;

impl From<IpNet> for SourceRange {
    fn from(range: IpNet) -> Self {
        let (first, length) = match range.trunc() {
            IpNet::V4(v4) => (v4.addr().to_ipv6_mapped(), MAPPED_BITS + v4.prefix_len()),
            IpNet::V6(v6) => (v6.addr(), v6.prefix_len()),
        };
        Self(Ipv6Net::new_assert(first, length))
    }
}

impl SourceKey {
    pub fn new(word: u32, range: SourceRange) -> Self {
        let mut bytes = [0; 20];
        bytes[..4].copy_from_slice(&word.to_ne_bytes());
        bytes[4..].copy_from_slice(&range.0.addr().octets());
        Self { length: WORD_BITS + u32::from(range.0.prefix_len()), bytes }
    }

    /// The word and the range. `None` for a key that no release writes.
    pub fn range(&self) -> Option<(u32, SourceRange)> {
        let length = u8::try_from(self.length.checked_sub(WORD_BITS)?).ok()?;
        let octets: [u8; 16] = self.bytes[4..].try_into().ok()?;
        let range = Ipv6Net::new(Ipv6Addr::from(octets), length).ok()?;
        (range.trunc() == range).then_some((word_at(&self.bytes, 0), SourceRange(range)))
    }
}

/// `enum service_action`.
const NO_ENDPOINTS: u64 = 1;
const NO_LOCAL_ENDPOINTS: u64 = 2;
const NO_SUCH_PORT: u64 = 3;

impl Word {
    pub(crate) fn slot(&self) -> Option<TableSlot> {
        match self {
            Self::Table { slot, .. } => Some(*slot),
            Self::NoEndpoints | Self::NoLocalEndpoints | Self::NoSuchPort => None,
        }
    }

    pub fn to_number(self) -> u64 {
        match self {
            Self::Table { slot, count } => {
                let size = match slot.size {
                    TableSize::Small => 0,
                    TableSize::Medium => 1,
                    TableSize::Large => 2,
                };
                u64::from(slot.number) | u64::from(count & 0x3fff) << 32 | size << 48
            }
            Self::NoEndpoints => NO_ENDPOINTS << 56,
            Self::NoLocalEndpoints => NO_LOCAL_ENDPOINTS << 56,
            Self::NoSuchPort => NO_SUCH_PORT << 56,
        }
    }

    /// `None` for a number that no release writes.
    pub fn from_number(number: u64) -> Option<Self> {
        let [_, _, _, _, low, high, size, action] = number.to_le_bytes();
        let is = |word: Self| (word.to_number() == number).then_some(word);
        match u64::from(action) {
            0 => {}
            NO_ENDPOINTS => return is(Self::NoEndpoints),
            NO_LOCAL_ENDPOINTS => return is(Self::NoLocalEndpoints),
            NO_SUCH_PORT => return is(Self::NoSuchPort),
            _ => return None,
        }
        let size = match size {
            0 => TableSize::Small,
            1 => TableSize::Medium,
            2 => TableSize::Large,
            _ => return None,
        };
        let slot = u32::try_from(number & u64::from(u32::MAX)).ok()?;
        let count = u16::from_le_bytes([low, high]);
        let word = Self::Table { slot: TableSlot { size, number: slot }, count };
        is(word).filter(|_| count > 0)
    }
}

impl BackendRow {
    pub fn to_bytes(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        if let Some(at) = self.at {
            bytes[..16].copy_from_slice(&address(at.ip()));
            bytes[16..18].copy_from_slice(&at.port().to_ne_bytes());
        }
        bytes[18..20].copy_from_slice(&u16::from(self.is_present).to_ne_bytes());
        bytes[20..].copy_from_slice(&self.life.to_ne_bytes());
        bytes
    }

    pub fn from_bytes(bytes: &[u8; 24]) -> Self {
        let port = half_at(bytes, 16);
        Self {
            at: address_of(&bytes[..16]).map(|address| SocketAddr::new(address, port)),
            is_present: half_at(bytes, 18) != 0,
            life: word_at(bytes, 20),
        }
    }
}

//! Packets as a pod receives them.

use std::{net::IpAddr, ops::Range};

/// An Ethernet frame with a UDP or TCP packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    link: u32,
    bytes: Vec<u8>,
    /// The offset of the UDP or TCP header.
    segment: usize,
    is_udp: bool,
    source: IpAddr,
    destination: IpAddr,
}

/// The state of a packet's checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// The checksum is right, or the packet has none.
    Valid,
    /// Only the addresses are in the sum, as in a packet that has left no link yet.
    Partial,
    /// The packet was damaged: its receiver drops it.
    Wrong,
}

/// The payload of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment<'a> {
    Udp(&'a [u8]),
    Tcp {
        port: u16,
        sequence: u32,
        /// True for the segment that opens the connection.
        is_first: bool,
        /// True for a segment that ends the connection.
        is_last: bool,
        payload: &'a [u8],
    },
}

/// The bytes are no frame of this kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is no Ethernet frame with a whole UDP or TCP packet")]
pub struct FrameError;

const ETHERNET: usize = 14;
const UDP: u8 = 17;
const TCP: u8 = 6;

impl Frame {
    /// Takes a frame to the pod of a link, given by its index. `segment` is the offset of its UDP or TCP header. Bytes after the IP packet are removed.
    ///
    /// # Errors
    /// If the frame has no IP packet, or is shorter than the lengths in its headers.
    pub fn new(
        link: u32,
        mut bytes: Vec<u8>,
        segment: usize,
        is_udp: bool,
    ) -> Result<Self, FrameError> {
        let (source, destination, end) = match word(&bytes, 12)? {
            0x0800 => {
                let address = |at| Ok(IpAddr::from(array::<4>(&bytes, at)?));
                let length = usize::from(word(&bytes, ETHERNET + 2)?);
                (address(ETHERNET + 12)?, address(ETHERNET + 16)?, ETHERNET + length)
            }
            0x86dd => {
                let address = |at| Ok(IpAddr::from(array::<16>(&bytes, at)?));
                let length = usize::from(word(&bytes, ETHERNET + 4)?);
                (address(ETHERNET + 8)?, address(ETHERNET + 24)?, ETHERNET + 40 + length)
            }
            _ => return Err(FrameError),
        };
        let header = if is_udp { 8 } else { 20 };
        if end > bytes.len() || segment < ETHERNET + 20 || segment + header > end {
            return Err(FrameError);
        }
        bytes.truncate(end);
        let frame = Self { link, bytes, segment, is_udp, source, destination };
        frame.payload()?;
        Ok(frame)
    }

    /// The index of the link.
    pub fn link(&self) -> u32 {
        self.link
    }

    /// The bytes to send.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The address of the sender.
    pub fn source(&self) -> IpAddr {
        self.source
    }

    /// The payload with its position.
    pub fn segment(&self) -> Segment<'_> {
        let payload = self.payload().ok().and_then(|of| self.bytes.get(of)).unwrap_or_default();
        if self.is_udp {
            return Segment::Udp(payload);
        }
        let at = self.segment;
        let flags = self.bytes.get(at + 13).copied().unwrap_or_default();
        let port = word(&self.bytes, at + 2).unwrap_or_default();
        let sequence = u32::from_be_bytes(array(&self.bytes, at + 4).unwrap_or_default());
        let (is_first, is_last) = (flags & 2 != 0, flags & 5 != 0);
        Segment::Tcp { port, sequence, is_first, is_last, payload }
    }

    fn payload(&self) -> Result<Range<usize>, FrameError> {
        let end = self.bytes.len();
        let (start, end) = if self.is_udp {
            let length = usize::from(word(&self.bytes, self.segment + 4)?);
            (self.segment + 8, self.segment + length)
        } else {
            let offset = self.bytes.get(self.segment + 12).ok_or(FrameError)? >> 4;
            (self.segment + usize::from(offset) * 4, end)
        };
        (start <= end && end <= self.bytes.len()).then_some(start..end).ok_or(FrameError)
    }

    /// Checks the packet's checksum. A partial one is completed.
    pub fn complete(&mut self) -> Checksum {
        let at = self.segment + if self.is_udp { 6 } else { 16 };
        let Ok(found) = word(&self.bytes, at) else { return Checksum::Wrong };
        if self.is_udp && found == 0 && self.source.is_ipv4() {
            return Checksum::Valid;
        }
        let (addresses, whole) = self.sums();
        if fold(whole) == u16::MAX {
            return Checksum::Valid;
        }
        if found != fold(addresses) {
            return Checksum::Wrong;
        }
        let sum = !fold(whole - u64::from(found));
        // Of UDP, 0 stands for no checksum.
        let sum = if sum == 0 && self.is_udp { u16::MAX } else { sum };
        if let Some(to) = self.bytes.get_mut(at..at + 2) {
            to.copy_from_slice(&sum.to_be_bytes());
        }
        Checksum::Partial
    }

    /// The sum of the pseudo header, and that of the pseudo header and the packet.
    fn sums(&self) -> (u64, u64) {
        let segment = self.bytes.get(self.segment..).unwrap_or_default();
        let length = match self.payload() {
            Ok(payload) => payload.end - self.segment,
            Err(_) => segment.len(),
        };
        let octets = |address: &IpAddr| match address {
            IpAddr::V4(v4) => sum(&v4.octets()),
            IpAddr::V6(v6) => sum(&v6.octets()),
        };
        let protocol = if self.is_udp { UDP } else { TCP };
        let addresses = octets(&self.source) + octets(&self.destination);
        let addresses = addresses + u64::from(protocol) + length as u64;
        (addresses, addresses + sum(segment.get(..length).unwrap_or(segment)))
    }
}

/// The sum of the words in network order.
fn sum(bytes: &[u8]) -> u64 {
    let words = bytes.chunks(2).map(|pair| match pair {
        [high, low] => u64::from(u16::from_be_bytes([*high, *low])),
        [high] => u64::from(*high) << 8,
        _ => 0,
    });
    words.sum()
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    // At most 0xffff.
    u16::try_from(sum).unwrap_or(u16::MAX)
}

fn array<const LENGTH: usize>(bytes: &[u8], at: usize) -> Result<[u8; LENGTH], FrameError> {
    let of = bytes.get(at..at + LENGTH).ok_or(FrameError)?;
    of.try_into().map_err(|_| FrameError)
}

fn word(bytes: &[u8], at: usize) -> Result<u16, FrameError> {
    Ok(u16::from_be_bytes(array(bytes, at)?))
}

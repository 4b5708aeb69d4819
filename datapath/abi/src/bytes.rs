//! Keys and values as bytes.

use datapath_plan::{Address, PodSets, Prefix, SetId};

/// An address as a key.
pub type AddressKey = [u8; 16];
/// A prefix as a key: its length and its first address.
pub type PrefixKey = [u8; 20];
/// A set, a class and a Service as a key.
pub type SetKey = [u8; 24];
/// The sets of a pod.
pub type RowValue = [u8; 32];
/// A pod's host link.
pub type EndpointValue = [u8; 104];

/// The key of a connection.
pub type FlowKey = [u8; 40];
/// A connection.
pub type FlowValue = [u8; 80];

/// Number of intervals of a small table.
pub const SMALL: usize = 32;
/// Number of intervals of a large table.
pub const LARGE: usize = 1024;

/// A table with [`SMALL`] intervals.
pub type SmallTable = [u8; 8 * SMALL];
/// A table with [`LARGE`] intervals.
pub type LargeTable = [u8; 8 * LARGE];

/// The longest UID in bytes.
pub(crate) const UID: usize = 64;

/// A pod's host link in a map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endpoint {
    /// The place of the pod's rows.
    pub slot: u32,
    /// The pod's addresses, which its packets must have as their source.
    pub v4: Option<Address>,
    pub v6: Option<Address>,
    /// The UID of the pod, of at most 64 bytes.
    pub uid: String,
}

impl Endpoint {
    pub fn to_bytes(&self) -> EndpointValue {
        let mut bytes = [0; 104];
        bytes[..4].copy_from_slice(&self.slot.to_ne_bytes());
        bytes[8..24].copy_from_slice(&self.v4.map(address_key).unwrap_or_default());
        bytes[24..40].copy_from_slice(&self.v6.map(address_key).unwrap_or_default());
        for (to, from) in bytes[40..].iter_mut().zip(self.uid.bytes()) {
            *to = from;
        }
        bytes
    }

    pub fn from_bytes(bytes: &EndpointValue) -> Self {
        let uid = bytes[40..].split(|byte| *byte == 0).next().unwrap_or_default();
        Self {
            slot: u32::from_ne_bytes(part(bytes, 0)),
            v4: Some(address(part(bytes, 8))).filter(|address| address.0 != 0),
            v6: Some(address(part(bytes, 24))).filter(|address| address.0 != 0),
            uid: String::from_utf8_lossy(uid).into_owned(),
        }
    }
}

/// The sets of a pod: ingress, egress, and both for hairpins. Set 0 allows everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row(pub [u64; 4]);

impl Row {
    /// The sets of a pod whose policies are not known: no packet passes.
    pub const CLOSED: Self = Self([u64::MAX; 4]);

    /// The row of a pod whose policies cannot come into force: closed in the directions for which it has rules.
    pub fn closed_where_judged(sets: &PodSets) -> Self {
        let closed = |set: SetId| if set.0 == 0 { 0 } else { u64::MAX };
        Self(sets.all().map(closed))
    }

    pub fn to_bytes(self) -> RowValue {
        words(self.0)
    }

    pub fn from_bytes(bytes: &RowValue) -> Self {
        Self([0, 8, 16, 24].map(|at| u64::from_ne_bytes(part(bytes, at))))
    }
}

/// The ends of a connection from its initiator to its responder, as one pod sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// The number in the IP header.
    pub protocol: u8,
    pub source: Address,
    pub destination: Address,
    /// The identifier of an echo; 0 for a protocol whose ports the programs do not read.
    pub source_port: u16,
    pub destination_port: u16,
}

impl Ends {
    /// True if the initiator is the lower end. The programs compare the halves of addresses as numbers of the machine.
    pub fn is_from_low(&self) -> bool {
        let halves = |address| {
            let key = address_key(address);
            [0, 8].map(|at| u64::from_ne_bytes(part(&key, at)))
        };
        (halves(self.source), self.source_port) <= (halves(self.destination), self.destination_port)
    }

    /// `struct flow_key`: the lower end comes first, so both directions have one key.
    pub fn key(&self) -> FlowKey {
        let source = (self.source, self.source_port);
        let destination = (self.destination, self.destination_port);
        let (low, high) =
            if self.is_from_low() { (source, destination) } else { (destination, source) };
        let mut bytes = [0; 40];
        bytes[..16].copy_from_slice(&address_key(low.0));
        bytes[16..32].copy_from_slice(&address_key(high.0));
        bytes[32..34].copy_from_slice(&low.1.to_ne_bytes());
        bytes[34..36].copy_from_slice(&high.1.to_ne_bytes());
        bytes[36..].copy_from_slice(&u32::from(self.protocol).to_ne_bytes());
        bytes
    }
}

/// A connection that is open: its responder has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The time of the last packet: nanoseconds of the kernel's monotonic clock.
    pub seen: u64,
    /// The class of the Service's address that was asked for; 0 for none.
    pub service: u64,
    /// The first packet as policies judge it. The destination is the final one.
    pub source: Address,
    pub destination: Address,
    /// Of interval tables: protocol and destination port, or type and code of ICMP.
    pub key: u32,
    pub source_port: u16,
    /// The generation that judged it last. If another one is in force, the next packet is judged again.
    pub generation: u32,
    /// The links of both ends; 0 for an end without an endpoint here.
    pub initiator: u32,
    pub responder: u32,
    /// [`Ends::is_from_low`] of its key.
    pub is_from_low: bool,
    /// A process of the node is the initiator.
    pub is_from_node: bool,
}

impl Flow {
    /// `struct flow`, in the state of an open connection.
    pub fn to_bytes(&self) -> FlowValue {
        let mut bytes = [0; 80];
        bytes[..8].copy_from_slice(&self.seen.to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.service.to_ne_bytes());
        bytes[16..32].copy_from_slice(&address_key(self.source));
        bytes[32..48].copy_from_slice(&address_key(self.destination));
        bytes[48..52].copy_from_slice(&self.key.to_ne_bytes());
        bytes[52..56].copy_from_slice(&self.generation.to_ne_bytes());
        bytes[56..60].copy_from_slice(&self.initiator.to_ne_bytes());
        bytes[60..64].copy_from_slice(&self.responder.to_ne_bytes());
        bytes[64..66].copy_from_slice(&self.source_port.to_ne_bytes());
        // from_low, answered, tcp_flags, is_denied, is_from_node, is_open
        let bits = [self.is_from_low, true, false, false, self.is_from_node, true];
        bytes[66..72].copy_from_slice(&bits.map(u8::from));
        bytes
    }
}

/// The responder of a connection over UDP to which NAT of the host leads the datagrams, and its link. Its row has another
/// destination than its key. `None` for other connections.
pub fn behind_nat(key: &FlowKey, flow: &FlowValue) -> Option<(Address, u32)> {
    let is_udp = u32::from_ne_bytes(part(key, 36)) == UDP;
    let is_from_low = flow[66] != 0;
    let (asked, port) = if is_from_low {
        (address(part(key, 16)), u16::from_ne_bytes(part(key, 34)))
    } else {
        (address(part(key, 0)), u16::from_ne_bytes(part(key, 32)))
    };
    let destination = address(part(flow, 32));
    let [_, _, high, low] = u32::from_ne_bytes(part(flow, 48)).to_be_bytes();
    let is_same = (asked, port) == (destination, u16::from_be_bytes([high, low]));
    let link = u32::from_ne_bytes(part(flow, 60));
    (is_udp && !is_same).then_some((destination, link))
}

/// linux/in.h
const UDP: u32 = 17;

/// The key of an address.
pub fn address_key(address: Address) -> AddressKey {
    address.0.to_be_bytes()
}

/// The words of a key, in the order of its bytes.
pub fn words_of<const N: usize>(bytes: &[u8]) -> [u64; N] {
    let mut words = [0; N];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = bytes.try_into().map_or(0, u64::from_ne_bytes);
    }
    words
}

/// The address of a key.
pub fn address(key: AddressKey) -> Address {
    Address(u128::from_be_bytes(key))
}

/// The key of a prefix.
pub fn prefix_key(prefix: Prefix) -> PrefixKey {
    let mut bytes = [0; 20];
    bytes[..4].copy_from_slice(&u32::from(prefix.length).to_ne_bytes());
    bytes[4..].copy_from_slice(&address_key(prefix.first));
    bytes
}

/// The key of a row of a set.
pub fn set_key((set, class, service): (u64, u64, u64)) -> SetKey {
    words([set, class, service])
}

/// The set, class and Service of a key.
pub fn set_of(key: &SetKey) -> (u64, u64, u64) {
    let [set, class, service] = [0, 8, 16].map(|at| u64::from_ne_bytes(part(key, at)));
    (set, class, service)
}

/// The halves of a class as a value.
pub fn halves(of: [u64; 2]) -> [u8; 16] {
    words(of)
}

/// The halves in a value.
pub fn halves_of(value: &[u8; 16]) -> [u64; 2] {
    [0, 8].map(|at| u64::from_ne_bytes(part(value, at)))
}

/// `N` bytes from this offset.
pub(crate) fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut part = [0; N];
    for (to, from) in part.iter_mut().zip(bytes.iter().skip(at)) {
        *to = *from;
    }
    part
}

pub(crate) fn words<const N: usize, const M: usize>(words: [u64; N]) -> [u8; M] {
    let mut bytes = [0; M];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection whose initiator asks for an address and port, and its responder.
    fn behind(protocol: u8, asked: (u128, u16), responder: (u128, u16)) -> Option<(Address, u32)> {
        let source = Address(5 << 64);
        let ends = Ends {
            protocol,
            source,
            destination: Address(asked.0 << 64),
            source_port: 4000,
            destination_port: asked.1,
        };
        let flow = Flow {
            seen: 1,
            service: 0,
            source,
            destination: Address(responder.0 << 64),
            key: u32::from(protocol) << 16 | u32::from(responder.1),
            source_port: 4000,
            generation: 1,
            initiator: 1,
            responder: 2,
            is_from_low: ends.is_from_low(),
            is_from_node: false,
        };
        behind_nat(&ends.key(), &flow.to_bytes())
    }

    #[test]
    fn a_responder_is_behind_nat_if_a_datagram_asked_for_another_end() {
        // The lower end of the key is the responder, or the initiator.
        for address in [3, 7] {
            let at = (address, 53);
            assert_eq!(behind(17, at, at), None);
            assert_eq!(behind(6, (address, 54), at), None, "a first packet of TCP has its sign");
            for asked in [(address, 54), (address + 1, 53), (9, 53)] {
                let responder = Some((Address(address << 64), 2));
                assert_eq!(behind(17, asked, at), responder, "{asked:?}");
            }
        }
    }
}

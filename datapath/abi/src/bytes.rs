//! Keys and values as bytes.

use datapath_plan::{Address, Prefix};

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

    pub fn to_bytes(self) -> RowValue {
        words(self.0)
    }

    pub fn from_bytes(bytes: &RowValue) -> Self {
        Self([0, 8, 16, 24].map(|at| u64::from_ne_bytes(part(bytes, at))))
    }
}

/// The key of an address.
pub fn address_key(address: Address) -> AddressKey {
    address.0.to_be_bytes()
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
fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut part = [0; N];
    for (to, from) in part.iter_mut().zip(bytes.iter().skip(at)) {
        *to = *from;
    }
    part
}

fn words<const N: usize, const M: usize>(words: [u64; N]) -> [u8; M] {
    let mut bytes = [0; M];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

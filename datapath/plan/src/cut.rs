//! Addresses and prefixes of both families as keys of 16 bytes.

use ipnet::IpNet;
use std::net::IpAddr;

/// An address as 16 bytes; an IPv4 address is mapped to `::ffff:0:0/96`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(pub u128);

/// A prefix of [`Address`]es. The bits after its length are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    /// The first address.
    pub first: Address,
    /// The number of bits that all addresses share, up to 128.
    pub length: u8,
}

/// Bits before an IPv4 address.
const MAPPED: u8 = 96;

impl From<IpAddr> for Address {
    fn from(address: IpAddr) -> Self {
        Self(match address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
            IpAddr::V6(v6) => v6.to_bits(),
        })
    }
}

impl From<&IpNet> for Prefix {
    /// Bits beyond the length of the range are ignored.
    fn from(range: &IpNet) -> Self {
        let first = Address::from(range.trunc().addr());
        let mapped = if range.addr().is_ipv4() { MAPPED } else { 0 };
        Self { first, length: mapped + range.prefix_len() }
    }
}

impl Prefix {
    /// All IPv4 addresses.
    pub(crate) fn all_v4() -> Self {
        Self { first: Address(0xffff << 32), length: MAPPED }
    }

    /// The last address.
    pub(crate) fn last(&self) -> Address {
        Address(self.first.0 | u128::MAX.checked_shr(u32::from(self.length)).unwrap_or(0))
    }

    /// True if each address of the other prefix is in this one.
    pub fn covers(&self, other: &Self) -> bool {
        self.length <= other.length && self.contains(other.first)
    }

    /// True if the address is in the prefix.
    pub fn contains(&self, address: Address) -> bool {
        let shift = 128 - u32::from(self.length);
        (self.first.0 ^ address.0).checked_shr(shift).unwrap_or(0) == 0
    }
}

impl Prefix {
    /// The prefix of one address.
    pub fn only(address: Address) -> Self {
        Self { first: address, length: 128 }
    }

    /// The prefix of this length that contains an address.
    pub fn around(address: Address, length: u8) -> Self {
        let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
        Self { first: Address(address.0 & mask), length }
    }
}

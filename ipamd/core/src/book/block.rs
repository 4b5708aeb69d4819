//! Block arithmetic: sizes, offsets, addresses.

use ipnet::IpNet;
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ops::RangeInclusive,
};

/// The number of addresses, network and broadcast address included.
pub(crate) fn block_size(net: IpNet) -> u64 {
    let bits = u32::from(net.max_prefix_len() - net.prefix_len());
    1_u64.checked_shl(bits).unwrap_or(u64::MAX)
}

pub(crate) fn single(address: IpAddr) -> IpNet {
    IpNet::from(address)
}

/// Returns whether the block has more than one address.
pub(crate) fn is_prefix(net: IpNet) -> bool {
    net.prefix_len() < net.max_prefix_len()
}

/// The most addresses of a pod CIDR that pods can get: as many as an EC2 prefix of IPv6 has.
const MOST_POD_ADDRESSES: u64 = 1 << 48;

/// The offsets of the addresses of a pod CIDR that pods may get. `None` if there are none.
///
/// The network address, the first address (the gateway) and the IPv4 broadcast address are not for pods.
pub(crate) fn pod_offsets(cidr: IpNet) -> Option<RangeInclusive<u64>> {
    let broadcast = u64::from(cidr.addr().is_ipv4());
    let last = block_size(cidr).min(MOST_POD_ADDRESSES).checked_sub(1 + broadcast)?;
    (last >= 2).then_some(2..=last)
}

/// Formats the numbers of addresses and prefixes for a message.
pub(crate) fn amount(blocks: &[IpNet]) -> String {
    let prefixes = blocks.iter().filter(|block| is_prefix(**block)).count();
    match (blocks.len() - prefixes, prefixes) {
        (singles, 0) => format!("{singles} addresses"),
        (0, prefixes) => format!("{prefixes} prefixes"),
        (singles, prefixes) => format!("{singles} addresses and {prefixes} prefixes"),
    }
}

/// The address at an offset from the block's first address.
pub(super) fn address_at(net: IpNet, offset: u64) -> IpAddr {
    match net.network() {
        IpAddr::V4(first) => {
            let offset = u32::try_from(offset).unwrap_or(u32::MAX);
            IpAddr::V4(Ipv4Addr::from(u32::from(first).saturating_add(offset)))
        }
        IpAddr::V6(first) => {
            IpAddr::V6(Ipv6Addr::from(u128::from(first).saturating_add(u128::from(offset))))
        }
    }
}

/// The offset of the address from the block's first address.
pub(super) fn offset_in(net: IpNet, address: IpAddr) -> u64 {
    match (net.network(), address) {
        (IpAddr::V4(first), IpAddr::V4(address)) => {
            u64::from(u32::from(address).saturating_sub(u32::from(first)))
        }
        (IpAddr::V6(first), IpAddr::V6(address)) => {
            let offset = u128::from(address).saturating_sub(u128::from(first));
            u64::try_from(offset).unwrap_or(u64::MAX)
        }
        // No block contains an address of the other family.
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

    use super::*;

    #[test]
    fn pods_get_no_network_gateway_or_broadcast_address_of_a_pod_cidr() {
        for (cidr, first, last) in [
            ("10.244.1.0/24", "10.244.1.2", "10.244.1.254"),
            ("10.244.1.0/30", "10.244.1.2", "10.244.1.2"),
            ("fd00:244:1::/126", "fd00:244:1::2", "fd00:244:1::3"),
            ("fd00:244:1::/64", "fd00:244:1::2", "fd00:244:1::ffff:ffff:ffff"),
        ] {
            let cidr: IpNet = cidr.parse().unwrap();
            let offsets = pod_offsets(cidr).unwrap();
            assert_eq!(address_at(cidr, *offsets.start()).to_string(), first);
            assert_eq!(address_at(cidr, *offsets.end()).to_string(), last);
        }
        for cidr in ["10.244.1.0/31", "10.244.1.0/32", "fd00:244:1::/127"] {
            assert_eq!(pod_offsets(cidr.parse().unwrap()), None);
        }
    }

    #[test]
    fn offsets_and_addresses_agree_in_both_families() {
        for (net, size, offset, address) in [
            ("10.0.0.16/28", 16, 15, "10.0.0.31"),
            ("10.0.0.16/32", 1, 0, "10.0.0.16"),
            ("fd00:0:0:1:2::/80", 1 << 48, 0x1_0000, "fd00:0:0:1:2::1:0"),
        ] {
            let (net, address): (IpNet, IpAddr) = (net.parse().unwrap(), address.parse().unwrap());
            assert_eq!(block_size(net), size);
            assert_eq!((address_at(net, offset), offset_in(net, address)), (address, offset));
        }
    }
}

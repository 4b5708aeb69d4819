//! Whole prefixes in a subnet.

use ipnet::{IpNet, Ipv4Net};
use std::{collections::BTreeSet, net::Ipv4Addr};
use view_node::Eni;

/// The length and the number of addresses of EC2's IPv4 prefixes.
const LENGTH: u8 = 28;
const ADDRESSES: u64 = 16;

/// Returns an upper bound of the whole /28 that are free. `None` without an IPv4 CIDR.
pub(super) fn free_prefixes<'a>(
    cidr: Option<&str>,
    available: Option<u32>,
    enis: impl Iterator<Item = &'a Eni>,
) -> Option<u64> {
    let cidr: Ipv4Net = cidr?.parse().ok()?;
    let all = LENGTH.checked_sub(cidr.prefix_len()).map_or(0, |bits| 1_u64 << bits);
    // EC2 reserves the first four addresses and the last.
    let mut touched = BTreeSet::from([prefix_of(cidr.network()), prefix_of(cidr.broadcast())]);
    for eni in enis {
        let primary = eni.primary_address.iter().filter_map(|it| it.parse().ok());
        let blocks = eni.blocks.iter().filter_map(|it| it.parse::<Ipv4Net>().ok());
        touched.extend(primary.chain(blocks.map(|it| it.network())).map(prefix_of));
    }
    let touched = touched.iter().filter(|it| cidr.contains(*it)).count() as u64;
    let whole = all.saturating_sub(touched);
    Some(available.map_or(whole, |available| whole.min(u64::from(available) / ADDRESSES)))
}

fn prefix_of(address: Ipv4Addr) -> Ipv4Net {
    Ipv4Net::new_assert(address, LENGTH).trunc()
}

/// Returns the number of addresses of a block; 0 if the text is no CIDR.
pub(super) fn size(cidr: &str) -> u64 {
    let bits = |net: IpNet| u32::from(net.max_prefix_len() - net.prefix_len());
    cidr.parse().map_or(0, |net| 1_u64.checked_shl(bits(net)).unwrap_or(u64::MAX))
}

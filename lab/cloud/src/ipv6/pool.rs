//! Assigned IPv6 addresses of a subnet.

use crate::{Ec2Error, rng::Rng};
use ipnet::Ipv6Net;
use std::{collections::BTreeSet, net::Ipv6Addr};

const PREFIX_LEN: u8 = 80;
/// Bits of an address behind its subnet, and behind its prefix.
const HOST_BITS: u32 = 64;
const PREFIX_BITS: u32 = 48;
/// EC2 keeps the first four addresses of a subnet and the last one.
const RESERVED: u64 = 4;

/// The IPv6 addresses that a request asks for, after the check of its parameters against each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AddressRequest6 {
    pub(crate) addresses: Vec<Ipv6Addr>,
    pub(crate) count: usize,
    pub(crate) prefixes: Vec<Ipv6Net>,
    pub(crate) prefix_count: usize,
}

/// The addresses of one /64; EC2 has far more than anybody takes.
#[derive(Clone, Debug)]
pub(crate) struct AddressPool6 {
    cidr: Ipv6Net,
    /// Single addresses, by their bits after the subnet.
    held: BTreeSet<u64>,
    /// Prefixes, by number.
    prefixes: BTreeSet<u16>,
}

impl AddressPool6 {
    pub(crate) fn new(cidr: Ipv6Net) -> Self {
        Self { cidr: cidr.trunc(), held: BTreeSet::new(), prefixes: BTreeSet::new() }
    }

    fn address(&self, host: u64) -> Ipv6Addr {
        Ipv6Addr::from(u128::from(self.cidr.network()) | u128::from(host))
    }

    fn prefix(&self, number: u16) -> Ipv6Net {
        Ipv6Net::new_assert(self.address(u64::from(number) << PREFIX_BITS), PREFIX_LEN)
    }

    fn is_free(&self, host: u64) -> bool {
        !is_reserved(host)
            && !self.held.contains(&host)
            && !self.prefixes.contains(&number_of(host))
    }

    fn is_free_prefix(&self, number: u16) -> bool {
        let start = u64::from(number) << PREFIX_BITS;
        let end = start | (u64::MAX >> (HOST_BITS - PREFIX_BITS));
        !is_reserved(start)
            && !is_reserved(end)
            && !self.prefixes.contains(&number)
            && self.held.range(start..=end).next().is_none()
    }

    /// Checks that a request could name this address.
    fn check(&self, address: Ipv6Addr) -> Result<(), Ec2Error> {
        if !self.cidr.contains(&address) || is_reserved(host_of(address)) {
            let message =
                format!("Address {address} does not fall within the subnet's address range");
            return Err(Ec2Error::invalid_value(message));
        }
        if self.is_free(host_of(address)) {
            return Ok(());
        }
        Err(Ec2Error::new("InvalidIPAddress.InUse", format!("Address {address} is in use.")))
    }

    /// Checks that a request could name this prefix.
    fn check_prefix(&self, prefix: Ipv6Net) -> Result<(), Ec2Error> {
        if prefix.prefix_len() != PREFIX_LEN || prefix.trunc() != prefix {
            return Err(Ec2Error::invalid_value(format!("{prefix} is not a /80 prefix")));
        }
        if !self.cidr.contains(&prefix) {
            let message =
                format!("Prefix {prefix} does not fall within the subnet's address range");
            return Err(Ec2Error::invalid_value(message));
        }
        if self.is_free_prefix(number_of(host_of(prefix.network()))) {
            Ok(())
        } else {
            Err(Ec2Error::no_cidr_blocks())
        }
    }

    /// Gives what is wanted, or nothing.
    pub(crate) fn take(
        &mut self,
        wanted: &AddressRequest6,
        rng: &mut Rng,
    ) -> Result<(Vec<Ipv6Addr>, Vec<Ipv6Net>), Ec2Error> {
        let distinct = wanted.addresses.iter().collect::<BTreeSet<_>>().len()
            + wanted.prefixes.iter().collect::<BTreeSet<_>>().len();
        if distinct < wanted.addresses.len() + wanted.prefixes.len() {
            return Err(Ec2Error::invalid_value("Duplicate addresses specified"));
        }
        wanted.addresses.iter().try_for_each(|address| self.check(*address))?;
        wanted.prefixes.iter().try_for_each(|prefix| self.check_prefix(*prefix))?;
        let start = u16::try_from(rng.below(1 << 16)).unwrap_or(0);
        let mut prefixes = wanted.prefixes.clone();
        if wanted.prefix_count > 0 {
            let found = (0..=u16::MAX)
                .map(|step| start.wrapping_add(step))
                .filter(|number| self.is_free_prefix(*number));
            prefixes.extend(found.take(wanted.prefix_count).map(|number| self.prefix(number)));
        }
        if prefixes.len() < wanted.prefix_count {
            return Err(Ec2Error::no_cidr_blocks());
        }
        self.prefixes.extend(prefixes.iter().map(|p| number_of(host_of(p.network()))));
        let mut addresses = wanted.addresses.clone();
        self.held.extend(addresses.iter().map(|address| host_of(*address)));
        while addresses.len() < wanted.addresses.len() + wanted.count {
            let host = rng.next();
            if self.is_free(host) {
                self.held.insert(host);
                addresses.push(self.address(host));
            }
        }
        Ok((addresses, prefixes))
    }

    /// Takes addresses and prefixes back.
    pub(crate) fn release(&mut self, addresses: &[Ipv6Addr], prefixes: &[Ipv6Net]) {
        for address in addresses {
            self.held.remove(&host_of(*address));
        }
        for prefix in prefixes {
            self.prefixes.remove(&number_of(host_of(prefix.network())));
        }
    }
}

fn is_reserved(host: u64) -> bool {
    host < RESERVED || host == u64::MAX
}

/// The bits after the subnet.
fn host_of(address: Ipv6Addr) -> u64 {
    let [.., a, b, c, d, e, f, g, h] = address.octets();
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// The number of the prefix in which an address lies.
fn number_of(host: u64) -> u16 {
    u16::try_from(host >> PREFIX_BITS).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may fail")]
    use super::*;

    fn pool() -> (AddressPool6, Rng) {
        (AddressPool6::new("2001:db8:1:2::/64".parse().unwrap()), Rng::new(3))
    }

    #[test]
    fn a_prefix_and_an_address_never_overlap() {
        let (mut pool, mut rng) = pool();
        let address: Ipv6Addr = "2001:db8:1:2:7::9".parse().unwrap();
        let wanted = AddressRequest6 { addresses: vec![address], ..AddressRequest6::default() };
        pool.take(&wanted, &mut rng).unwrap();
        assert_eq!(pool.take(&wanted, &mut rng).unwrap_err().code, "InvalidIPAddress.InUse");
        let around: Ipv6Net = "2001:db8:1:2:7::/80".parse().unwrap();
        let prefix = AddressRequest6 { prefixes: vec![around], ..AddressRequest6::default() };
        assert_eq!(pool.take(&prefix, &mut rng).unwrap_err().code, "InsufficientCidrBlocks");
        pool.release(&[address], &[]);
        assert_eq!(pool.take(&prefix, &mut rng).unwrap(), (vec![], vec![around]));
        assert_eq!(pool.take(&wanted, &mut rng).unwrap_err().code, "InvalidIPAddress.InUse");
    }

    #[test]
    fn the_first_and_the_last_prefix_hold_ec2s_own_addresses() {
        let (mut pool, mut rng) = pool();
        let all = AddressRequest6 { prefix_count: 65_534, ..AddressRequest6::default() };
        let (_, prefixes) = pool.take(&all, &mut rng).unwrap();
        let distinct: BTreeSet<Ipv6Net> = prefixes.iter().copied().collect();
        assert_eq!(distinct.len(), 65_534);
        assert!(!distinct.contains(&"2001:db8:1:2::/80".parse().unwrap()));
        assert!(!distinct.contains(&"2001:db8:1:2:ffff::/80".parse().unwrap()));
        let one = AddressRequest6 { prefix_count: 1, ..AddressRequest6::default() };
        assert_eq!(pool.take(&one, &mut rng).unwrap_err().code, "InsufficientCidrBlocks");
        pool.release(&[], &prefixes[..1]);
        assert_eq!(pool.take(&one, &mut rng).unwrap().1, prefixes[..1]);
    }

    #[test]
    fn addresses_are_drawn_from_the_whole_subnet() {
        let (mut pool, mut rng) = pool();
        let (addresses, _) = pool
            .take(&AddressRequest6 { count: 50, ..AddressRequest6::default() }, &mut rng)
            .unwrap();
        let cidr: Ipv6Net = "2001:db8:1:2::/64".parse().unwrap();
        assert!(addresses.iter().all(|address| cidr.contains(address)));
        assert_eq!(addresses.iter().collect::<BTreeSet<_>>().len(), 50);
    }
}

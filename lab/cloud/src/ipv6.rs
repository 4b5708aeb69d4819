//! IPv6 addresses and /80 prefixes: which are given out, and the calls that give them.

use crate::{
    AssignIpv6Addresses, AssignedIpv6Addresses, Cloud, CreateNetworkInterface, Ec2Error,
    InterfaceKind, NetworkInterface, Response, UnassignIpv6Addresses,
    address::{MOST_UNATTACHED, count},
    rng::Rng,
};
use config_model::{InstanceId, SubnetId};
use ipnet::Ipv6Net;
use std::{collections::BTreeSet, net::Ipv6Addr};

const PREFIX_LEN: u8 = 80;
/// Bits of an address behind its subnet, and behind its prefix.
const HOST_BITS: u32 = 64;
const PREFIX_BITS: u32 = 48;
/// EC2 keeps the first four addresses of a subnet and the last one.
const RESERVED: u64 = 4;

/// The addresses of one /64; EC2 has far more than anybody takes.
#[derive(Clone, Debug)]
pub(crate) struct Ledger6 {
    cidr: Ipv6Net,
    /// Single addresses, by what stands behind the subnet.
    held: BTreeSet<u64>,
    /// Prefixes, by number.
    prefixes: BTreeSet<u16>,
}

impl Ledger6 {
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

    /// Whether an address could be given to one who names it.
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

    /// Whether a prefix could be given to one who names it.
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
        wanted: &Wanted6,
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

/// What stands behind the subnet.
fn host_of(address: Ipv6Addr) -> u64 {
    let [.., a, b, c, d, e, f, g, h] = address.octets();
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// The number of the prefix in which an address lies.
fn number_of(host: u64) -> u16 {
    u16::try_from(host >> PREFIX_BITS).unwrap_or_default()
}

/// What a request asks for in IPv6, after its parameters were held against each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted6 {
    pub(crate) addresses: Vec<Ipv6Addr>,
    pub(crate) count: usize,
    pub(crate) prefixes: Vec<Ipv6Net>,
    pub(crate) prefix_count: usize,
}

impl Wanted6 {
    /// One address that EC2 picks.
    pub(crate) fn one() -> Self {
        Self { count: 1, ..Self::default() }
    }

    pub(crate) fn by_creation(request: &CreateNetworkInterface) -> Result<Self, Ec2Error> {
        Self {
            addresses: request.ipv6_addresses.clone(),
            // 0 is allowed here: it overrides what the subnet says.
            count: count(request.ipv6_address_count.filter(|count| *count > 0))?,
            prefixes: request.ipv6_prefixes.clone(),
            prefix_count: count(request.ipv6_prefix_count)?,
        }
        .of_one_kind()
    }

    fn by_assignment(request: &AssignIpv6Addresses) -> Result<Self, Ec2Error> {
        let wanted = Self {
            addresses: request.ipv6_addresses.clone(),
            count: count(request.ipv6_address_count)?,
            prefixes: request.ipv6_prefixes.clone(),
            prefix_count: count(request.ipv6_prefix_count)?,
        };
        if wanted.is_nothing() {
            return Err(Ec2Error::missing_parameter(
                "ipv6Addresses, ipv6AddressCount, ipv6Prefix or ipv6PrefixCount",
            ));
        }
        wanted.of_one_kind()
    }

    fn of_one_kind(self) -> Result<Self, Ec2Error> {
        let kinds = [
            !self.addresses.is_empty(),
            self.count > 0,
            !self.prefixes.is_empty(),
            self.prefix_count > 0,
        ];
        if kinds.iter().filter(|asked| **asked).count() > 1 {
            return Err(Ec2Error::invalid_combination(
                "Only one of ipv6Addresses, ipv6AddressCount, ipv6Prefixes and ipv6PrefixCount may \
                 be specified.",
            ));
        }
        Ok(self)
    }

    pub(crate) fn is_nothing(&self) -> bool {
        self.places() == 0
    }

    /// How many places of the ENI it fills; a prefix fills one.
    pub(crate) fn places(&self) -> usize {
        let counted = self.count.saturating_add(self.prefix_count);
        counted.saturating_add(self.addresses.len() + self.prefixes.len())
    }
}

/// How many of its IPv6 places an ENI has filled.
pub(crate) fn places6_of(eni: &NetworkInterface) -> usize {
    eni.ipv6_addresses.len() + eni.ipv6_prefixes.len()
}

impl Cloud {
    /// Takes the IPv6 addresses of a new ENI, or none of them.
    pub(crate) fn take_ipv6(
        &mut self,
        subnet: &SubnetId,
        wanted: &Wanted6,
    ) -> Result<(Vec<Ipv6Addr>, Vec<Ipv6Net>), Ec2Error> {
        if wanted.is_nothing() {
            return Ok((Vec::new(), Vec::new()));
        }
        if wanted.places() > MOST_UNATTACHED {
            return Err(Ec2Error::too_many_addresses());
        }
        let ledger = self.ledgers6.get_mut(subnet).ok_or_else(|| no_ipv6(subnet))?;
        ledger.take(wanted, &mut self.rng)
    }

    /// How many IPv6 addresses and prefixes an ENI may have on this instance.
    pub(crate) fn ipv6_limit(&self, instance: Option<&InstanceId>) -> usize {
        instance
            .and_then(|id| self.state.instances.get(id))
            .and_then(|instance| instance.limits())
            .map_or(MOST_UNATTACHED, |kind| usize::from(kind.ipv6_per_interface))
    }

    pub(crate) fn assign_ipv6(
        &mut self,
        request: &AssignIpv6Addresses,
    ) -> Result<Response, Ec2Error> {
        let eni = self.eni(request.network_interface_id.as_ref())?;
        let wanted = Wanted6::by_assignment(request)?;
        if eni.kind == InterfaceKind::EfaOnly {
            return Err(Ec2Error::no_addresses_on_efa_only());
        }
        let instance = eni.attachment.as_ref().map(|a| &a.instance_id);
        if places6_of(&eni).saturating_add(wanted.places()) > self.ipv6_limit(instance) {
            return Err(Ec2Error::too_many_addresses());
        }
        let ledger =
            self.ledgers6.get_mut(&eni.subnet_id).ok_or_else(|| no_ipv6(&eni.subnet_id))?;
        let (addresses, prefixes) = ledger.take(&wanted, &mut self.rng)?;
        self.edit_eni(&eni.id, |eni| {
            eni.ipv6_addresses.extend(&addresses);
            eni.ipv6_prefixes.extend(&prefixes);
        });
        Ok(Response::AssignIpv6Addresses(AssignedIpv6Addresses {
            network_interface_id: eni.id.clone(),
            ipv6_addresses: addresses,
            ipv6_prefixes: prefixes,
        }))
    }

    pub(crate) fn unassign_ipv6(
        &mut self,
        request: &UnassignIpv6Addresses,
    ) -> Result<Response, Ec2Error> {
        let eni = self.eni(request.network_interface_id.as_ref())?;
        let (addresses, prefixes) = (&request.ipv6_addresses, &request.ipv6_prefixes);
        if addresses.is_empty() && prefixes.is_empty() {
            return Err(Ec2Error::missing_parameter("ipv6Addresses or ipv6Prefix"));
        }
        let known = addresses.iter().all(|address| eni.ipv6_addresses.contains(address))
            && prefixes.iter().all(|prefix| eni.ipv6_prefixes.contains(prefix));
        if !known {
            let message =
                format!("Some of the specified addresses are not assigned to interface {}", eni.id);
            return Err(Ec2Error::invalid_value(message));
        }
        if let Some(ledger) = self.ledgers6.get_mut(&eni.subnet_id) {
            ledger.release(addresses, prefixes);
        }
        self.edit_eni(&eni.id, |eni| {
            eni.ipv6_addresses.retain(|address| !addresses.contains(address));
            eni.ipv6_prefixes.retain(|prefix| !prefixes.contains(prefix));
        });
        Ok(Response::UnassignIpv6Addresses(AssignedIpv6Addresses {
            network_interface_id: eni.id.clone(),
            ipv6_addresses: addresses.clone(),
            ipv6_prefixes: prefixes.clone(),
        }))
    }
}

/// What EC2 says here is not documented; the code is the one of a wrong argument.
fn no_ipv6(subnet: &SubnetId) -> Ec2Error {
    let message = format!("The subnet '{subnet}' does not have an IPv6 CIDR block.");
    Ec2Error::invalid_value(message)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may fail")]
    use super::*;

    fn ledger() -> (Ledger6, Rng) {
        (Ledger6::new("2001:db8:1:2::/64".parse().unwrap()), Rng::new(3))
    }

    #[test]
    fn a_prefix_and_an_address_never_overlap() {
        let (mut ledger, mut rng) = ledger();
        let address: Ipv6Addr = "2001:db8:1:2:7::9".parse().unwrap();
        let wanted = Wanted6 { addresses: vec![address], ..Wanted6::default() };
        ledger.take(&wanted, &mut rng).unwrap();
        assert_eq!(ledger.take(&wanted, &mut rng).unwrap_err().code, "InvalidIPAddress.InUse");
        let around: Ipv6Net = "2001:db8:1:2:7::/80".parse().unwrap();
        let prefix = Wanted6 { prefixes: vec![around], ..Wanted6::default() };
        assert_eq!(ledger.take(&prefix, &mut rng).unwrap_err().code, "InsufficientCidrBlocks");
        ledger.release(&[address], &[]);
        assert_eq!(ledger.take(&prefix, &mut rng).unwrap(), (vec![], vec![around]));
        assert_eq!(ledger.take(&wanted, &mut rng).unwrap_err().code, "InvalidIPAddress.InUse");
    }

    #[test]
    fn the_first_and_the_last_prefix_hold_ec2s_own_addresses() {
        let (mut ledger, mut rng) = ledger();
        let all = Wanted6 { prefix_count: 65_534, ..Wanted6::default() };
        let (_, prefixes) = ledger.take(&all, &mut rng).unwrap();
        let distinct: BTreeSet<Ipv6Net> = prefixes.iter().copied().collect();
        assert_eq!(distinct.len(), 65_534);
        assert!(!distinct.contains(&"2001:db8:1:2::/80".parse().unwrap()));
        assert!(!distinct.contains(&"2001:db8:1:2:ffff::/80".parse().unwrap()));
        let one = Wanted6 { prefix_count: 1, ..Wanted6::default() };
        assert_eq!(ledger.take(&one, &mut rng).unwrap_err().code, "InsufficientCidrBlocks");
        ledger.release(&[], &prefixes[..1]);
        assert_eq!(ledger.take(&one, &mut rng).unwrap().1, prefixes[..1]);
    }

    #[test]
    fn addresses_are_drawn_from_the_whole_subnet() {
        let (mut ledger, mut rng) = ledger();
        let (addresses, _) =
            ledger.take(&Wanted6 { count: 50, ..Wanted6::default() }, &mut rng).unwrap();
        let cidr: Ipv6Net = "2001:db8:1:2::/64".parse().unwrap();
        assert!(addresses.iter().all(|address| cidr.contains(address)));
        assert_eq!(addresses.iter().collect::<BTreeSet<_>>().len(), 50);
    }
}

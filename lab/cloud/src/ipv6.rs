//! IPv6 addresses and /80 prefixes: which are given out, and the calls that give them.

mod pool;

pub(crate) use pool::{AddressPool6, AddressRequest6};

use crate::{
    AssignIpv6Addresses, AssignedIpv6Addresses, Cloud, CreateNetworkInterface, Ec2Error,
    InterfaceKind, NetworkInterface, Response, UnassignIpv6Addresses,
    address::{MOST_UNATTACHED, count},
};
use config_model::{InstanceId, SubnetId};
use ipnet::Ipv6Net;
use std::net::Ipv6Addr;

impl AddressRequest6 {
    /// One address that EC2 picks.
    pub(crate) fn one() -> Self {
        Self { count: 1, ..Self::default() }
    }

    pub(crate) fn by_creation(request: &CreateNetworkInterface) -> Result<Self, Ec2Error> {
        Self {
            addresses: request.ipv6_addresses.clone(),
            // 0 is allowed here: it overrides the subnet's setting.
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

    /// Number of places of the ENI that it fills; a prefix fills one.
    pub(crate) fn places(&self) -> usize {
        let counted = self.count.saturating_add(self.prefix_count);
        counted.saturating_add(self.addresses.len() + self.prefixes.len())
    }
}

/// Number of filled IPv6 places of an ENI.
pub(crate) fn places6_of(eni: &NetworkInterface) -> usize {
    eni.ipv6_addresses.len() + eni.ipv6_prefixes.len()
}

impl Cloud {
    /// Takes the IPv6 addresses of a new ENI, or none of them.
    pub(crate) fn take_ipv6(
        &mut self,
        subnet: &SubnetId,
        wanted: &AddressRequest6,
    ) -> Result<(Vec<Ipv6Addr>, Vec<Ipv6Net>), Ec2Error> {
        if wanted.is_nothing() {
            return Ok((Vec::new(), Vec::new()));
        }
        if wanted.places() > MOST_UNATTACHED {
            return Err(Ec2Error::too_many_addresses());
        }
        let pool = self.pools6.get_mut(subnet).ok_or_else(|| no_ipv6(subnet))?;
        pool.take(wanted, &mut self.rng)
    }

    /// Maximum number of IPv6 addresses and prefixes of an ENI on this instance.
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
        let wanted = AddressRequest6::by_assignment(request)?;
        if eni.kind == InterfaceKind::EfaOnly {
            return Err(Ec2Error::no_addresses_on_efa_only());
        }
        let instance = eni.attachment.as_ref().map(|a| &a.instance_id);
        if places6_of(&eni).saturating_add(wanted.places()) > self.ipv6_limit(instance) {
            return Err(Ec2Error::too_many_addresses());
        }
        let pool = self.pools6.get_mut(&eni.subnet_id).ok_or_else(|| no_ipv6(&eni.subnet_id))?;
        let (addresses, prefixes) = pool.take(&wanted, &mut self.rng)?;
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
        if let Some(pool) = self.pools6.get_mut(&eni.subnet_id) {
            pool.release(addresses, prefixes);
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

/// EC2's answer in this case is not documented; the code is the one of a wrong argument.
fn no_ipv6(subnet: &SubnetId) -> Ec2Error {
    let message = format!("The subnet '{subnet}' does not have an IPv6 CIDR block.");
    Ec2Error::invalid_value(message)
}

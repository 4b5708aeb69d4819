//! Addresses and prefixes of ENIs: what is wanted, what is allowed, what is given and taken back.

use crate::{
    AssignPrivateIpAddresses, AssignedPrivateIpAddresses, Cloud, CreateNetworkInterface, Ec2Error,
    InterfaceKind, NetworkInterface, PrivateAddress, Response, UnassignPrivateIpAddresses,
};
use config_model::{EniId, SubnetId};
use ipnet::Ipv4Net;
use std::{collections::BTreeSet, net::Ipv4Addr, sync::Arc};

/// Addresses of an ENI that is not attached; attaching holds it against the type's own limit.
pub(crate) const MOST_UNATTACHED: usize = 50;

/// The addresses that a request asks for, after the check of its parameters against each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AddressRequest {
    primary: Option<Ipv4Addr>,
    secondary: Vec<Ipv4Addr>,
    secondary_count: usize,
    prefixes: Vec<Ipv4Net>,
    prefix_count: usize,
}

impl AddressRequest {
    pub(crate) fn by_creation(request: &CreateNetworkInterface) -> Result<Self, Ec2Error> {
        let (primaries, secondary): (Vec<_>, Vec<_>) =
            request.private_ip_addresses.iter().partition(|address| address.primary);
        if primaries.len() > 1 || (request.private_ip_address.is_some() && !primaries.is_empty()) {
            let message = "Only one primary private IP address can be specified.";
            return Err(Ec2Error::invalid_combination(message));
        }
        let primary = primaries.first().map(|primary| primary.address);
        let secondary = secondary.iter().map(|address| address.address).collect();
        let wanted = Self {
            primary: request.private_ip_address.or(primary),
            secondary,
            secondary_count: count(request.secondary_private_ip_address_count)?,
            prefixes: request.ipv4_prefixes.clone(),
            prefix_count: count(request.ipv4_prefix_count)?,
        };
        if wanted.kinds() > 1 {
            return Err(two_kinds());
        }
        Ok(wanted)
    }

    fn by_assignment(request: &AssignPrivateIpAddresses) -> Result<Self, Ec2Error> {
        let wanted = Self {
            primary: None,
            secondary: request.private_ip_addresses.clone(),
            secondary_count: count(request.secondary_private_ip_address_count)?,
            prefixes: request.ipv4_prefixes.clone(),
            prefix_count: count(request.ipv4_prefix_count)?,
        };
        match wanted.kinds() {
            1 => Ok(wanted),
            0 => Err(Ec2Error::missing_parameter(
                "privateIpAddress, secondaryPrivateIpAddressCount, ipv4Prefix or ipv4PrefixCount",
            )),
            _ => Err(two_kinds()),
        }
    }

    /// True if it asks for any address, even the primary one.
    pub(crate) fn names_any(&self) -> bool {
        self.primary.is_some() || self.kinds() > 0
    }

    fn kinds(&self) -> usize {
        let kinds = [
            !self.secondary.is_empty(),
            self.secondary_count > 0,
            !self.prefixes.is_empty(),
            self.prefix_count > 0,
        ];
        kinds.iter().filter(|asked| **asked).count()
    }

    /// Number of places of the ENI that it fills beside the primary address; a prefix fills one.
    fn places(&self) -> usize {
        self.secondary.len() + self.secondary_count + self.prefixes.len() + self.prefix_count
    }
}

/// A count of a request; 0 is none.
pub(crate) fn count(asked: Option<u32>) -> Result<usize, Ec2Error> {
    match asked {
        None => Ok(0),
        Some(0) => Err(Ec2Error::invalid_value("Value (0) for parameter count is invalid.")),
        Some(asked) => Ok(usize::try_from(asked).unwrap_or(usize::MAX)),
    }
}

fn two_kinds() -> Ec2Error {
    Ec2Error::invalid_combination(
        "Only one of privateIpAddresses, secondaryPrivateIpAddressCount, ipv4Prefixes and \
         ipv4PrefixCount may be specified.",
    )
}

impl Cloud {
    /// Takes all addresses of a new ENI, the primary first, or none of them.
    pub(crate) fn take_addresses_of_new(
        &mut self,
        subnet: &SubnetId,
        eni: &EniId,
        wanted: &AddressRequest,
    ) -> Result<(Vec<Ipv4Addr>, Vec<Ipv4Net>), Ec2Error> {
        if wanted.places().saturating_add(1) > MOST_UNATTACHED {
            return Err(Ec2Error::too_many_addresses());
        }
        let named: Vec<Ipv4Addr> =
            wanted.primary.iter().chain(&wanted.secondary).copied().collect();
        self.check_named(subnet, &named, &wanted.prefixes)?;
        if let Some(taken) = named.iter().find(|address| self.is_held(subnet, **address)) {
            let message = format!("Address {taken} is in use.");
            return Err(Ec2Error::new("InvalidIPAddress.InUse", message));
        }
        let Some(pool) = self.pools.get_mut(subnet) else {
            return Err(Ec2Error::no_such_subnet(subnet));
        };
        let mut prefixes = pool
            .take_prefixes(wanted.prefix_count, &mut self.rng)
            .map_err(|_| Ec2Error::no_blocks_for_creation())?;
        named.iter().for_each(|address| pool.take(*address, Some(eni)));
        wanted.prefixes.iter().for_each(|prefix| pool.take_prefix(*prefix));
        prefixes.extend(&wanted.prefixes);
        let drawn = wanted.secondary_count + usize::from(wanted.primary.is_none());
        let mut drawn = match pool.take_some(drawn, Some(eni), &mut self.rng) {
            Ok(drawn) => drawn,
            Err(refused) => {
                named.iter().for_each(|address| pool.release(*address));
                prefixes.iter().for_each(|prefix| pool.release_prefix(*prefix));
                return Err(refused);
            }
        };
        let primary = wanted.primary.or_else(|| drawn.pop()).ok_or_else(Ec2Error::subnet_full)?;
        let secondary = wanted.secondary.iter().copied().chain(drawn);
        Ok((std::iter::once(primary).chain(secondary).collect(), prefixes))
    }

    /// Named addresses must be in the subnet and be named once.
    fn check_named(
        &self,
        subnet: &SubnetId,
        addresses: &[Ipv4Addr],
        prefixes: &[Ipv4Net],
    ) -> Result<(), Ec2Error> {
        let pool = self.pools.get(subnet).ok_or_else(|| Ec2Error::no_such_subnet(subnet))?;
        addresses.iter().try_for_each(|address| pool.check(*address))?;
        prefixes.iter().try_for_each(|prefix| pool.check_prefix(*prefix))?;
        let distinct = addresses.iter().collect::<BTreeSet<_>>().len()
            + prefixes.iter().collect::<BTreeSet<_>>().len();
        if distinct < addresses.len() + prefixes.len() {
            return Err(Ec2Error::invalid_value("Duplicate addresses specified"));
        }
        Ok(())
    }

    /// Maximum number of addresses of an ENI at its place.
    pub(crate) fn address_limit(&self, eni: &NetworkInterface) -> usize {
        let instance = eni.attachment.as_ref().map(|a| &a.instance_id);
        instance
            .and_then(|id| self.state.instances.get(id))
            .and_then(|instance| instance.limits())
            .map_or(MOST_UNATTACHED, |kind| usize::from(kind.ipv4_per_interface))
    }

    pub(crate) fn assign_addresses(
        &mut self,
        request: &AssignPrivateIpAddresses,
    ) -> Result<Response, Ec2Error> {
        let eni = self.eni(request.network_interface_id.as_ref())?;
        let wanted = AddressRequest::by_assignment(request)?;
        if eni.kind == InterfaceKind::EfaOnly {
            return Err(Ec2Error::no_addresses_on_efa_only());
        }
        if places_of(&eni).saturating_add(wanted.places()) > self.address_limit(&eni) {
            return Err(Ec2Error::too_many_addresses());
        }
        self.check_named(&eni.subnet_id, &wanted.secondary, &wanted.prefixes)?;
        self.make_room(&eni, &wanted.secondary, request.allow_reassignment)?;
        let Some(pool) = self.pools.get_mut(&eni.subnet_id) else {
            return Err(Ec2Error::no_such_subnet(&eni.subnet_id));
        };
        let mut addresses = pool.take_some(wanted.secondary_count, Some(&eni.id), &mut self.rng)?;
        let mut prefixes = pool.take_prefixes(wanted.prefix_count, &mut self.rng)?;
        for address in &wanted.secondary {
            pool.take(*address, Some(&eni.id));
        }
        for prefix in &wanted.prefixes {
            pool.take_prefix(*prefix);
        }
        addresses.extend(&wanted.secondary);
        prefixes.extend(&wanted.prefixes);
        self.edit_eni(&eni.id, |eni| {
            let secondary = addresses
                .iter()
                .map(|address| PrivateAddress { address: *address, primary: false });
            eni.private_addresses.extend(secondary);
            eni.ipv4_prefixes.extend(&prefixes);
        });
        self.count_free(&eni.subnet_id);
        Ok(Response::AssignPrivateIpAddresses(AssignedPrivateIpAddresses {
            network_interface_id: eni.id.clone(),
            private_ip_addresses: addresses,
            ipv4_prefixes: prefixes,
        }))
    }

    /// Takes named addresses away from the ENIs that hold them, if that is allowed.
    fn make_room(
        &mut self,
        eni: &NetworkInterface,
        addresses: &[Ipv4Addr],
        allow: bool,
    ) -> Result<(), Ec2Error> {
        let held: Vec<Ipv4Addr> = addresses
            .iter()
            .copied()
            .filter(|address| self.is_held(&eni.subnet_id, *address))
            .collect();
        let movable = |address: &Ipv4Addr| {
            let holder = self.pools.get(&eni.subnet_id).and_then(|l| l.holder(*address));
            let holder = holder.and_then(|id| self.state.enis.get(id));
            holder.is_some_and(|holder| {
                holder.id != eni.id && holder.secondary_addresses().any(|a| a == *address)
            })
        };
        if held.is_empty() {
            return Ok(());
        }
        if !allow || !held.iter().all(movable) {
            let list: Vec<String> = held.iter().map(ToString::to_string).collect();
            let message =
                format!("Some of [{}] are assigned, but move is not allowed.", list.join(", "));
            return Err(Ec2Error::invalid_value(message));
        }
        for address in held {
            let holder = self.pools.get(&eni.subnet_id).and_then(|l| l.holder(address)).cloned();
            if let Some(holder) = holder {
                self.edit_eni(&holder, |e| e.private_addresses.retain(|a| a.address != address));
            }
            if let Some(pool) = self.pools.get_mut(&eni.subnet_id) {
                pool.release(address);
            }
        }
        Ok(())
    }

    pub(crate) fn unassign_addresses(
        &mut self,
        request: &UnassignPrivateIpAddresses,
    ) -> Result<Response, Ec2Error> {
        let eni = self.eni(request.network_interface_id.as_ref())?;
        let (addresses, prefixes) = (&request.private_ip_addresses, &request.ipv4_prefixes);
        if addresses.is_empty() && prefixes.is_empty() {
            return Err(Ec2Error::missing_parameter("privateIpAddress or ipv4Prefix"));
        }
        if let Some(primary) = eni.primary_address().filter(|primary| addresses.contains(primary)) {
            let message = format!(
                "Private IP address {primary} is the primary address of {} and cannot be unassigned.",
                eni.id
            );
            return Err(Ec2Error::invalid_value(message));
        }
        let known =
            addresses.iter().all(|address| eni.secondary_addresses().any(|a| a == *address))
                && prefixes.iter().all(|prefix| eni.ipv4_prefixes.contains(prefix));
        if !known {
            let message =
                format!("Some of the specified addresses are not assigned to interface {}", eni.id);
            return Err(Ec2Error::invalid_value(message));
        }
        if let Some(pool) = self.pools.get_mut(&eni.subnet_id) {
            addresses.iter().for_each(|address| pool.release(*address));
            prefixes.iter().for_each(|prefix| pool.release_prefix(*prefix));
        }
        self.edit_eni(&eni.id, |eni| {
            eni.private_addresses.retain(|a| !addresses.contains(&a.address));
            eni.ipv4_prefixes.retain(|prefix| !prefixes.contains(prefix));
        });
        self.count_free(&eni.subnet_id);
        Ok(Response::UnassignPrivateIpAddresses)
    }
}

/// Number of filled places of an ENI; the primary address is one.
pub(crate) fn places_of(eni: &Arc<NetworkInterface>) -> usize {
    eni.private_addresses.len() + eni.ipv4_prefixes.len()
}

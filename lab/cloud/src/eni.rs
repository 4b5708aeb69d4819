//! The life of an ENI: creation, change, removal.

use crate::{
    Attachment, Caller, Cloud, CreateNetworkInterface, DeleteNetworkInterface, Ec2Error, EniStatus,
    GroupIdentifier, InterfaceKind, ModifyNetworkInterfaceAttribute, NetworkInterface,
    PrivateAddress, Response, Tag, address::AddressRequest, error::is_id, ipv6::AddressRequest6,
    tag, transition::Transition,
};
use config_model::{EniId, Mac, SecurityGroupId, SubnetId};
use std::{collections::BTreeMap, net::Ipv4Addr, sync::Arc};

/// An ENI to make.
pub(crate) struct NewEni {
    pub(crate) subnet_id: SubnetId,
    pub(crate) kind: InterfaceKind,
    pub(crate) wanted: AddressRequest,
    pub(crate) wanted6: AddressRequest6,
    pub(crate) groups: Vec<GroupIdentifier>,
    pub(crate) description: String,
    pub(crate) requester_id: String,
    pub(crate) tags: BTreeMap<String, String>,
}

/// Security groups per ENI, AWS's default quota.
const MOST_GROUPS: usize = 5;

impl Cloud {
    pub(crate) fn create_eni(
        &mut self,
        caller: &Caller,
        request: &CreateNetworkInterface,
    ) -> Result<Response, Ec2Error> {
        if let Some(made) = self.tokens.made_before(request)? {
            // As it is now; as it was then, if it is gone: the token never makes a second one.
            let now = self.state.enis.get(&made.id).map_or(made, Arc::as_ref);
            return Ok(created(now.clone(), request));
        }
        let subnet =
            request.subnet_id.as_ref().ok_or_else(|| Ec2Error::missing_parameter("subnetId"))?;
        if !self.state.subnets.contains_key(subnet) {
            return Err(Ec2Error::no_such_subnet(subnet));
        }
        let new = NewEni {
            subnet_id: subnet.clone(),
            kind: kind_for_creation(request)?,
            wanted: AddressRequest::by_creation(request)?,
            wanted6: self.ipv6_of_new(subnet, request)?,
            groups: self.groups_or_default(&request.groups)?,
            description: request.description.clone(),
            requester_id: self.arn_of(caller),
            tags: tags_for_creation(request)?,
        };
        let eni = self.make_eni(new)?;
        self.after(self.spec.timing.create, Transition::EniCreated(eni.clone()));
        let made = self.state.enis.get(&eni).ok_or_else(|| Ec2Error::no_such_eni(&eni))?;
        let made = NetworkInterface::clone(made);
        self.tokens.remember(request, &made);
        Ok(created(made, request))
    }

    /// IPv6 addresses of a new ENI: the requested ones, or one address if the subnet assigns it.
    fn ipv6_of_new(
        &self,
        subnet: &SubnetId,
        request: &CreateNetworkInterface,
    ) -> Result<AddressRequest6, Ec2Error> {
        let wanted = AddressRequest6::by_creation(request)?;
        let none = request.ipv6_address_count == Some(0);
        let efa_only = request.interface_type.as_deref() == Some(InterfaceKind::EfaOnly.as_str());
        let given = wanted.is_nothing() && !none && !efa_only && self.gives_ipv6(subnet);
        Ok(if given { AddressRequest6::one() } else { wanted })
    }

    /// True if each new ENI of a subnet gets an IPv6 address.
    pub(crate) fn gives_ipv6(&self, subnet: &SubnetId) -> bool {
        let subnet = self.state.subnets.get(subnet);
        subnet.is_some_and(|subnet| subnet.assign_ipv6_address_on_creation)
    }

    /// Makes an ENI with addresses; it is `pending`.
    pub(crate) fn make_eni(&mut self, new: NewEni) -> Result<EniId, Ec2Error> {
        let subnet = self
            .state
            .subnets
            .get(&new.subnet_id)
            .map(Arc::clone)
            .ok_or_else(|| Ec2Error::no_such_subnet(&new.subnet_id))?;
        let id = EniId::new(self.rng.id("eni"));
        let efa_only = new.kind == InterfaceKind::EfaOnly;
        if efa_only && (new.wanted.names_any() || !new.wanted6.is_nothing()) {
            return Err(Ec2Error::no_addresses_on_efa_only());
        }
        let (ipv6_addresses, ipv6_prefixes) = self.take_ipv6(&subnet.id, &new.wanted6)?;
        let ipv4 = if efa_only {
            Ok((Vec::new(), Vec::new()))
        } else {
            self.take_addresses_of_new(&subnet.id, &id, &new.wanted)
        };
        let (addresses, ipv4_prefixes) = match ipv4 {
            Ok(ipv4) => ipv4,
            Err(refused) => {
                if let Some(pool) = self.pools6.get_mut(&subnet.id) {
                    pool.release(&ipv6_addresses, &ipv6_prefixes);
                }
                return Err(refused);
            }
        };
        let private_addresses = addresses
            .into_iter()
            .enumerate()
            .map(|(at, address)| PrivateAddress { address, primary: at == 0 })
            .collect();
        let eni = NetworkInterface {
            id: id.clone(),
            subnet_id: subnet.id.clone(),
            vpc_id: subnet.vpc_id.clone(),
            availability_zone: subnet.availability_zone.clone(),
            owner_id: self.spec.account.clone(),
            requester_id: new.requester_id,
            description: new.description,
            mac: self.new_mac(),
            status: EniStatus::Pending,
            kind: new.kind,
            private_addresses,
            ipv4_prefixes,
            ipv6_addresses,
            ipv6_prefixes,
            public_ip: None,
            groups: new.groups,
            source_dest_check: true,
            attachment: None,
            tags: new.tags,
        };
        self.edit(|state, stamp| state.insert_eni(stamp, eni));
        self.count_free(&subnet.id);
        Ok(id)
    }

    /// A MAC that no ENI has; EC2's start with 02 or 06 (locally administered).
    fn new_mac(&mut self) -> Mac {
        loop {
            let [a, b, c, d, e, first, ..] = self.rng.next().to_le_bytes();
            let mac = Mac([if first % 2 == 0 { 0x02 } else { 0x06 }, a, b, c, d, e]);
            if !self.state.has_mac(mac) {
                return mac;
            }
        }
    }

    pub(crate) fn delete_eni(
        &mut self,
        request: &DeleteNetworkInterface,
    ) -> Result<Response, Ec2Error> {
        let eni = self.eni(request.network_interface_id.as_ref())?;
        if eni.attachment.is_some() {
            let message = format!("Network interface '{}' is currently in use.", eni.id);
            return Err(Ec2Error::invalid_value(message));
        }
        if self.trunks.has_branches(&eni.id) {
            let message = format!("Network interface '{}' has branches.", eni.id);
            return Err(Ec2Error::invalid_value(message));
        }
        let id = eni.id.clone();
        self.remove_eni(&id);
        Ok(Response::DeleteNetworkInterface)
    }

    /// Removes an ENI; its addresses are free at once. A branch leaves its trunk, a trunk loses its
    /// branches.
    pub(crate) fn remove_eni(&mut self, id: &EniId) {
        self.part_from_trunk(id);
        let Some(eni) = self.edit(|state, stamp| state.remove_eni(stamp, id)) else { return };
        if let Some(public) = eni.public_ip {
            self.public.remove(&public);
        }
        if let Some(pool) = self.pools.get_mut(&eni.subnet_id) {
            for address in &eni.private_addresses {
                pool.release(address.address);
            }
            for prefix in &eni.ipv4_prefixes {
                pool.release_prefix(*prefix);
            }
        }
        if let Some(pool) = self.pools6.get_mut(&eni.subnet_id) {
            pool.release(&eni.ipv6_addresses, &eni.ipv6_prefixes);
        }
        self.count_free(&eni.subnet_id);
    }

    pub(crate) fn modify_eni(
        &mut self,
        request: &ModifyNetworkInterfaceAttribute,
    ) -> Result<Response, Ec2Error> {
        let eni = self.eni(request.network_interface_id.as_ref())?;
        let attributes = [
            request.attachment.is_some(),
            request.description.is_some(),
            !request.groups.is_empty(),
            request.source_dest_check.is_some(),
        ];
        match attributes.iter().filter(|given| **given).count() {
            1 => {}
            0 => return Err(Ec2Error::invalid_combination("No attributes specified.")),
            _ => {
                let message = "Fields for multiple attribute types specified";
                return Err(Ec2Error::invalid_combination(message));
            }
        }
        if let Some(change) = &request.attachment {
            let id = change
                .attachment_id
                .as_ref()
                .ok_or_else(|| Ec2Error::missing_parameter("attachmentId"))?;
            let Some(attachment) = eni.attachment.as_ref().filter(|a| a.id == *id) else {
                return Err(Ec2Error::no_such_attachment(id));
            };
            let delete = change.delete_on_termination.unwrap_or(attachment.delete_on_termination);
            if !self.faults.forgets_delete_on_termination() {
                self.edit_attachment(&eni.id, |a| a.delete_on_termination = delete);
            }
        }
        if let Some(description) = &request.description {
            self.edit_eni(&eni.id, |eni| eni.description.clone_from(description));
        }
        if !request.groups.is_empty() {
            let groups = self.groups_or_default(&request.groups)?;
            self.edit_eni(&eni.id, |eni| eni.groups = groups);
        }
        if let Some(check) = request.source_dest_check {
            self.edit_eni(&eni.id, |eni| eni.source_dest_check = check);
        }
        Ok(Response::ModifyNetworkInterfaceAttribute)
    }

    /// The groups by these ids; the VPC's default group if there are none.
    pub(crate) fn groups_or_default(
        &self,
        ids: &[SecurityGroupId],
    ) -> Result<Vec<GroupIdentifier>, Ec2Error> {
        let identify = |group: &crate::SecurityGroup| GroupIdentifier {
            id: group.id.clone(),
            name: group.name.clone(),
        };
        if ids.is_empty() {
            let default = self.state.groups.values().find(|group| group.name == "default");
            return Ok(default.map(|group| identify(group)).into_iter().collect());
        }
        if ids.len() > MOST_GROUPS {
            return Err(Ec2Error::new(
                "SecurityGroupsPerInterfaceLimitExceeded",
                "The maximum number of security groups per interface has been reached.",
            ));
        }
        ids.iter()
            .map(|id| {
                let group = self.state.groups.get(id);
                group.map(|group| identify(group)).ok_or_else(|| Ec2Error::no_such_group(id))
            })
            .collect()
    }

    /// The ENI that a request names.
    pub(crate) fn eni(&self, id: Option<&EniId>) -> Result<Arc<NetworkInterface>, Ec2Error> {
        let id = id.ok_or_else(|| Ec2Error::missing_parameter("networkInterfaceId"))?;
        check_id(id)?;
        self.state.enis.get(id).map(Arc::clone).ok_or_else(|| Ec2Error::no_such_eni(id))
    }

    pub(crate) fn edit_eni(&mut self, id: &EniId, change: impl FnOnce(&mut NetworkInterface)) {
        self.edit(|state, stamp| state.change_eni(stamp, id, change));
    }

    pub(crate) fn edit_attachment(&mut self, id: &EniId, change: impl FnOnce(&mut Attachment)) {
        self.edit_eni(id, |eni| {
            if let Some(attachment) = &mut eni.attachment {
                change(attachment);
            }
        });
    }

    /// Shows in a subnet how many addresses it has left.
    pub(crate) fn count_free(&mut self, id: &SubnetId) {
        let free = self.pools.get(id).map_or(0, crate::subnet::AddressPool::free);
        self.edit(|state, stamp| {
            state.subnets.change(stamp, id, |subnet| subnet.available_ip_address_count = free)
        });
    }

    /// True if an address of a subnet is in use.
    pub(crate) fn is_held(&self, subnet: &SubnetId, address: Ipv4Addr) -> bool {
        self.pools.get(subnet).is_some_and(|pool| pool.is_held(address))
    }
}

fn created(eni: NetworkInterface, request: &CreateNetworkInterface) -> Response {
    Response::CreateNetworkInterface {
        network_interface: Box::new(eni),
        client_token: request.client_token.clone(),
    }
}

/// `eni-` and hex digits; anything else is not even looked up.
pub(crate) fn check_id(id: &EniId) -> Result<(), Ec2Error> {
    if is_id(id.as_str(), "eni-") {
        return Ok(());
    }
    let message = format!("Invalid id: \"{id}\" (expecting \"eni-...\")");
    Err(Ec2Error::new("InvalidNetworkInterfaceId.Malformed", message))
}

/// `InterfaceType`; a plain ENI cannot be asked for by name.
fn kind_for_creation(request: &CreateNetworkInterface) -> Result<InterfaceKind, Ec2Error> {
    let Some(name) = request.interface_type.as_deref() else { return Ok(InterfaceKind::Interface) };
    let kinds =
        [InterfaceKind::Efa, InterfaceKind::EfaOnly, InterfaceKind::Trunk, InterfaceKind::Branch];
    kinds.into_iter().find(|kind| kind.as_str() == name).ok_or_else(|| {
        Ec2Error::invalid_value(format!("Value ({name}) for parameter InterfaceType is invalid."))
    })
}

fn tags_for_creation(
    request: &CreateNetworkInterface,
) -> Result<BTreeMap<String, String>, Ec2Error> {
    let mut tags: Vec<Tag> = Vec::new();
    for spec in &request.tag_specifications {
        if spec.resource_type != "network-interface" {
            let message = format!(
                "'{}' is not a valid taggable resource type for this operation.",
                spec.resource_type
            );
            return Err(Ec2Error::invalid_value(message));
        }
        tags.extend(spec.tags.iter().cloned());
    }
    tag::check(&BTreeMap::new(), &tags)?;
    Ok(tags.into_iter().map(|tag| (tag.key, tag.value)).collect())
}

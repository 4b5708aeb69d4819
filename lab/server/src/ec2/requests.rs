//! From a request's parameters to the model's words: one function per action.

use super::params::{ParamError, Params};
use config_model::{AttachmentId, EniId, InstanceId, SecurityGroupId, SubnetId, VpcId};
use lab_cloud::{
    Action, AssignIpv6Addresses, AssignPrivateIpAddresses, AssociateTrunkInterface,
    AttachNetworkInterface, AttachmentChange, CreateNetworkInterface, CreateSubnetCidrReservation,
    CreateTags, DeleteNetworkInterface, DeleteSubnetCidrReservation, DeleteTags,
    DescribeInstanceTypes, DescribeInstances, DescribeNetworkInterfaces, DescribeSecurityGroups,
    DescribeSubnets, DescribeTags, DescribeTrunkInterfaceAssociations, DescribeVpcs,
    DetachNetworkInterface, DisassociateTrunkInterface, Filter, GetSubnetCidrReservations,
    ModifyNetworkInterfaceAttribute, Page, PrivateAddressRequest, Request, Tag, TagSpecification,
    TagToDelete, UnassignIpv6Addresses, UnassignPrivateIpAddresses,
};

/// Reads the request of an action; every parameter must be one that we understand.
pub(super) fn parse(action: Action, mut params: Params) -> Result<Request, ParamError> {
    let p = &mut params;
    let request = match action {
        Action::AssignIpv6Addresses => assign_ipv6(p)?.into(),
        Action::AssignPrivateIpAddresses => assign(p)?.into(),
        Action::AssociateTrunkInterface => associate_trunk(p)?.into(),
        Action::AttachNetworkInterface => attach(p)?.into(),
        Action::CreateNetworkInterface => create(p)?.into(),
        Action::CreateSubnetCidrReservation => create_reservation(p)?.into(),
        Action::CreateTags => create_tags(p)?.into(),
        Action::DeleteNetworkInterface => delete(p)?.into(),
        Action::DeleteSubnetCidrReservation => delete_reservation(p)?.into(),
        Action::DeleteTags => delete_tags(p)?.into(),
        Action::DescribeInstanceTypes => describe_instance_types(p)?.into(),
        Action::DescribeInstances => describe_instances(p)?.into(),
        Action::DescribeNetworkInterfaces => describe_network_interfaces(p)?.into(),
        Action::DescribeSecurityGroups => describe_security_groups(p)?.into(),
        Action::DescribeSubnets => describe_subnets(p)?.into(),
        Action::DescribeTags => describe_tags(p)?.into(),
        Action::DescribeTrunkInterfaceAssociations => describe_trunks(p)?.into(),
        Action::DescribeVpcs => describe_vpcs(p)?.into(),
        Action::DetachNetworkInterface => detach(p)?.into(),
        Action::DisassociateTrunkInterface => disassociate_trunk(p)?.into(),
        Action::GetSubnetCidrReservations => get_reservations(p)?.into(),
        Action::ModifyNetworkInterfaceAttribute => modify(p)?.into(),
        Action::UnassignIpv6Addresses => unassign_ipv6(p)?.into(),
        Action::UnassignPrivateIpAddresses => unassign(p)?.into(),
    };
    params.finish()?;
    Ok(request)
}

fn create(p: &mut Params) -> Result<CreateNetworkInterface, ParamError> {
    Ok(CreateNetworkInterface {
        subnet_id: p.text("SubnetId").map(SubnetId::new),
        description: p.text("Description").unwrap_or_default(),
        groups: p.list("SecurityGroupId").into_iter().map(SecurityGroupId::new).collect(),
        private_ip_address: p.parsed("PrivateIpAddress", AN_ADDRESS)?,
        private_ip_addresses: private_addresses(p)?,
        secondary_private_ip_address_count: p.parsed("SecondaryPrivateIpAddressCount", A_NUMBER)?,
        ipv4_prefix_count: p.parsed("Ipv4PrefixCount", A_NUMBER)?,
        ipv4_prefixes: nested(p, "Ipv4Prefix", "Ipv4Prefix", A_PREFIX)?,
        ipv6_address_count: p.parsed("Ipv6AddressCount", A_NUMBER)?,
        ipv6_addresses: nested(p, "Ipv6Addresses", "Ipv6Address", AN_IPV6_ADDRESS)?,
        ipv6_prefix_count: p.parsed("Ipv6PrefixCount", A_NUMBER)?,
        ipv6_prefixes: nested(p, "Ipv6Prefix", "Ipv6Prefix", AN_IPV6_PREFIX)?,
        interface_type: p.text("InterfaceType"),
        client_token: p.text("ClientToken"),
        tag_specifications: tag_specifications(p)?,
        dry_run: dry_run(p)?,
    })
}

fn attach(p: &mut Params) -> Result<AttachNetworkInterface, ParamError> {
    Ok(AttachNetworkInterface {
        network_interface_id: eni(p),
        instance_id: p.text("InstanceId").map(InstanceId::new),
        device_index: p.parsed("DeviceIndex", A_NUMBER)?,
        network_card_index: p.parsed("NetworkCardIndex", A_NUMBER)?,
        dry_run: dry_run(p)?,
    })
}

fn detach(p: &mut Params) -> Result<DetachNetworkInterface, ParamError> {
    Ok(DetachNetworkInterface {
        attachment_id: p.text("AttachmentId").map(AttachmentId::new),
        force: p.flag("Force")?.unwrap_or(false),
        dry_run: dry_run(p)?,
    })
}

fn delete(p: &mut Params) -> Result<DeleteNetworkInterface, ParamError> {
    Ok(DeleteNetworkInterface { network_interface_id: eni(p), dry_run: dry_run(p)? })
}

fn modify(p: &mut Params) -> Result<ModifyNetworkInterfaceAttribute, ParamError> {
    let attachment = match p.nested("Attachment") {
        Some(mut attachment) => {
            let change = AttachmentChange {
                attachment_id: attachment.text("AttachmentId").map(AttachmentId::new),
                delete_on_termination: attachment.flag("DeleteOnTermination")?,
            };
            attachment.finish()?;
            Some(change)
        }
        None => None,
    };
    Ok(ModifyNetworkInterfaceAttribute {
        network_interface_id: eni(p),
        attachment,
        description: p.text("Description.Value"),
        groups: p.list("SecurityGroupId").into_iter().map(SecurityGroupId::new).collect(),
        source_dest_check: p.flag("SourceDestCheck.Value")?,
        dry_run: dry_run(p)?,
    })
}

fn assign(p: &mut Params) -> Result<AssignPrivateIpAddresses, ParamError> {
    Ok(AssignPrivateIpAddresses {
        network_interface_id: eni(p),
        secondary_private_ip_address_count: p.parsed("SecondaryPrivateIpAddressCount", A_NUMBER)?,
        private_ip_addresses: p.parsed_list("PrivateIpAddress", AN_ADDRESS)?,
        ipv4_prefix_count: p.parsed("Ipv4PrefixCount", A_NUMBER)?,
        ipv4_prefixes: p.parsed_list("Ipv4Prefix", A_PREFIX)?,
        allow_reassignment: p.flag("AllowReassignment")?.unwrap_or(false),
        dry_run: false,
    })
}

fn unassign(p: &mut Params) -> Result<UnassignPrivateIpAddresses, ParamError> {
    Ok(UnassignPrivateIpAddresses {
        network_interface_id: eni(p),
        private_ip_addresses: p.parsed_list("PrivateIpAddress", AN_ADDRESS)?,
        ipv4_prefixes: p.parsed_list("Ipv4Prefix", A_PREFIX)?,
        dry_run: false,
    })
}

fn assign_ipv6(p: &mut Params) -> Result<AssignIpv6Addresses, ParamError> {
    Ok(AssignIpv6Addresses {
        network_interface_id: eni(p),
        ipv6_address_count: p.parsed("Ipv6AddressCount", A_NUMBER)?,
        ipv6_addresses: p.parsed_list("Ipv6Addresses", AN_IPV6_ADDRESS)?,
        ipv6_prefix_count: p.parsed("Ipv6PrefixCount", A_NUMBER)?,
        ipv6_prefixes: p.parsed_list("Ipv6Prefix", AN_IPV6_PREFIX)?,
        dry_run: false,
    })
}

fn unassign_ipv6(p: &mut Params) -> Result<UnassignIpv6Addresses, ParamError> {
    Ok(UnassignIpv6Addresses {
        network_interface_id: eni(p),
        ipv6_addresses: p.parsed_list("Ipv6Addresses", AN_IPV6_ADDRESS)?,
        ipv6_prefixes: p.parsed_list("Ipv6Prefix", AN_IPV6_PREFIX)?,
        dry_run: false,
    })
}

fn associate_trunk(p: &mut Params) -> Result<AssociateTrunkInterface, ParamError> {
    Ok(AssociateTrunkInterface {
        branch_interface_id: p.text("BranchInterfaceId").map(EniId::new),
        trunk_interface_id: p.text("TrunkInterfaceId").map(EniId::new),
        vlan_id: p.parsed("VlanId", A_NUMBER)?,
        client_token: p.text("ClientToken"),
        dry_run: dry_run(p)?,
    })
}

fn disassociate_trunk(p: &mut Params) -> Result<DisassociateTrunkInterface, ParamError> {
    Ok(DisassociateTrunkInterface {
        association_id: p.text("AssociationId"),
        client_token: p.text("ClientToken"),
        dry_run: dry_run(p)?,
    })
}

fn describe_trunks(p: &mut Params) -> Result<DescribeTrunkInterfaceAssociations, ParamError> {
    Ok(DescribeTrunkInterfaceAssociations {
        association_ids: p.list("AssociationId"),
        filters: filters(p)?,
        page: page(p)?,
        dry_run: dry_run(p)?,
    })
}

fn create_reservation(p: &mut Params) -> Result<CreateSubnetCidrReservation, ParamError> {
    Ok(CreateSubnetCidrReservation {
        subnet_id: p.text("SubnetId").map(SubnetId::new),
        cidr: p.parsed("Cidr", A_PREFIX)?,
        reservation_type: p.text("ReservationType"),
        description: p.text("Description").unwrap_or_default(),
        dry_run: dry_run(p)?,
    })
}

fn get_reservations(p: &mut Params) -> Result<GetSubnetCidrReservations, ParamError> {
    Ok(GetSubnetCidrReservations {
        subnet_id: p.text("SubnetId").map(SubnetId::new),
        page: page(p)?,
        dry_run: dry_run(p)?,
    })
}

fn delete_reservation(p: &mut Params) -> Result<DeleteSubnetCidrReservation, ParamError> {
    Ok(DeleteSubnetCidrReservation {
        subnet_cidr_reservation_id: p.text("SubnetCidrReservationId"),
        dry_run: dry_run(p)?,
    })
}

fn create_tags(p: &mut Params) -> Result<CreateTags, ParamError> {
    Ok(CreateTags { resources: p.list("ResourceId"), tags: tags(p)?, dry_run: dry_run(p)? })
}

fn delete_tags(p: &mut Params) -> Result<DeleteTags, ParamError> {
    let mut doomed = Vec::new();
    for mut tag in p.structs("Tag") {
        doomed.push(TagToDelete { key: tag.required("Key")?, value: tag.text("Value") });
        tag.finish()?;
    }
    Ok(DeleteTags { resources: p.list("ResourceId"), tags: doomed, dry_run: dry_run(p)? })
}

fn describe_network_interfaces(p: &mut Params) -> Result<DescribeNetworkInterfaces, ParamError> {
    p.flag("IncludeManagedResources")?;
    Ok(DescribeNetworkInterfaces {
        network_interface_ids: p.list("NetworkInterfaceId").into_iter().map(EniId::new).collect(),
        filters: filters(p)?,
        page: page(p)?,
        dry_run: dry_run(p)?,
    })
}

fn describe_instances(p: &mut Params) -> Result<DescribeInstances, ParamError> {
    p.flag("IncludeManagedResources")?;
    Ok(DescribeInstances {
        instance_ids: p.list("InstanceId").into_iter().map(InstanceId::new).collect(),
        filters: filters(p)?,
        page: page(p)?,
        dry_run: dry_run(p)?,
    })
}

fn describe_instance_types(p: &mut Params) -> Result<DescribeInstanceTypes, ParamError> {
    Ok(DescribeInstanceTypes {
        instance_types: p.list("InstanceType"),
        filters: filters(p)?,
        page: page(p)?,
        dry_run: dry_run(p)?,
    })
}

fn describe_subnets(p: &mut Params) -> Result<DescribeSubnets, ParamError> {
    Ok(DescribeSubnets {
        subnet_ids: p.list("SubnetId").into_iter().map(SubnetId::new).collect(),
        filters: filters(p)?,
        page: page(p)?,
        dry_run: dry_run(p)?,
    })
}

fn describe_vpcs(p: &mut Params) -> Result<DescribeVpcs, ParamError> {
    Ok(DescribeVpcs {
        vpc_ids: p.list("VpcId").into_iter().map(VpcId::new).collect(),
        filters: filters(p)?,
        page: page(p)?,
        dry_run: dry_run(p)?,
    })
}

fn describe_security_groups(p: &mut Params) -> Result<DescribeSecurityGroups, ParamError> {
    Ok(DescribeSecurityGroups {
        group_ids: p.list("GroupId").into_iter().map(SecurityGroupId::new).collect(),
        filters: filters(p)?,
        page: page(p)?,
        dry_run: dry_run(p)?,
    })
}

fn describe_tags(p: &mut Params) -> Result<DescribeTags, ParamError> {
    Ok(DescribeTags { filters: filters(p)?, page: page(p)?, dry_run: dry_run(p)? })
}

fn eni(p: &mut Params) -> Option<EniId> {
    p.text("NetworkInterfaceId").map(EniId::new)
}

fn dry_run(p: &mut Params) -> Result<bool, ParamError> {
    Ok(p.flag("DryRun")?.unwrap_or(false))
}

fn page(p: &mut Params) -> Result<Page, ParamError> {
    let max_results = p.parsed("MaxResults", A_NUMBER)?;
    Ok(Page { max_results, next_token: p.text("NextToken") })
}

fn filters(p: &mut Params) -> Result<Vec<Filter>, ParamError> {
    let mut filters = Vec::new();
    for mut filter in p.structs("Filter") {
        filters.push(Filter { name: filter.required("Name")?, values: filter.list("Value") });
        filter.finish()?;
    }
    Ok(filters)
}

fn tags(p: &mut Params) -> Result<Vec<Tag>, ParamError> {
    let mut tags = Vec::new();
    for mut tag in p.structs("Tag") {
        tags.push(Tag::new(tag.required("Key")?, tag.text("Value").unwrap_or_default()));
        tag.finish()?;
    }
    Ok(tags)
}

fn tag_specifications(p: &mut Params) -> Result<Vec<TagSpecification>, ParamError> {
    let mut specifications = Vec::new();
    for mut spec in p.structs("TagSpecification") {
        let resource_type = spec.required("ResourceType")?;
        specifications.push(TagSpecification { resource_type, tags: tags(&mut spec)? });
        spec.finish()?;
    }
    Ok(specifications)
}

fn private_addresses(p: &mut Params) -> Result<Vec<PrivateAddressRequest>, ParamError> {
    let mut addresses = Vec::new();
    for mut member in p.structs("PrivateIpAddresses") {
        let missing = || ParamError::Missing("PrivateIpAddresses.N.PrivateIpAddress".to_owned());
        let address = member.parsed("PrivateIpAddress", AN_ADDRESS)?.ok_or_else(missing)?;
        let primary = member.flag("Primary")?.unwrap_or(false);
        member.finish()?;
        addresses.push(PrivateAddressRequest { address, primary });
    }
    Ok(addresses)
}

/// CreateNetworkInterface uses `Ipv4Prefix.N.Ipv4Prefix` where Assign uses `Ipv4Prefix.N`.
fn nested<T: std::str::FromStr>(
    p: &mut Params,
    list: &str,
    member: &str,
    wanted: &'static str,
) -> Result<Vec<T>, ParamError> {
    let mut found = Vec::new();
    for mut item in p.structs(list) {
        found.extend(item.parsed::<T>(member, wanted)?);
        item.finish()?;
    }
    Ok(found)
}

const A_NUMBER: &str = "It must be a number.";
const AN_ADDRESS: &str = "It must be an IPv4 address.";
const A_PREFIX: &str = "It must be an IPv4 prefix.";
const AN_IPV6_ADDRESS: &str = "It must be an IPv6 address.";
const AN_IPV6_PREFIX: &str = "It must be an IPv6 prefix.";

//! Each limit has EC2's own code.

use crate::world::{World, quiet};
use config_model::{AttachmentId, EniId, InstanceId, SecurityGroupId, SubnetId, VpcId};
use lab_cloud::{
    AssignPrivateIpAddresses, AttachNetworkInterface, AttachmentChange, CallError, Caller,
    CreateNetworkInterface, CreateTags, DeleteNetworkInterface, DeleteTags, DescribeInstanceTypes,
    DescribeInstances, DescribeNetworkInterfaces, DescribeSecurityGroups, DescribeSubnets,
    DescribeTags, DescribeVpcs, DetachNetworkInterface, Filter, Iam,
    ModifyNetworkInterfaceAttribute, Page, PrivateAddressRequest, Request, Tag, TagSpecification,
    UnassignPrivateIpAddresses,
};

const NOBODY: &str = "eni-00000000000000000";

fn codes(rows: Vec<(Request, &str, &str)>, world: &mut World) {
    for (request, code, part) in rows {
        let before = (world.enis(), world.cloud.version(world.now));
        let error = world.refusal(request.clone());
        assert_eq!(error.code, code, "{request:?}: {error}");
        assert!(error.message.contains(part), "{error} lacks {part:?}");
        assert_eq!(error.http_status, 400, "{error}");
        assert_eq!((world.enis(), world.cloud.version(world.now)), before, "{request:?}");
    }
}

#[test]
fn things_that_do_not_exist_are_not_found() {
    let mut world = World::new();
    let eni = world.create("a");
    let nobody = Some(EniId::new(NOBODY));
    let node = Some(world.node.clone());
    let rows: Vec<(Request, &str, &str)> = vec![
        (
            CreateNetworkInterface {
                subnet_id: Some(SubnetId::new("subnet-0")),
                ..Default::default()
            }
            .into(),
            "InvalidSubnetID.NotFound",
            "The subnet ID 'subnet-0' does not exist",
        ),
        (
            CreateNetworkInterface {
                subnet_id: Some(world.subnet("a")),
                groups: vec![SecurityGroupId::new("sg-0")],
                ..Default::default()
            }
            .into(),
            "InvalidGroup.NotFound",
            "The security group 'sg-0' does not exist",
        ),
        (
            AttachNetworkInterface {
                network_interface_id: nobody.clone(),
                instance_id: node,
                device_index: Some(1),
                ..Default::default()
            }
            .into(),
            "InvalidNetworkInterfaceID.NotFound",
            "The networkInterface ID 'eni-00000000000000000' does not exist",
        ),
        (
            AttachNetworkInterface {
                network_interface_id: Some(eni),
                instance_id: Some(InstanceId::new("i-0")),
                device_index: Some(1),
                ..Default::default()
            }
            .into(),
            "InvalidInstanceID.NotFound",
            "The instance ID 'i-0' does not exist",
        ),
        (
            DetachNetworkInterface {
                attachment_id: Some(AttachmentId::new("eni-attach-0")),
                ..Default::default()
            }
            .into(),
            "InvalidAttachmentID.NotFound",
            "'eni-attach-0'",
        ),
        (
            DeleteNetworkInterface { network_interface_id: nobody.clone(), ..Default::default() }
                .into(),
            "InvalidNetworkInterfaceID.NotFound",
            NOBODY,
        ),
        (
            DescribeNetworkInterfaces {
                network_interface_ids: vec![EniId::new(NOBODY)],
                ..Default::default()
            }
            .into(),
            "InvalidNetworkInterfaceID.NotFound",
            NOBODY,
        ),
        (
            AssignPrivateIpAddresses {
                network_interface_id: nobody,
                secondary_private_ip_address_count: Some(1),
                ..Default::default()
            }
            .into(),
            "InvalidNetworkInterfaceID.NotFound",
            NOBODY,
        ),
        (
            DescribeInstances { instance_ids: vec![InstanceId::new("i-0")], ..Default::default() }
                .into(),
            "InvalidInstanceID.NotFound",
            "i-0",
        ),
        (
            DescribeSubnets { subnet_ids: vec![SubnetId::new("subnet-0")], ..Default::default() }
                .into(),
            "InvalidSubnetID.NotFound",
            "subnet-0",
        ),
        (
            DescribeVpcs { vpc_ids: vec![VpcId::new("vpc-0")], ..Default::default() }.into(),
            "InvalidVpcID.NotFound",
            "vpc-0",
        ),
        (
            DescribeSecurityGroups {
                group_ids: vec![SecurityGroupId::new("sg-0")],
                ..Default::default()
            }
            .into(),
            "InvalidGroup.NotFound",
            "sg-0",
        ),
        (
            DescribeInstanceTypes {
                instance_types: vec!["z9.huge".to_owned()],
                ..Default::default()
            }
            .into(),
            "InvalidInstanceType",
            "z9.huge",
        ),
        (
            CreateTags {
                resources: vec![NOBODY.to_owned()],
                tags: vec![Tag::new("a", "b")],
                ..Default::default()
            }
            .into(),
            "InvalidNetworkInterfaceID.NotFound",
            NOBODY,
        ),
        (
            DeleteTags { resources: vec!["vol-0".to_owned()], ..Default::default() }.into(),
            "InvalidID",
            "vol-0",
        ),
    ];
    codes(rows, &mut world);
}

#[test]
fn a_missing_parameter_is_named() {
    let mut world = World::new();
    let eni = Some(world.create("a"));
    let rows: Vec<(Request, &str, &str)> = vec![
        (CreateNetworkInterface::default().into(), "MissingParameter", "subnetId"),
        (AttachNetworkInterface::default().into(), "MissingParameter", "networkInterfaceId"),
        (
            AttachNetworkInterface { network_interface_id: eni.clone(), ..Default::default() }
                .into(),
            "MissingParameter",
            "instanceId",
        ),
        (
            AttachNetworkInterface {
                network_interface_id: eni.clone(),
                instance_id: Some(world.node.clone()),
                ..Default::default()
            }
            .into(),
            "MissingParameter",
            "deviceIndex",
        ),
        (DetachNetworkInterface::default().into(), "MissingParameter", "attachmentId"),
        (DeleteNetworkInterface::default().into(), "MissingParameter", "networkInterfaceId"),
        (
            AssignPrivateIpAddresses { network_interface_id: eni.clone(), ..Default::default() }
                .into(),
            "MissingParameter",
            "secondaryPrivateIpAddressCount",
        ),
        (
            UnassignPrivateIpAddresses { network_interface_id: eni, ..Default::default() }.into(),
            "MissingParameter",
            "privateIpAddress",
        ),
        (CreateTags::default().into(), "MissingParameter", "resourceIdSet"),
        (
            CreateTags { resources: vec![NOBODY.to_owned()], ..Default::default() }.into(),
            "MissingParameter",
            "tagSet",
        ),
    ];
    codes(rows, &mut world);
}

#[test]
fn values_and_combinations_that_ec2_refuses() {
    let mut world = World::new();
    let eni = world.attached(1);
    let plugged = world.find(&eni).unwrap();
    let attachment = plugged.attachment.clone().unwrap().id;
    let primary = world.primary();
    let free = world.create("a");
    let far = world.create("b");
    let create =
        || CreateNetworkInterface { subnet_id: Some(world.subnet("a")), ..Default::default() };
    let named = |address: &str| CreateNetworkInterface {
        private_ip_address: Some(address.parse().unwrap()),
        ..create()
    };
    let tagged = |tag: Tag, resource_type: &str| CreateNetworkInterface {
        tag_specifications: vec![TagSpecification {
            resource_type: resource_type.to_owned(),
            tags: vec![tag],
        }],
        ..create()
    };
    let assign = |addresses: Vec<std::net::Ipv4Addr>| AssignPrivateIpAddresses {
        network_interface_id: Some(free.clone()),
        private_ip_addresses: addresses,
        ..Default::default()
    };
    let mut second_device = world_attach(&world, &free, 1);
    let mut rows: Vec<(Request, &str, &str)> = vec![
        (second_device.clone().into(), "InvalidParameterValue", "attached at device index '1'"),
        (
            world_attach(&world, &far, 2).into(),
            "InvalidParameterCombination",
            "same availability zone",
        ),
        (world_attach(&world, &eni, 2).into(), "InvalidNetworkInterface.InUse", "in use"),
        (
            DeleteNetworkInterface {
                network_interface_id: Some(eni.clone()),
                ..Default::default()
            }
            .into(),
            "InvalidParameterValue",
            "is currently in use",
        ),
        (
            DetachNetworkInterface {
                attachment_id: primary.attachment.clone().map(|a| a.id),
                force: true,
                ..Default::default()
            }
            .into(),
            "OperationNotPermitted",
            "device index 0",
        ),
        (
            DeleteNetworkInterface {
                network_interface_id: Some(EniId::new("net-1")),
                ..Default::default()
            }
            .into(),
            "InvalidNetworkInterfaceId.Malformed",
            "net-1",
        ),
        (
            ModifyNetworkInterfaceAttribute {
                network_interface_id: Some(eni.clone()),
                ..Default::default()
            }
            .into(),
            "InvalidParameterCombination",
            "No attributes",
        ),
        (
            ModifyNetworkInterfaceAttribute {
                network_interface_id: Some(eni.clone()),
                description: Some("x".to_owned()),
                source_dest_check: Some(false),
                ..Default::default()
            }
            .into(),
            "InvalidParameterCombination",
            "multiple",
        ),
        (
            ModifyNetworkInterfaceAttribute {
                network_interface_id: Some(free.clone()),
                attachment: Some(AttachmentChange {
                    attachment_id: Some(attachment),
                    delete_on_termination: Some(true),
                }),
                ..Default::default()
            }
            .into(),
            "InvalidAttachmentID.NotFound",
            "eni-attach-",
        ),
        (named("10.1.0.1").into(), "InvalidParameterValue", "address range"),
        (named("10.0.0.2").into(), "InvalidParameterValue", "reserved"),
        (
            named(&plugged.primary_address().unwrap().to_string()).into(),
            "InvalidIPAddress.InUse",
            "is in use",
        ),
        (
            CreateNetworkInterface {
                secondary_private_ip_address_count: Some(1),
                ipv4_prefix_count: Some(1),
                ..create()
            }
            .into(),
            "InvalidParameterCombination",
            "Only one of",
        ),
        (
            CreateNetworkInterface {
                private_ip_addresses: vec![PrivateAddressRequest {
                    address: "10.0.0.9".parse().unwrap(),
                    primary: true,
                }],
                ..named("10.0.0.8")
            }
            .into(),
            "InvalidParameterCombination",
            "primary",
        ),
        (
            CreateNetworkInterface {
                groups: (0..6).map(|_| plugged.groups[0].id.clone()).collect(),
                ..create()
            }
            .into(),
            "SecurityGroupsPerInterfaceLimitExceeded",
            "maximum number of security groups",
        ),
        (tagged(Tag::new("a", "b"), "volume").into(), "InvalidParameterValue", "'volume'"),
        (
            tagged(Tag::new("aws:x", "b"), "network-interface").into(),
            "InvalidParameterValue",
            "reserved",
        ),
        (
            CreateTags {
                resources: vec![free.to_string()],
                tags: (0..51).map(|n| Tag::new(format!("k{n}"), "")).collect(),
                ..Default::default()
            }
            .into(),
            "TagLimitExceeded",
            "50",
        ),
        (
            assign(vec![plugged.primary_address().unwrap()]).into(),
            "InvalidParameterValue",
            "are assigned, but move is not allowed",
        ),
        (
            AssignPrivateIpAddresses {
                allow_reassignment: true,
                ..assign(vec![plugged.primary_address().unwrap()])
            }
            .into(),
            "InvalidParameterValue",
            "are assigned, but move is not allowed",
        ),
        (
            UnassignPrivateIpAddresses {
                network_interface_id: Some(eni.clone()),
                private_ip_addresses: vec![plugged.primary_address().unwrap()],
                ..Default::default()
            }
            .into(),
            "InvalidParameterValue",
            "primary address",
        ),
        (
            UnassignPrivateIpAddresses {
                network_interface_id: Some(eni.clone()),
                private_ip_addresses: vec!["10.0.0.200".parse().unwrap()],
                ..Default::default()
            }
            .into(),
            "InvalidParameterValue",
            "not assigned to interface",
        ),
        (
            DescribeNetworkInterfaces {
                filters: vec![Filter::new("colour", ["red"])],
                ..Default::default()
            }
            .into(),
            "InvalidParameterValue",
            "The filter 'colour' is invalid",
        ),
        (
            DescribeNetworkInterfaces {
                page: Page { max_results: Some(4), next_token: None },
                ..Default::default()
            }
            .into(),
            "InvalidParameterValue",
            "maxResults",
        ),
        (
            DescribeNetworkInterfaces {
                network_interface_ids: vec![eni.clone()],
                page: Page { max_results: Some(10), next_token: None },
                ..Default::default()
            }
            .into(),
            "InvalidParameterCombination",
            "MaxResults",
        ),
        (
            DescribeTags {
                page: Page { max_results: None, next_token: Some("zz".to_owned()) },
                ..Default::default()
            }
            .into(),
            "InvalidNextToken",
            "not valid",
        ),
    ];
    second_device.network_card_index = Some(1);
    rows.push((second_device.into(), "InvalidParameterValue", "Network card index 1"));
    codes(rows, &mut world);
}

fn world_attach(world: &World, eni: &EniId, device: u16) -> AttachNetworkInterface {
    AttachNetworkInterface {
        network_interface_id: Some(eni.clone()),
        instance_id: Some(world.node.clone()),
        device_index: Some(device),
        ..Default::default()
    }
}

#[test]
fn a_c5_large_takes_three_enis_of_ten_addresses() {
    let mut world = World::new();
    let first = world.attached(1);
    world.attached(2);
    let extra = world.create("a");
    let attach = world.attach(&extra, 3);
    let full = world.assign(&first, 9);
    world.call(full);
    let rows: Vec<(Request, &str, &str)> = vec![
        (
            attach.into(),
            "AttachmentLimitExceeded",
            "Interface count 4 exceeds the limit for c5.large",
        ),
        (
            world.assign(&first, 1).into(),
            "PrivateIpAddressLimitExceeded",
            "Number of private addresses will exceed limit.",
        ),
        (
            CreateNetworkInterface {
                subnet_id: Some(world.subnet("a")),
                secondary_private_ip_address_count: Some(50),
                ..Default::default()
            }
            .into(),
            "PrivateIpAddressLimitExceeded",
            "exceed limit",
        ),
    ];
    codes(rows, &mut world);
}

#[test]
fn an_eni_with_more_addresses_than_the_type_takes_cannot_be_attached() {
    let mut world = World::new();
    let subnet_id = Some(world.subnet("a"));
    let request = CreateNetworkInterface {
        subnet_id,
        secondary_private_ip_address_count: Some(10),
        ..Default::default()
    };
    let eni = world.create_with(request).id;
    let attach = world.attach(&eni, 1);
    assert_eq!(world.refusal(attach).code, "PrivateIpAddressLimitExceeded");
}

#[test]
fn a_full_subnet_gives_all_that_is_asked_or_nothing() {
    let mut world = World::new();
    let eni = world.create("tiny");
    let tiny = world.subnet("tiny");
    let rows: Vec<(Request, &str, &str)> = vec![
        (
            world.assign(&eni, 11).into(),
            "InsufficientFreeAddressesInSubnet",
            "does not have enough free addresses",
        ),
        (
            CreateNetworkInterface {
                subnet_id: Some(tiny.clone()),
                secondary_private_ip_address_count: Some(10),
                ..Default::default()
            }
            .into(),
            "InsufficientFreeAddressesInSubnet",
            "enough free addresses",
        ),
        (
            CreateNetworkInterface {
                subnet_id: Some(tiny),
                ipv4_prefix_count: Some(1),
                ..Default::default()
            }
            .into(),
            "InvalidParameterValue",
            "sufficient free Ipv4 addresses or prefixes",
        ),
    ];
    codes(rows, &mut world);
    let fits = world.assign(&eni, 10);
    world.call(fits);
    assert_eq!(world.cloud.subnet_named("tiny").unwrap().available_ip_address_count, 0);
}

#[test]
fn a_denied_role_is_unauthorized_and_others_are_not() {
    let mut world = World::new();
    let deny = ["Create*".to_owned(), "DescribeTags".to_owned()].into();
    world.cloud.set_iam("lab-node", Iam { deny });
    let node = Caller::Role { role: "lab-node".to_owned(), instance: world.node.clone() };
    let other = Caller::Role { role: "admin".to_owned(), instance: world.node.clone() };
    let mut code =
        |caller: &Caller, request: Request| match world.cloud.call(world.now, caller, request) {
            Err(CallError::Refused(error)) => (error.code, error.http_status),
            answer => (format!("{:?}", answer.is_ok()), 200),
        };
    let denied = ("UnauthorizedOperation".to_owned(), 403);
    let allowed = ("true".to_owned(), 200);
    assert_eq!(code(&node, DescribeTags::default().into()), denied);
    assert_eq!(code(&node, CreateTags::default().into()), denied);
    assert_eq!(code(&node, DescribeVpcs::default().into()), allowed);
    assert_eq!(code(&other, DescribeTags::default().into()), allowed);
    assert_eq!(code(&Caller::Administrator, DescribeTags::default().into()), allowed);
}

#[test]
fn tags_at_creation_need_the_right_to_tag() {
    let mut world = World::new();
    world.cloud.set_iam("lab-node", Iam { deny: ["CreateTags".to_owned()].into() });
    let node = Caller::Role { role: "lab-node".to_owned(), instance: world.node.clone() };
    let plain = CreateNetworkInterface { subnet_id: Some(world.subnet("a")), ..Default::default() };
    let tagged = CreateNetworkInterface {
        tag_specifications: vec![TagSpecification {
            resource_type: "network-interface".to_owned(),
            tags: vec![Tag::new("a", "b")],
        }],
        ..plain.clone()
    };
    let refused = world.cloud.call(world.now, &node, tagged);
    assert!(
        matches!(&refused, Err(CallError::Refused(e)) if e.message.contains("ec2:CreateTags")),
        "{refused:?}"
    );
    world.cloud.call(world.now, &node, plain).unwrap();
}

#[test]
fn a_dry_run_checks_permission_and_does_nothing() {
    let mut world = World::new();
    world.cloud.set_iam("lab-node", Iam { deny: ["Create*".to_owned()].into() });
    let request = CreateNetworkInterface {
        subnet_id: Some(world.subnet("a")),
        dry_run: true,
        ..Default::default()
    };
    let count = world.enis().len();
    let error = world.refusal(request.clone());
    assert_eq!((error.code.as_str(), error.http_status), ("DryRunOperation", 412));
    let node = Caller::Role { role: "lab-node".to_owned(), instance: world.node.clone() };
    let denied = world.cloud.call(world.now, &node, request);
    assert!(
        matches!(&denied, Err(CallError::Refused(e)) if e.code == "UnauthorizedOperation"),
        "{denied:?}"
    );
    assert_eq!(world.enis().len(), count);
}

#[test]
fn a_stopping_instance_accepts_no_eni() {
    let mut spec = quiet();
    spec.timing.shutdown = config_model::Span::seconds(10);
    let mut world = World::of(spec, "c5.large");
    let eni = world.create("a");
    let attach = world.attach(&eni, 1);
    world.cloud.terminate(world.now, &world.node.clone()).unwrap();
    assert_eq!(world.refusal(attach).code, "IncorrectState");
}

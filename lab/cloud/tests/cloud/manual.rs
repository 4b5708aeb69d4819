//! Operator actions on subnets, groups and permissions, and their effects on the daemon.

use crate::world::{World, quiet};
use config_model::Span;
use ipnet::Ipv4Net;
use lab_cloud::{
    Action, AssignPrivateIpAddresses, Bucket, Caller, CreateNetworkInterface,
    CreateSubnetCidrReservation, DeleteSubnetCidrReservation, DescribeInstanceTypes,
    DescribeSubnets, Filter, GetSubnetCidrReservations, Iam, Launch, Page, Reservation, Response,
    SecurityGroupSpec, Subnet, SubnetSpec, Throttling,
};
use std::collections::{BTreeMap, BTreeSet};

fn prefix(world: &World, eni: &config_model::EniId) -> AssignPrivateIpAddresses {
    AssignPrivateIpAddresses {
        secondary_private_ip_address_count: None,
        ipv4_prefix_count: Some(1),
        ..world.assign(eni, 1)
    }
}

#[test]
fn in_a_fragmented_subnet_single_addresses_are_left_and_prefixes_come_back_later() {
    let mut world = World::new();
    let subnet = world.subnet("a");
    let eni = world.attached(1);
    let taken = world.cloud.fragment_subnet(world.now, &subnet).unwrap();
    assert_eq!(world.cloud.free_prefixes(&subnet), 0);
    assert_eq!(world.cloud.taken_addresses(&subnet).len(), taken.len());
    let request = prefix(&world, &eni);
    assert_eq!(world.refusal(request.clone()).code, "InsufficientCidrBlocks");
    let create = CreateNetworkInterface {
        subnet_id: Some(subnet.clone()),
        ipv4_prefix_count: Some(1),
        ..Default::default()
    };
    let refused = world.refusal(create.clone());
    assert_eq!(refused.code, "InvalidParameterValue");
    assert_eq!(refused.message, "There aren't sufficient free Ipv4 addresses or prefixes");
    let single = world.assign(&eni, 3);
    world.call(single);
    let half = taken.len() / 2;
    assert_eq!(world.cloud.free_addresses(world.now, &subnet, Some(half)).unwrap().len(), half);
    world.call(request);
    world.call(create);
    world.cloud.free_addresses(world.now, &subnet, None).unwrap();
    assert!(world.cloud.taken_addresses(&subnet).is_empty());
}

#[test]
fn an_exhausted_subnet_recovers_when_addresses_come_free() {
    let mut world = World::new();
    let subnet = world.subnet("tiny");
    let free = |world: &World| world.cloud.subnet_named("tiny").unwrap().available_ip_address_count;
    world.cloud.take_addresses(world.now, &subnet, 11).unwrap();
    assert_eq!(free(&world), 0);
    let create = CreateNetworkInterface { subnet_id: Some(subnet.clone()), ..Default::default() };
    assert_eq!(world.refusal(create.clone()).code, "InsufficientFreeAddressesInSubnet");
    assert!(world.cloud.take_addresses(world.now, &subnet, 1).is_err());
    world.cloud.free_addresses(world.now, &subnet, Some(1)).unwrap();
    assert_eq!(free(&world), 1);
    world.call(create);
    assert_eq!(free(&world), 0);
}

fn reservations(world: &mut World) -> Vec<Reservation> {
    let request =
        GetSubnetCidrReservations { subnet_id: Some(world.subnet("a")), ..Default::default() };
    let Response::GetSubnetCidrReservations { reservations, .. } = world.call(request) else {
        panic!("another response")
    };
    reservations
}

#[test]
fn reservations_keep_blocks_for_prefixes() {
    let mut world = World::new();
    let cidr: Ipv4Net = "10.0.1.0/27".parse().unwrap();
    let request = CreateSubnetCidrReservation {
        subnet_id: Some(world.subnet("a")),
        cidr: Some(cidr),
        reservation_type: Some("prefix".to_owned()),
        ..Default::default()
    };
    let Response::CreateSubnetCidrReservation(made) = world.call(request.clone()) else { panic!() };
    assert_eq!(world.refusal(request.clone()).code, "InvalidSubnet.Conflict");
    let outside =
        CreateSubnetCidrReservation { cidr: "10.9.0.0/24".parse().ok(), ..request.clone() };
    assert_eq!(world.refusal(outside).code, "InvalidParameterValue");
    let strange = CreateSubnetCidrReservation { reservation_type: Some("x".to_owned()), ..request };
    assert_eq!(world.refusal(strange).code, "InvalidParameterValue");
    assert_eq!(reservations(&mut world), std::slice::from_ref(&made));
    let eni = world.attached(1);
    for _ in 0..2 {
        let request = prefix(&world, &eni);
        let Response::AssignPrivateIpAddresses(given) = world.call(request) else { panic!() };
        assert!(cidr.contains(&given.ipv4_prefixes[0]), "{given:?}");
    }
    // Beyond them, from elsewhere.
    let request = prefix(&world, &eni);
    let Response::AssignPrivateIpAddresses(given) = world.call(request) else { panic!() };
    assert!(!cidr.contains(&given.ipv4_prefixes[0]), "{given:?}");
    let id = Some(made.id);
    let end = DeleteSubnetCidrReservation { subnet_cidr_reservation_id: id, ..Default::default() };
    world.call(end.clone());
    assert_eq!(reservations(&mut world), []);
    assert_eq!(world.refusal(end).code, "InvalidSubnetCidrReservationID.NotFound");
}

fn subnets(world: &mut World, filters: Vec<Filter>, page: Page) -> (Vec<Subnet>, Option<String>) {
    let Response::DescribeSubnets { subnets, next_token } =
        world.call(DescribeSubnets { filters, page, ..Default::default() })
    else {
        panic!("another response")
    };
    (subnets, next_token)
}

#[test]
fn subnets_are_found_by_vpc_zone_and_tag_page_by_page() {
    let mut spec = quiet();
    for third in 48..60_u8 {
        let cidr = format!("10.0.{third}.0/24").parse().unwrap();
        let zone = if third % 2 == 0 { "eu-west-1a" } else { "eu-west-1b" };
        let subnet = SubnetSpec::new(format!("s{third}"), cidr, zone);
        let tagged = subnet.tagged("kubernetes.io/role/cni", if third < 50 { "0" } else { "1" });
        spec.subnets.push(tagged);
    }
    let mut world = World::of(spec, "c5.large");
    let vpc = world.cloud.truth(world.now).vpc_id;
    let zone = Filter::new("availability-zone", ["eu-west-1a"]);
    let of_vpc = Filter::new("vpc-id", [vpc.to_string()]);
    let usable = Filter::new("tag:kubernetes.io/role/cni", ["1"]);
    let tagged = Filter::new("tag-key", ["kubernetes.io/role/*"]);
    let count =
        |world: &mut World, filters: Vec<Filter>| subnets(world, filters, Page::default()).0.len();
    assert_eq!(count(&mut world, vec![of_vpc.clone(), zone.clone()]), 8);
    assert_eq!(count(&mut world, vec![zone.clone(), tagged]), 6);
    assert_eq!(count(&mut world, vec![of_vpc.clone(), zone.clone(), usable.clone()]), 5);
    assert_eq!(count(&mut world, vec![Filter::new("vpc-id", ["vpc-0"])]), 0);
    let mut page = Page { max_results: Some(5), next_token: None };
    let mut seen = BTreeSet::new();
    loop {
        let (found, next) = subnets(&mut world, vec![of_vpc.clone()], page.clone());
        seen.extend(found.into_iter().map(|subnet| subnet.id));
        let Some(next) = next else { break };
        page.next_token = Some(next);
    }
    assert_eq!(seen.len(), 15);
    // Tags change under the daemon's eyes.
    let subnet = world.subnet("s50");
    world.cloud.set_subnet_tag(world.now, &subnet, "kubernetes.io/role/cni", Some("0")).unwrap();
    assert_eq!(count(&mut world, vec![zone.clone(), usable.clone()]), 4);
    world.cloud.set_subnet_tag(world.now, &subnet, "kubernetes.io/role/cni", None).unwrap();
    assert_eq!(
        count(&mut world, vec![zone, Filter::new("tag-key", ["kubernetes.io/role/cni"])]),
        5
    );
}

#[test]
fn new_groups_of_the_primary_are_seen_by_imds_after_the_lag_and_by_describe_after_its_own() {
    let mut spec = quiet();
    spec.timing.imds_lag = Span::seconds(5);
    spec.timing.read_lag = Span::seconds(1);
    let mut world = World::of(spec, "c5.large");
    world.pass(Span::seconds(60));
    let group = SecurityGroupSpec {
        name: "new".to_owned(),
        description: String::new(),
        ingress: Vec::new(),
        egress: Vec::new(),
    };
    let id = world.cloud.add_security_group(world.now, group).unwrap();
    let primary = world.primary();
    world.cloud.set_security_groups(world.now, &primary.id, std::slice::from_ref(&id)).unwrap();
    let path =
        format!("/latest/meta-data/network/interfaces/macs/{}/security-group-ids", primary.mac);
    let groups = |world: &mut World| {
        let shown = world.primary().groups.iter().map(|g| g.id.to_string()).collect::<Vec<_>>();
        (world.imds(&path) == Some(id.to_string()), shown == [id.to_string()])
    };
    assert_eq!(groups(&mut world), (false, false));
    world.pass(Span::seconds(1));
    assert_eq!(groups(&mut world), (false, true));
    world.pass(Span::seconds(4));
    assert_eq!(groups(&mut world), (true, true));
    let unknown = [config_model::SecurityGroupId::new("sg-0")];
    assert!(world.cloud.set_security_groups(world.now, &primary.id, &unknown).is_err());
}

#[test]
fn every_action_can_be_denied_and_nothing_else_with_it() {
    let mut world = World::new();
    let caller = Caller::Role { role: "lab-node".to_owned(), instance: world.node.clone() };
    for denied in Action::ALL {
        let deny = BTreeSet::from([denied.name().to_owned()]);
        world.cloud.set_iam("lab-node", Iam { deny });
        for (action, request) in each_action() {
            let code = match world.cloud.call(world.now, &caller, request) {
                Err(lab_cloud::CallError::Refused(error)) => error.code,
                _ => "ok".to_owned(),
            };
            let refused = code == "UnauthorizedOperation";
            assert_eq!(refused, action == *denied, "{action} with {denied} denied: {code}");
        }
    }
}

/// One request of each action; they need not succeed.
fn each_action() -> Vec<(Action, lab_cloud::Request)> {
    let mut all: Vec<lab_cloud::Request> = vec![
        lab_cloud::AssignIpv6Addresses::default().into(),
        AssignPrivateIpAddresses::default().into(),
        lab_cloud::AssociateTrunkInterface::default().into(),
        lab_cloud::AttachNetworkInterface::default().into(),
        CreateNetworkInterface::default().into(),
        CreateSubnetCidrReservation::default().into(),
        lab_cloud::CreateTags::default().into(),
        lab_cloud::DeleteNetworkInterface::default().into(),
        DeleteSubnetCidrReservation::default().into(),
        lab_cloud::DeleteTags::default().into(),
        DescribeInstanceTypes::default().into(),
        lab_cloud::DescribeInstances::default().into(),
        lab_cloud::DescribeNetworkInterfaces::default().into(),
        lab_cloud::DescribeSecurityGroups::default().into(),
        DescribeSubnets::default().into(),
        lab_cloud::DescribeTags::default().into(),
        lab_cloud::DescribeTrunkInterfaceAssociations::default().into(),
        lab_cloud::DescribeVpcs::default().into(),
        lab_cloud::DetachNetworkInterface::default().into(),
        lab_cloud::DisassociateTrunkInterface::default().into(),
        GetSubnetCidrReservations::default().into(),
        lab_cloud::ModifyNetworkInterfaceAttribute::default().into(),
        lab_cloud::UnassignIpv6Addresses::default().into(),
        lab_cloud::UnassignPrivateIpAddresses::default().into(),
    ];
    assert_eq!(all.len(), Action::ALL.len());
    all.drain(..).map(|request| (request.action(), request)).collect()
}

#[test]
fn one_bucket_of_an_action_is_shared_by_all_nodes() {
    let mut spec = quiet();
    let bucket = Bucket::new(10, 5);
    spec.throttling =
        Throttling::PerAction(BTreeMap::from([(Action::CreateNetworkInterface, bucket)]));
    let mut world = World::of(spec, "c5.large");
    let subnet_id = Some(world.subnet("a"));
    let create = CreateNetworkInterface { subnet_id, ..Default::default() };
    let passed = |world: &mut World, calls: u32| {
        (0..calls)
            .filter(|node| {
                let instance = config_model::InstanceId::new(format!("i-{node}"));
                let caller = Caller::Role { role: "lab-node".to_owned(), instance };
                world.cloud.call(world.now, &caller, create.clone()).is_ok()
            })
            .count()
    };
    assert_eq!(passed(&mut world, 30), 10);
    world.pass(Span::seconds(1));
    assert_eq!(passed(&mut world, 30), 5);
    assert_eq!(world.enis().len(), 16);
}

#[test]
fn an_unknown_type_still_has_limits() {
    let mut world = World::new();
    let subnet = world.subnet("a");
    let launch = Launch {
        shown_type: Some("z9.mystery".to_owned()),
        ..Launch::new("odd", "t3.small", subnet)
    };
    world.node = world.cloud.launch(world.now, launch).unwrap();
    assert_eq!(world.imds("/latest/meta-data/instance-type").as_deref(), Some("z9.mystery"));
    let ask = DescribeInstanceTypes {
        instance_types: vec!["z9.mystery".to_owned()],
        ..Default::default()
    };
    assert_eq!(world.refusal(ask).code, "InvalidInstanceType");
    world.attached(1);
    world.attached(2);
    let eni = world.create("a");
    let fourth = world.attach(&eni, 3);
    assert_eq!(world.refusal(fourth).code, "AttachmentLimitExceeded");
}

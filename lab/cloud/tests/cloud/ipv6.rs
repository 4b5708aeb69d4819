//! IPv6: what EC2 gives, refuses, shows and takes back.

use crate::world::{World, quiet};
use config_model::EniId;
use ipnet::Ipv6Net;
use lab_cloud::{
    AssignIpv6Addresses, AssignedIpv6Addresses, AttachNetworkInterface, Cloud,
    CreateNetworkInterface, DeleteNetworkInterface, DescribeNetworkInterfaces, Document, Filter,
    Launch, Response, UnassignIpv6Addresses,
};
use std::net::Ipv6Addr;

/// Every subnet has a /64 and gives each new ENI an address if `by_itself`.
fn world(by_itself: bool) -> World {
    let mut spec = quiet().with_ipv6();
    for subnet in &mut spec.subnets {
        subnet.assign_ipv6_address_on_creation = by_itself;
    }
    World::of(spec, "t3.small")
}

fn assign(eni: &EniId) -> AssignIpv6Addresses {
    AssignIpv6Addresses { network_interface_id: Some(eni.clone()), ..Default::default() }
}

fn assigned(world: &mut World, request: AssignIpv6Addresses) -> AssignedIpv6Addresses {
    let Response::AssignIpv6Addresses(assigned) = world.call(request) else {
        panic!("another response")
    };
    assigned
}

#[test]
fn an_eni_is_made_with_a_prefix_and_gives_it_back() {
    let mut world = world(false);
    let subnet_id = Some(world.subnet("a"));
    let request = CreateNetworkInterface {
        subnet_id: subnet_id.clone(),
        ipv6_prefix_count: Some(1),
        ..Default::default()
    };
    let eni = world.create_with(request);
    let [prefix] = eni.ipv6_prefixes[..] else { panic!("{eni:?}") };
    let cidr = world.cloud.subnet_named("a").unwrap().ipv6_cidr.unwrap();
    assert!(cidr.contains(&prefix) && prefix.prefix_len() == 80, "{prefix}");
    assert!(eni.ipv6_addresses.is_empty() && eni.primary_address().is_some());
    // By name it can be had only once, and again after it came back.
    let named =
        CreateNetworkInterface { subnet_id, ipv6_prefixes: vec![prefix], ..Default::default() };
    assert_eq!(world.refusal(named.clone()).code, "InsufficientCidrBlocks");
    let delete =
        DeleteNetworkInterface { network_interface_id: Some(eni.id), ..Default::default() };
    world.call(delete);
    assert_eq!(world.create_with(named).ipv6_prefixes, [prefix]);
}

#[test]
fn a_subnet_may_give_each_new_eni_an_address() {
    let mut world = world(true);
    let create = |world: &World| CreateNetworkInterface {
        subnet_id: Some(world.subnet("a")),
        ..Default::default()
    };
    let request = create(&world);
    assert_eq!(world.create_with(request).ipv6_addresses.len(), 1);
    let none = CreateNetworkInterface { ipv6_address_count: Some(0), ..create(&world) };
    assert_eq!(world.create_with(none).ipv6_addresses, [] as [Ipv6Addr; 0]);
    let two = CreateNetworkInterface { ipv6_address_count: Some(2), ..create(&world) };
    assert_eq!(world.create_with(two).ipv6_addresses.len(), 2);
    assert_eq!(world.primary().ipv6_addresses.len(), 1);
}

#[test]
fn kinds_exclude_each_other_and_subnets_without_ipv6_refuse() {
    let mut world = world(false);
    let subnet_id = Some(world.subnet("a"));
    let address: Ipv6Addr = "2001:db8:1234:1a00::99".parse().unwrap();
    let base = CreateNetworkInterface { subnet_id, ..Default::default() };
    for both in [
        CreateNetworkInterface {
            ipv6_address_count: Some(1),
            ipv6_prefix_count: Some(1),
            ..base.clone()
        },
        CreateNetworkInterface {
            ipv6_addresses: vec![address],
            ipv6_address_count: Some(1),
            ..base.clone()
        },
    ] {
        assert_eq!(world.refusal(both).code, "InvalidParameterCombination");
    }
    let elsewhere = CreateNetworkInterface {
        ipv6_addresses: vec!["2001:db8::1".parse().unwrap()],
        ..base.clone()
    };
    assert_eq!(world.refusal(elsewhere).code, "InvalidParameterValue");
    // IPv4 and IPv6 go together.
    let together =
        CreateNetworkInterface { ipv6_prefix_count: Some(1), ipv4_prefix_count: Some(1), ..base };
    let eni = world.create_with(together);
    assert_eq!((eni.ipv4_prefixes.len(), eni.ipv6_prefixes.len()), (1, 1));
    let nothing = world.refusal(assign(&eni.id));
    assert_eq!(nothing.code, "MissingParameter");
    let mut without = World::new();
    let eni = without.create("a");
    let count = AssignIpv6Addresses { ipv6_address_count: Some(1), ..assign(&eni) };
    let refused = without.refusal(count);
    assert!(refused.message.contains("does not have an IPv6 CIDR block"), "{refused}");
    let free = without.cloud.subnet_named("a").unwrap().available_ip_address_count;
    let create = CreateNetworkInterface {
        subnet_id: Some(without.subnet("a")),
        ipv6_prefix_count: Some(1),
        ..Default::default()
    };
    without.refusal(create);
    let after = without.cloud.subnet_named("a").unwrap().available_ip_address_count;
    assert_eq!(after, free, "a refused ENI kept an address");
}

#[test]
fn addresses_and_prefixes_are_assigned_up_to_the_types_limit_and_unassigned() {
    // A t3.small has four of them per ENI.
    let mut world = world(false);
    let eni = world.attached(1);
    let prefixes =
        assigned(&mut world, AssignIpv6Addresses { ipv6_prefix_count: Some(2), ..assign(&eni) });
    assert_eq!((prefixes.ipv6_prefixes.len(), prefixes.ipv6_addresses.len()), (2, 0));
    let named: Ipv6Addr = "2001:db8:1234:1a00::77".parse().unwrap();
    let by_name = AssignIpv6Addresses { ipv6_addresses: vec![named], ..assign(&eni) };
    assert_eq!(assigned(&mut world, by_name.clone()).ipv6_addresses, [named]);
    assert_eq!(world.refusal(by_name).code, "InvalidIPAddress.InUse");
    let two = AssignIpv6Addresses { ipv6_address_count: Some(2), ..assign(&eni) };
    assert_eq!(world.refusal(two).code, "PrivateIpAddressLimitExceeded");
    let unassign = |addresses: &[Ipv6Addr], prefixes: &[Ipv6Net]| UnassignIpv6Addresses {
        network_interface_id: Some(eni.clone()),
        ipv6_addresses: addresses.to_vec(),
        ipv6_prefixes: prefixes.to_vec(),
        ..Default::default()
    };
    world.call(unassign(&[named], &prefixes.ipv6_prefixes[..1]));
    let left = world.find(&eni).unwrap();
    assert_eq!(left.ipv6_prefixes, prefixes.ipv6_prefixes[1..]);
    assert!(left.ipv6_addresses.is_empty());
    assert_eq!(world.refusal(unassign(&[named], &[])).code, "InvalidParameterValue");
    assert_eq!(world.refusal(unassign(&[], &[])).code, "MissingParameter");
}

#[test]
fn more_than_the_type_allows_cannot_be_attached() {
    let mut world = world(false);
    let request = CreateNetworkInterface {
        subnet_id: Some(world.subnet("a")),
        ipv6_address_count: Some(5),
        ..Default::default()
    };
    let eni = world.create_with(request).id;
    let attach: AttachNetworkInterface = world.attach(&eni, 1);
    assert_eq!(world.refusal(attach).code, "PrivateIpAddressLimitExceeded");
}

#[test]
fn imds_the_truth_and_describe_show_it() {
    let mut world = world(true);
    let eni = world.primary();
    let prefix = AssignIpv6Addresses { ipv6_prefix_count: Some(1), ..assign(&eni.id) };
    let prefix = assigned(&mut world, prefix).ipv6_prefixes[0];
    let address = eni.ipv6_addresses[0];
    let of_mac = format!("network/interfaces/macs/{}", eni.mac);
    for (path, wanted) in [
        ("ipv6".to_owned(), address.to_string()),
        (format!("{of_mac}/ipv6s"), address.to_string()),
        (format!("{of_mac}/ipv6-prefix"), prefix.to_string()),
        (format!("{of_mac}/subnet-ipv6-cidr-blocks"), "2001:db8:1234:1a00::/64".to_owned()),
        (format!("{of_mac}/vpc-ipv6-cidr-blocks"), "2001:db8:1234:1a00::/56".to_owned()),
    ] {
        let path = format!("/latest/meta-data/{path}");
        assert_eq!(world.imds(&path), Some(wanted), "{path}");
    }
    let truth = world.cloud.truth(world.now);
    let seen = &truth.instances[0].enis[0];
    assert_eq!(
        (&seen.ipv6_addresses[..], &seen.ipv6_prefixes[..]),
        (&[address][..], &[prefix][..])
    );
    assert_eq!(truth.vpc_ipv6_cidrs.len(), 1);
    assert!(truth.subnets.iter().all(|subnet| subnet.ipv6_cidr.is_some()));
    assert_eq!(world.cloud.truth_of(world.now, &world.node).as_ref(), truth.instances.first());
    for (name, value) in [
        ("ipv6-addresses.ipv6-address", address.to_string()),
        ("ipv6-prefix.ipv6-prefix", prefix.to_string()),
    ] {
        let filters = vec![Filter::new(name, [value])];
        let request = DescribeNetworkInterfaces { filters, ..Default::default() };
        let response = world.call(request);
        let Response::DescribeNetworkInterfaces { network_interfaces, .. } = &response else {
            panic!()
        };
        assert_eq!(network_interfaces.len(), 1, "{name}");
        let text = format!("{:?}", response.document(0));
        assert!(text.contains("ipv6Prefix") && text.contains(&prefix.to_string()), "{text}");
        assert!(matches!(response.document(0), Document::Fields(_)));
    }
}

#[test]
fn without_ipv6_imds_has_none_of_its_keys() {
    let mut world = World::new();
    let mac = world.primary().mac;
    let listing = world.imds(&format!("/latest/meta-data/network/interfaces/macs/{mac}/")).unwrap();
    assert!(!listing.contains("ipv6"), "{listing}");
    assert_eq!(world.imds("/latest/meta-data/ipv6"), None);
}

#[test]
fn an_inconsistent_spec_is_refused() {
    let made = |change: fn(&mut lab_cloud::CloudSpec)| {
        let mut spec = quiet().with_ipv6();
        change(&mut spec);
        Cloud::new(spec, 1).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(made(|_| {}), Ok(()));
    for (change, why) in [
        ((|s| s.vpc_ipv6_cidr = None) as fn(&mut lab_cloud::CloudSpec), "outside of the VPC"),
        (|s| s.subnets[1].ipv6_cidr = s.subnets[0].ipv6_cidr, "overlaps another subnet"),
        (|s| s.subnets[0].ipv6_cidr = "2001:db8:1234:1a00::/65".parse().ok(), "not a /64"),
        (
            |s| {
                s.subnets[0].ipv6_cidr = None;
                s.subnets[0].assign_ipv6_address_on_creation = true;
            },
            "has none itself",
        ),
    ] {
        let said = made(change).unwrap_err();
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn an_instance_may_be_launched_with_addresses_of_its_own_choice() {
    let mut world = world(false);
    let subnet = world.subnet("b");
    let launch = Launch { ipv6_addresses: 2, ..Launch::new("other", "t3.small", subnet) };
    let id = world.cloud.launch(world.now, launch).unwrap();
    let enis = world.cloud.enis_of(world.now, &id);
    assert_eq!(enis[0].ipv6_addresses.len(), 2);
}

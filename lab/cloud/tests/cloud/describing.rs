//! Filters and pages.

use crate::world::World;
use lab_cloud::{
    CreateNetworkInterface, CreateTags, DeleteTags, DescribeInstanceTypes, DescribeInstances,
    DescribeNetworkInterfaces, DescribeSubnets, DescribeTags, Filter, Page, Response, Tag,
    TagSpecification, TagToDelete,
};
use std::collections::BTreeSet;

fn matching(world: &mut World, name: &str, value: &str) -> Vec<String> {
    let request = DescribeNetworkInterfaces {
        filters: vec![Filter::new(name, [value])],
        ..Default::default()
    };
    let Response::DescribeNetworkInterfaces { network_interfaces, .. } = world.call(request) else {
        panic!("another response")
    };
    network_interfaces.into_iter().map(|eni| eni.id.to_string()).collect()
}

#[test]
fn filters_find_what_they_name() {
    let mut world = World::new();
    let primary = world.primary();
    let plugged = world.attached(1);
    let request = CreateNetworkInterface {
        subnet_id: Some(world.subnet("tiny")),
        description: "aws-K8S-i-1".to_owned(),
        secondary_private_ip_address_count: Some(1),
        tag_specifications: vec![TagSpecification {
            resource_type: "network-interface".to_owned(),
            tags: vec![Tag::new("cluster", "demo"), Tag::new("empty", "")],
        }],
        ..Default::default()
    };
    let leaked = world.create_with(request);
    let node = world.node.to_string();
    let plugged_shown = world.find(&plugged).unwrap();
    let attachment = plugged_shown.attachment.clone().unwrap().id;
    let secondary = leaked.secondary_addresses().next().unwrap();
    let (p, a, l) = (primary.id.to_string(), plugged.to_string(), leaked.id.to_string());
    let rows: Vec<(&str, String, Vec<&String>)> = vec![
        ("attachment.instance-id", node, vec![&p, &a]),
        ("attachment.attachment-id", attachment.to_string(), vec![&a]),
        ("attachment.device-index", "0".to_owned(), vec![&p]),
        ("attachment.delete-on-termination", "true".to_owned(), vec![&p]),
        ("attachment.status", "attached".to_owned(), vec![&p, &a]),
        ("status", "available".to_owned(), vec![&l]),
        ("status", "in-use".to_owned(), vec![&p, &a]),
        ("subnet-id", leaked.subnet_id.to_string(), vec![&l]),
        ("vpc-id", leaked.vpc_id.to_string(), vec![&p, &a, &l]),
        ("tag-key", "cluster".to_owned(), vec![&l]),
        ("tag:cluster", "demo".to_owned(), vec![&l]),
        ("tag:cluster", "d?m*".to_owned(), vec![&l]),
        ("tag:cluster", "other".to_owned(), vec![]),
        ("tag:empty", String::new(), vec![&l]),
        ("description", "aws-K8S-*".to_owned(), vec![&l]),
        ("description", "aws-k8s-*".to_owned(), vec![]),
        ("private-ip-address", primary.primary_address().unwrap().to_string(), vec![&p]),
        ("private-ip-address", secondary.to_string(), vec![]),
        ("addresses.private-ip-address", secondary.to_string(), vec![&l]),
        ("mac-address", leaked.mac.to_string(), vec![&l]),
        ("network-interface-id", l.clone(), vec![&l]),
        ("group-name", "default".to_owned(), vec![&p, &a, &l]),
        ("availability-zone", "eu-west-1b".to_owned(), vec![]),
    ];
    for (name, value, wanted) in rows {
        let found: BTreeSet<String> = matching(&mut world, name, &value).into_iter().collect();
        assert_eq!(found, wanted.into_iter().cloned().collect(), "{name}={value}");
    }
    // Values of one filter are alternatives, filters are conditions.
    let request = DescribeNetworkInterfaces {
        filters: vec![
            Filter::new("status", ["available", "in-use"]),
            Filter::new("tag-key", ["cluster"]),
        ],
        ..Default::default()
    };
    let Response::DescribeNetworkInterfaces { network_interfaces, .. } = world.call(request) else {
        panic!()
    };
    assert_eq!(network_interfaces.len(), 1);
}

#[test]
fn pages_give_everything_once_even_while_things_change() {
    let mut world = World::new();
    let mut all: BTreeSet<String> = (0..22).map(|_| world.create("a").to_string()).collect();
    all.insert(world.primary().id.to_string());
    let mut seen = Vec::new();
    let mut page = Page { max_results: Some(5), next_token: None };
    loop {
        let request = DescribeNetworkInterfaces { page: page.clone(), ..Default::default() };
        let Response::DescribeNetworkInterfaces { network_interfaces, next_token } =
            world.call(request)
        else {
            panic!()
        };
        assert!(network_interfaces.len() <= 5);
        seen.extend(network_interfaces.into_iter().map(|eni| eni.id.to_string()));
        world.create("b");
        page.next_token = next_token;
        if page.next_token.is_none() {
            break;
        }
    }
    assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), seen.len(), "something came twice");
    assert!(all.iter().all(|id| seen.contains(id)), "something was left out");
}

#[test]
fn subnets_instances_and_types_are_described() {
    let mut world = World::new();
    let eni = world.attached(1);
    let by_zone = DescribeSubnets {
        filters: vec![Filter::new("availability-zone", ["eu-west-1a"])],
        ..Default::default()
    };
    let Response::DescribeSubnets { subnets, .. } = world.call(by_zone) else { panic!() };
    let mut names: Vec<_> = subnets.iter().map(|subnet| subnet.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["a", "tiny"]);
    let a = subnets.iter().find(|subnet| subnet.name == "a").unwrap();
    assert_eq!(a.available_ip_address_count, 4096 - 5 - 2);

    let itself = DescribeInstances { instance_ids: vec![world.node.clone()], ..Default::default() };
    let Response::DescribeInstances { instances, .. } = world.call(itself) else { panic!() };
    let enis = &instances[0].network_interfaces;
    assert_eq!((instances.len(), enis.len(), &enis[1].id), (1, 2, &eni));

    let kind =
        DescribeInstanceTypes { instance_types: vec!["c5.large".to_owned()], ..Default::default() };
    let Response::DescribeInstanceTypes { instance_types, .. } = world.call(kind) else { panic!() };
    assert_eq!((instance_types.len(), instance_types[0].ipv4_per_interface), (1, 10));
}

#[test]
fn tags_are_made_replaced_listed_and_deleted() {
    let mut world = World::new();
    let eni = world.create("a").to_string();
    let list = |world: &mut World| {
        let request = DescribeTags {
            filters: vec![Filter::new("resource-id", [eni.as_str()])],
            ..Default::default()
        };
        let Response::DescribeTags { tags, .. } = world.call(request) else { panic!() };
        tags.into_iter()
            .map(|tag| (tag.resource_type, tag.tag.key, tag.tag.value))
            .collect::<Vec<_>>()
    };
    let own = |key: &str, value: &str| ("network-interface", key.to_owned(), value.to_owned());
    let create = |tags| CreateTags { resources: vec![eni.clone()], tags, ..Default::default() };
    let delete = |tags| DeleteTags { resources: vec![eni.clone()], tags, ..Default::default() };
    world.call(create(vec![Tag::new("a", "1"), Tag::new("b", "2")]));
    world.call(create(vec![Tag::new("a", "3")]));
    assert_eq!(list(&mut world), [own("a", "3"), own("b", "2")]);
    let other_value = TagToDelete { key: "a".to_owned(), value: Some("1".to_owned()) };
    world.call(delete(vec![other_value]));
    assert_eq!(list(&mut world).len(), 2);
    world.call(delete(vec![TagToDelete { key: "a".to_owned(), value: None }]));
    assert_eq!(list(&mut world), [own("b", "2")]);
    world.call(delete(Vec::new()));
    assert_eq!(list(&mut world), []);
}

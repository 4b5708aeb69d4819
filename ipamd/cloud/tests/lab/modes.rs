//! Prefixes, IPv6, subnets, groups, tags, and what was left behind.

use crate::world::World;
use config_model::EniId;
use ipamd_cloud::{CallReport, Cloud, Ec2, Options};
use ipamd_core::{CloudAnswer, CloudCall, EniKind, Leftover, Remedy, SeenSubnet, Want, Witness};
use ipnet::IpNet;
use lab_cloud::{SecurityGroupSpec, SubnetSpec};
use std::collections::{BTreeMap, BTreeSet};

fn lengths(blocks: &[IpNet]) -> Vec<u8> {
    blocks.iter().map(IpNet::prefix_len).collect()
}

async fn assigned(world: &World, eni: &EniId, want: Want) -> Vec<IpNet> {
    let call = CloudCall::Assign { eni: eni.clone(), want };
    let CloudAnswer::Assigned { blocks } = world.ec2.execute(call).await.unwrap() else {
        panic!("blocks were asked for")
    };
    blocks
}

#[tokio::test]
async fn prefixes_come_with_a_new_eni_are_added_and_given_back() {
    let world = World::new().await;
    let made = world.creates("token", Want::Prefixes(2)).await;
    assert_eq!(lengths(&made.blocks), [28, 28]);
    let blocks = assigned(&world, &made.id, Want::Prefixes(1)).await;
    assert_eq!(lengths(&blocks), [28]);
    world.ec2.execute(world.attachment(&made.id, 1)).await.unwrap();
    let singles = assigned(&world, &made.id, Want::Addresses(2)).await;
    let back = CloudCall::Unassign { eni: made.id.clone(), blocks: made.blocks };
    assert_eq!(world.ec2.execute(back).await.unwrap(), CloudAnswer::Done);
    let left: BTreeSet<IpNet> = blocks.iter().chain(&singles).copied().collect();
    for witness in [Witness::Ec2, Witness::Imds] {
        let enis = world.ec2.look(witness, &world.instance).await.unwrap();
        let found = enis.iter().find(|eni| eni.id == made.id).unwrap();
        assert_eq!(found.blocks.iter().copied().collect::<BTreeSet<_>>(), left, "{witness:?}");
    }
}

#[tokio::test]
async fn an_eni_of_an_ipv6_node_has_one_large_prefix() {
    let world = World::with("m5.large", Options::default(), |spec, _| {
        *spec = spec.clone().with_ipv6();
    })
    .await;
    let node = world.ec2.node().await.unwrap();
    let subnet = node.subnet_cidr_v6.unwrap();
    assert_eq!(node.vpc_v6_cidrs.len(), 1);
    assert!(node.vpc_v6_cidrs[0].contains(&subnet));
    let made = world.creates("token", Want::Ipv6Prefixes(1)).await;
    assert_eq!(lengths(&made.blocks), [80]);
    let more = assigned(&world, &node.primary_eni, Want::Ipv6Prefixes(1)).await;
    let [IpNet::V6(block)] = more.as_slice() else { panic!("{more:?}") };
    assert!(subnet.contains(block));
    let imds = world.ec2.look(Witness::Imds, &world.instance).await.unwrap();
    let primary = imds.iter().find(|eni| eni.id == node.primary_eni).unwrap();
    assert_eq!((&primary.blocks, primary.subnet_cidr_v6), (&more, Some(subnet)));
    let back = CloudCall::Unassign { eni: node.primary_eni.clone(), blocks: more };
    world.ec2.execute(back).await.unwrap();
    let calls = world.cloud.calls();
    for action in ["AssignIpv6Addresses", "UnassignIpv6Addresses"] {
        assert_eq!(calls.get(&(action.to_owned(), "ok".to_owned())), Some(&1), "{calls:?}");
    }
}

#[tokio::test]
async fn a_fragmented_subnet_has_no_prefix_and_still_single_addresses() {
    let world = World::new().await;
    world.cloud.with(|cloud, now| cloud.fragment_subnet(now, &world.subnet).unwrap());
    let create = world.creation_of("token-1", Want::Prefixes(1));
    let primary = world.ec2.node().await.unwrap().primary_eni;
    let assign = CloudCall::Assign { eni: primary, want: Want::Prefixes(1) };
    for call in [create, assign] {
        let fault = world.ec2.execute(call).await.unwrap_err();
        assert_eq!(fault.remedy, Remedy::TryElsewhere, "{fault}");
        assert_eq!(fault.code, "InsufficientCidrBlocks", "{fault}");
    }
    assert_eq!(world.create("token-2", 3).await.blocks.len(), 3);
}

#[tokio::test]
async fn blocks_of_several_kinds_are_given_back_by_several_calls() {
    let world = World::new().await;
    let blocks = ["10.0.0.0/28", "10.0.0.32/32"].map(|text| text.parse().unwrap()).to_vec();
    let call = CloudCall::Unassign { eni: EniId::new("eni-1"), blocks };
    let fault = world.ec2.execute(call).await.unwrap_err();
    assert_eq!(fault.remedy, Remedy::NotifyOperator, "{fault}");
    assert_eq!(world.reports.take(), [], "nothing was asked");
}

#[tokio::test]
async fn subnets_of_the_zone_are_reported_with_tags_and_room() {
    let world = World::new().await;
    let node = world.ec2.node().await.unwrap();
    let zone = node.availability_zone.clone();
    let more = SubnetSpec::new("more", "10.0.64.0/24".parse().unwrap(), zone.as_str())
        .tagged("kubernetes.io/role/cni", "1");
    world.cloud.with(|cloud, now| cloud.add_subnet(now, more).unwrap());
    let call = CloudCall::DescribeSubnets { vpc: node.vpc, zone };
    let CloudAnswer::Subnets(subnets) = world.ec2.execute(call).await.unwrap() else { panic!() };
    assert_eq!(subnets.len(), 2, "the other zone's is left out: {subnets:?}");
    let by_id = |id: &str| subnets.iter().find(|subnet| subnet.id.as_str() == id);
    let own: &SeenSubnet = by_id(node.subnet.as_str()).unwrap();
    assert_eq!((own.cidr, own.cidr_v6), (node.subnet_cidr, None));
    let tagged = subnets.iter().find(|subnet| subnet.id != node.subnet).unwrap();
    assert_eq!(tagged.tags.get("kubernetes.io/role/cni").map(String::as_str), Some("1"));
    assert_eq!(tagged.free_addresses, 251);
    world.create("token", 3).await;
    let call = CloudCall::DescribeSubnets {
        vpc: world.ec2.node().await.unwrap().vpc,
        zone: "eu-west-1a".to_owned(),
    };
    let CloudAnswer::Subnets(after) = world.ec2.execute(call).await.unwrap() else { panic!() };
    let after = after.iter().find(|subnet| subnet.id == node.subnet).unwrap();
    assert_eq!(after.free_addresses, own.free_addresses - 4);
}

#[tokio::test]
async fn groups_are_replaced_and_tags_added() {
    let world = World::new().await;
    let eni = world.create("token", 0).await;
    assert_eq!(eni.kind, Some(EniKind::Standard));
    let spec = SecurityGroupSpec {
        name: "pods".to_owned(),
        description: String::new(),
        ingress: Vec::new(),
        egress: Vec::new(),
    };
    let group = world.cloud.with(|cloud, now| cloud.add_security_group(now, spec).unwrap());
    let groups = vec![group];
    let set = CloudCall::SetGroups { eni: eni.id.clone(), groups: groups.clone() };
    assert_eq!(world.ec2.execute(set).await.unwrap(), CloudAnswer::Done);
    let tags = BTreeMap::from([("owner".to_owned(), "other".to_owned())]);
    let tag = CloudCall::TagEni { eni: eni.id.clone(), tags };
    assert_eq!(world.ec2.execute(tag).await.unwrap(), CloudAnswer::Done);
    let after = world.describe(&eni.id).await.unwrap();
    assert_eq!(after.groups, Some(groups));
    assert_eq!(after.tags.unwrap().get("owner").map(String::as_str), Some("other"));
    let attached = world.attached("token-2", 0, 1).await;
    let imds = world.ec2.look(Witness::Imds, &world.instance).await.unwrap();
    let by_imds = imds.iter().find(|eni| eni.id == attached.id).unwrap();
    assert_eq!(by_imds.groups, attached.groups, "both witnesses report the groups");
}

async fn leftovers(world: &World, tags: &[(&str, &str)], prefix: &str) -> Vec<Leftover> {
    let vpc = world.ec2.node().await.unwrap().vpc;
    let tags = tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let call = CloudCall::FindLeftovers { vpc, tags, description_prefix: prefix.to_owned() };
    let CloudAnswer::Leftovers(found) = world.ec2.execute(call).await.unwrap() else { panic!() };
    found
}

#[tokio::test]
async fn unattached_enis_are_found_by_all_their_tags_with_their_age() {
    let world = World::new().await;
    let left = world.create("token-1", 0).await;
    let used = world.attached("token-2", 0, 1).await;
    let found = leftovers(&world, &[("owner", "ferrule")], "ferrule").await;
    let [one] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((&one.eni, one.available, one.created_unreadable), (&left.id, true, false));
    assert!(one.age.unwrap().0 < 60_000, "{one:?}");
    assert_ne!(one.eni, used.id);
    for (tags, prefix) in [
        (&[("owner", "somebody")][..], "ferrule"),
        (&[("owner", "ferrule"), ("cluster", "blue")], "ferrule"),
        (&[("owner", "ferrule")], "aws-K8S-"),
    ] {
        assert_eq!(leftovers(&world, tags, prefix).await, [], "{tags:?} {prefix}");
    }
}

#[tokio::test]
async fn the_creation_of_another_process_is_found_by_its_token() {
    let world = World::new().await;
    let made = world.create("token", 2).await;
    // Its subnet is another by now, and its time of creation is not known here.
    let again = Options {
        ec2_endpoint: Some(world.lab.ec2_endpoint()),
        imds_endpoint: Some(world.lab.imds_endpoint()),
        ..Options::default()
    };
    let ec2 = Ec2::connect(again, |_: &CallReport<'_>| {}).await.unwrap();
    let mut call = world.creation("token", 3);
    if let CloudCall::CreateEni { subnet, .. } = &mut call {
        *subnet = world.cloud.with(|cloud, _| cloud.subnet_named("b").unwrap().id.clone());
    }
    let CloudAnswer::Created(found) = ec2.execute(call).await.unwrap() else { panic!() };
    assert_eq!((found.id, found.subnet), (made.id, made.subnet));
}

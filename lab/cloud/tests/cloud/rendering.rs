//! Responses as the trees that become XML.

use crate::world::World;
use lab_cloud::{
    AssignPrivateIpAddresses, DescribeInstanceTypes, DescribeInstances, DescribeNetworkInterfaces,
    DescribeSecurityGroups, DescribeSubnets, DescribeTags, DescribeVpcs, Document, Request,
};

/// The text at a path of element names; numbers pick members of a set.
fn at<'a>(document: &'a Document, path: &str) -> Option<&'a str> {
    let found = path.split('/').try_fold(document, |document, step| match document {
        Document::Text(_) => None,
        Document::Fields(fields) => {
            fields.iter().find(|(name, _)| *name == step).map(|(_, value)| value)
        }
        Document::Set(items) => items.get(step.parse::<usize>().ok()?),
    })?;
    if let Document::Text(text) = found { Some(text) } else { None }
}

/// No element twice: an SDK would read only one of them.
fn check_names(document: &Document) {
    match document {
        Document::Text(_) => {}
        Document::Fields(fields) => {
            let mut names: Vec<_> = fields.iter().map(|(name, _)| *name).collect();
            names.sort_unstable();
            assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
            fields.iter().for_each(|(_, value)| check_names(value));
        }
        Document::Set(items) => items.iter().for_each(check_names),
    }
}

fn rendered(world: &mut World, request: impl Into<Request>) -> Document {
    let document = world.call(request).document(1_795_225_335_000);
    check_names(&document);
    document
}

#[test]
fn an_eni_is_rendered_with_ec2s_names() {
    let mut world = World::new();
    let eni = world.attached(1);
    let shown = world.find(&eni).unwrap();
    let request = DescribeNetworkInterfaces {
        network_interface_ids: vec![eni.clone()],
        ..Default::default()
    };
    let document = rendered(&mut world, request);
    let base = "networkInterfaceSet/0";
    for (path, text) in [
        ("networkInterfaceId", eni.to_string()),
        ("status", "in-use".to_owned()),
        ("macAddress", shown.mac.to_string()),
        ("attachment/instanceId", world.node.to_string()),
        ("attachment/deviceIndex", "1".to_owned()),
        ("attachment/status", "attached".to_owned()),
        ("attachment/attachTime", "2026-11-21T01:42:15.000Z".to_owned()),
        ("attachment/deleteOnTermination", "false".to_owned()),
        ("groupSet/0/groupName", "default".to_owned()),
        ("privateIpAddressesSet/0/privateIpAddress", shown.primary_address().unwrap().to_string()),
        ("privateIpAddressesSet/0/primary", "true".to_owned()),
        ("sourceDestCheck", "true".to_owned()),
    ] {
        assert_eq!(at(&document, &format!("{base}/{path}")), Some(text.as_str()), "{path}");
    }
    assert_eq!(at(&document, "nextToken"), None);
}

#[test]
fn assigned_addresses_are_rendered() {
    let mut world = World::new();
    let eni = world.create("a");
    let request = world.assign(&eni, 1);
    let document = rendered(&mut world, request);
    let address = world.find(&eni).unwrap().secondary_addresses().next().unwrap().to_string();
    let path = "assignedPrivateIpAddressesSet/0/privateIpAddress";
    assert_eq!(at(&document, path), Some(address.as_str()));
    assert_eq!(at(&document, "return"), Some("true"));
    let request = AssignPrivateIpAddresses {
        network_interface_id: Some(eni.clone()),
        ipv4_prefix_count: Some(1),
        ..Default::default()
    };
    let document = rendered(&mut world, request);
    let prefix = world.find(&eni).unwrap().ipv4_prefixes[0].to_string();
    assert_eq!(at(&document, "assignedIpv4PrefixSet/0/ipv4Prefix"), Some(prefix.as_str()));
}

#[test]
fn every_listing_is_rendered() {
    let mut world = World::new();
    let node = world.node.to_string();
    let document = rendered(&mut world, DescribeInstances::default());
    let instance = "reservationSet/0/instancesSet/0";
    for (path, text) in [
        ("instanceId", node.as_str()),
        ("instanceState/name", "running"),
        ("instanceState/code", "16"),
        ("placement/availabilityZone", "eu-west-1a"),
        ("tagSet/0/key", "Name"),
        ("networkInterfaceSet/0/attachment/deviceIndex", "0"),
        ("metadataOptions/httpPutResponseHopLimit", "1"),
    ] {
        assert_eq!(at(&document, &format!("{instance}/{path}")), Some(text), "{path}");
    }
    let document = rendered(&mut world, DescribeSubnets::default());
    assert!(at(&document, "subnetSet/2/availableIpAddressCount").is_some());
    let document = rendered(&mut world, DescribeVpcs::default());
    let block = "vpcSet/0/cidrBlockAssociationSet/0/cidrBlock";
    assert_eq!(at(&document, block), Some("10.0.0.0/16"));
    let document = rendered(&mut world, DescribeSecurityGroups::default());
    let group = at(&document, "securityGroupInfo/0/groupId").unwrap();
    let member = at(&document, "securityGroupInfo/0/ipPermissions/0/groups/0/groupId");
    assert_eq!(member, Some(group));
    let egress = "securityGroupInfo/0/ipPermissionsEgress/0/ipRanges/0/cidrIp";
    assert_eq!(at(&document, egress), Some("0.0.0.0/0"));
    let document = rendered(&mut world, DescribeTags::default());
    assert!(at(&document, "tagSet/0/resourceType").is_some());
    let request = DescribeInstanceTypes {
        instance_types: vec!["p4d.24xlarge".to_owned()],
        ..Default::default()
    };
    let document = rendered(&mut world, request);
    let network = "instanceTypeSet/0/networkInfo";
    let card = format!("{network}/networkCards/3/maximumNetworkInterfaces");
    assert_eq!(at(&document, &card), Some("15"));
    let total = format!("{network}/maximumNetworkInterfaces");
    assert_eq!(at(&document, &total), Some("60"));
}

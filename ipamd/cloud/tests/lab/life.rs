//! The whole life of an ENI.

use crate::world::{Reported, World};
use config_model::{CardIndex, DeviceIndex};
use ipamd_cloud::Cloud;
use ipamd_core::{AttachmentState, CloudAnswer, CloudCall, Limits, Remedy, Want, Witness};
use ipnet::IpNet;
use std::{collections::BTreeSet, net::IpAddr};

#[tokio::test]
async fn an_eni_lives_from_creation_to_deletion() {
    let world = World::new().await;
    let made = world.create("token-1", 3).await;
    assert_eq!((made.blocks.len(), &made.attachment), (3, &None));
    assert_eq!(made.subnet, world.subnet);
    assert_eq!(made.tags.as_ref().unwrap().get("owner").map(String::as_str), Some("ferrule"));

    let attach = world.attachment(&made.id, 1);
    let CloudAnswer::Attached { attachment } = world.ec2.execute(attach).await.unwrap() else {
        panic!("an attachment has an id")
    };
    let keep =
        CloudCall::KeepUntilTermination { eni: made.id.clone(), attachment: attachment.clone() };
    assert_eq!(world.ec2.execute(keep).await.unwrap(), CloudAnswer::Done);
    let seen = world.describe(&made.id).await.unwrap().attachment.unwrap();
    assert_eq!(seen.id.as_ref(), Some(&attachment));
    assert_eq!((seen.card, seen.device), (CardIndex(0), DeviceIndex(1)));
    assert_eq!((seen.state, seen.delete_on_termination), (AttachmentState::Attached, Some(true)));
    assert_eq!(seen.instance, world.instance);

    let assign = CloudCall::Assign { eni: made.id.clone(), want: Want::Addresses(2) };
    let CloudAnswer::Assigned { blocks } = world.ec2.execute(assign).await.unwrap() else {
        panic!("addresses were asked for")
    };
    assert_eq!(blocks.len(), 2);
    let held: BTreeSet<_> = made.blocks.iter().chain(&blocks).copied().collect();
    let described = world.describe(&made.id).await.unwrap();
    assert_eq!(described.blocks.iter().copied().collect::<BTreeSet<_>>(), held);
    assert!(
        !held.contains(&IpNet::from(IpAddr::V4(described.primary_address.unwrap())))
            && held.len() == 5
    );

    let unassign = CloudCall::Unassign { eni: made.id.clone(), blocks };
    assert_eq!(world.ec2.execute(unassign).await.unwrap(), CloudAnswer::Done);
    assert_eq!(world.describe(&made.id).await.unwrap().blocks.len(), 3);

    let detach = CloudCall::DetachEni { eni: made.id.clone(), attachment };
    assert_eq!(world.ec2.execute(detach).await.unwrap(), CloudAnswer::Done);
    let delete = CloudCall::DeleteEni { eni: made.id.clone() };
    assert_eq!(world.ec2.execute(delete).await.unwrap(), CloudAnswer::Done);
    assert_eq!(world.describe(&made.id).await.unwrap_err().remedy, Remedy::Gone);
    assert_eq!(world.truth().instances[0].enis.len(), 1);
}

#[tokio::test]
async fn the_same_token_creates_one_eni() {
    let world = World::new().await;
    let first = world.create("token-1", 1).await;
    assert_eq!(world.create("token-1", 1).await.id, first.id);
    assert_ne!(world.create("token-2", 1).await.id, first.id);
}

#[tokio::test]
async fn both_witnesses_show_the_same_enis() {
    let world = World::new().await;
    world.attached("token-1", 4, 1).await;
    world.attached("token-2", 0, 3).await;
    world.create("never attached", 1).await;

    let mut by_ec2 = world.ec2.look(Witness::Ec2, &world.instance).await.unwrap();
    let mut by_imds = world.ec2.look(Witness::Imds, &world.instance).await.unwrap();
    by_ec2.sort_by_key(|eni| eni.primary_address);
    by_imds.sort_by_key(|eni| eni.primary_address);
    assert_eq!((by_ec2.len(), by_imds.len()), (3, 3));
    for (ec2, imds) in by_ec2.iter().zip(&by_imds) {
        assert_eq!((&ec2.id, ec2.mac, &ec2.subnet), (&imds.id, imds.mac, &imds.subnet));
        assert_eq!(ec2.blocks, imds.blocks);
        let (at, by) = (ec2.attachment.as_ref().unwrap(), imds.attachment.as_ref().unwrap());
        assert_eq!((&at.instance, at.card, at.device), (&by.instance, by.card, by.device));
        assert!(imds.subnet_cidr.unwrap().contains(&ec2.primary_address.unwrap()));
        assert!(ec2.tags.is_some() && imds.tags.is_none());
    }
}

#[tokio::test]
async fn limits_of_types_are_reported_by_card() {
    let world = World::new().await;
    let one_card = world.ec2.type_limits("c5.xlarge").await.unwrap();
    assert_eq!(one_card.limits(), Limits { trunk: true, ..Limits::one_card(4, 15) });
    for (instance_type, prefixes, trunk) in
        [("m5.large", true, true), ("t3.small", true, false), ("m4.large", false, false)]
    {
        let limits = world.ec2.type_limits(instance_type).await.unwrap();
        assert_eq!((limits.prefixes, limits.trunk), (prefixes, trunk), "{instance_type}");
    }
    let four_cards = world.ec2.type_limits("p4d.24xlarge").await.unwrap();
    assert_eq!((four_cards.limits().enis_on(CardIndex(0)), four_cards.ipv4_per_eni), (15, 50));
    assert_eq!(four_cards.enis.len(), 4);
    let none = world.ec2.type_limits("c5.enormous").await.unwrap_err();
    assert_eq!(none.remedy, Remedy::NotifyOperator, "{none}");
    assert!(none.message.contains("c5.enormous"), "{none}");
}

#[tokio::test]
async fn the_observer_receives_each_request_once() {
    let world = World::new().await;
    let eni = world.create("token-1", 1).await;
    world.describe(&eni.id).await.unwrap();
    let missing = world.describe(&"eni-00000000000000000".into()).await.unwrap_err();
    let ok = |action| Reported { action, status: Some(200), error: None };
    let reports = world.reports.take();
    assert_eq!(reports[..2], [ok("CreateNetworkInterface"), ok("DescribeNetworkInterfaces")]);
    let failed = Reported {
        action: "DescribeNetworkInterfaces",
        status: Some(400),
        error: Some(missing.code),
    };
    assert_eq!(reports[2..], [failed]);

    world.ec2.node().await.unwrap();
    let reports = world.reports.take();
    assert!(reports.contains(&ok("GetMAC")) && reports.contains(&ok("GetVPCIPv4CIDRBlocks")));
}

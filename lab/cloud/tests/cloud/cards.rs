//! Network cards, elastic fabric adapters, trunks and branches.

use crate::world::{World, quiet};
use config_model::{CardIndex, DeviceIndex, EniId, InstanceId, Time};
use lab_cloud::{
    AssociateTrunkInterface, AttachNetworkInterface, AttachmentChange, Cloud,
    CreateNetworkInterface, DeleteNetworkInterface, DescribeTrunkInterfaceAssociations,
    DisassociateTrunkInterface, EniStatus, Filter, InstanceType, InterfaceKind, Launch,
    LaunchInterface, ModifyNetworkInterfaceAttribute, Response, TrunkAssociation,
};

fn of_kind(world: &mut World, kind: &str) -> EniId {
    let request = CreateNetworkInterface {
        subnet_id: Some(world.subnet("a")),
        interface_type: Some(kind.to_owned()),
        ..Default::default()
    };
    world.create_with(request).id
}

fn attach(world: &World, eni: &EniId, card: u16, device: u16) -> AttachNetworkInterface {
    AttachNetworkInterface {
        network_interface_id: Some(eni.clone()),
        instance_id: Some(world.node.clone()),
        device_index: Some(device),
        network_card_index: Some(card),
        ..Default::default()
    }
}

/// A trunk on the node, as device 1.
fn trunk(world: &mut World) -> EniId {
    let trunk = of_kind(world, "trunk");
    let request = attach(world, &trunk, 0, 1);
    world.call(request);
    trunk
}

fn associate(branch: &EniId, trunk: &EniId, vlan: u16) -> AssociateTrunkInterface {
    AssociateTrunkInterface {
        branch_interface_id: Some(branch.clone()),
        trunk_interface_id: Some(trunk.clone()),
        vlan_id: Some(vlan),
        ..Default::default()
    }
}

fn associated(world: &mut World, branch: &EniId, trunk: &EniId, vlan: u16) -> TrunkAssociation {
    let Response::AssociateTrunkInterface { association, .. } =
        world.call(associate(branch, trunk, vlan))
    else {
        panic!("another response")
    };
    association
}

fn associations(world: &mut World, filters: Vec<Filter>) -> Vec<TrunkAssociation> {
    let request = DescribeTrunkInterfaceAssociations { filters, ..Default::default() };
    let Response::DescribeTrunkInterfaceAssociations { associations, .. } = world.call(request)
    else {
        panic!("another response")
    };
    associations
}

#[test]
fn each_card_has_its_own_limit_and_its_own_devices() {
    // Two cards of two places each.
    let mut world = World::of(quiet(), "p5.48xlarge");
    let enis: Vec<EniId> = (0..4).map(|_| world.create("a")).collect();
    for (eni, card, device) in [(&enis[0], 1, 1), (&enis[1], 1, 2)] {
        let request = attach(&world, eni, card, device);
        world.call(request);
    }
    let full = attach(&world, &enis[2], 1, 3);
    assert_eq!(world.refusal(full).code, "AttachmentLimitExceeded");
    let taken = attach(&world, &enis[2], 1, 1);
    assert_eq!(world.refusal(taken).code, "InvalidParameterValue");
    let other_card = attach(&world, &enis[2], 2, 1);
    world.call(other_card);
    let nowhere = attach(&world, &enis[3], 32, 1);
    assert_eq!(world.refusal(nowhere).code, "InvalidParameterValue");
    let eni = world.find(&enis[2]).unwrap();
    let card = format!("/latest/meta-data/network/interfaces/macs/{}/network-card", eni.mac);
    assert_eq!(world.imds(&card).as_deref(), Some("2"));
}

#[test]
fn adapters_come_with_the_instance_or_while_it_is_stopped() {
    let mut world = World::of(quiet(), "p5.48xlarge");
    let efa = of_kind(&mut world, "efa");
    let request = attach(&world, &efa, 1, 1);
    assert_eq!(world.refusal(request.clone()).code, "IncorrectState");
    let node = world.node.clone();
    world.cloud.stop(world.now, &node).unwrap();
    world.call(request);
    world.cloud.start(world.now, &node).unwrap();
    let subnet = world.subnet("a");
    let new = |card, device, kind| LaunchInterface {
        card: CardIndex(card),
        device: DeviceIndex(device),
        kind,
    };
    let launch = Launch {
        interfaces: vec![
            new(1, 0, InterfaceKind::EfaOnly),
            new(2, 0, InterfaceKind::Efa),
            new(2, 1, InterfaceKind::Interface),
        ],
        ..Launch::new("gpu", "p5.48xlarge", subnet.clone())
    };
    let gpu = world.cloud.launch(world.now, launch).unwrap();
    let enis = world.cloud.enis_of(world.now, &gpu);
    let kinds: Vec<InterfaceKind> = enis.iter().map(|eni| eni.kind).collect();
    assert_eq!(
        kinds,
        [
            InterfaceKind::Interface,
            InterfaceKind::EfaOnly,
            InterfaceKind::Efa,
            InterfaceKind::Interface
        ]
    );
    // An adapter alone has no addresses, no network device, and still a place in IMDS.
    assert_eq!(enis[1].primary_address(), None);
    let truth = world.cloud.truth_of(world.now, &gpu).unwrap();
    assert_eq!(truth.enis.len(), 3);
    let path = format!("/latest/meta-data/network/interfaces/macs/{}/", enis[1].mac);
    let listing = world.cloud.imds(world.now, &gpu, &path).unwrap();
    assert!(listing.contains("interface-id") && !listing.contains("local-ipv4s"), "{listing}");
    let assign = world.assign(&enis[1].id, 1);
    assert_eq!(world.refusal(assign).code, "InvalidParameterCombination");
    for (interfaces, why) in [
        (vec![new(0, 0, InterfaceKind::Interface)], "taken twice"),
        (vec![new(40, 0, InterfaceKind::Interface)], "no such card"),
        (vec![new(1, 0, InterfaceKind::Trunk)], "trunk"),
        ((0..3).map(|d| new(1, d, InterfaceKind::Interface)).collect(), "no room"),
    ] {
        let launch = Launch { interfaces, ..Launch::new("wrong", "p5.48xlarge", subnet.clone()) };
        let said = world.cloud.launch(world.now, launch).unwrap_err().to_string();
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn branches_ride_on_a_trunk_by_vlan() {
    let mut world = World::of(quiet(), "c5.large");
    let trunk = trunk(&mut world);
    let (one, two) = (world.create("a"), world.create("a"));
    let first = associated(&mut world, &one, &trunk, 7);
    associated(&mut world, &two, &trunk, 8);
    let shown = world.find(&one).unwrap();
    assert_eq!((shown.kind, shown.status), (InterfaceKind::Branch, EniStatus::Associated));
    let truth = world.cloud.truth(world.now);
    let branches: Vec<(EniId, u16)> =
        truth.instances[0].branches.iter().map(|b| (b.id.clone(), b.vlan)).collect();
    assert_eq!(branches, [(one.clone(), 7), (two.clone(), 8)]);
    let by_trunk =
        Filter::new("trunk-interface-association.trunk-interface-id", [trunk.to_string()]);
    assert_eq!(associations(&mut world, vec![by_trunk]).len(), 2);
    // A branch is neither attached nor associated twice; a VLAN carries one.
    let request = attach(&world, &one, 0, 2);
    assert_eq!(world.refusal(request).code, "InvalidParameterCombination");
    assert_eq!(world.refusal(associate(&one, &trunk, 9)).code, "InvalidNetworkInterface.InUse");
    let three = world.create("a");
    assert_eq!(world.refusal(associate(&three, &trunk, 7)).code, "InvalidParameterValue");
    assert_eq!(world.refusal(associate(&three, &trunk, 0)).code, "InvalidParameterValue");
    assert_eq!(world.refusal(associate(&three, &one, 9)).code, "InvalidParameterValue");
    // The same again with a token is the same.
    let token = AssociateTrunkInterface {
        client_token: Some("t".to_owned()),
        ..associate(&one, &trunk, 7)
    };
    assert!(matches!(world.call(token), Response::AssociateTrunkInterface { association, .. }
        if association == first));
    let delete = |eni: &EniId| DeleteNetworkInterface {
        network_interface_id: Some(eni.clone()),
        ..Default::default()
    };
    world.call(DisassociateTrunkInterface {
        association_id: Some(first.id.clone()),
        ..Default::default()
    });
    let plain = world.find(&one).unwrap();
    assert_eq!((plain.kind, plain.status), (InterfaceKind::Interface, EniStatus::Available));
    world.call(delete(&one));
    world.call(delete(&two));
    assert_eq!(associations(&mut world, Vec::new()), []);
    let gone = DisassociateTrunkInterface { association_id: Some(first.id), ..Default::default() };
    assert_eq!(world.refusal(gone).code, "InvalidAssociationID.NotFound");
}

#[test]
fn a_trunk_carries_what_its_type_allows_and_only_some_types_have_one() {
    let mut world = World::of(quiet(), "c5.large");
    let most = InstanceType::named("c5.large").unwrap().branch_interfaces;
    assert_eq!(most, 9);
    let trunk_eni = trunk(&mut world);
    for vlan in 1..=most {
        let branch = world.create("a");
        associated(&mut world, &branch, &trunk_eni, vlan);
    }
    let one_more = world.create("a");
    let refused = world.refusal(associate(&one_more, &trunk_eni, 99));
    assert_eq!(refused.code, "OperationNotPermitted");
    let mut small = World::of(quiet(), "t3.small");
    let trunk_eni = of_kind(&mut small, "trunk");
    let request = attach(&small, &trunk_eni, 0, 1);
    assert_eq!(small.refusal(request).code, "InvalidParameterCombination");
}

#[test]
fn branches_outlive_their_trunk() {
    let mut world = World::of(quiet(), "c5.large");
    let trunk = trunk(&mut world);
    let branch = world.create("a");
    associated(&mut world, &branch, &trunk, 3);
    let delete =
        DeleteNetworkInterface { network_interface_id: Some(trunk.clone()), ..Default::default() };
    assert_eq!(world.refusal(delete).code, "InvalidParameterValue");
    let attachment_id = world.find(&trunk).unwrap().attachment.map(|a| a.id);
    world.call(ModifyNetworkInterfaceAttribute {
        network_interface_id: Some(trunk.clone()),
        attachment: Some(AttachmentChange { attachment_id, delete_on_termination: Some(true) }),
        ..Default::default()
    });
    let node = world.node.clone();
    world.cloud.terminate(world.now, &node).unwrap();
    assert_eq!(world.find(&trunk), None);
    let left = world.find(&branch).unwrap();
    assert_eq!((left.kind, left.status), (InterfaceKind::Interface, EniStatus::Available));
    assert_eq!(associations(&mut world, Vec::new()), []);
}

#[test]
fn an_eni_that_lost_delete_on_termination_outlives_its_instance() {
    let mut world = World::new();
    let kept = world.attached(1);
    let gone = world.attached(2);
    for (eni, goes) in [(&kept, false), (&gone, true)] {
        world.cloud.set_delete_on_termination(world.now, eni, goes).unwrap();
    }
    let node: InstanceId = world.node.clone();
    world.cloud.terminate(world.now, &node).unwrap();
    assert_eq!(world.find(&kept).map(|eni| eni.status), Some(EniStatus::Available));
    assert_eq!(world.find(&gone), None);
    assert!(world.cloud.set_delete_on_termination(world.now, &kept, true).is_err());
    let nobody = EniId::new("eni-0");
    assert!(world.cloud.set_delete_on_termination(Time(0), &nobody, true).is_err());
}

#[test]
fn every_type_of_the_table_launches() {
    let mut cloud = Cloud::new(quiet(), 3).unwrap();
    let subnet = cloud.subnet_named("a").unwrap().id.clone();
    for kind in InstanceType::all() {
        let id = cloud.launch(Time(0), Launch::new(kind.name, kind.name, subnet.clone())).unwrap();
        assert_eq!(cloud.enis_of(Time(0), &id).len(), 1, "{}", kind.name);
    }
}

//! ENIs and instances through their lives.

use crate::world::{World, quiet};
use config_model::{EniId, Span, Time};
use lab_cloud::{
    AssignPrivateIpAddresses, AttachmentChange, AttachmentStatus, CallError, Caller,
    CreateNetworkInterface, DeleteNetworkInterface, DetachNetworkInterface, EniStatus,
    InstanceState, Launch, ModifyNetworkInterfaceAttribute, OperateError, PrivateAddressRequest,
    Response, UnassignPrivateIpAddresses,
};
use std::{collections::BTreeSet, net::Ipv4Addr};

fn slow() -> World {
    let mut spec = quiet();
    spec.timing.create = Span::seconds(1);
    spec.timing.attach = Span::seconds(5);
    spec.timing.detach = Span::seconds(8);
    spec.timing.force_detach = Span::seconds(2);
    spec.timing.boot = Span::seconds(20);
    spec.timing.shutdown = Span::seconds(10);
    let mut world = World::of(spec, "c5.large");
    world.pass(Span::seconds(20));
    world
}

fn detach(world: &mut World, eni: &EniId, force: bool) -> Result<Response, CallError> {
    let attachment_id = world.find(eni).unwrap().attachment.map(|a| a.id);
    world.try_call(DetachNetworkInterface { attachment_id, force, ..Default::default() })
}

fn keep_on_termination(world: &mut World, eni: &EniId, delete: bool) {
    let attachment_id = world.find(eni).unwrap().attachment.map(|a| a.id);
    world.call(ModifyNetworkInterfaceAttribute {
        network_interface_id: Some(eni.clone()),
        attachment: Some(AttachmentChange { attachment_id, delete_on_termination: Some(delete) }),
        ..Default::default()
    });
}

#[test]
fn an_eni_is_pending_then_available_then_attaching_then_attached() {
    let mut world = slow();
    let eni = world.create("a");
    assert_eq!(world.find(&eni).unwrap().status, EniStatus::Pending);
    assert_eq!(world.cloud.next_change_at(world.now), Some(world.now + Span::seconds(1)));
    world.pass(Span::seconds(1));
    assert_eq!(world.find(&eni).unwrap().status, EniStatus::Available);

    let attach = world.attach(&eni, 1);
    world.call(attach);
    let shown = world.find(&eni).unwrap();
    let attachment = shown.attachment.unwrap();
    assert_eq!((shown.status, attachment.status), (EniStatus::InUse, AttachmentStatus::Attaching));
    assert!(!attachment.delete_on_termination, "EC2 keeps ENIs that were attached by hand");
    assert_eq!(world.plugged(), 1);
    let version = world.cloud.version(world.now);
    let due = world.cloud.next_change_at(world.now).unwrap();
    world.now = Time(due.0 - 1);
    assert_eq!((world.plugged(), world.cloud.version(world.now)), (1, version));
    world.now = due;
    assert_eq!(world.plugged(), 2);
    assert!(world.cloud.version(world.now) > version);

    detach(&mut world, &eni, false).unwrap();
    assert_eq!(world.plugged(), 2);
    let again = detach(&mut world, &eni, false).unwrap_err();
    assert!(matches!(&again, CallError::Refused(e) if e.code == "IncorrectState"), "{again}");
    detach(&mut world, &eni, true).unwrap();
    world.pass(Span::seconds(2));
    assert_eq!(world.plugged(), 1);
    assert_eq!(world.find(&eni).unwrap().status, EniStatus::Available);
    // The slower detach of the same attachment must not touch the next one.
    let attach = world.attach(&eni, 1);
    world.call(attach);
    world.pass(Span::seconds(60));
    assert_eq!(world.plugged(), 2);
    assert_eq!(world.cloud.next_change_at(world.now), None);
}

#[test]
fn a_pending_change_of_one_attachment_does_not_affect_the_next() {
    let mut world = slow();
    let eni = world.attached(1);
    detach(&mut world, &eni, true).unwrap();
    world.pass(Span::seconds(2));
    let attach = world.attach(&eni, 1);
    world.call(attach);
    // The first attach would have come through at 5 s, the second does at 7 s.
    world.pass(Span::seconds(4));
    assert_eq!(world.plugged(), 1);
    world.pass(Span::seconds(1));
    assert_eq!(world.plugged(), 2);
}

#[test]
fn assigning_returns_the_new_addresses_only_and_unassigning_frees_them() {
    let mut world = World::new();
    let eni = world.attached(1);
    let free = |world: &World| world.cloud.subnet_named("a").unwrap().available_ip_address_count;
    let at_first = free(&world);
    let given = |response: Response| {
        let Response::AssignPrivateIpAddresses(assigned) = response else {
            panic!("another response")
        };
        assigned.private_ip_addresses
    };
    let request = world.assign(&eni, 3);
    let first = given(world.call(request));
    let request = world.assign(&eni, 2);
    let second = given(world.call(request));
    assert_eq!((first.len(), second.len(), free(&world)), (3, 2, at_first - 5));
    let all: BTreeSet<Ipv4Addr> = first.iter().chain(&second).copied().collect();
    let shown = world.find(&eni).unwrap();
    assert_eq!(shown.secondary_addresses().collect::<BTreeSet<_>>(), all);
    assert!(shown.private_addresses[0].primary);

    world.call(UnassignPrivateIpAddresses {
        network_interface_id: Some(eni.clone()),
        private_ip_addresses: first.clone(),
        ..Default::default()
    });
    assert_eq!(free(&world), at_first - 2);
    assert_eq!(world.find(&eni).unwrap().secondary_addresses().collect::<Vec<_>>(), second);

    // By name: what was released can be had again, what another holds moves only if allowed.
    let other = world.create("a");
    let mut by_name = AssignPrivateIpAddresses {
        network_interface_id: Some(other.clone()),
        private_ip_addresses: vec![first[0], second[0]],
        ..Default::default()
    };
    assert_eq!(world.refusal(by_name.clone()).code, "InvalidParameterValue");
    by_name.allow_reassignment = true;
    assert_eq!(given(world.call(by_name)), [first[0], second[0]]);
    assert_eq!(world.find(&eni).unwrap().secondary_addresses().collect::<Vec<_>>(), second[1..]);
}

#[test]
fn prefixes_fill_one_place_each_and_sixteen_addresses() {
    let mut world = World::new();
    let eni = world.attached(1);
    let free = world.cloud.subnet_named("a").unwrap().available_ip_address_count;
    let request = AssignPrivateIpAddresses {
        network_interface_id: Some(eni.clone()),
        ipv4_prefix_count: Some(9),
        ..Default::default()
    };
    let Response::AssignPrivateIpAddresses(assigned) = world.call(request) else { panic!() };
    assert_eq!(assigned.ipv4_prefixes.iter().collect::<BTreeSet<_>>().len(), 9);
    let left = world.cloud.subnet_named("a").unwrap().available_ip_address_count;
    assert_eq!(left, free - 9 * 16);
    let one_more = world.assign(&eni, 1);
    assert_eq!(world.refusal(one_more).code, "PrivateIpAddressLimitExceeded");
    world.call(UnassignPrivateIpAddresses {
        network_interface_id: Some(eni.clone()),
        ipv4_prefixes: assigned.ipv4_prefixes.clone(),
        ..Default::default()
    });
    assert_eq!(world.cloud.subnet_named("a").unwrap().available_ip_address_count, free);
}

#[test]
fn a_creation_can_name_its_addresses() {
    let mut world = World::new();
    let address = |last: u8| Ipv4Addr::new(10, 0, 1, last);
    let request = CreateNetworkInterface {
        subnet_id: Some(world.subnet("a")),
        private_ip_addresses: vec![
            PrivateAddressRequest { address: address(5), primary: false },
            PrivateAddressRequest { address: address(6), primary: true },
        ],
        description: "by name".to_owned(),
        ..Default::default()
    };
    let eni = world.create_with(request);
    assert_eq!(eni.primary_address(), Some(address(6)));
    assert_eq!(eni.secondary_addresses().collect::<Vec<_>>(), [address(5)]);
    assert_eq!(eni.description, "by name");
    assert!(eni.mac.0[0] == 2 || eni.mac.0[0] == 6);
}

#[test]
fn stop_and_start_keep_enis_and_private_addresses() {
    let mut world = slow();
    let eni = world.attached(1);
    world.pass(Span::seconds(5));
    let node = world.node.clone();
    let shape = |world: &mut World| {
        let truth = world.cloud.truth(world.now);
        let instance = truth.instances.into_iter().find(|i| i.id == node).unwrap();
        let enis: Vec<_> = instance.enis.iter().map(|e| (e.id.clone(), e.mac, e.primary)).collect();
        (instance.state, instance.boots, instance.enis[0].public_ip, enis)
    };
    let (state, boots, public, enis) = shape(&mut world);
    assert_eq!((state, boots, public.is_some()), (InstanceState::Running, 1, true));
    assert!(enis.iter().any(|(id, ..)| *id == eni));

    world.cloud.stop(world.now, &node).unwrap();
    assert_eq!(shape(&mut world).0, InstanceState::Stopping);
    world.pass(Span::seconds(10));
    assert_eq!(shape(&mut world), (InstanceState::Stopped, 1, None, enis.clone()));
    assert!(world.cloud.reboot(world.now, &node).is_err());

    world.cloud.start(world.now, &node).unwrap();
    world.pass(Span::seconds(20));
    let (state, boots, public, after) = shape(&mut world);
    assert_eq!((state, boots, public.is_some()), (InstanceState::Running, 2, true));
    assert_eq!(after, enis);

    world.cloud.reboot(world.now, &node).unwrap();
    let (state, boots, _, after) = shape(&mut world);
    assert_eq!((state, boots, after), (InstanceState::Running, 3, enis));
}

#[test]
fn a_terminated_instance_deletes_the_enis_with_delete_on_termination() {
    let mut world = slow();
    let (kept, gone) = (world.attached(1), world.attached(2));
    keep_on_termination(&mut world, &gone, true);
    let primary = world.primary().id;
    let free = world.cloud.subnet_named("a").unwrap().available_ip_address_count;
    let node = world.node.clone();
    world.cloud.terminate(world.now, &node).unwrap();
    assert!(world.find(&gone).is_some(), "it is still shutting down");
    world.pass(Span::seconds(10));
    assert_eq!((world.find(&primary), world.find(&gone)), (None, None));
    let left = world.find(&kept).unwrap();
    assert_eq!((left.status, left.attachment), (EniStatus::Available, None));
    assert_eq!(world.cloud.subnet_named("a").unwrap().available_ip_address_count, free + 2);
    assert_eq!(world.plugged(), 0);
    assert_eq!(world.imds("/latest/meta-data/instance-id"), None);
    assert_eq!(world.cloud.instance_named("node"), None);
    let shown = |world: &mut World| world.cloud.truth(world.now).instances.len();
    assert_eq!(shown(&mut world), 1);
    world.pass(Span::seconds(3600));
    assert_eq!(shown(&mut world), 0);
}

#[test]
fn a_deleted_eni_is_gone_and_its_addresses_are_free() {
    let mut world = World::new();
    let free = world.cloud.subnet_named("a").unwrap().available_ip_address_count;
    let eni = world.create("a");
    let delete =
        DeleteNetworkInterface { network_interface_id: Some(eni.clone()), ..Default::default() };
    world.call(delete.clone());
    assert_eq!(world.find(&eni), None);
    assert_eq!(world.cloud.subnet_named("a").unwrap().available_ip_address_count, free);
    assert_eq!(world.refusal(delete).code, "InvalidNetworkInterfaceID.NotFound");
}

#[test]
fn the_same_client_token_makes_one_eni() {
    let mut world = World::new();
    let request = CreateNetworkInterface {
        subnet_id: Some(world.subnet("a")),
        client_token: Some("t".to_owned()),
        ..Default::default()
    };
    let first = world.create_with(request.clone());
    assert_eq!(world.create_with(request.clone()).id, first.id);
    let other = CreateNetworkInterface { description: "other".to_owned(), ..request.clone() };
    assert_eq!(world.refusal(other).code, "IdempotentParameterMismatch");
    world.call(DeleteNetworkInterface {
        network_interface_id: Some(first.id.clone()),
        ..Default::default()
    });
    assert_eq!(world.create_with(request).id, first.id);
    assert_eq!(world.find(&first.id), None, "the answer is repeated, not the ENI");
}

#[test]
fn the_operators_pull_looks_like_a_forced_detach() {
    let mut world = slow();
    let eni = world.attached(1);
    world.pass(Span::seconds(5));
    assert_eq!(world.plugged(), 2);
    world.cloud.pull_eni(world.now, &eni).unwrap();
    world.pass(Span::seconds(2));
    assert_eq!(world.plugged(), 1);
    let primary = world.primary().id;
    assert!(world.cloud.pull_eni(world.now, &primary).is_err());
    assert!(world.cloud.pull_eni(world.now, &eni).is_err());
}

#[test]
fn enis_are_counted_per_card() {
    let mut world = World::of(quiet(), "p5.48xlarge");
    let on_card = |world: &mut World, card: u16, device: u16| {
        let eni = world.create("a");
        let mut attach = world.attach(&eni, device);
        attach.network_card_index = Some(card);
        world.try_call(attach).map_err(|error| error.to_string())
    };
    on_card(&mut world, 0, 1).unwrap();
    assert!(on_card(&mut world, 0, 2).unwrap_err().contains("AttachmentLimitExceeded"));
    on_card(&mut world, 1, 1).unwrap();
    assert!(on_card(&mut world, 32, 1).unwrap_err().contains("Network card index 32"));
    assert_eq!(world.plugged(), 3);
}

#[test]
fn security_groups_change_on_an_eni_and_in_the_truth() {
    let mut world = World::new();
    let eni = world.attached(1);
    let spec = lab_cloud::SecurityGroupSpec {
        name: "web".to_owned(),
        description: String::new(),
        ingress: Vec::new(),
        egress: Vec::new(),
    };
    let web = world.cloud.add_security_group(world.now, spec.clone()).unwrap();
    assert!(world.cloud.add_security_group(world.now, spec).is_err());
    world.call(ModifyNetworkInterfaceAttribute {
        network_interface_id: Some(eni.clone()),
        groups: vec![web.clone()],
        ..Default::default()
    });
    let all = lab_cloud::Rule::all("0.0.0.0/0".parse().unwrap());
    world.cloud.set_security_group_rules(world.now, &web, vec![all.clone()], Vec::new()).unwrap();
    let truth = world.cloud.truth(world.now);
    let members: Vec<_> = truth.members(&web).map(|(_, member)| member.id.clone()).collect();
    assert_eq!(members, [eni]);
    assert_eq!(truth.security_groups[&web].ingress, [all]);
}

#[test]
fn launches_that_cannot_be_are_refused_and_leave_nothing() {
    let mut world = World::new();
    let (a, tiny) = (world.subnet("a"), world.subnet("tiny"));
    let before = world.enis();
    let launch = |kind: &str, subnet| Launch::new("x", kind, subnet);
    assert!(world.cloud.launch(world.now, launch("z9.huge", a)).is_err());
    let nowhere = config_model::SubnetId::new("subnet-0");
    assert!(world.cloud.launch(world.now, launch("c5.large", nowhere)).is_err());
    for n in 0..11 {
        let name = format!("n{n}");
        world.cloud.launch(world.now, Launch::new(name, "t3.nano", tiny.clone())).unwrap();
    }
    assert!(world.cloud.launch(world.now, launch("t3.nano", tiny)).is_err());
    assert_eq!(world.enis().len(), before.len() + 11);
}

#[test]
fn a_launch_that_fails_gives_its_public_address_back() {
    let mut spec = quiet();
    spec.public_pool = "198.51.100.0/30".parse().unwrap();
    let tiny = spec.subnets.iter_mut().find(|subnet| subnet.name == "tiny").unwrap();
    tiny.map_public_ip_on_launch = true;
    let mut world = World::of(spec, "c5.large");
    let tiny = world.subnet("tiny");
    let eni = world.create("tiny");
    let fill = world.assign(&eni, 10);
    world.call(fill);
    let launch = |world: &mut World| {
        world.cloud.launch(world.now, Launch::new("x", "t3.nano", tiny.clone()))
    };
    for _ in 0..3 {
        assert_eq!(launch(&mut world), Err(OperateError::SubnetFull(tiny.clone())));
    }
    world.call(DeleteNetworkInterface { network_interface_id: Some(eni), ..Default::default() });
    launch(&mut world).unwrap();
    let pool = "198.51.100.0/30".parse().unwrap();
    assert_eq!(launch(&mut world), Err(OperateError::PublicPoolEmpty(pool)));
}

#[test]
fn credentials_of_imds_name_their_role_until_the_instance_is_gone() {
    let mut world = World::new();
    let path = "/latest/meta-data/iam/security-credentials/";
    let role = world.imds(path).unwrap();
    let document = world.imds(&format!("{path}{role}")).unwrap();
    let key = document.split("\"AccessKeyId\" : \"").nth(1).unwrap().split('"').next().unwrap();
    let caller = Caller::Role { role, instance: world.node.clone() };
    assert_eq!(world.cloud.caller_of(key), Some(caller));
    assert_eq!(world.cloud.caller_of("AKIANOBODY"), None);
    let administrator = lab_cloud::Cloud::ADMINISTRATOR_KEY;
    assert_eq!(world.cloud.caller_of(administrator), Some(Caller::Administrator));
    world.cloud.terminate(world.now, &world.node.clone()).unwrap();
    assert_eq!(world.cloud.caller_of(key), None);
}

//! Where do new ENIs go?

use crate::world::{Cloud, World};
use config_model::{Span, SubnetId};
use ipamd_core::{
    Action, CloudCall, ClusterFact, EniConfig, Event, Limits, Notice, PoolConfig, Severity, Topic,
    Witness,
};
use std::{collections::BTreeMap, net::Ipv4Addr};

const ROLE: &str = "kubernetes.io/role/cni";

/// A full primary ENI: what is wanted must come from a new one. The second subnet has fewer free
/// addresses than the first, the third more.
fn cloud() -> Cloud {
    let mut cloud = Cloud::new(4, 5, 4);
    cloud.subnet.truncate(100);
    for (number, free) in [(2_u8, 50_u8), (3, 200)] {
        let id = SubnetId::new(format!("subnet-{number}"));
        let addresses = (10..10 + free).map(|last| Ipv4Addr::new(10, number - 1, 0, last));
        cloud.others.insert(id.clone(), addresses.collect());
        tag(&mut cloud, id.as_str(), "1");
    }
    cloud
}

fn tag(cloud: &mut Cloud, subnet: &str, role: &str) {
    let tags = BTreeMap::from([(ROLE.to_owned(), role.to_owned())]);
    cloud.subnet_tags.insert(subnet.into(), tags);
}

fn start(config: PoolConfig, cloud: Cloud) -> World {
    let node = World::node(&cloud);
    World::start(config, Limits::one_card(4, 5), node, cloud)
}

fn discovery() -> PoolConfig {
    PoolConfig { subnet_discovery: true, ..PoolConfig::default() }
}

fn custom() -> PoolConfig {
    PoolConfig { custom_networking: true, ..PoolConfig::default() }
}

fn found(subnet: &str, groups: &[&str]) -> Event {
    let groups = groups.iter().map(|group| (*group).into()).collect();
    let subnet = subnet.into();
    Event::Cluster(ClusterFact::EniConfig(EniConfig::Found { name: "a".into(), subnet, groups }))
}

/// Where ENIs were made, in order.
fn made(world: &World) -> Vec<String> {
    let subnet = |call: &CloudCall| {
        let CloudCall::CreateEni { subnet, .. } = call else { return None };
        Some(subnet.as_str().to_owned())
    };
    world.cloud.log.iter().filter_map(|(_, call)| subnet(call)).collect()
}

fn notices_of(world: &World, topic: Topic) -> Vec<&Notice> {
    world.notices.iter().filter(|notice| notice.topic == topic).collect()
}

#[test]
fn the_subnet_with_most_free_addresses_is_taken_and_the_next_when_it_refuses() {
    let mut cloud = cloud();
    // EC2 counts addresses that it cannot assign: the subnet refuses every request.
    cloud.subnet_refuses.insert("subnet-3".into());
    let mut world = start(discovery(), cloud);
    world.reserve_all(0..5);
    world.pass(Span::seconds(20));
    assert_eq!(world.cloud.count(Action::DescribeSubnets), 1);
    let made = made(&world);
    assert_eq!(made.first().map(String::as_str), Some("subnet-3"));
    assert_eq!(made.last().map(String::as_str), Some("subnet-1"));
    assert_eq!(world.core.counts().assigned, 5);
    assert_eq!(notices_of(&world, Topic::SubnetExhausted).len(), 1);
}

#[test]
fn the_snapshot_has_the_counts_of_answers_that_the_planner_needed_anyway() {
    let mut world = start(discovery(), cloud());
    tag(&mut world.cloud, "subnet-2", "0");
    assert!(world.snapshot().subnets.is_empty(), "EC2 has not answered");
    world.pass(Span::seconds(20));
    world.reserve_all(0..5);
    world.pass(Span::seconds(600));
    world.reserve_all(5..12);
    world.pass(Span::seconds(20));
    let asked = world.cloud.count(Action::DescribeSubnets);
    assert_eq!(asked, 2, "one at the start, one for a later ENI");
    let subnets = world.snapshot().subnets;
    let shape: Vec<_> = subnets.iter().map(|it| (it.id.as_str(), it.for_pods, it.in_use)).collect();
    assert_eq!(
        shape,
        [("subnet-1", true, true), ("subnet-2", false, false), ("subnet-3", true, true)]
    );
    assert!(subnets[1].excluded && !subnets[2].excluded);
    let third = &subnets[2];
    assert_eq!(third.samples.len(), asked);
    assert!(third.samples[1].available < third.samples[0].available, "{third:?}");
    assert_eq!((third.available, third.counted), (third.samples[1].available, third.samples[1].at));
    assert!(world.now.since(third.counted) < Span::seconds(60));
}

#[test]
fn an_excluded_subnet_keeps_its_pods_and_gets_no_others() {
    let mut world = start(discovery(), cloud());
    world.pass(Span::seconds(20));
    world.reserve_all(0..2);
    world.pass(Span::seconds(5));
    let mut cloud = std::mem::replace(&mut world.cloud, Cloud::new(1, 2, 0));
    tag(&mut cloud, "subnet-1", "0");
    world.cloud = cloud;
    let before = world.address_of(0);
    world.restart();
    world.pass(Span::seconds(20));
    assert_eq!(world.address_of(0), before);
    let ticket = world.reserve(7);
    world.pass(Span::seconds(20));
    assert!(world.served(ticket));
    let primary = world.snapshot().enis.into_iter().find(|eni| eni.device.0 == 0).unwrap();
    assert!(primary.excluded);
    assert_ne!(world.eni_of(7), primary.id);
    assert!(made(&world).iter().all(|subnet| subnet == "subnet-3"), "{:?}", made(&world));
}

#[test]
fn after_a_restart_an_excluded_subnet_gives_no_addresses() {
    let mut world = start(discovery(), cloud());
    world.reserve_all(0..2);
    world.pass(Span::seconds(60));
    let mut cloud = std::mem::replace(&mut world.cloud, Cloud::new(1, 2, 0));
    tag(&mut cloud, "subnet-1", "0");
    world.cloud = cloud;
    world.restart();
    let ticket = world.reserve(7);
    world.pass(Span::seconds(20));
    assert!(world.served(ticket));
    let primary = world.snapshot().enis.into_iter().find(|eni| eni.device.0 == 0).unwrap();
    assert_ne!(world.eni_of(7), primary.id);
}

#[test]
fn pods_wait_only_briefly_for_missing_answers_about_subnets() {
    let mut world = start(discovery(), cloud());
    world.pass(Span::seconds(60));
    let throttled = [crate::world::Fault::Throttle; 50].into();
    world.cloud.faults.insert(Action::DescribeSubnets, throttled);
    world.restart();
    let ticket = world.reserve(7);
    world.pass(Span::seconds(4));
    assert!(world.served(ticket), "{:?}", world.notices.last());
}

#[test]
fn without_permission_to_describe_subnets_the_nodes_own_is_used() {
    let mut cloud = cloud();
    cloud.faults.insert(Action::DescribeSubnets, [crate::world::Fault::Deny; 50].into());
    let mut world = start(discovery(), cloud);
    world.reserve_all(0..5);
    world.pass(Span::seconds(300));
    assert_eq!(world.core.counts().assigned, 5);
    assert!(made(&world).iter().all(|subnet| subnet == "subnet-1"));
    let notices = notices_of(&world, Topic::NoSubnet);
    assert_eq!(notices.len(), 1);
    assert!(notices[0].next_step.contains("ec2:DescribeSubnets"), "{notices:?}");
}

#[test]
fn a_failed_question_about_subnets_is_repeated() {
    let mut cloud = cloud();
    tag(&mut cloud, "subnet-1", "0");
    cloud.faults.insert(Action::DescribeSubnets, [crate::world::Fault::Throttle; 3].into());
    let mut world = start(discovery(), cloud);
    world.pass(Span::seconds(60));
    let primary =
        |world: &World| world.snapshot().enis.into_iter().find(|eni| eni.device.0 == 0).unwrap();
    assert!(!primary(&world).excluded, "no answer about it yet");
    world.pass(Span::seconds(700));
    assert!(primary(&world).excluded, "{:?}", world.cloud.log);
    assert_eq!(world.cloud.count(Action::DescribeSubnets), 4);
}

#[test]
fn with_every_subnet_forbidden_the_refusal_names_the_next_step() {
    let mut cloud = cloud();
    for subnet in ["subnet-1", "subnet-2", "subnet-3"] {
        tag(&mut cloud, subnet, "0");
    }
    let mut world = start(discovery(), cloud);
    world.pass(Span::seconds(5));
    world.reserve(0);
    world.pass(Span::seconds(120));
    assert!(made(&world).is_empty());
    let notices = notices_of(&world, Topic::ReserveRefused);
    assert!(notices[0].next_step.contains("kubernetes.io/role/cni=1"), "{notices:?}");
}

#[test]
fn an_exhausted_subnet_leads_further_enis_to_the_next_one() {
    let mut cloud = cloud();
    cloud.others.get_mut(&SubnetId::from("subnet-3")).unwrap().truncate(6);
    tag(&mut cloud, "subnet-1", "0");
    let mut world = start(discovery(), cloud);
    world.pass(Span::seconds(10));
    let tickets = world.reserve_all(0..8);
    world.pass(Span::seconds(30));
    assert!(tickets.iter().all(|ticket| world.served(*ticket)), "{:?}", made(&world));
}

#[test]
fn with_custom_networking_pods_get_addresses_of_the_eni_configs_subnet() {
    let mut world = start(custom(), cloud());
    world.pass(Span::seconds(20));
    assert!(made(&world).is_empty(), "an ENI was made before its ENIConfig was known");
    world.send(found("subnet-2", &["sg-pods"]));
    let ticket = world.reserve(0);
    world.pass(Span::seconds(20));
    assert!(world.served(ticket));
    let eni = world.eni_of(0);
    assert_ne!(eni, world.cloud.primary(), "the primary ENI gives pods no addresses");
    let seen = &world.cloud.enis[&eni].seen;
    assert_eq!(
        (seen.subnet.as_str(), seen.groups.clone()),
        ("subnet-2", Some(vec!["sg-pods".into()]))
    );
}

#[test]
fn an_eni_config_without_groups_uses_those_of_the_primary_eni() {
    let mut world = start(custom(), cloud());
    world.send(found("subnet-2", &[]));
    world.pass(Span::seconds(20));
    let made = world.cloud.attached()[1];
    assert_eq!(made.seen.groups, Some(vec!["sg-1".into()]));
}

#[test]
fn a_missing_eni_config_is_reported_once_and_to_each_waiting_pod() {
    let mut world = start(custom(), cloud());
    let (name, why) = ("zone-a".to_owned(), "there is no such object".to_owned());
    world.send(Event::Cluster(ClusterFact::EniConfig(EniConfig::Missing { name, why })));
    world.reserve(0);
    world.pass(Span::seconds(120));
    assert_eq!(world.cloud.count(Action::Create), 0, "{:?}", world.cloud.log);
    let notices_of_config = notices_of(&world, Topic::EniConfigInvalid);
    assert_eq!(notices_of_config.len(), 1, "{notices_of_config:?}");
    assert_eq!(
        (notices_of_config[0].object.as_str(), notices_of_config[0].severity),
        ("zone-a", Severity::Error)
    );
    assert!(
        notices_of_config[0].next_step.contains("create ENIConfig zone-a"),
        "{notices_of_config:?}"
    );
    let refused = notices_of(&world, Topic::ReserveRefused);
    assert!(refused[0].cause.contains("zone-a"), "{refused:?}");
    world.send(found("subnet-2", &[]));
    let ticket = world.reserve(1);
    world.pass(Span::seconds(20));
    assert!(world.served(ticket));
}

#[test]
fn an_eni_config_with_an_unknown_subnet_is_reported_and_not_tried_in_every_round() {
    let mut world = start(custom(), cloud());
    world.send(found("subnet-9", &[]));
    world.reserve(0);
    world.pass(Span::seconds(600));
    let named = notices_of(&world, Topic::EniConfigInvalid);
    assert!(named[0].cause.contains("InvalidSubnetID.NotFound"), "{named:?}");
    assert_eq!(named[0].object, "a");
    // The pod gets the same cause, and not a full subnet.
    let refused = notices_of(&world, Topic::ReserveRefused);
    assert!(refused[0].cause.contains("InvalidSubnetID.NotFound"), "{refused:?}");
    assert!(refused[0].next_step.contains("into ENIConfig a"), "{refused:?}");
    assert!(world.cloud.count(Action::Create) <= 6, "{}", world.cloud.count(Action::Create));
    world.send(found("subnet-2", &[]));
    let ticket = world.reserve(1);
    world.pass(Span::seconds(40));
    assert!(world.served(ticket));
}

#[test]
fn an_eni_without_a_known_subnet_cidr_occupies_its_place() {
    let mut world = start(PoolConfig { max_eni: Some(2), ..discovery() }, cloud());
    world.reserve_all(0..6);
    world.pass(Span::seconds(60));
    assert_eq!(made(&world), ["subnet-3"]);
    // The next process gets EC2's answer before IMDS's. EC2's answer has no CIDR of the subnet.
    world.imds_is_down = true;
    world.restart();
    world.reserve_all(10..20);
    world.pass(Span::seconds(20));
    assert_eq!(made(&world), ["subnet-3"], "more ENIs than MAX_ENI");
    world.imds_is_down = false;
    world.pass(Span::seconds(20));
    assert_eq!(world.snapshot().enis.len(), 2, "{:?}", world.notices);
}

#[test]
fn with_custom_networking_a_node_is_full_without_its_primary_eni() {
    let mut world = start(custom(), cloud());
    world.send(found("subnet-2", &[]));
    world.reserve_all(0..12);
    world.pass(Span::seconds(60));
    assert_eq!((world.core.counts().assigned, world.snapshot().full), (12, true));
    // Another process does not wait for what it cannot have.
    world.restart();
    world.send(found("subnet-2", &[]));
    world.pass(Span::seconds(60));
    assert!(world.snapshot().full);
}

#[test]
fn no_pod_is_refused_before_all_enis_are_known() {
    let mut world = start(custom(), cloud());
    world.send(found("subnet-2", &[]));
    world.reserve_all(0..6);
    world.pass(Span::seconds(60));
    assert_eq!(world.split(), [4, 4, 4, 0]);
    world.imds_is_down = true;
    world.restart();
    world.send(found("subnet-2", &[]));
    world.pass(Span::seconds(5));
    let ticket = world.reserve_for(9, Span::seconds(20));
    world.pass(Span::seconds(2));
    world.imds_is_down = false;
    world.pass(Span::seconds(15));
    assert!(world.served(ticket), "{:?}", world.answers.get(&ticket));
}

#[test]
fn an_eni_with_foreign_tags_is_no_longer_managed() {
    let mut world = start(PoolConfig::default(), cloud());
    world.reserve(20);
    world.pass(Span::seconds(20));
    let ours = world.cloud.attached()[1].seen.id.clone();
    let tags = world.cloud.enis.get_mut(&ours).unwrap().seen.tags.get_or_insert_default();
    tags.insert("node.k8s.amazonaws.com/no_manage".to_owned(), "true".to_owned());
    let (started, enis) = (world.now, world.cloud.look(Witness::Ec2, world.now));
    world.send(Event::Sighting { witness: Witness::Ec2, started, enis });
    world.reserve_all(0..6);
    world.pass(Span::seconds(60));
    let view = world.snapshot().enis.into_iter().find(|view| view.id == ours).unwrap();
    assert!(!view.managed);
    assert!((0..6).all(|pod| world.eni_of(pod) != ours));
}

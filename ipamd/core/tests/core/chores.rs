//! Tags, security groups, and going with the instance.

use crate::world::{Cloud, Fault, World};
use config_model::{CardIndex, Span};
use ipamd_core::{Action, CloudCall, EniKind, Event, PoolConfig, Topic, Witness};

const INSTANCE: &str = "node.k8s.amazonaws.com/instance_id";

fn world() -> World {
    let mut world = World::new(PoolConfig::default(), 4, 5, 4);
    world.pass(Span::seconds(60));
    assert_eq!(world.split(), [4]);
    world.reserve(0);
    world.pass(Span::seconds(60));
    assert_eq!(world.split(), [4, 4]);
    world
}

#[test]
fn an_adopted_eni_is_tagged_once_and_not_taken_over() {
    let mut world = world();
    let foreign = world.cloud.attach_foreign(7, 4, world.now);
    world.pass(Span::seconds(300));
    assert_eq!(world.cloud.count(Action::Tag), 1);
    let tags = world.cloud.enis[&foreign].seen.tags.clone().unwrap();
    assert_eq!(tags.get(INSTANCE).map(String::as_str), Some("i-1"));
    world.restart();
    world.release(0);
    world.pass(Span::seconds(1800));
    assert_eq!(world.cloud.count(Action::Tag), 1);
    assert!(world.cloud.enis.contains_key(&foreign), "it was freed as if it were ours");
}

#[test]
fn addresses_have_priority_over_tags() {
    let mut cloud = Cloud::new(4, 5, 0);
    let primary = cloud.primary();
    let node = World::node(&cloud);
    let limits = ipamd_core::Limits::one_card(4, 5);
    cloud.enis.get_mut(&primary).unwrap().seen.tags = Some(std::collections::BTreeMap::new());
    let mut world = World::start(PoolConfig::default(), limits, node, cloud);
    world.pass(Span::seconds(5));
    let actions: Vec<Action> = world.cloud.log.iter().map(|(_, call)| call.action()).collect();
    assert_eq!(actions, [Action::Assign, Action::Tag]);
}

#[test]
fn enis_that_the_node_does_not_use_are_not_tagged() {
    let mut world = world();
    let trunk = world.cloud.attach_other(CardIndex(0), 8, EniKind::Trunk, 0, world.now);
    let efa = world.cloud.attach_other(CardIndex(0), 9, EniKind::EfaOnly, 0, world.now);
    world.pass(Span::seconds(300));
    assert_eq!(world.cloud.count(Action::Tag), 0);
    let kinds: Vec<_> = world.snapshot().enis.iter().map(|eni| (eni.kind, eni.managed)).collect();
    assert!(kinds.contains(&(Some(EniKind::Trunk), false)), "{kinds:?}");
    assert!(kinds.contains(&(Some(EniKind::EfaOnly), false)), "{kinds:?}");
    for pod in 1..8 {
        world.reserve(pod);
    }
    world.pass(Span::seconds(60));
    for id in [&trunk, &efa] {
        assert!((0..8).all(|pod| world.eni_of(pod) != *id));
    }
    for pod in 0..8 {
        world.release(pod);
    }
    world.pass(Span::seconds(900));
    assert!(world.cloud.enis.contains_key(&trunk) && world.cloud.enis.contains_key(&efa));
}

#[test]
fn an_efa_serves_pods_and_is_never_deleted() {
    let mut world = World::new(PoolConfig { warm_eni_target: 0, ..PoolConfig::default() }, 2, 5, 4);
    let efa = world.cloud.attach_other(CardIndex(0), 1, EniKind::Efa, 4, world.now);
    world.pass(Span::seconds(200));
    let tickets = world.reserve_all(0..8);
    world.pass(Span::seconds(10));
    assert!(tickets.iter().all(|ticket| world.served(*ticket)));
    assert!((0..8).any(|pod| world.eni_of(pod) == efa));
    for pod in 0..8 {
        world.release(pod);
    }
    world.pass(Span::seconds(1800));
    assert!(world.cloud.enis.contains_key(&efa));
}

#[test]
fn tags_without_permission_are_requested_once() {
    let mut world = world();
    world.cloud.faults.insert(Action::Tag, [Fault::Deny; 100].into());
    world.cloud.attach_foreign(7, 4, world.now);
    world.pass(Span::seconds(1800));
    assert_eq!(world.cloud.count(Action::Tag), 1);
    let notice = world.notices.iter().find(|notice| notice.topic == Topic::CallFailed).unwrap();
    assert!(notice.next_step.contains("ec2:CreateTags"), "{notice:?}");
}

#[test]
fn security_groups_follow_the_primary_eni_and_only_when_they_differ() {
    let mut world = world();
    world.restart();
    world.pass(Span::seconds(600));
    assert!(set_groups(&world).is_empty(), "groups were rewritten without a difference");
    let primary = world.cloud.primary();
    world.cloud.enis.get_mut(&primary).unwrap().seen.groups = Some(vec!["sg-2".into()]);
    world.pass(Span::seconds(120));
    let second = world.cloud.attached()[1].seen.clone();
    assert_eq!(second.groups, Some(vec!["sg-2".into()]));
    assert_eq!(set_groups(&world), [second.id]);
    assert_eq!(world.count_of(Topic::GroupsChanged), 1);
    // New ENIs get them from the start.
    world.reserve_all(1..6);
    world.pass(Span::seconds(120));
    assert!(
        world.cloud.attached()[1..].iter().all(|eni| eni.seen.groups == Some(vec!["sg-2".into()]))
    );
    assert_eq!(set_groups(&world).len(), 1);
}

fn set_groups(world: &World) -> Vec<config_model::EniId> {
    let eni = |call: &CloudCall| {
        if let CloudCall::SetGroups { eni, .. } = call { Some(eni.clone()) } else { None }
    };
    world.cloud.log.iter().filter_map(|(_, call)| eni(call)).collect()
}

#[test]
fn a_lagging_ec2_does_not_have_groups_set_twice() {
    let mut world = world();
    world.cloud.lag.insert(Witness::Ec2, Span::seconds(30));
    let primary = world.cloud.primary();
    world.cloud.enis.get_mut(&primary).unwrap().seen.groups = Some(vec!["sg-2".into()]);
    world.cloud.attach_foreign(7, 4, world.now);
    world.pass(Span::seconds(900));
    assert_eq!(set_groups(&world).len(), 1);
}

#[test]
fn delete_on_termination_counts_once_ec2_shows_it() {
    let mut world = World::new(PoolConfig { warm_eni_target: 2, ..PoolConfig::default() }, 4, 5, 4);
    world.cloud.forgets_keeping = 1;
    world.pass(Span::seconds(300));
    assert_eq!(world.cloud.count(Action::Modify), 2);
    let second = world.cloud.attached()[1].seen.attachment.clone().unwrap();
    assert_eq!(second.delete_on_termination, Some(true));
}

fn only_looking(config: PoolConfig) -> World {
    let mut cloud = Cloud::new(4, 5, 4);
    cloud.attach_foreign(1, 3, config_model::Time(0));
    let node = World::node(&cloud);
    let mut world = World::start(config, ipamd_core::Limits::one_card(4, 5), node, cloud);
    world.pass(Span::seconds(600));
    world
}

#[test]
fn without_provisioning_present_addresses_serve_and_nothing_changes() {
    let config = PoolConfig { provisioning: false, ..PoolConfig::default() };
    let mut world = only_looking(config);
    let tickets = world.reserve_all(0..9);
    world.pass(Span::seconds(60));
    assert_eq!(tickets.iter().filter(|ticket| world.served(**ticket)).count(), 7);
    assert_eq!(world.cloud.log.len(), 0, "{:?}", world.cloud.log);
    let notice = world.notices.iter().find(|notice| notice.topic == Topic::ReserveRefused).unwrap();
    assert!(notice.next_step.contains("DISABLE_NETWORK_RESOURCE_PROVISIONING"), "{notice:?}");
    let foreign = world.cloud.attach_foreign(2, 4, world.now);
    let ticket = world.reserve_for(20, Span::seconds(300));
    world.pass(Span::seconds(200));
    assert!(world.served(ticket));
    assert_eq!(world.eni_of(20), foreign);
}

#[test]
fn with_imds_only_ec2_gets_no_call_and_only_free_addresses_are_dropped() {
    let config = PoolConfig { imds_only: true, ..PoolConfig::default() };
    let mut world = only_looking(config);
    world.ec2_is_down = true;
    let tickets = world.reserve_all(0..3);
    world.pass(Span::seconds(60));
    assert!(tickets.iter().all(|ticket| world.served(*ticket)));
    let (eni, held) = (world.eni_of(0), world.address_of(0).unwrap());
    let total = world.core.counts().total;
    let of_eni =
        |block: &&ipnet::IpNet| !world.assigned.values().flatten().any(|held| block.contains(held));
    let free = *world.cloud.enis[&eni].seen.blocks.iter().find(of_eni).unwrap();
    world.stolen.insert(held);
    world.cloud.take_address(&eni, held, world.now);
    world.cloud.take_address(&eni, free.addr(), world.now);
    world.pass(Span::seconds(100));
    assert_eq!(world.core.counts().total, total, "one or two answers were enough");
    world.pass(Span::seconds(200));
    assert_eq!(world.core.counts().total, total - 1);
    assert_eq!(world.address_of(0), Some(held));
    assert_eq!(world.count_of(Topic::AssignedVanished), 1);
    assert_eq!(world.cloud.log.len(), 0);
    assert_eq!(world.count_of(Topic::WitnessSilent), 0, "EC2 was asked");
    world.send(Event::Tick);
}

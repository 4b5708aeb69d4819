//! Forgotten ENIs: found by one collector, deleted on two answers.

use crate::world::{Cloud, Fault, World};
use config_model::Span;
use ipamd_core::{Action, ClusterFact, Event, Leftover, Limits, PoolConfig, Topic};
use std::collections::BTreeMap;

const CLUSTER: &str = "cluster.k8s.amazonaws.com/name";
const GROUP: &str = "ferrule.io/node-group";
const INSTANCE: &str = "node.k8s.amazonaws.com/instance_id";

fn leftover(eni: &str, age: Option<u64>) -> Leftover {
    let tags = [(CLUSTER, "blue"), (GROUP, "default"), (INSTANCE, "i-9")];
    Leftover {
        eni: eni.into(),
        subnet: "subnet-1".into(),
        tags: tags.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
        description: "aws-K8S-i-9".into(),
        age: age.map(Span::seconds),
        created_unreadable: age.is_none(),
        available: true,
    }
}

fn world() -> World {
    let mut cloud = Cloud::new(2, 5, 4);
    let mut node = World::node(&cloud);
    let tags = [(CLUSTER, "blue"), (GROUP, "default")];
    node.tags.extend(tags.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let primary = cloud.primary();
    cloud.enis.get_mut(&primary).unwrap().seen.tags = Some(node.tags.clone());
    cloud.leftovers = vec![leftover("eni-old", Some(9000)), leftover("eni-young", Some(10))];
    cloud.leftovers.push(leftover("eni-odd", None));
    let mut foreign = leftover("eni-foreign", Some(9000));
    foreign.tags = BTreeMap::from([(CLUSTER.into(), "green".into())]);
    cloud.leftovers.push(foreign);
    let config = PoolConfig {
        warm_eni_target: 0,
        collect_leaks: true,
        cluster_name: Some("blue".into()),
        ..PoolConfig::default()
    };
    World::start(config, Limits::one_card(2, 5), node, cloud)
}

fn left(world: &World) -> Vec<String> {
    world.cloud.leftovers.iter().map(|left| left.eni.as_str().to_owned()).collect()
}

#[test]
fn a_daemon_without_the_election_does_not_search_for_leaks() {
    let mut world = world();
    world.pass(Span::seconds(3 * 3600));
    assert_eq!((world.cloud.log.len(), left(&world).len()), (0, 4));
}

#[test]
fn the_collector_deletes_leaks_of_two_answers_and_reports_enis_of_unknown_age() {
    let mut world = world();
    world.send(Event::Cluster(ClusterFact::Collector(true)));
    world.pass(Span::seconds(300));
    assert_eq!(left(&world), ["eni-young", "eni-odd", "eni-foreign"]);
    let looks: Vec<_> = world
        .cloud
        .log
        .iter()
        .filter(|(_, call)| call.action() == Action::Describe)
        .map(|(at, _)| *at)
        .collect();
    assert_eq!(looks.len(), 2);
    assert!(looks[1].since(looks[0]) >= Span::seconds(30));
    let said: Vec<_> = world.notices.iter().filter(|n| n.topic == Topic::LeakedEni).collect();
    assert_eq!(said.iter().map(|n| n.object.as_str()).collect::<Vec<_>>(), ["eni-odd", "eni-old"]);
    world.pass(Span::seconds(7200));
    assert_eq!(world.count_of(Topic::LeakedEni), 2, "the odd one is reported once");
}

#[test]
fn a_failed_deletion_is_retried_and_a_refused_one_is_not() {
    for (fault, gone) in [(Fault::Throttle, true), (Fault::LoseReply, true), (Fault::Deny, false)] {
        let mut world = world();
        world.cloud.faults.insert(Action::Delete, [fault].into());
        world.send(Event::Cluster(ClusterFact::Collector(true)));
        world.pass(Span::seconds(400));
        assert_eq!(left(&world).contains(&"eni-old".to_owned()), !gone, "{fault:?}");
    }
}

#[test]
fn a_daemon_that_loses_the_election_between_two_answers_deletes_nothing() {
    let mut world = world();
    world.send(Event::Cluster(ClusterFact::Collector(true)));
    while world.cloud.count(Action::Describe) == 0 {
        world.pass(Span::seconds(1));
    }
    world.pass(Span::seconds(5));
    world.send(Event::Cluster(ClusterFact::Collector(false)));
    world.pass(Span::seconds(7200));
    assert_eq!(left(&world).len(), 4);
}

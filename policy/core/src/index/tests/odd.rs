//! Single events, as the controller will see them.

use crate::{
    Isolation, Peer, Peers, Place, Pods, Policy, PolicyKey, Priority, Rule, Scope, Standing, Tier,
    Traffic,
    index::{Change, Deltas, Event, Index, Role, source::only},
};
use policy_objects::{ContainerPort, Kind, Meta, Namespace, Phase, Pod, Protocol, Selector};
use std::net::IpAddr;

fn pod(name: &str, uid: &str, app: &str, address: &str) -> Pod {
    let meta = Meta {
        namespace: "x".to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        labels: [("app".to_owned(), app.to_owned())].into(),
        created: "2026-01-31T10:00:00Z".to_owned(),
        ..Meta::default()
    };
    Pod {
        meta,
        node: "n1".to_owned(),
        host_network: false,
        service_account: "default".to_owned(),
        phase: Phase::Live,
        addresses: address.parse().into_iter().collect(),
        ports: Vec::new(),
    }
}

/// In namespace x, `to` may be reached from `from`.
fn policy(name: &str, to: Selector, from: Selector) -> Policy {
    let own = || Scope::Namespace("x".to_owned());
    let subject = vec![Pods::Labelled { scope: own(), pods: to }];
    let from = Peer::Pods(Pods::Labelled { scope: own(), pods: from });
    Policy {
        key: PolicyKey {
            kind: Kind::NetworkPolicy,
            namespace: "x".to_owned(),
            name: name.to_owned(),
        },
        uid: format!("uid of {name}"),
        place: Place { tier: Tier::NetworkPolicy, priority: Priority::new(0.0) },
        isolation: Some(Isolation {
            subject: subject.clone(),
            doubt: None,
            ingress: true,
            egress: false,
        }),
        rules: vec![Rule {
            direction: crate::Direction::Ingress,
            index: 0,
            name: None,
            action: crate::Action::Allow,
            subject,
            peers: Peers::Of(vec![from]),
            traffic: Traffic::Any,
            log: None,
            doubt: None,
            standing: Standing::Understood,
        }],
    }
}

/// app=a may be reached from app=b.
fn index(pods: &[Pod]) -> Index {
    let mut index = Index::new(0);
    index.load(Event::Policy(&policy("p", only("app", "a"), only("app", "b"))));
    pods.iter().for_each(|pod| index.load(Event::Pod(pod)));
    index.loaded();
    index
}

/// UID and addresses.
type Brief = (String, Vec<IpAddr>);

/// What a group for a role says of its members.
fn members(deltas: &Deltas, role: Role) -> Vec<(Vec<Brief>, Vec<String>)> {
    let groups = deltas.groups.iter().filter(|delta| delta.role == role);
    groups
        .map(|delta| {
            let added = delta.added.iter().map(|m| (m.uid.clone(), m.addresses.clone()));
            (added.collect(), delta.removed.iter().map(|key| key.uid.clone()).collect())
        })
        .collect()
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

#[test]
fn a_pod_without_address_is_subject_and_no_peer() {
    let mut index = index(&[]);
    let deltas = index.apply(Event::Pod(&pod("q", "1", "a", "")));
    assert_eq!(members(&deltas, Role::Applied), [(vec![("1".to_owned(), vec![])], vec![])]);
    assert_eq!(deltas.policies[0].entered, ["n1"]);
    let deltas = index.apply(Event::Pod(&pod("r", "2", "b", "")));
    assert!(deltas.is_empty());
}

#[test]
fn a_late_second_address_is_told() {
    let mut index = index(&[pod("r", "2", "b", "10.0.0.1")]);
    let mut late = pod("r", "2", "b", "10.0.0.1");
    late.addresses.push(ip("fd00::1"));
    let deltas = index.apply(Event::Pod(&late));
    let both = vec![ip("10.0.0.1"), ip("fd00::1")];
    assert_eq!(members(&deltas, Role::Address), [(vec![("2".to_owned(), both)], vec![])]);
    assert!(deltas.policies.is_empty());
}

#[test]
fn a_changed_named_port_is_told() {
    let mut index = index(&[pod("q", "1", "a", "10.0.0.1")]);
    let mut changed = pod("q", "1", "a", "10.0.0.1");
    let port = |port| ContainerPort { name: "web".to_owned(), protocol: Protocol::Tcp, port };
    changed.ports = vec![port(80)];
    let deltas = index.apply(Event::Pod(&changed));
    assert_eq!(deltas.groups[0].added[0].ports, [port(80)]);
    assert!(deltas.groups[0].entered.is_empty());
}

#[test]
fn an_address_is_the_later_pods_also_when_word_of_the_earlier_ones_end_is_late() {
    let mut index = index(&[pod("old", "1", "b", "10.0.0.1")]);
    let mut new = pod("new", "2", "b", "10.0.0.1");
    new.meta.created = "2026-01-31T10:00:09Z".to_owned();
    let deltas = index.apply(Event::Pod(&new));
    let mine = vec![("2".to_owned(), vec![ip("10.0.0.1")])];
    assert_eq!(members(&deltas, Role::Address), [(mine, vec!["1".to_owned()])]);
    let gone = Event::Gone { kind: Kind::Pod, namespace: "x", name: "old", uid: "1" };
    assert!(index.apply(gone).is_empty());
}

#[test]
fn the_end_of_a_pod_does_not_end_another_of_its_name() {
    let mut index = index(&[pod("q-0", "1", "a", "10.0.0.1")]);
    let deltas = index.apply(Event::Pod(&pod("q-0", "2", "a", "10.0.0.2")));
    let second = vec![("2".to_owned(), vec![ip("10.0.0.2")])];
    assert_eq!(members(&deltas, Role::Applied), [(second, vec!["1".to_owned()])]);
    assert!(deltas.policies.is_empty(), "the node has one of them all the time");
    let gone = |uid| Event::Gone { kind: Kind::Pod, namespace: "x", name: "q-0", uid };
    assert!(index.apply(gone("1")).is_empty());
    assert_eq!(index.apply(gone("2")).policies[0].left, ["n1"]);
}

#[test]
fn a_pod_that_has_ended_or_has_its_nodes_network_is_nowhere() {
    let mut index = index(&[pod("q", "1", "a", "10.0.0.1")]);
    let ended = Pod { phase: Phase::Ended, ..pod("q", "1", "a", "10.0.0.1") };
    assert_eq!(members(&index.apply(Event::Pod(&ended)), Role::Applied)[0].1, ["1"]);
    let hosted = Pod { host_network: true, ..pod("r", "2", "a", "10.0.0.2") };
    assert!(index.apply(Event::Pod(&hosted)).is_empty());
}

#[test]
fn equal_selectors_of_two_policies_are_one_group() {
    let mut index = index(&[pod("q", "1", "a", "10.0.0.1")]);
    let deltas = index.apply(Event::Policy(&policy("p2", only("app", "a"), only("app", "b"))));
    assert!(deltas.groups.is_empty());
    assert_eq!((deltas.policies[0].change, deltas.policies.len()), (Change::Added, 1));
    assert_eq!(deltas.policies[0].entered, ["n1"]);
    assert_eq!(index.len(), 2);
}

#[test]
fn a_group_that_no_policy_uses_is_gone() {
    let mut index = index(&[pod("q", "1", "a", "10.0.0.1")]);
    let gone = Event::Gone { kind: Kind::NetworkPolicy, namespace: "x", name: "p", uid: "" };
    let deltas = index.apply(gone);
    assert!(deltas.groups.iter().all(|delta| delta.change == Change::Removed));
    assert_eq!((deltas.groups.len(), index.is_empty()), (2, true));
}

#[test]
fn a_namespace_that_comes_late_is_looked_at_again() {
    let mut index = index(&[pod("r", "2", "b", "10.0.0.1")]);
    let mut across = policy("p", only("app", "a"), Selector::default());
    let team = Scope::Namespaces(only("team", "red"));
    let pods = Selector::default();
    across.rules[0].peers = Peers::Of(vec![Peer::Pods(Pods::Labelled { scope: team, pods })]);
    let deltas = index.apply(Event::Policy(&across));
    assert!(deltas.groups.iter().all(|delta| delta.added.is_empty()), "nobody knows of x");
    let mut meta = Meta { name: "x".to_owned(), ..Meta::default() };
    meta.labels.insert("team".to_owned(), "red".to_owned());
    let deltas = index.apply(Event::Namespace(&Namespace { meta }));
    let red = vec![("2".to_owned(), vec![ip("10.0.0.1")])];
    assert_eq!(members(&deltas, Role::Address), [(red, vec![])]);
}

#[test]
fn ids_do_not_depend_on_what_came_first() {
    let (mut one, mut other) = (Index::new(1), Index::new(2));
    let policies = [
        policy("p", only("app", "a"), only("app", "b")),
        policy("q", only("app", "b"), Selector::default()),
    ];
    let pods = [pod("q", "1", "a", "10.0.0.1"), pod("r", "2", "b", "10.0.0.2")];
    for policy in &policies {
        one.load(Event::Policy(policy));
    }
    pods.iter().for_each(|pod| one.load(Event::Pod(pod)));
    one.loaded();
    other.loaded();
    for pod in pods.iter().rev() {
        other.apply(Event::Pod(pod));
    }
    for policy in policies.iter().rev() {
        other.apply(Event::Policy(policy));
    }
    assert_eq!(one.snapshot(), other.snapshot());
}

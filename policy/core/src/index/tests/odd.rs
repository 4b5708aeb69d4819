//! Single events, as the controller will see them.

use crate::{
    Isolation, Peer, Peers, Pods, Policy, PolicyKey, Precedence, Priority, Rule, Scope, Standing,
    Tier, Traffic,
    index::{Change, Deltas, Event, GroupId, Index, Role, source::only},
};
use policy_objects::{
    self as objects, ContainerPort, Group, GroupSpec, Kind, Meta, Named, Namespace, Phase, Pod,
    Protocol, Read, Selector, Service,
};
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
    let subject = vec![Pods::Labeled { scope: own(), pods: to }];
    let from = Peer::Pods(Pods::Labeled { scope: own(), pods: from });
    Policy {
        key: PolicyKey {
            kind: Kind::NetworkPolicy,
            namespace: "x".to_owned(),
            name: name.to_owned(),
        },
        uid: format!("uid of {name}"),
        place: Precedence { tier: Tier::NetworkPolicy, priority: Priority::new(0.0) },
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

/// Members of a group for a role, as the deltas describe them.
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
    assert!(deltas.groups.is_empty() && deltas.policies.is_empty());
    assert_eq!((&*deltas.nodes[0].node, &*deltas.nodes[0].added[0].uid), ("n1", "2"));
}

#[test]
fn a_late_second_address_is_in_the_deltas() {
    let mut index = index(&[pod("r", "2", "b", "10.0.0.1")]);
    let mut late = pod("r", "2", "b", "10.0.0.1");
    late.addresses.push(ip("fd00::1"));
    let deltas = index.apply(Event::Pod(&late));
    let both = vec![ip("10.0.0.1"), ip("fd00::1")];
    assert_eq!(members(&deltas, Role::Address), [(vec![("2".to_owned(), both)], vec![])]);
    assert!(deltas.policies.is_empty());
}

#[test]
fn a_changed_named_port_is_in_the_deltas() {
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
    let deltas = index.apply(gone);
    assert!(deltas.groups.is_empty() && deltas.policies.is_empty());
    assert_eq!(deltas.nodes[0].removed[0].uid, "1");
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
    across.rules[0].peers = Peers::Of(vec![Peer::Pods(Pods::Labeled { scope: team, pods })]);
    let deltas = index.apply(Event::Policy(&across));
    assert!(deltas.groups.iter().all(|delta| delta.added.is_empty()), "no group has x");
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

fn tier(name: &str, number: u8) -> objects::Tier {
    let meta = Meta { name: name.to_owned(), ..Meta::default() };
    objects::Tier { meta, priority: Read::Known(number) }
}

fn in_tier(name: &str, tier: &str) -> Policy {
    let mut policy = policy(name, only("app", "a"), only("app", "b"));
    policy.key.kind = Kind::AntreaNetworkPolicy;
    policy.place.tier = Tier::Antrea(tier.to_owned());
    policy.isolation = None;
    policy
}

/// The policies that have moved, by the end of their UID, and where to.
fn moved(deltas: &Deltas) -> Vec<(String, u8)> {
    assert!(deltas.groups.is_empty(), "a tier moves no group: {deltas:?}");
    let tiers = deltas.policies.iter().map(|delta| {
        assert_eq!((delta.change, &delta.uses), (Change::Changed, &None));
        let crate::index::PolicyId::Uid(uid) = &delta.id else { panic!("a policy with UID") };
        let uid = uid.rsplit(' ').next().unwrap_or_default().to_owned();
        (uid, delta.tier.expect("a number"))
    });
    tiers.collect()
}

#[test]
fn a_tier_that_comes_late_changes_or_goes_moves_its_policies_and_no_others() {
    let mut index = index(&[pod("q", "1", "a", "10.0.0.1")]);
    for (name, tier) in [("own", "own"), ("other", "other"), ("built", "platform")] {
        let deltas = index.apply(Event::Policy(&in_tier(name, tier)));
        assert_eq!(deltas.policies[0].tier, Some(if tier == "platform" { 200 } else { 250 }));
    }
    let own = |number| vec![("own".to_owned(), number)];
    assert_eq!(moved(&index.apply(Event::Tier(&tier("own", 7)))), own(7));
    assert!(index.apply(Event::Tier(&tier("own", 7))).is_empty());
    assert_eq!(moved(&index.apply(Event::Tier(&tier("own", 251)))), own(251));
    assert!(index.apply(Event::Tier(&tier("nobodys", 9))).is_empty());
    let why = "odd".to_owned();
    let unknown = objects::Unknown { why, name: None, action: None };
    let odd = objects::Tier { priority: Read::Unknown(unknown), ..tier("own", 0) };
    assert_eq!(moved(&index.apply(Event::Tier(&odd))), own(250));
    index.apply(Event::Tier(&tier("own", 7)));
    let gone = Event::Gone { kind: Kind::AntreaTier, namespace: "", name: "own", uid: "" };
    assert_eq!(moved(&index.apply(gone)), own(250));
}

#[test]
fn the_tier_application_moves_also_the_policies_whose_own_is_missing() {
    let mut index = index(&[]);
    let policies =
        [("app", "application"), ("lost", "lost"), ("own", "own"), ("built", "baseline")];
    index.apply(Event::Tier(&tier("own", 7)));
    for (name, tier) in policies {
        index.apply(Event::Policy(&in_tier(name, tier)));
    }
    let both = vec![("app".to_owned(), 30), ("lost".to_owned(), 30)];
    assert_eq!(moved(&index.apply(Event::Tier(&tier("application", 30)))), both);
}

#[test]
fn a_policy_with_another_tier_gets_its_number() {
    let mut index = index(&[]);
    index.apply(Event::Policy(&in_tier("p2", "platform")));
    let deltas = index.apply(Event::Policy(&in_tier("p2", "emergency")));
    assert_eq!(moved(&deltas), [("p2".to_owned(), 50)]);
}

fn service(name: &str, vips: &[&str]) -> Service {
    let (namespace, name) = ("x".to_owned(), name.to_owned());
    let meta = Meta { namespace, name, ..Meta::default() };
    let cluster_ips = Read::Known(vips.iter().map(|text| ip(text)).collect());
    Service {
        meta,
        selector: Read::Known(Some(only("app", "a"))),
        cluster_ips,
        outer_ips: Vec::new(),
        ports: Vec::new(),
    }
}

/// Pods of app=a may ask for the Service `s`.
fn to_service() -> (Policy, GroupId) {
    let mut policy = in_tier("asks", "application");
    let name = Named { namespace: "x".to_owned(), name: "s".to_owned() };
    policy.rules[0].direction = crate::Direction::Egress;
    let peer = Peer::Service(name);
    let id = GroupId::of_peer(&peer).expect("a Service has a group");
    policy.rules[0].peers = Peers::Of(vec![peer]);
    (policy, id)
}

#[test]
fn a_changed_service_is_in_the_deltas_of_its_clients() {
    let mut index = index(&[pod("q", "1", "a", "10.0.0.1")]);
    let (policy, id) = to_service();
    let deltas = index.apply(Event::Policy(&policy));
    assert_eq!(deltas.policies[0].uses.as_ref().expect("uses").address, [id]);
    assert_eq!((deltas.groups[0].id, deltas.groups[0].change), (id, Change::Added));
    assert_eq!(deltas.groups[0].entered, ["n1"]);
    assert_eq!(deltas.groups[0].holds.as_ref().expect("whole").vips, Vec::<IpAddr>::new());

    let vips = |deltas: Deltas| {
        assert_eq!((deltas.groups.len(), deltas.policies.len()), (1, 0), "{deltas:?}");
        assert_eq!((deltas.groups[0].id, deltas.groups[0].change), (id, Change::Changed));
        deltas.groups[0].holds.clone().expect("what it holds").vips
    };
    let both = service("s", &["fd00:1::1", "::ffff:172.20.0.1"]);
    let found = vips(index.apply(Event::Service(&both)));
    assert_eq!(found, [ip("172.20.0.1"), ip("fd00:1::1")]);
    let one = service("s", &["172.20.0.1"]);
    assert_eq!(vips(index.apply(Event::Service(&one))), [ip("172.20.0.1")]);
    assert!(index.apply(Event::Service(&service("other", &["172.20.0.9"]))).is_empty());
    let headless = service("s", &[]);
    assert_eq!(vips(index.apply(Event::Service(&headless))), Vec::<IpAddr>::new());
    index.apply(Event::Service(&one));
    let gone = Event::Gone { kind: Kind::Service, namespace: "x", name: "s", uid: "" };
    assert_eq!(vips(index.apply(gone)), Vec::<IpAddr>::new());
}

#[test]
fn equal_selectors_of_services_and_policies_are_matched_once() {
    let mut index = index(&[pod("q", "1", "a", "10.0.0.1")]);
    let selections = index.matching.selections.len();
    index.apply(Event::Service(&service("s", &["172.20.0.1"])));
    index.apply(Event::Service(&service("t", &["172.20.0.2"])));
    for (name, service) in [("g", "s"), ("h", "t")] {
        let service = Named { namespace: "x".to_owned(), name: service.to_owned() };
        let (namespace, name) = ("x".to_owned(), name.to_owned());
        let meta = Meta { namespace: namespace.clone(), name: name.clone(), ..Meta::default() };
        let spec = Read::Known(GroupSpec::Service(service));
        index.apply(Event::Group(&Group { meta, spec }));
        let mut policy = in_tier(&name, "application");
        let group = Peer::Pods(Pods::Group(Named { namespace, name }));
        policy.rules[0].peers = Peers::Of(vec![group]);
        let deltas = index.apply(Event::Policy(&policy));
        assert_eq!(members(&deltas, Role::Address)[0].0[0].0, "1");
    }
    assert_eq!(index.matching.selections.len(), selections, "all of them select app=a in x");
}

/// Groups may be used by a rule before, so that the list of them does not change.
#[test]
fn a_rule_that_compares_namespaces_gets_its_groups_also_if_another_rule_had_them() {
    let mut index = Index::new(0);
    index.loaded();
    let all = Selector::default;
    let mut policy = policy("p", all(), all());
    policy.key.namespace.clear();
    policy.key.kind = Kind::AntreaClusterNetworkPolicy;
    let same = Pods::Labeled { scope: Scope::SameNamespace, pods: all() };
    let mut alike = policy.rules[0].clone();
    alike.subject = vec![Pods::Labeled { scope: Scope::Namespaces(all()), pods: all() }];
    alike.peers = Peers::Of(vec![Peer::Pods(same)]);
    policy.rules.push(alike);
    index.apply(Event::Policy(&policy));
    let meta = Meta { name: "x".to_owned(), ..Meta::default() };
    let deltas = index.apply(Event::Namespace(&Namespace { meta }));
    let uses = deltas.policies[0].uses.as_ref().expect("told");
    assert_eq!((deltas.groups.len(), uses.expanded.len()), (0, 1));
    assert_eq!(uses.address, [uses.expanded[0].address]);
}

#[test]
fn an_unknown_group_selects_all_pods_as_a_subject_and_none_as_a_peer() {
    let mut index = index(&[pod("q", "1", "a", "10.0.0.1"), pod("r", "2", "b", "10.0.0.2")]);
    let group = Pods::Group(Named { namespace: "x".to_owned(), name: "g".to_owned() });
    let mut about = policy("about", Selector::default(), Selector::default());
    about.isolation = None;
    about.rules[0].subject = vec![group.clone()];
    about.rules[0].peers = Peers::Of(vec![Peer::Pods(group.clone())]);
    index.apply(Event::Policy(&about));
    let applied = GroupId::of_subject(&group, "x").expect("a group");
    let address = GroupId::of_peer(&Peer::Pods(group)).expect("a group");
    let mut state = index.snapshot();
    let mut turn = |spec| {
        let meta = Meta { namespace: "x".to_owned(), name: "g".to_owned(), ..Meta::default() };
        state.fold(&index.apply(Event::Group(&Group { meta, spec })));
        assert_eq!(state, index.snapshot());
        [(Role::Applied, applied), (Role::Address, address)].map(|key| {
            let group = &state.groups[&key];
            (group.members.len(), group.holds.unusable.is_some(), group.span.len())
        })
    };
    let unknown = objects::Unknown { why: "odd".to_owned(), name: None, action: None };
    let of_a = GroupSpec::Pods { namespaces: None, pods: Some(only("app", "a")) };
    assert_eq!(turn(Read::Known(of_a.clone())), [(1, false, 1), (1, false, 1)]);
    assert_eq!(turn(Read::Unknown(unknown)), [(2, true, 1), (0, true, 1)]);
    assert_eq!(turn(Read::Known(GroupSpec::External)), [(0, false, 0), (0, true, 0)]);
    assert_eq!(turn(Read::Known(of_a)), [(1, false, 1), (1, false, 1)]);
}

#[test]
fn with_no_seed_are_addresses_alike() {
    use crate::index::table::Seed;
    for seed in [0, 1, 1 << 32, u64::MAX] {
        let seed = Seed::new(seed);
        let address = |number: u32| std::net::IpAddr::from(number.to_be_bytes());
        let marks = (0..10_000).map(|number| seed.hash(address(number)).spread());
        let marks: std::collections::BTreeSet<u64> = marks.collect();
        assert!(marks.len() > 9_990, "{} of {seed:?}", marks.len());
    }
}

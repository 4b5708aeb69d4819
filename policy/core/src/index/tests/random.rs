//! Any order of any events.

use super::model::{Happening, Model};
use crate::{
    Action, Direction, Isolation, Peer, Peers, Pods, Policy, PolicyKey, Precedence, Priority, Rule,
    Scope, Standing, Tier, Traffic, Transport, compile,
    index::{Change, Deltas, GroupState, Index, Needs, NodeState, PolicyState, Role, Snapshot},
};
use policy_objects::{
    self as objects, Block, ContainerPort, Flavor, Group, GroupSpec, Kind, Labels, Meta, Named,
    Namespace, NetworkPeer, NetworkPolicy, NetworkPort, NetworkRule, Node, Object, Operator, Phase,
    Pod, PolicyType, Protocol, Read, Requirement, Selector, Service, Subject, TargetPort, Unknown,
};
use proptest::{collection::vec, prelude::*, sample::select};
use std::{collections::BTreeSet, net::IpAddr};

const SPACES: [&str; 3] = ["a", "b", "c"];
const VALUES: [&str; 3] = ["red", "blue", "green"];
const KEYS: [&str; 2] = ["app", "team"];
const TIERS: [&str; 4] = ["platform", "application", "custom", "late"];
const GROUPS: [&str; 4] = ["g", "h", "i", "j"];

fn text(of: &'static [&'static str]) -> impl Strategy<Value = String> {
    select(of).prop_map(str::to_owned)
}

fn labels() -> impl Strategy<Value = Labels> {
    vec((text(&KEYS), text(&VALUES)), 0..3).prop_map(|labels| labels.into_iter().collect())
}

fn values() -> impl Strategy<Value = BTreeSet<String>> {
    vec(text(&VALUES), 1..3).prop_map(|values| values.into_iter().collect())
}

fn selector() -> impl Strategy<Value = Selector> {
    let operator = prop_oneof![
        4 => values().prop_map(Operator::In),
        1 => values().prop_map(Operator::NotIn),
        1 => Just(Operator::Exists),
        1 => Just(Operator::DoesNotExist),
    ];
    let requirement =
        (text(&KEYS), operator).prop_map(|(key, operator)| Requirement { key, operator });
    vec(requirement, 0..3).prop_map(|all| Selector { requirements: all.into_iter().collect() })
}

pub(super) fn address() -> impl Strategy<Value = IpAddr> {
    let all = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "fd00::1", "fd00::2"];
    select(all.to_vec()).prop_map(|text| text.parse().expect("an address"))
}

pub(super) fn uid() -> impl Strategy<Value = String> {
    let uuid = "8c8bb4a1-0f44-4ef1-9d0c-0d2a3c6f0b7e";
    select(vec![uuid, "0c8bb4a1-0f44-4ef1-9d0c-0d2a3c6f0b7e", "other"]).prop_map(str::to_owned)
}

fn created() -> impl Strategy<Value = String> {
    text(&["2026-01-31T10:00:00Z", "2026-01-31T10:00:01Z", ""])
}

fn meta(name: impl Strategy<Value = String>) -> impl Strategy<Value = Meta> {
    (text(&SPACES), name, uid(), labels(), created()).prop_map(
        |(namespace, name, uid, labels, created)| Meta {
            namespace,
            name,
            uid,
            labels,
            created,
            ..Meta::default()
        },
    )
}

fn cluster_meta(name: impl Strategy<Value = String>) -> impl Strategy<Value = Meta> {
    meta(name).prop_map(|meta| Meta { namespace: String::new(), ..meta })
}

fn pod() -> impl Strategy<Value = Pod> {
    let port = (text(&["web", "dns"]), select(vec![80u16, 8080]))
        .prop_map(|(name, port)| ContainerPort { name, protocol: Protocol::Tcp, port });
    (
        meta(text(&["p", "q", "r"])),
        text(&["", "n1", "n2", "n3"]),
        prop::bool::weighted(0.1),
        prop::bool::weighted(0.1),
        text(&["default", "robot"]),
        vec(address(), 0..3),
        vec(port, 0..2),
    )
        .prop_map(|(meta, node, host_network, ended, service_account, addresses, ports)| Pod {
            meta,
            node,
            host_network,
            service_account,
            phase: if ended { Phase::Ended } else { Phase::Live },
            addresses,
            ports,
        })
}

pub(super) fn pod_name() -> impl Strategy<Value = Named> {
    (text(&SPACES), text(&["p", "q", "r"])).prop_map(|(namespace, name)| Named { namespace, name })
}

fn named() -> impl Strategy<Value = Named> {
    (text(&["", "a", "b"]), text(&GROUPS)).prop_map(|(namespace, name)| Named { namespace, name })
}

fn pods(same: bool) -> BoxedStrategy<Pods> {
    let mut scope = vec![
        text(&SPACES).prop_map(Scope::Namespace).boxed(),
        selector().prop_map(Scope::Namespaces).boxed(),
    ];
    if same {
        scope.push(Just(Scope::SameNamespace).boxed());
        scope.push(vec(text(&KEYS), 1..3).prop_map(Scope::SameLabels).boxed());
    }
    let scope = proptest::strategy::Union::new(scope);
    let account = text(&SPACES)
        .prop_map(|namespace| Pods::ServiceAccount(Named { namespace, name: "robot".to_owned() }));
    // Peers are none of these.
    let behind = (text(&SPACES), text(&["s", "t"]))
        .prop_map(|(namespace, name)| Pods::Service(Named { namespace, name }));
    prop_oneof![
        5 => (scope, selector()).prop_map(|(scope, pods)| Pods::Labeled { scope, pods }),
        3 => named().prop_map(Pods::Group),
        1 => account,
        u32::from(!same) => behind,
    ]
    .boxed()
}

fn rule() -> impl Strategy<Value = Rule> {
    let peer = prop_oneof![
        5 => pods(true).prop_map(Peer::Pods),
        1 => selector().prop_map(Peer::Nodes),
        2 => service_name().prop_map(Peer::Service),
    ];
    let peers = prop_oneof![
        1 => Just(Peers::Any),
        4 => vec(peer, 0..3).prop_map(Peers::Of),
    ];
    let traffic = prop_oneof![
        Just(Traffic::Any),
        Just(Traffic::Of(vec![Transport::Ports {
            protocol: Protocol::Tcp,
            port: Some(TargetPort::Named("web".to_owned())),
            source: None,
        }])),
    ];
    let direction = select(vec![Direction::Ingress, Direction::Egress]);
    (direction, vec(pods(false), 0..3), peers, traffic).prop_map(
        |(direction, subject, peers, traffic)| Rule {
            direction,
            index: 0,
            name: None,
            action: Action::Allow,
            subject,
            doubt: None,
            peers,
            traffic,
            log: None,
            standing: Standing::Understood,
        },
    )
}

fn service_name() -> impl Strategy<Value = Named> {
    (text(&SPACES), text(&["s", "t"])).prop_map(|(namespace, name)| Named { namespace, name })
}

fn policy() -> impl Strategy<Value = Policy> {
    let key = (text(&["", "a", "b", "c"]), text(&["x", "y", "z"])).prop_map(|(namespace, name)| {
        let kind = match namespace.as_str() {
            "" => Kind::AntreaClusterNetworkPolicy,
            _ => Kind::AntreaNetworkPolicy,
        };
        PolicyKey { kind, namespace, name }
    });
    let isolation = proptest::option::weighted(0.4, vec(pods(false), 0..2));
    let uid = text(&["", "1", "2"]);
    let place = prop_oneof![
        2 => Just(Tier::NetworkPolicy),
        1 => Just(Tier::Admin),
        1 => Just(Tier::Baseline),
        6 => text(&TIERS).prop_map(Tier::Antrea),
    ];
    let place = place.prop_map(|tier| Precedence { tier, priority: Priority::new(0.0) });
    let isolation = (isolation, place);
    let all = (key, uid, isolation, vec(rule(), 0..3));
    all.prop_map(|(key, uid, (isolation, place), rules)| Policy {
        // UIDs are unique.
        uid: if uid.is_empty() { uid } else { format!("{key} {uid}") },
        key,
        place,
        isolation: isolation.map(|subject| Isolation {
            subject,
            doubt: None,
            ingress: true,
            egress: false,
        }),
        rules,
    })
}

fn network_policy() -> impl Strategy<Value = Happening> {
    let maybe = || proptest::option::of(selector());
    let block = Block { cidr: "10.0.0.0/8".parse().expect("a range"), except: Vec::new() };
    let peer = prop_oneof![
        4 => (maybe(), maybe())
            .prop_map(|(namespaces, pods)| NetworkPeer::Pods { namespaces, pods }),
        1 => Just(NetworkPeer::Block(block)),
    ];
    let port = select(vec![None, Some(TargetPort::Named("web".to_owned()))])
        .prop_map(|port| NetworkPort { protocol: Protocol::Tcp, port });
    let rule = (vec(peer, 0..3), vec(port, 0..2))
        .prop_map(|(peers, ports)| Read::Known(NetworkRule { peers, ports }));
    let rules = || vec(rule.clone(), 0..3);
    let uid = text(&["", "1", "2"]);
    (meta(text(&["x", "y", "z"])), uid, selector(), rules(), rules(), any::<bool>()).prop_map(
        |(mut meta, uid, selects, ingress, egress, both)| {
            let unique = format!("{}/{} {uid}", meta.namespace, meta.name);
            meta.uid = if uid.is_empty() { uid } else { unique };
            let mut types = vec![PolicyType::Ingress];
            if both || !egress.is_empty() {
                types.push(PolicyType::Egress);
            }
            let subject = Subject { selects, doubt: None };
            let flavor = Flavor::Kubernetes;
            let policy = NetworkPolicy { meta, flavor, subject, types, ingress, egress };
            let form = compile(&Object::NetworkPolicy(policy.clone())).expect("a policy");
            Happening::NetworkPolicy(Box::new((policy, form)))
        },
    )
}

fn spec() -> impl Strategy<Value = GroupSpec> {
    let block = select(vec!["10.0.0.0/8", "fd00::/8"])
        .prop_map(|cidr| Block { cidr: cidr.parse().expect("a range"), except: Vec::new() });
    let maybe = || proptest::option::of(selector());
    let service = service_name().prop_map(GroupSpec::Service);
    prop_oneof![
        1 => Just(GroupSpec::Empty),
        4 => (maybe(), maybe()).prop_map(|(namespaces, pods)| GroupSpec::Pods { namespaces, pods }),
        1 => vec(block, 1..3).prop_map(GroupSpec::Blocks),
        2 => service,
        1 => selector().prop_map(GroupSpec::Nodes),
        1 => Just(GroupSpec::External),
        3 => vec(text(&GROUPS), 0..3).prop_map(GroupSpec::Children),
    ]
}

fn read<T: Clone + std::fmt::Debug>(
    known: impl Strategy<Value = T>,
) -> impl Strategy<Value = Read<T>> {
    let unknown = Unknown { why: "odd".to_owned(), name: None, action: None };
    prop_oneof![5 => known.prop_map(Read::Known), 1 => Just(Read::Unknown(unknown))]
}

fn group() -> impl Strategy<Value = Group> {
    (named(), read(spec())).prop_map(|(Named { namespace, name }, spec)| Group {
        meta: Meta { namespace, name, ..Meta::default() },
        spec,
    })
}

fn service() -> impl Strategy<Value = Service> {
    let name = meta(text(&["s", "t"]));
    (name, read(proptest::option::of(selector())), read(vec(address(), 0..3))).prop_map(
        |(meta, selector, cluster_ips)| {
            let (outer_ips, ports) = (Vec::new(), Vec::new());
            Service { meta, selector, cluster_ips, outer_ips, ports }
        },
    )
}

fn tier() -> impl Strategy<Value = objects::Tier> {
    (cluster_meta(text(&TIERS)), read(select(vec![50_u8, 220, 250, 251])))
        .prop_map(|(meta, priority)| objects::Tier { meta, priority })
}

fn gone() -> impl Strategy<Value = Happening> {
    let kinds: [(Kind, &'static [&'static str], &'static [&'static str]); 10] = [
        (Kind::Pod, &SPACES, &["p", "q", "r"]),
        (Kind::Pod, &SPACES, &["p", "q", "r"]),
        (Kind::Namespace, &[""], &SPACES),
        (Kind::Node, &[""], &["n1", "n2"]),
        (Kind::Service, &SPACES, &["s", "t"]),
        (Kind::AntreaTier, &[""], &TIERS),
        (Kind::AntreaClusterGroup, &[""], &GROUPS),
        (Kind::NetworkPolicy, &SPACES, &["x", "y", "z"]),
        (Kind::AntreaNetworkPolicy, &SPACES, &["x", "y", "z"]),
        (Kind::AntreaClusterNetworkPolicy, &[""], &["x", "y", "z"]),
    ];
    let uid = prop_oneof![3 => Just(String::new()), 1 => uid()];
    (select(kinds.to_vec()), uid).prop_flat_map(|((kind, spaces, names), uid)| {
        (text(spaces), text(names)).prop_map(move |(namespace, name)| {
            let guarded = matches!(kind, Kind::Pod | Kind::Node);
            let uid = if guarded { uid.clone() } else { String::new() };
            Happening::Gone(kind, namespace, name, uid)
        })
    })
}

pub(super) fn happening() -> impl Strategy<Value = Happening> {
    let node = (cluster_meta(text(&["n1", "n2"])), vec(address(), 0..2))
        .prop_map(|(meta, addresses)| Happening::Node(Node { meta, addresses, is_leaving: false }));
    let namespace =
        cluster_meta(text(&SPACES)).prop_map(|meta| Happening::Namespace(Namespace { meta }));
    prop_oneof![
        8 => pod().prop_map(Happening::Pod),
        3 => namespace,
        1 => node,
        2 => service().prop_map(Happening::Service),
        2 => tier().prop_map(Happening::Tier),
        3 => group().prop_map(Happening::Group),
        6 => policy().prop_map(Happening::Policy),
        4 => network_policy(),
        6 => gone(),
    ]
}

pub(super) fn check(index: &Index, model: &Model, folded: &Snapshot) -> Result<(), TestCaseError> {
    let is = index.snapshot();
    prop_assert_eq!(folded, &is, "the deltas do not add up");
    prop_assert_eq!(&is, &model.snapshot(), "the index is not what the objects say");
    for (policy, state) in model.policies() {
        prop_assert_eq!(index.policy_state(policy), Some(state.clone()));
        prop_assert!(index.policy_span(policy).iter().eq(&state.span));
    }
    for pod in model.pods() {
        let found = index.policies_of(&pod.meta.namespace, &pod.meta.name);
        prop_assert_eq!(found, model.policies_of(pod));
    }
    Ok(())
}

const NODES: [&str; 4] = ["n1", "n2", "n3", ""];

/// Part of a snapshot for one node.
fn part(all: &Snapshot, node: &str) -> Snapshot {
    let mut part = all.clone();
    let here = BTreeSet::from([node.to_owned()]);
    part.nodes.retain(|name, _| name == node);
    part.policies.retain(|_, policy| policy.span.contains(node));
    part.policies.values_mut().for_each(|policy| policy.span.clone_from(&here));
    part.groups.retain(|_, group| group.span.contains(node));
    for ((role, _), group) in &mut part.groups {
        group.span.clone_from(&here);
        if *role == Role::Applied {
            group.members.retain(|_, member| member.node == node);
        }
    }
    part
}

/// The queries for one node, with the contents of the objects that they name.
fn queried(index: &Index, node: &str) -> Snapshot {
    let span = || BTreeSet::from([node.to_owned()]);
    let Needs { own, applied, address, policies } = index.needs_of(node);
    let mut found = Snapshot::default();
    for (id, members) in applied {
        let state = index.group_state(Role::Applied, id).unwrap_or_default();
        let members = members.into_iter().map(|member| (member.key(), member)).collect();
        let state = GroupState { members, span: span(), ..state };
        found.groups.insert((Role::Applied, id), state);
    }
    for id in address {
        let state = index.group_state(Role::Address, id).unwrap_or_default();
        found.groups.insert((Role::Address, id), GroupState { span: span(), ..state });
    }
    for (id, key) in policies {
        let state = index.policy_state(&key).unwrap_or_default();
        found.policies.insert(id, PolicyState { span: span(), ..state });
    }
    if own != NodeState::default() {
        found.nodes.insert(node.to_owned(), own);
    }
    found
}

/// The queries for one node, one group and one policy agree with the snapshot of all objects.
fn queries_agree(index: &Index) -> Result<(), TestCaseError> {
    let all = index.snapshot();
    for node in NODES {
        let part = part(&all, node);
        prop_assert_eq!(&queried(index, node), &part, "of {}", node);
        for key @ (role, id) in all.groups.keys() {
            prop_assert_eq!(index.is_needed(*role, *id, node), part.groups.contains_key(key));
        }
        let own = all.nodes.get(node).cloned().unwrap_or_default();
        prop_assert_eq!(index.node_state(node), own);
    }
    for ((role, id), group) in &all.groups {
        prop_assert_eq!(index.group_state(*role, *id), Some(group.clone()));
        prop_assert!(index.group_span(*role, *id).iter().eq(&group.span));
    }
    Ok(())
}

/// Checks that each group and policy occurs once, in the order of their ids, and so their members and nodes.
/// Checks that unchanged objects do not occur.
fn in_order(deltas: &Deltas) -> Result<(), TestCaseError> {
    prop_assert!(deltas.groups.is_sorted_by(|a, b| (a.role, a.id) < (b.role, b.id)));
    prop_assert!(deltas.policies.is_sorted_by(|a, b| a.id < b.id));
    prop_assert!(deltas.nodes.is_sorted_by(|a, b| a.node < b.node));
    for delta in &deltas.nodes {
        prop_assert!(delta.added.is_sorted_by(|a, b| a < b));
        prop_assert!(delta.removed.is_sorted_by(|a, b| a < b));
        let has_changes = !delta.added.is_empty() || !delta.removed.is_empty();
        prop_assert!(has_changes || delta.addresses.is_some());
    }
    for delta in &deltas.groups {
        prop_assert!(delta.added.is_sorted_by(|a, b| a < b));
        prop_assert!(delta.removed.is_sorted_by(|a, b| a < b));
        prop_assert!(delta.entered.is_sorted_by(|a, b| a < b));
        prop_assert!(delta.left.is_sorted_by(|a, b| a < b));
        let has_changes =
            !delta.added.is_empty() || !delta.removed.is_empty() || delta.holds.is_some();
        let has_changes = has_changes || !delta.entered.is_empty() || !delta.left.is_empty();
        prop_assert!(has_changes || delta.change != Change::Changed);
    }
    for delta in &deltas.policies {
        prop_assert!(delta.entered.is_sorted_by(|a, b| a < b));
        prop_assert!(delta.left.is_sorted_by(|a, b| a < b));
        let has_changes = delta.tier.is_some() || delta.uses.is_some();
        let has_changes = has_changes || !delta.entered.is_empty() || !delta.left.is_empty();
        prop_assert!(has_changes || delta.change != Change::Changed);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn the_index_equals_a_fresh_computation_after_every_event(
        first in vec(happening(), 0..25),
        then in vec(happening(), 0..25),
        seed in any::<u64>(),
    ) {
        let (mut index, mut model) = (Index::new(seed), Model::default());
        for event in &first {
            model.apply(event.event());
            event.with_view(|borrowed| index.load(borrowed));
        }
        index.loaded();
        let mut folded = index.snapshot();
        check(&index, &model, &folded)?;
        queries_agree(&index)?;
        for (round, event) in then.iter().enumerate() {
            let deltas = match round % 2 {
                0 => index.apply(event.event()),
                _ => event.with_view(|borrowed| index.apply(borrowed)),
            };
            in_order(&deltas)?;
            folded.fold(&deltas);
            queries_agree(&index)?;
            model.apply(event.event());
            check(&index, &model, &folded)?;
            for again in [index.apply(event.event()), event.with_view(|borrowed| index.apply(borrowed))] {
                prop_assert!(again.is_empty(), "the same again changes nothing: {again:?}");
            }
        }
    }

    #[test]
    fn when_all_is_gone_nothing_is_kept(events in vec(happening(), 0..30)) {
        let mut index = Index::new(0);
        index.loaded();
        events.iter().for_each(|event| drop(event.with_view(|borrowed| index.apply(borrowed))));
        for event in &events {
            let (kind, meta) = match event {
                Happening::Pod(pod) => (Kind::Pod, &pod.meta),
                Happening::Namespace(namespace) => (Kind::Namespace, &namespace.meta),
                Happening::Node(node) => (Kind::Node, &node.meta),
                Happening::Service(service) => (Kind::Service, &service.meta),
                Happening::Tier(tier) => (Kind::AntreaTier, &tier.meta),
                Happening::Group(group) => (Kind::AntreaGroup, &group.meta),
                Happening::NetworkPolicy(policy) => (Kind::NetworkPolicy, &policy.0.meta),
                Happening::Policy(policy) => {
                    let PolicyKey { kind, namespace, name } = policy.key.clone();
                    index.apply(Happening::Gone(kind, namespace, name, String::new()).event());
                    continue;
                }
                Happening::Gone(..) => continue,
            };
            let (namespace, name) = (meta.namespace.clone(), meta.name.clone());
            index.apply(Happening::Gone(kind, namespace, name, String::new()).event());
        }
        prop_assert_eq!(index.held(), 0);
    }
}

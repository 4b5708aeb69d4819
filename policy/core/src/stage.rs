//! The stage: namespaces x (team=red), y (team=blue), z (no team), each with pods a, b, c labeled `app`.
//! Their addresses are 10.0.N.M and fd00::N:M, with ports TCP 80 `web`, TCP 81, UDP 80. Namespace x is on
//! node n1, the rest on n2.

use crate::{Decision, Direction, Origin, Packet, Segment, State, World, decide, verdict};
use policy_objects::*;
use std::net::IpAddr;

pub(crate) const OUTSIDE: &str = "198.51.100.7";
pub(crate) const N1: &str = "192.168.0.1";
pub(crate) const N2: &str = "192.168.0.2";
pub(crate) const VIP: &str = "172.20.0.10";

pub(crate) fn stage() -> World {
    let teams = [("x", Some("red")), ("y", Some("blue")), ("z", None)];
    let mut world = World::default();
    for (number, (namespace, team)) in teams.into_iter().enumerate() {
        world.insert(a_namespace(namespace, team));
        for (host, name) in (1..).zip(["a", "b", "c"]) {
            let node = if namespace == "x" { "n1" } else { "n2" };
            let mut pod = a_pod(namespace, name, &format!("10.0.{number}.{host}"));
            pod.addresses.push(ip(&format!("fd00::{number}:{host}")));
            pod.node = node.to_owned();
            world.insert(Object::Pod(pod));
        }
    }
    for (name, address) in [("n1", N1), ("n2", N2)] {
        let labels = labels(&[("host", name)]);
        let meta = Meta { name: name.to_owned(), labels, ..Meta::default() };
        world.insert(Object::Node(Node { meta, addresses: vec![ip(address)], is_leaving: false }));
    }
    world
}

pub(crate) fn with(policies: impl IntoIterator<Item = Object>) -> World {
    let mut world = stage();
    policies.into_iter().for_each(|policy| world.insert(policy));
    world
}

pub(crate) fn a_namespace(name: &str, team: Option<&str>) -> Object {
    let labels = team.map(|team| labels(&[("team", team)])).unwrap_or_default();
    Object::Namespace(Namespace { meta: Meta { name: name.to_owned(), labels, ..Meta::default() } })
}

pub(crate) fn a_pod(namespace: &str, name: &str, address: &str) -> Pod {
    let port = |name: &str, protocol, port| ContainerPort { name: name.to_owned(), protocol, port };
    Pod {
        meta: Meta { labels: labels(&[("app", name)]), ..meta(namespace, name) },
        node: "n2".to_owned(),
        host_network: false,
        service_account: "default".to_owned(),
        phase: Phase::Live,
        addresses: vec![ip(address)],
        ports: vec![port("web", Protocol::Tcp, 80), port("dns", Protocol::Udp, 53)],
    }
}

pub(crate) fn meta(namespace: &str, name: &str) -> Meta {
    Meta { namespace: namespace.to_owned(), name: name.to_owned(), ..Meta::default() }
}

pub(crate) fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// `app=a,team` and the like; empty selects all.
pub(crate) fn select(text: &str) -> Selector {
    let requirement = |part: &str| match part.split_once('=') {
        Some((key, value)) => {
            Requirement { key: key.to_owned(), operator: Operator::In([value.to_owned()].into()) }
        }
        None => Requirement { key: part.to_owned(), operator: Operator::Exists },
    };
    let parts = text.split(',').filter(|part| !part.is_empty());
    Selector { requirements: parts.map(requirement).collect() }
}

pub(crate) fn sure<T>(selects: T) -> Subject<T> {
    Subject { selects, doubt: None }
}

pub(crate) fn not_read<T>(action: Option<&str>) -> Read<T> {
    Read::Unknown(Unknown {
        why: "a field that nobody knows".to_owned(),
        name: None,
        action: action.map(str::to_owned),
    })
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address of a test")
}

pub(crate) fn cidr(text: &str) -> Cidr {
    text.parse().expect("a range of a test")
}

pub(crate) fn block(range: &str, except: &[&str]) -> Block {
    Block { cidr: cidr(range), except: except.iter().map(|hole| cidr(hole)).collect() }
}

pub(crate) fn tcp(port: u16) -> Segment {
    Segment::Ports { protocol: Protocol::Tcp, source: 40000, destination: port }
}

pub(crate) fn udp(port: u16) -> Segment {
    Segment::Ports { protocol: Protocol::Udp, source: 40000, destination: port }
}

pub(crate) fn range(first: u16, last: u16) -> TargetPort {
    TargetPort::Numbers(PortRange { first, last })
}

/// Decision about a new packet. An end is `x/a`, a node's name, or an address without owner.
pub(crate) fn ask(world: &World, from: &str, to: &str, segment: Segment) -> Decision {
    let packet = packet(world, from, to, segment);
    let decision = decide(world, &packet);
    assert_eq!(decision, verdict(world, &packet).decision, "{packet}");
    decision
}

pub(crate) fn packet(world: &World, from: &str, to: &str, segment: Segment) -> Packet {
    let origin = match (pod_of(world, from), world.node(from)) {
        (Some(pod), _) => Origin::Pod(crate::world::named(&pod.meta)),
        (None, Some(_)) => Origin::Node(from.to_owned()),
        (None, None) => Origin::Forwarded,
    };
    Packet {
        origin,
        source: address(world, from),
        destination: address(world, to),
        service: None,
        segment,
        state: State::New,
    }
}

fn pod_of<'a>(world: &'a World, end: &str) -> Option<&'a Pod> {
    let (namespace, name) = end.split_once('/')?;
    world.pod(&Named { namespace: namespace.to_owned(), name: name.to_owned() })
}

fn address(world: &World, end: &str) -> IpAddr {
    let pod = pod_of(world, end).and_then(|pod| pod.addresses.first());
    let node = || world.node(end).and_then(|node| node.addresses.first());
    pod.or_else(node).copied().unwrap_or_else(|| ip(end))
}

/// A NetworkPolicy of a namespace for pods of a selector.
pub(crate) fn network(
    namespace: &str,
    pods: &str,
    types: &[PolicyType],
    ingress: Vec<NetworkRule>,
    egress: Vec<NetworkRule>,
) -> NetworkPolicy {
    NetworkPolicy {
        meta: meta(namespace, "np"),
        flavor: Flavor::Kubernetes,
        subject: sure(select(pods)),
        types: types.to_vec(),
        ingress: ingress.into_iter().map(Read::Known).collect(),
        egress: egress.into_iter().map(Read::Known).collect(),
    }
}

pub(crate) const IN: &[PolicyType] = &[PolicyType::Ingress];
pub(crate) const OUT: &[PolicyType] = &[PolicyType::Egress];
pub(crate) const BOTH: &[PolicyType] = &[PolicyType::Ingress, PolicyType::Egress];

pub(crate) fn let_in(namespace: &str, pods: &str, rules: Vec<NetworkRule>) -> Object {
    Object::NetworkPolicy(network(namespace, pods, IN, rules, Vec::new()))
}

pub(crate) fn let_out(namespace: &str, pods: &str, rules: Vec<NetworkRule>) -> Object {
    Object::NetworkPolicy(network(namespace, pods, OUT, Vec::new(), rules))
}

pub(crate) fn rule(peers: Vec<NetworkPeer>, ports: Vec<NetworkPort>) -> NetworkRule {
    NetworkRule { peers, ports }
}

pub(crate) fn pods(namespaces: Option<&str>, pods: Option<&str>) -> NetworkPeer {
    NetworkPeer::Pods { namespaces: namespaces.map(select), pods: pods.map(select) }
}

/// A ClusterNetworkPolicy whose rules are in one direction.
pub(crate) fn cluster(
    name: &str,
    tier: ClusterTier,
    priority: i32,
    subject: &str,
    direction: Direction,
    rules: Vec<ClusterRule>,
) -> ClusterPolicy {
    let rules = rules.into_iter().map(Read::Known).collect();
    let (ingress, egress) = match direction {
        Direction::Ingress => (rules, Vec::new()),
        Direction::Egress => (Vec::new(), rules),
    };
    ClusterPolicy {
        meta: meta("", name),
        dialect: Dialect::Upstream,
        tier,
        priority,
        subject: sure(of_namespaces(subject)),
        ingress,
        egress,
    }
}

pub(crate) fn of_namespaces(namespaces: &str) -> NamespacedPods {
    NamespacedPods { namespaces: select(namespaces), pods: Selector::default() }
}

pub(crate) fn of(namespace: &str) -> String {
    format!("kubernetes.io/metadata.name={namespace}")
}

pub(crate) fn about(action: ClusterAction, namespace: &str) -> ClusterRule {
    rule_of(action, ClusterPeer::Pods(of_namespaces(&of(namespace))))
}

pub(crate) fn rule_of(action: ClusterAction, peer: ClusterPeer) -> ClusterRule {
    ClusterRule { name: None, action, peers: vec![peer], protocols: Vec::new() }
}

/// An Antrea policy for pods of a selector, of a namespace or (empty) of the cluster.
pub(crate) fn antrea(namespace: &str, name: &str, tier: &str, priority: f64) -> AntreaPolicy {
    AntreaPolicy {
        meta: meta(namespace, name),
        tier: tier.to_owned(),
        priority,
        applied_to: vec![applied(None, Some(""))],
        ingress: Vec::new(),
        egress: Vec::new(),
    }
}

pub(crate) fn applied(namespaces: Option<&str>, pods: Option<&str>) -> Subject<AntreaAppliedTo> {
    let (namespaces, pods) = (namespaces.map(select), pods.map(select));
    sure(AntreaAppliedTo::Pods { namespaces, pods })
}

pub(crate) fn entry(action: AntreaAction, peers: Vec<AntreaPeer>) -> AntreaEntry {
    entry_of(AntreaRule {
        name: None,
        action,
        peers,
        ports: Vec::new(),
        services: Vec::new(),
        logging: None,
    })
}

pub(crate) fn entry_of(rule: AntreaRule) -> AntreaEntry {
    AntreaEntry { applied_to: Vec::new(), rule: Read::Known(rule) }
}

/// Antrea's peer: all pods of a namespace.
pub(crate) fn antrea_of(namespace: &str) -> AntreaPeer {
    AntreaPeer::Pods { namespaces: Some(select(&of(namespace))), pods: None }
}

/// An Antrea policy of the cluster with rules of ingress.
pub(crate) fn antrea_in(name: &str, tier: &str, priority: f64, rules: Vec<AntreaEntry>) -> Object {
    let policy = antrea("", name, tier, priority);
    Object::AntreaPolicy(AntreaPolicy { ingress: rules, ..policy })
}

pub(crate) fn antrea_out(name: &str, tier: &str, priority: f64, rules: Vec<AntreaEntry>) -> Object {
    let policy = antrea("", name, tier, priority);
    Object::AntreaPolicy(AntreaPolicy { egress: rules, ..policy })
}

pub(crate) fn group(namespace: &str, name: &str, spec: GroupSpec) -> Object {
    Object::Group(Group { meta: meta(namespace, name), spec: Read::Known(spec) })
}

pub(crate) fn service(namespace: &str, name: &str, pods: Option<&str>) -> Object {
    Object::Service(Service {
        meta: meta(namespace, name),
        selector: Read::Known(pods.map(select)),
        cluster_ips: Read::Known(vec![ip(VIP)]),
        outer_ips: Vec::new(),
        ports: Vec::new(),
    })
}

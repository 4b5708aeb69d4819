//! Generators of objects.

use proptest::{
    collection::{btree_set, vec},
    option,
    prelude::*,
    sample::{select, subsequence},
};
use service_core::NodeView;
use service_objects::{
    ClientAffinity, Endpoint, Family, Ingress, IngressMode, ObjectName, Protocol, Service,
    ServiceKind, ServicePort, Slice, SlicePort, TrafficPolicy,
};
use std::net::IpAddr;

const NAMESPACES: &[&str] = &["x", "y"];
const SERVICES: &[&str] = &["s", "t", "u"];
/// The Service of a slice. No world has `gone`.
const OWNERS: &[&str] = &["s", "s", "t", "t", "u", "gone"];
const SLICES: &[&str] = &["a", "b", "c", "d", "e"];
const CREATED: &[&str] = &["", "1", "2"];
const CLUSTER_IPS: &[&str] = &["172.20.0.1", "172.20.0.2", "172.20.0.3"];
const CLUSTER_IPS_6: &[&str] = &["fd20::1", "fd20::2"];
/// External addresses. Some are cluster IPs or addresses of the node.
const EXACT: &[&str] = &[
    "198.51.100.1",
    "198.51.100.1",
    "198.51.100.2",
    "172.20.0.1",
    "10.0.0.1",
    "2001:db8::1",
    "fd20::1",
    "fd10::1",
];
/// A cluster IP is among them.
const NODE_ADDRESSES: &[&str] = &["10.0.0.1", "10.0.0.2", "fd10::1", "172.20.0.3"];
const ENDPOINTS: &[&str] = &["10.1.0.1", "10.1.0.2", "10.1.0.3", "10.1.0.4"];
const ENDPOINTS_6: &[&str] = &["fd11::1", "fd11::2", "fd11::3"];
const RANGES: &[&str] =
    &["10.9.0.0/24", "10.9.0.2/31", "203.0.113.7/32", "0.0.0.0/0", "fd99::/64", "::/0"];
const PORTS: &[u16] = &[80, 80, 443];
/// A Service's port is among them.
const NODE_PORTS: &[u16] = &[30_080, 30_080, 30_081, 80];
const TARGET_PORTS: &[u16] = &[80, 443, 8_080, 30_080];
const PORT_NAMES: &[&str] = &["", "http"];
const ZONES: &[&str] = &["a", "b", "c"];
const NODES: &[&str] = &["n1", "n2", "n3"];

fn one_of(words: &'static [&'static str]) -> impl Strategy<Value = String> {
    select(words).prop_map(str::to_owned)
}

fn address(of: &'static [&'static str]) -> impl Strategy<Value = IpAddr> {
    select(of).prop_map(|text| text.parse().expect("a constant of this file"))
}

/// True in one of `of` cases.
fn rarely(of: u32) -> impl Strategy<Value = bool> {
    prop_oneof![of - 1 => Just(false), 1 => Just(true)]
}

fn other_proxy() -> impl Strategy<Value = Option<String>> {
    option::weighted(0.08, Just("other".to_owned()))
}

fn protocol() -> impl Strategy<Value = Protocol> {
    prop_oneof![6 => Just(Protocol::Tcp), 2 => Just(Protocol::Udp), 2 => Just(Protocol::Sctp)]
}

fn policy() -> impl Strategy<Value = TrafficPolicy> {
    prop_oneof![3 => Just(TrafficPolicy::Cluster), 2 => Just(TrafficPolicy::Local)]
}

pub(super) fn node() -> impl Strategy<Value = NodeView> {
    let name = prop_oneof![4 => Just("n1"), 1 => Just("n2")];
    let zone = option::weighted(0.8, one_of(&["a", "b"]));
    (name, zone, btree_set(address(NODE_ADDRESSES), 0..=4))
        .prop_map(|(name, zone, addresses)| NodeView { name: name.to_owned(), zone, addresses })
}

fn service_port() -> impl Strategy<Value = ServicePort> {
    let node_port = option::weighted(0.6, select(NODE_PORTS));
    (one_of(PORT_NAMES), protocol(), select(PORTS), node_port).prop_map(
        |(name, protocol, port, node_port)| ServicePort { name, protocol, port, node_port },
    )
}

fn cluster_ips() -> impl Strategy<Value = Vec<IpAddr>> {
    let (v4, v6) = (|| address(CLUSTER_IPS), || address(CLUSTER_IPS_6));
    prop_oneof![
        5 => v4().prop_map(|v4| vec![v4]),
        2 => v6().prop_map(|v6| vec![v6]),
        4 => (v4(), v6()).prop_map(|(v4, v6)| vec![v4, v6]),
        1 => Just(Vec::new()),
    ]
}

/// External addresses, VIPs and source ranges.
fn external() -> impl Strategy<Value = (Vec<IpAddr>, Vec<Ingress>, Option<Vec<&'static str>>)> {
    let of = |mode| address(EXACT).prop_map(move |address| Ingress { address, mode });
    let (vips, proxied) = (vec(of(IngressMode::Vip), 0..=2), vec(of(IngressMode::Proxy), 0..=1));
    let ingress = (vips, proxied).prop_map(|(vips, proxied)| [vips, proxied].concat());
    let ranges = option::weighted(0.4, subsequence(RANGES, 0..=2));
    (vec(address(EXACT), 0..=2), ingress, ranges)
}

pub(super) fn service() -> impl Strategy<Value = Service> {
    let name = (select(NAMESPACES), select(SERVICES));
    let kind = prop_oneof![
        4 => Just(ServiceKind::ClusterIp),
        4 => Just(ServiceKind::NodePort),
        6 => Just(ServiceKind::LoadBalancer),
        1 => Just(ServiceKind::ExternalName),
    ];
    let flags = (other_proxy(), rarely(12));
    let affinity = option::weighted(0.2, Just(ClientAffinity { timeout_seconds: 60 }));
    let policies = (policy(), policy(), affinity);
    let ports = vec(service_port(), 1..=3);
    ((name, one_of(CREATED), kind, flags), cluster_ips(), external(), ports, policies).prop_map(
        |((name, created, kind, flags), cluster_ips, external, ports, policies)| {
            let (external_ips, ingress, ranges) = external;
            let ranges = ranges.map(|ranges| ranges.into_iter().map(|range| range.parse()));
            let (internal_policy, external_policy, affinity) = policies;
            Service {
                name: ObjectName::new(name.0, name.1),
                created,
                kind,
                other_proxy: flags.0,
                headless: flags.1,
                cluster_ips,
                external_ips,
                ingress,
                source_ranges: ranges.map(|it| it.collect::<Result<_, _>>().expect("a constant")),
                ports,
                internal_policy,
                external_policy,
                health_check_node_port: None,
                affinity,
                problems: Vec::new(),
            }
        },
    )
}

/// Ready, serving, terminating.
fn conditions() -> impl Strategy<Value = (bool, bool, bool)> {
    prop_oneof![
        6 => Just((true, true, false)),
        5 => Just((false, true, true)),
        1 => Just((false, false, true)),
        1 => Just((false, true, false)),
        1 => Just((false, false, false)),
        1 => Just((true, true, true)),
        1 => Just((true, false, false)),
    ]
}

fn endpoint(addresses: &'static [&'static str]) -> impl Strategy<Value = Endpoint> {
    let place = (option::weighted(0.9, one_of(NODES)), option::weighted(0.9, one_of(ZONES)));
    let names = |of| {
        subsequence(of, 0..=2)
            .prop_map(|names| names.into_iter().map(str::to_owned).collect::<Vec<_>>())
    };
    (address(addresses), conditions(), place, names(ZONES), names(NODES)).prop_map(
        |(address, (ready, serving, terminating), (node, zone), zone_hints, node_hints)| Endpoint {
            address,
            ready,
            serving,
            terminating,
            node,
            zone,
            zone_hints,
            node_hints,
        },
    )
}

fn slice_port() -> impl Strategy<Value = SlicePort> {
    (one_of(PORT_NAMES), protocol(), select(TARGET_PORTS))
        .prop_map(|(name, protocol, port)| SlicePort { name, protocol, port })
}

pub(super) fn slice() -> impl Strategy<Value = Slice> {
    let names = (select(NAMESPACES), select(OWNERS), select(SLICES));
    let addresses = prop_oneof![
        3 => vec(endpoint(ENDPOINTS), 0..=4).prop_map(|endpoints| (Family::V4, endpoints)),
        2 => vec(endpoint(ENDPOINTS_6), 0..=4).prop_map(|endpoints| (Family::V6, endpoints)),
    ];
    (names, addresses, vec(slice_port(), 1..=4), other_proxy(), rarely(12)).prop_map(
        |((namespace, service, name), (family, endpoints), ports, other_proxy, headless)| Slice {
            name: ObjectName::new(namespace, name),
            service: ObjectName::new(namespace, service),
            family,
            other_proxy,
            headless,
            ports,
            endpoints,
            triggered_ms: None,
            problems: Vec::new(),
        },
    )
}

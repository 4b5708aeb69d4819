//! Generators of pods, namespaces, nodes, Services, tiers and groups.

use super::parts::{
    GROUPS, NAMESPACES, POD_ADDRESSES, POD_ADDRESSES_6, SERVICE_ADDRESSES, account, address, block,
    labels, meta, namespaces, nodes, one_address, one_of, pods, read,
};
use policy_objects::{
    ContainerPort, Group, GroupSpec, Named, Namespace, Node, Object, Phase, Pod, Protocol, Service,
    ServicePort, Tier,
};
use proptest::{collection::vec, option, prelude::*, sample::select};

/// Names and addresses of the nodes.
pub(super) const NODES: &[(&str, &[&str])] =
    &[("n1", &["192.168.0.1", "fd01::1"]), ("n2", &["192.168.0.2"])];

pub(super) fn namespace() -> impl Strategy<Value = Object> {
    (one_of(NAMESPACES), labels("team", &["red", "blue"])).prop_map(|(name, mut labels)| {
        labels.insert("kubernetes.io/metadata.name".to_owned(), name.clone());
        let mut meta = meta("", &name);
        meta.labels = labels;
        Object::Namespace(Namespace { meta })
    })
}

pub(super) fn node() -> impl Strategy<Value = Object> {
    (select(NODES), labels("role", &["cp", "worker"])).prop_map(|((name, addresses), labels)| {
        let mut meta = meta("", name);
        meta.labels = labels;
        let addresses = addresses.iter().copied().map(address).collect();
        Object::Node(Node { meta, addresses, is_leaving: false })
    })
}

pub(super) fn pod() -> impl Strategy<Value = Object> {
    let lookup = (one_of(NAMESPACES), one_of(&["p", "q", "r"]), labels("app", &["a", "b", "c"]));
    let age = (0_u8..3, 0_u8..4);
    let place = prop_oneof![
        1 => Just(None),
        4 => Just(Some(&NODES[0])),
        4 => Just(Some(&NODES[1])),
    ];
    let phase = prop_oneof![8 => Just(Phase::Live), 1 => Just(Phase::Ended)];
    let addresses = prop_oneof![
        1 => Just(Vec::new()),
        6 => one_address(POD_ADDRESSES).prop_map(|one| vec![one]),
        2 => (one_address(POD_ADDRESSES), one_address(POD_ADDRESSES_6)).prop_map(|(a, b)| vec![a, b]),
        1 => one_address(POD_ADDRESSES_6).prop_map(|one| vec![one]),
    ];
    let account = account().prop_map(|account| account.name);
    (lookup, age, place, phase, (addresses, vec(container_port(), 1..=3), account, host_network()))
        .prop_map(|((namespace, name, labels), age, place, phase, rest)| {
            let (addresses, ports, service_account, host_network) = rest;
            let mut meta = meta(&namespace, &name);
            meta.labels = labels;
            meta.created = format!("2026-01-0{}T00:00:00Z", age.0 + 1);
            meta.uid = format!("{}-{namespace}-{name}", age.1);
            let node = place.map_or(String::new(), |(name, _)| (*name).to_owned());
            let addresses = match place.filter(|_| host_network) {
                // An address of the host that its Node does not list.
                Some(_) if age.1 == 0 => vec![address("10.0.2.7")],
                Some((_, its)) => its.iter().copied().map(address).collect(),
                None => addresses,
            };
            let host_network = host_network && place.is_some();
            Object::Pod(Pod { meta, node, host_network, service_account, phase, addresses, ports })
        })
}

fn host_network() -> impl Strategy<Value = bool> {
    prop::bool::weighted(0.12)
}

fn container_port() -> impl Strategy<Value = ContainerPort> {
    let ports = vec![
        ("web", Protocol::Tcp, 80),
        ("web", Protocol::Tcp, 80),
        ("web", Protocol::Tcp, 8080),
        ("web", Protocol::Udp, 80),
        ("dns", Protocol::Udp, 53),
        ("dns", Protocol::Sctp, 80),
    ];
    select(ports).prop_map(|(name, protocol, port)| ContainerPort {
        name: name.to_owned(),
        protocol,
        port,
    })
}

pub(super) fn named_service() -> impl Strategy<Value = Named> {
    (one_of(&["x", "y"]), Just("s".to_owned()))
        .prop_map(|(namespace, name)| Named { namespace, name })
}

pub(super) fn service() -> impl Strategy<Value = Object> {
    let addresses = vec(one_address(SERVICE_ADDRESSES), 1..=1);
    let port = ServicePort { name: String::new(), protocol: Protocol::Tcp, port: 80, target: None };
    // Sometimes an address that an agent announces for a pod.
    let outer_ips = prop_oneof![3 => Just(vec![]), 1 => Just(vec![address("10.0.2.8")])];
    (named_service(), read(option::weighted(0.9, pods())), read(addresses), outer_ips).prop_map(
        move |(named, selector, cluster_ips, outer_ips)| {
            let (meta, ports) = (meta(&named.namespace, &named.name), vec![port.clone()]);
            Object::Service(Service { meta, selector, cluster_ips, outer_ips, ports })
        },
    )
}

pub(super) fn tier() -> impl Strategy<Value = Object> {
    let place = prop_oneof![
        4 => (Just("custom"), select(vec![0_u8, 219, 219, 220, 220, 221, 250])),
        3 => (Just("late"), select(vec![251_u8, 252, 253, 254, 255])),
        1 => (Just("platform"), select(vec![200_u8, 240, 253])),
    ];
    place.prop_flat_map(|(name, number)| {
        // Tiers that exist without a Tier object too.
        let name = match (name, number) {
            ("platform", 240) => "emergency",
            ("platform", 253) => "baseline",
            (name, _) => name,
        };
        let meta = meta("", name);
        read(Just(number))
            .prop_map(move |priority| Object::Tier(Tier { meta: meta.clone(), priority }))
    })
}

pub(super) fn group() -> impl Strategy<Value = Object> {
    let scope = prop_oneof![5 => Just(""), 2 => Just("x"), 2 => Just("y")];
    (scope, one_of(GROUPS)).prop_flat_map(|(scope, name)| group_of(scope, name))
}

/// Most groups of each name. A policy that refers to a missing group denies much, and hides the other rules.
pub(super) fn groups() -> impl Strategy<Value = Vec<Object>> {
    let each = ["", "x", "y"].iter().flat_map(|scope| {
        let group =
            |name: &&'static str| option::weighted(0.85, group_of(scope, (*name).to_owned()));
        GROUPS.iter().map(group).collect::<Vec<_>>()
    });
    each.collect::<Vec<_>>().prop_map(|groups| groups.into_iter().flatten().collect())
}

fn group_of(scope: &'static str, name: String) -> impl Strategy<Value = Object> {
    read(spec(scope.is_empty()))
        .prop_map(move |spec| Object::Group(Group { meta: meta(scope, &name), spec }))
}

fn spec(cluster: bool) -> impl Strategy<Value = GroupSpec> {
    let chosen = prop_oneof![
        2 => (namespaces().prop_map(Some), option::of(pods())),
        2 => (Just(None), pods().prop_map(Some)),
    ];
    let children = vec(one_of(GROUPS), 1..=1);
    prop_oneof![
        1 => Just(GroupSpec::Empty),
        6 => chosen.prop_map(|(namespaces, pods)| GroupSpec::Pods { namespaces, pods }),
        3 => vec(block(), 1..=2).prop_map(GroupSpec::Blocks),
        3 => named_service().prop_map(GroupSpec::Service),
        3 => nodes().prop_map(move |nodes| {
            if cluster { GroupSpec::Nodes(nodes) } else { GroupSpec::Empty }
        }),
        1 => Just(GroupSpec::External),
        2 => children.prop_map(GroupSpec::Children),
    ]
}

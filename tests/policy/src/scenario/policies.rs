//! Generators of the policies of each kind.

use super::{
    objects::named_service,
    parts::{
        GROUPS, NAMESPACES, account, block, meta, most_pods, namespaces, nodes, one_of, pods,
        port_name, ports, protocol, range, read, subject, target,
    },
};
use policy_objects::{
    AntreaAction, AntreaAppliedTo, AntreaEntry, AntreaPeer, AntreaPolicy, AntreaPort, AntreaRule,
    ClusterAction, ClusterPeer, ClusterPolicy, ClusterRule, ClusterTier, Dialect, DomainName,
    Flavor, FqdnPattern, Icmp, NamespaceMatch, NamespacedPods, NetworkPeer, NetworkPolicy,
    NetworkPort, NetworkRule, PolicyType, ProtocolMatch,
};
use proptest::{collection::vec, option, prelude::*, sample::select};

const NAMES: &[&str] = &["k", "l"];

fn domain() -> impl Strategy<Value = DomainName> {
    prop_oneof![
        one_of(&["example.com", "www.example.com"]).prop_map(DomainName::Exact),
        one_of(&["example.com", "com"]).prop_map(DomainName::Below),
    ]
}

pub(super) fn network() -> impl Strategy<Value = NetworkPolicy> {
    let types = select(vec![
        vec![PolicyType::Ingress],
        vec![PolicyType::Egress],
        vec![PolicyType::Ingress, PolicyType::Egress],
    ]);
    let flavor = prop_oneof![3 => Just(Flavor::Kubernetes), 1 => Just(Flavor::Aws)];
    flavor.prop_flat_map(move |flavor| {
        let ingress = vec(read(network_rule(false)), 0..=2);
        let egress = vec(read(network_rule(flavor == Flavor::Aws)), 0..=2);
        (one_of(NAMESPACES), one_of(NAMES), subject(most_pods()), types.clone(), ingress, egress)
            .prop_map(move |(namespace, name, subject, types, ingress, egress)| {
                let meta = meta(&namespace, &name);
                NetworkPolicy { meta, flavor, subject, types, ingress, egress }
            })
    })
}

fn network_rule(domains: bool) -> impl Strategy<Value = NetworkRule> {
    let pods = prop_oneof![
        (namespaces().prop_map(Some), option::of(pods())),
        (Just(None), pods().prop_map(Some)),
    ]
    .prop_map(|(namespaces, pods)| NetworkPeer::Pods { namespaces, pods });
    let peer = prop_oneof![
        3 => pods.boxed(),
        2 => block().prop_map(NetworkPeer::Block),
        u32::from(domains) * 3 => vec(domain(), 1..=2).prop_map(NetworkPeer::Domains),
    ];
    let port = (protocol(), target()).prop_map(|(protocol, port)| NetworkPort { protocol, port });
    (mostly_one(peer), few(port)).prop_map(|(peers, ports)| NetworkRule { peers, ports })
}

/// An empty list half of the time: a rule with an empty list matches everything.
fn few<T: std::fmt::Debug + Clone + 'static>(
    one: impl Strategy<Value = T> + 'static,
) -> BoxedStrategy<Vec<T>> {
    prop_oneof![5 => Just(Vec::new()), 5 => vec(one, 1..=2)].boxed()
}

fn mostly_one<T: std::fmt::Debug + Clone + 'static>(
    one: impl Strategy<Value = T> + Clone + 'static,
) -> BoxedStrategy<Vec<T>> {
    prop_oneof![1 => Just(Vec::new()), 6 => vec(one.clone(), 1), 1 => vec(one, 2)].boxed()
}

pub(super) fn cluster() -> impl Strategy<Value = ClusterPolicy> {
    let dialect = prop_oneof![3 => Just(Dialect::Upstream), 1 => Just(Dialect::Aws)];
    let tier = select(vec![ClusterTier::Admin, ClusterTier::Baseline]);
    let place = (one_of(NAMES), dialect, tier, select(vec![0, 10]));
    let rules = (vec(read(cluster_rule(false)), 0..=3), vec(read(cluster_rule(true)), 0..=3));
    (place, subject(namespaced()), rules).prop_map(
        |((name, dialect, tier, priority), subject, (ingress, egress))| {
            let meta = meta("", &name);
            ClusterPolicy { meta, dialect, tier, priority, subject, ingress, egress }
        },
    )
}

fn namespaced() -> impl Strategy<Value = NamespacedPods> {
    (namespaces(), most_pods()).prop_map(|(namespaces, pods)| NamespacedPods { namespaces, pods })
}

fn cluster_rule(out: bool) -> impl Strategy<Value = ClusterRule> {
    let action = select(vec![
        ClusterAction::Accept,
        ClusterAction::Accept,
        ClusterAction::Deny,
        ClusterAction::Deny,
        ClusterAction::Pass,
    ]);
    action.prop_flat_map(move |action| {
        let domains = u32::from(out && action == ClusterAction::Accept);
        let peer = prop_oneof![
            3 => namespaced().prop_map(ClusterPeer::Pods),
            u32::from(out) * 3 => vec(range(), 1..=2).prop_map(ClusterPeer::Networks),
            u32::from(out) * 2 => nodes().prop_map(ClusterPeer::Nodes),
            domains * 3 => vec(domain(), 1..=2).prop_map(ClusterPeer::Domains),
        ];
        let protocol = prop_oneof![
            2 => (protocol(), option::of(ports())).prop_map(|(p, r)| ProtocolMatch::Ports(p, r)),
            1 => port_name().prop_map(ProtocolMatch::Named),
        ];
        (vec(peer, 1..=2), few(protocol)).prop_map(move |(peers, protocols)| ClusterRule {
            name: None,
            action,
            peers,
            protocols,
        })
    })
}

pub(super) fn antrea() -> impl Strategy<Value = AntreaPolicy> {
    let namespace = prop_oneof![3 => Just(""), 1 => Just("x"), 1 => Just("y")];
    let tier = one_of(&[
        "emergency",
        "platform",
        "application",
        "application",
        "baseline",
        "baseline",
        "custom",
        "custom",
        "custom",
        "late",
        "late",
        "missing",
    ]);
    (namespace, one_of(NAMES), tier, select(vec![1.0, 1.5, 5.0])).prop_flat_map(
        |(namespace, name, tier, priority)| {
            let cluster = namespace.is_empty();
            let ingress = vec(antrea_entry(cluster, false), 0..=3);
            let egress = vec(antrea_entry(cluster, true), 0..=3);
            (vec(subject(applied(cluster)), 1..=2), ingress, egress).prop_map(
                move |(applied_to, ingress, egress)| {
                    let (meta, tier) = (meta(namespace, &name), tier.clone());
                    AntreaPolicy { meta, tier, priority, applied_to, ingress, egress }
                },
            )
        },
    )
}

fn antrea_entry(cluster: bool, out: bool) -> impl Strategy<Value = AntreaEntry> {
    let own = prop_oneof![4 => Just(Vec::new()), 1 => vec(subject(applied(cluster)), 1..=1)];
    (own, read(antrea_rule(cluster, out)))
        .prop_map(|(applied_to, rule)| AntreaEntry { applied_to, rule })
}

fn chosen(
    cluster: bool,
) -> BoxedStrategy<(Option<policy_objects::Selector>, Option<policy_objects::Selector>)> {
    prop_oneof![
        6 => (Just(None), most_pods().prop_map(Some)),
        u32::from(cluster) * 4 => (namespaces().prop_map(Some), option::of(pods())),
        1 => Just((None, None)),
    ]
    .boxed()
}

fn applied(cluster: bool) -> impl Strategy<Value = AntreaAppliedTo> {
    prop_oneof![
        20 => chosen(cluster).prop_map(|(namespaces, pods)| AntreaAppliedTo::Pods { namespaces, pods }),
        4 => one_of(GROUPS).prop_map(AntreaAppliedTo::Group),
        2 * u32::from(cluster) => account().prop_map(AntreaAppliedTo::ServiceAccount),
        2 * u32::from(cluster) =>
            named_service().prop_map(|service| AntreaAppliedTo::Service(Some(service))),
        1 => Just(AntreaAppliedTo::Service(None)),
        1 => Just(if cluster { AntreaAppliedTo::Nodes } else { AntreaAppliedTo::External }),
    ]
}

fn antrea_rule(cluster: bool, out: bool) -> impl Strategy<Value = AntreaRule> {
    let action = select(vec![
        AntreaAction::Allow,
        AntreaAction::Allow,
        AntreaAction::Drop,
        AntreaAction::Reject,
        AntreaAction::Pass,
    ]);
    let services =
        vec(named_service(), 1..=2).prop_map(|services| (Vec::new(), Vec::new(), services));
    let peers = mostly_one(antrea_peer(cluster, out));
    let what = prop_oneof![
        8 => (peers, few(antrea_port())).prop_map(|(peers, ports)| (peers, ports, Vec::new())),
        u32::from(out) * 2 => services,
    ];
    (action, what).prop_map(|(action, (peers, ports, services))| AntreaRule {
        name: None,
        action,
        peers,
        ports,
        services,
        logging: None,
    })
}

fn antrea_peer(cluster: bool, out: bool) -> BoxedStrategy<AntreaPeer> {
    let alike = prop_oneof![
        Just(NamespaceMatch::Same),
        Just(NamespaceMatch::SameLabels(vec!["team".to_owned()])),
    ];
    let matching = (alike, option::of(pods()))
        .prop_map(|(namespaces, pods)| AntreaPeer::Matching { namespaces, pods });
    let patterns = one_of(&["*.example.com", "*example.com", "www.*.com", "example.com", "*"]);
    prop_oneof![
        4 => chosen(true).prop_map(|(namespaces, pods)| AntreaPeer::Pods { namespaces, pods }),
        u32::from(cluster) * 2 => matching,
        2 => block().prop_map(AntreaPeer::Block),
        4 => one_of(GROUPS).prop_map(AntreaPeer::Group),
        u32::from(cluster) * 2 => account().prop_map(AntreaPeer::ServiceAccount),
        2 => nodes().prop_map(AntreaPeer::Nodes),
        u32::from(out) * 3 => patterns.prop_map(|text| AntreaPeer::Fqdn(FqdnPattern(text))),
    ]
    .boxed()
}

fn antrea_port() -> impl Strategy<Value = AntreaPort> {
    let source = option::weighted(0.3, ports());
    let icmp = (option::of(select(vec![8, 128])), option::of(0_u8..2))
        .prop_map(|(kind, code)| AntreaPort::Icmp(Icmp { kind, code }));
    prop_oneof![
        4 => (protocol(), target(), source)
            .prop_map(|(protocol, port, source)| AntreaPort::Transport { protocol, port, source }),
        2 => icmp,
    ]
}

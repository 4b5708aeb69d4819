use super::{fields, read};
use crate::{
    ClusterAction, ClusterPeer, ClusterPolicy, ClusterRule, ClusterTier, Dialect, DomainName,
    NamespacedPods, Note, Object, PortRange, Protocol, ProtocolMatch, Read, Selector, Severity,
};
use serde_json::{Value, json};

fn policy(dialect: Dialect, spec: &Value) -> (ClusterPolicy, Vec<Note>) {
    let version = match dialect {
        Dialect::Upstream => "policy.networking.k8s.io/v1alpha2",
        Dialect::Aws => "networking.k8s.aws/v1alpha1",
    };
    let (object, notes) = read(version, "ClusterNetworkPolicy", spec);
    let Object::ClusterPolicy(policy) = object else { panic!("another kind") };
    assert_eq!(policy.dialect, dialect);
    (policy, notes)
}

fn spec(more: &Value) -> Value {
    let mut spec = json!({"tier": "Baseline", "priority": 7, "subject": {"namespaces": {}}});
    let map = spec.as_object_mut().expect("an object");
    map.extend(more.as_object().expect("an object").clone());
    spec
}

/// An egress rule, and the notes.
fn egress(dialect: Dialect, rule: &Value) -> (Read<ClusterRule>, Vec<Note>) {
    let fine = json!({"action": "Deny", "to": [{"namespaces": {}}]});
    let (mut policy, notes) = policy(dialect, &spec(&json!({"egress": [rule, fine]})));
    assert!(policy.egress[1].known().is_some(), "the other rule stands");
    (policy.egress.remove(0), notes)
}

fn peer(dialect: Dialect, peer: &Value) -> (Read<ClusterRule>, Vec<Note>) {
    egress(dialect, &json!({"action": "Accept", "to": [peer]}))
}

fn known(read: (Read<ClusterRule>, Vec<Note>)) -> ClusterRule {
    let Read::Known(rule) = read.0 else { panic!("{read:?}") };
    rule
}

fn everyone() -> ClusterPeer {
    ClusterPeer::Pods(NamespacedPods::default())
}

#[test]
fn a_policy_is_read_as_it_stands() {
    let (policy, notes) = policy(
        Dialect::Upstream,
        &spec(&json!({
            "subject": {"pods": {"podSelector": {"matchLabels": {"a": "1"}}}},
            "ingress": [{"name": "one", "action": "Pass", "from": [{"namespaces": {}}], "protocols": [
                {"tcp": {"destinationPort": {"number": 80}}},
                {"udp": {"destinationPort": {"range": {"start": 1, "end": 9}}}},
                {"destinationNamedPort": "web"},
            ]}],
        })),
    );
    assert_eq!((policy.tier, policy.priority), (ClusterTier::Baseline, 7));
    let pods = Selector::equal("a", "1");
    assert_eq!(policy.subject.selects, NamespacedPods { namespaces: Selector::default(), pods });
    assert_eq!(policy.subject.doubt, None);
    let range = |first, last| Some(PortRange { first, last });
    assert_eq!(
        policy.ingress,
        [Read::Known(ClusterRule {
            name: Some("one".to_owned()),
            action: ClusterAction::Pass,
            peers: vec![everyone()],
            protocols: vec![
                ProtocolMatch::Ports(Protocol::Tcp, range(80, 80)),
                ProtocolMatch::Ports(Protocol::Udp, range(1, 9)),
                ProtocolMatch::Named("web".to_owned()),
            ],
        })]
    );
    assert_eq!(notes, []);
}

#[test]
fn peers_of_egress_are_pods_networks_nodes_and_names() {
    let peers = |value: Value| known(peer(Dialect::Upstream, &value)).peers;
    assert_eq!(peers(json!({"pods": {"podSelector": {}}})), [everyone()]);
    assert_eq!(peers(json!({"nodes": {}})), [ClusterPeer::Nodes(Selector::default())]);
    let networks = ["10.0.0.0/8", "::/0"].map(|cidr| cidr.parse().expect("a range"));
    let written = json!({"networks": ["::/0", "10.0.0.5/8", "10.0.0.0/8"]});
    assert_eq!(peers(written.clone()), [ClusterPeer::Networks(networks.to_vec())]);
    assert_eq!(fields(&peer(Dialect::Upstream, &written).1, Severity::Warning).len(), 1);
    let names = vec![
        DomainName::Below("example.com".to_owned()),
        DomainName::Exact("a.example.com".to_owned()),
    ];
    let written = json!({"domainNames": ["*.example.com.", "A.example.com"]});
    assert_eq!(peers(written), [ClusterPeer::Domains(names)]);
}

#[test]
fn a_rule_that_is_not_understood_keeps_its_name_and_its_action() {
    let to = json!([{"namespaces": {}}]);
    let with =
        |protocols: Value| json!({"action": "Deny", "name": "r", "to": to, "protocols": protocols});
    let peers = |peers: Value| json!({"action": "Deny", "name": "r", "to": peers});
    let tcp = |port: Value| with(json!([{"tcp": port}]));
    for rule in [
        json!({"action": "Deny", "name": "r"}),
        json!({"action": "Deny", "name": "r", "to": to, "from": to}),
        json!({"action": "Deny", "name": "r", "to": to, "ports": []}),
        peers(json!([])),
        peers(json!([{}])),
        peers(json!([{"new": {}}])),
        peers(json!([{"namespaces": {}, "new": {}}])),
        peers(json!([{"namespaces": {}, "pods": {"podSelector": {}}}])),
        peers(json!([{"namespaces": {"sameLabels": ["a"]}}])),
        peers(json!([{"namespaces": {"namespaceSelector": {}, "matchLabels": {}}}])),
        peers(json!([{"pods": {}}])),
        peers(json!([{"pods": {"namespaceSelector": {}}}])),
        peers(json!([{"networks": []}])),
        peers(json!([{"networks": ["10.0.0.0"]}])),
        peers(json!([{"nodes": {"matchExpressions": [{"key": "a", "operator": "In"}]}}])),
        peers(json!([{"domainNames": ["www.example.com"]}])),
        with(json!([])),
        with(json!([{}])),
        with(json!([{"icmp": {}}])),
        with(json!([{"tcp": {}, "udp": {}}])),
        with(json!([{"tcp": null}])),
        with(json!([{"destinationNamedPort": ""}])),
        with(json!([{"destinationNamedPort": 80}])),
        tcp(json!({"port": 80})),
        tcp(json!({"destinationPort": {}})),
        tcp(json!({"destinationPort": {"number": 0}})),
        tcp(json!({"destinationPort": {"number": 70_000}})),
        tcp(json!({"destinationPort": {"number": "web"}})),
        tcp(json!({"destinationPort": {"number": 1, "range": {"start": 1, "end": 2}}})),
        tcp(json!({"destinationPort": {"range": {"start": 2, "end": 1}}})),
        tcp(json!({"destinationPort": {"range": {"start": 2}}})),
    ] {
        let (read, notes) = egress(Dialect::Upstream, &rule);
        let Read::Unknown(unknown) = read else { panic!("{rule} is understood") };
        assert_eq!(unknown.name.as_deref(), Some("r"), "{rule}");
        assert_eq!(unknown.action.as_deref(), Some("Deny"), "{rule}");
        let errors: Vec<_> = notes.iter().filter(|note| note.severity == Severity::Error).collect();
        assert_eq!(errors.len(), 1, "{rule}");
        assert!(errors[0].field.starts_with("spec.egress[0]"), "{}", errors[0].field);
        assert!(errors[0].text.ends_with("denies all of its direction until that is fixed"));
    }
}

#[test]
fn an_action_that_is_not_known_is_kept_as_it_is_written() {
    for action in [json!("Allow"), json!("accept"), json!("Log")] {
        let rule = json!({"action": action, "to": [{"namespaces": {}}]});
        let (Read::Unknown(unknown), _) = egress(Dialect::Upstream, &rule) else {
            panic!("{rule}")
        };
        assert_eq!(unknown.action.as_deref(), action.as_str());
    }
    let rule = json!({"to": [{"namespaces": {}}]});
    let (Read::Unknown(unknown), _) = egress(Dialect::Upstream, &rule) else { panic!("{rule}") };
    assert_eq!(unknown.action, None);
}

#[test]
fn domain_names_are_accepted_and_nothing_else() {
    for (action, understood) in [("Accept", true), ("Deny", false), ("Pass", false)] {
        for dialect in [Dialect::Upstream, Dialect::Aws] {
            let rule = json!({"action": action, "to": [{"domainNames": ["a.example.com"]}]});
            assert_eq!(egress(dialect, &rule).0.known().is_some(), understood, "{action}");
        }
    }
}

#[test]
fn peers_of_ingress_are_pods_alone() {
    for (peer, understood) in [
        (json!({"namespaces": {}}), true),
        (json!({"pods": {"podSelector": {}, "namespaceSelector": {}}}), true),
        (json!({"networks": ["10.0.0.0/8"]}), false),
        (json!({"nodes": {}}), false),
        (json!({"domainNames": ["a.b"]}), false),
    ] {
        let rule = json!({"action": "Accept", "from": [peer]});
        for dialect in [Dialect::Upstream, Dialect::Aws] {
            let (policy, _) = policy(dialect, &spec(&json!({"ingress": [rule]})));
            assert_eq!(policy.ingress[0].known().is_some(), understood, "{peer}");
        }
    }
}

#[test]
fn what_is_odd_but_clear_is_read_and_noted() {
    let to = json!([{"namespaces": {}}]);
    let protocol = |protocol: Value| {
        let (read, notes) = egress(
            Dialect::Upstream,
            &json!({"action": "Accept", "to": to, "protocols": [protocol]}),
        );
        assert_eq!(fields(&notes, Severity::Warning).len(), 1, "{notes:?}");
        known((read, notes)).protocols.remove(0)
    };
    let every = ProtocolMatch::Ports(Protocol::Sctp, None);
    assert_eq!(protocol(json!({"sctp": {}})), every);
    let one = ProtocolMatch::Ports(Protocol::Tcp, Some(PortRange { first: 80, last: 80 }));
    assert_eq!(
        protocol(json!({"tcp": {"destinationPort": {"range": {"start": 80, "end": 80}}}})),
        one
    );
    let old = json!({"namespaces": {"namespaceSelector": {"matchLabels": {"a": "1"}}}});
    let (read, notes) = peer(Dialect::Upstream, &old);
    let namespaces = Selector::equal("a", "1");
    let meant = ClusterPeer::Pods(NamespacedPods { namespaces, pods: Selector::default() });
    assert_eq!(
        fields(&notes, Severity::Warning),
        ["spec.egress[0].to[0].namespaces.namespaceSelector"]
    );
    assert_eq!(known((read, notes)).peers, [meant]);
    let named = json!({"action": "Deny", "to": [{"networks": ["10.0.0.0/8"]}],
        "protocols": [{"destinationNamedPort": "web"}]});
    let (read, notes) = egress(Dialect::Upstream, &named);
    assert!(read.known().is_some() && fields(&notes, Severity::Warning) == ["spec.egress[0]"]);
    assert!(notes[0].text.contains("match pods that have such a port"), "{notes:?}");
}

#[test]
fn more_than_an_api_server_takes_is_enforced_and_noted() {
    for (dialect, count, odd) in [
        (Dialect::Upstream, 25, false),
        (Dialect::Upstream, 26, true),
        (Dialect::Aws, 100, false),
        (Dialect::Aws, 101, true),
    ] {
        let rules = vec![json!({"action": "Deny", "to": [{"namespaces": {}}]}); count];
        let (policy, notes) = policy(dialect, &spec(&json!({"egress": rules})));
        assert_eq!(policy.egress.len(), count);
        assert_eq!(fields(&notes, Severity::Warning).len(), usize::from(odd), "{count}");
    }
    let (policy, notes) = policy(Dialect::Upstream, &spec(&json!({"priority": 1001})));
    assert_eq!(policy.priority, 1001);
    assert_eq!(fields(&notes, Severity::Warning), ["spec.priority"]);
}

#[test]
fn a_tier_or_priority_that_is_not_understood_comes_first_and_makes_every_rule_unknown() {
    let rules = json!({"ingress": [{"action": "Deny", "from": [{"namespaces": {}}]}]});
    for odd in [
        json!({"tier": "admin"}),
        json!({"tier": null}),
        json!({"tier": 1}),
        json!({"priority": null}),
        json!({"priority": "7"}),
        json!({"priority": 7.5}),
        json!({"priority": 5_000_000_000_i64}),
        json!({"order": 1}),
    ] {
        let mut spec = spec(&rules);
        spec.as_object_mut().expect("one").extend(odd.as_object().expect("one").clone());
        let (policy, notes) = policy(Dialect::Upstream, &spec);
        let Read::Unknown(unknown) = &policy.ingress[0] else { panic!("{odd}") };
        assert_eq!(unknown.action.as_deref(), Some("Deny"));
        assert_eq!(fields(&notes, Severity::Error).len(), 1, "{odd}");
        let key = odd.as_object().and_then(|map| map.keys().next()).map(String::as_str);
        assert_eq!(policy.tier == ClusterTier::Admin, key == Some("tier"), "{odd}");
        assert_eq!(policy.priority == i32::MIN, key == Some("priority"), "{odd}");
    }
}

#[test]
fn a_subject_that_is_not_understood_is_as_wide_as_it_may_have_been_meant() {
    let a = || Selector::equal("a", "1");
    let broken =
        json!({"matchLabels": {"a": "1"}, "matchExpressions": [{"key": "b", "operator": "In"}]});
    for (subject, namespaces, pods) in [
        (json!(null), Selector::default(), Selector::default()),
        (json!({}), Selector::default(), Selector::default()),
        (json!({"nodes": {}}), Selector::default(), Selector::default()),
        (
            json!({"namespaces": {"matchLabels": {"a": "1"}}, "new": 1}),
            Selector::default(),
            Selector::default(),
        ),
        (
            json!({"namespaces": {"matchLabels": {"a": "1"}}, "pods": {"podSelector": {}}}),
            Selector::default(),
            Selector::default(),
        ),
        (json!({"namespaces": broken}), a(), Selector::default()),
        (json!({"pods": {"podSelector": broken}}), Selector::default(), a()),
        (json!({"pods": {"namespaceSelector": broken, "podSelector": broken}}), a(), a()),
        (
            json!({"pods": {"namespaceSelector": {"matchLabels": {"a": "1"}}}}),
            a(),
            Selector::default(),
        ),
    ] {
        let (policy, notes) = policy(Dialect::Upstream, &spec(&json!({"subject": subject})));
        assert_eq!(policy.subject.selects, NamespacedPods { namespaces, pods }, "{subject}");
        assert!(policy.subject.doubt.is_some(), "{subject}");
        assert_eq!(fields(&notes, Severity::Error).len(), 1, "{subject}");
    }
}

#[test]
fn rules_that_are_no_list_are_one_rule_that_denies_all() {
    for rules in [json!({}), json!("all"), json!(1)] {
        let (policy, _) = policy(Dialect::Upstream, &spec(&json!({"ingress": rules})));
        let [Read::Unknown(unknown)] = policy.ingress.as_slice() else { panic!("{rules}") };
        assert_eq!(unknown.action, None);
        assert_eq!(policy.egress, []);
    }
    let (policy, _) = policy(Dialect::Upstream, &json!([]));
    assert_eq!((policy.ingress.len(), policy.egress.len()), (1, 1));
    assert!(policy.ingress[0].known().is_none() && policy.subject.doubt.is_some());
}

#[test]
fn the_aws_form_has_ports_with_tcp_as_default_and_no_nodes() {
    let ports = |ports: Value| {
        egress(Dialect::Aws, &json!({"action": "Deny", "to": [{"namespaces": {}}], "ports": ports}))
    };
    let range = |first, last| Some(PortRange { first, last });
    let read = ports(json!([
        {"portNumber": {"port": 80}}, {"portNumber": {"protocol": "UDP", "port": 53}},
        {"portRange": {"protocol": "SCTP", "start": 1, "end": 9}}, {"namedPort": "web"},
    ]));
    assert_eq!(
        known(read).protocols,
        [
            ProtocolMatch::Ports(Protocol::Tcp, range(80, 80)),
            ProtocolMatch::Ports(Protocol::Udp, range(53, 53)),
            ProtocolMatch::Ports(Protocol::Sctp, range(1, 9)),
            ProtocolMatch::Named("web".to_owned()),
        ]
    );
    for odd in [
        json!([]),
        json!([{}]),
        json!([{"portNumber": {}}]),
        json!([{"portNumber": {"port": 0}}]),
        json!([{"portNumber": {"port": 1}, "namedPort": "web"}]),
        json!([{"portRange": {"start": 9, "end": 1}}]),
        json!([{"portRange": {"start": 9}}]),
        json!([{"tcp": {}}]),
    ] {
        assert!(ports(odd.clone()).0.known().is_none(), "{odd}");
    }
    assert!(peer(Dialect::Aws, &json!({"nodes": {}})).0.known().is_none());
    assert!(peer(Dialect::Aws, &json!({"pods": {"podSelector": {}}})).0.known().is_none());
    let both = json!({"pods": {"podSelector": {}, "namespaceSelector": {}}});
    assert!(peer(Dialect::Aws, &both).0.known().is_some());
    let rule = json!({"action": "Deny", "to": [{"namespaces": {}}], "protocols": [{"tcp": {}}]});
    assert!(egress(Dialect::Aws, &rule).0.known().is_none());
}

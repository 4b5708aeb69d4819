use super::{fields, read};
use crate::{
    Block, DomainName, NetworkPeer, NetworkPolicy, NetworkPort, NetworkRule, Note, Object,
    PolicyType, PortRange, Protocol, Read, Selector, Severity, TargetPort,
};
use serde_json::{Value, json};

fn policy(spec: &Value) -> (NetworkPolicy, Vec<Note>) {
    let (object, notes) = read("networking.k8s.io/v1", "NetworkPolicy", spec);
    let Object::NetworkPolicy(policy) = object else { panic!("another kind") };
    (policy, notes)
}

fn application(spec: &Value) -> (NetworkPolicy, Vec<Note>) {
    let (object, notes) = read("networking.k8s.aws/v1alpha1", "ApplicationNetworkPolicy", spec);
    let Object::NetworkPolicy(policy) = object else { panic!("another kind") };
    (policy, notes)
}

/// The one ingress rule, and the notes.
fn rule(rule: &Value) -> (Read<NetworkRule>, Vec<Note>) {
    let (policy, notes) = policy(&json!({"ingress": [rule, {}]}));
    assert_eq!(policy.ingress[1], Read::Known(ANY), "the other rule stands");
    (policy.ingress[0].clone(), notes)
}

/// The rule of one peer is understood, and this is noted.
fn peer(peer: &Value) -> (NetworkPeer, Vec<Note>) {
    let (read, notes) = rule(&json!({"from": [peer]}));
    let Read::Known(mut known) = read else { panic!("{peer} is not understood: {notes:?}") };
    (known.peers.remove(0), notes)
}

const ANY: NetworkRule = NetworkRule { peers: Vec::new(), ports: Vec::new() };

#[test]
fn a_policy_without_rules_isolates_ingress_of_its_whole_namespace() {
    for spec in
        [json!({}), json!(null), json!({"podSelector": null, "policyTypes": [], "new": null})]
    {
        let (policy, _) = policy(&spec);
        assert_eq!(policy.types, [PolicyType::Ingress], "{spec}");
        assert_eq!(policy.subject.selects, Selector::default());
        assert_eq!((policy.subject.doubt, policy.ingress, policy.egress), (None, vec![], vec![]));
    }
}

#[test]
fn a_policy_isolates_egress_by_its_types_or_by_an_egress_rule() {
    let types = |spec: Value| policy(&spec).0.types;
    assert_eq!(types(json!({"egress": []})), [PolicyType::Ingress]);
    assert_eq!(types(json!({"egress": [{}]})), [PolicyType::Ingress, PolicyType::Egress]);
    assert_eq!(types(json!({"policyTypes": ["Egress"]})), [PolicyType::Egress]);
    assert_eq!(types(json!({"policyTypes": ["Ingress"], "egress": [{}]})), [PolicyType::Ingress]);
    assert_eq!(types(json!({"policyTypes": ["Ingress", "Ingress"]})), [PolicyType::Ingress]);
}

#[test]
fn types_that_are_not_understood_are_both() {
    for types in [json!(["Ingres"]), json!(["Ingress", 1]), json!("Ingress"), json!([null])] {
        let (policy, notes) = policy(&json!({"policyTypes": types}));
        assert_eq!(policy.types, [PolicyType::Ingress, PolicyType::Egress], "{types}");
        assert_eq!(fields(&notes, Severity::Error).len(), 1, "{types}");
    }
    for spec in [json!([]), json!("x"), json!({"egress": "all"})] {
        let (policy, notes) = policy(&spec);
        assert_eq!(policy.types, [PolicyType::Ingress, PolicyType::Egress], "{spec}");
        assert!(!fields(&notes, Severity::Error).is_empty());
    }
}

#[test]
fn rules_of_a_direction_that_is_not_among_the_types_are_noted() {
    let (policy, notes) = policy(&json!({"policyTypes": ["Egress"], "ingress": [{}]}));
    assert_eq!(policy.ingress.len(), 1);
    assert_eq!(fields(&notes, Severity::Warning), ["spec"]);
}

#[test]
fn a_rule_is_read_as_it_stands() {
    let (read, notes) = rule(&json!({
        "from": [{"podSelector": {"matchLabels": {"app": "web"}}}],
        "ports": [{"port": 80}, {"protocol": "SCTP", "port": 1, "endPort": 9}, {"port": "web"}],
    }));
    let pods = Some(Selector::equal("app", "web"));
    let sctp = TargetPort::Numbers(PortRange { first: 1, last: 9 });
    let web = TargetPort::Named("web".to_owned());
    let expected = NetworkRule {
        peers: vec![NetworkPeer::Pods { namespaces: None, pods }],
        ports: vec![
            NetworkPort::number(Protocol::Tcp, 80),
            NetworkPort { protocol: Protocol::Sctp, port: Some(sctp) },
            NetworkPort { protocol: Protocol::Tcp, port: Some(web) },
        ],
    };
    assert_eq!((read, notes), (Read::Known(expected), vec![]));
}

#[test]
fn an_empty_list_is_one_that_is_absent() {
    for any in [
        json!({}),
        json!({"from": [], "ports": []}),
        json!({"from": null, "ports": null, "to": null}),
    ] {
        assert_eq!(rule(&any), (Read::Known(ANY), vec![]), "{any}");
        let (policy, notes) = application(&json!({"ingress": [any]}));
        assert_eq!((policy.ingress, notes), (vec![Read::Known(ANY)], vec![]), "{any}");
    }
}

#[test]
fn a_selector_that_is_absent_differs_from_an_empty_one() {
    let all = || Some(Selector::default());
    for (written, namespaces, pods) in [
        (json!({"podSelector": {}}), None, all()),
        (json!({"namespaceSelector": {}}), all(), None),
        (json!({"namespaceSelector": {}, "podSelector": null}), all(), None),
        (json!({"namespaceSelector": {}, "podSelector": {"matchLabels": {}}}), all(), all()),
    ] {
        assert_eq!(peer(&written), (NetworkPeer::Pods { namespaces, pods }, vec![]), "{written}");
    }
}

#[test]
fn what_is_not_understood_is_an_unknown_rule_and_the_reason_names_it() {
    let selector =
        |expression: Value| json!({"from": [{"podSelector": {"matchExpressions": [expression]}}]});
    let port = |port: Value| json!({"ports": [port]});
    let cidr = |cidr: &str| json!({"from": [{"ipBlock": {"cidr": cidr}}]});
    for (written, field) in [
        (json!(null), ""),
        (json!(7), ""),
        (json!({"form": []}), ""),
        (json!({"to": []}), ""),
        (json!({"from": {}}), ".from"),
        (json!({"from": [{}]}), ".from[0]"),
        (json!({"from": [null]}), ".from[0]"),
        (json!({"from": [{"new": {}}]}), ".from[0]"),
        (json!({"from": [{"podSelector": {}, "new": {}}]}), ".from[0]"),
        (json!({"from": [{"domainNames": ["a.b"]}]}), ".from[0]"),
        (json!({"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}, "podSelector": {}}]}), ".from[0]"),
        (json!({"from": [{"ipBlock": {}}]}), ".from[0].ipBlock"),
        (json!({"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "new": 1}}]}), ".from[0].ipBlock"),
        (
            json!({"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": "10.0.0.0/9"}}]}),
            ".from[0].ipBlock.except",
        ),
        (
            json!({"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.0.0.1"]}}]}),
            ".from[0].ipBlock.except[0]",
        ),
        (cidr("10.0.0.0"), ".from[0].ipBlock.cidr"),
        (cidr("10.0.0.0/33"), ".from[0].ipBlock.cidr"),
        (cidr("10.0.0.0/+8"), ".from[0].ipBlock.cidr"),
        (cidr("10.0.0/8"), ".from[0].ipBlock.cidr"),
        (cidr("256.0.0.0/8"), ".from[0].ipBlock.cidr"),
        (cidr("::/129"), ".from[0].ipBlock.cidr"),
        (cidr("::ffff:10.0.0.0/90"), ".from[0].ipBlock.cidr"),
        (cidr("fe80::1%eth0/64"), ".from[0].ipBlock.cidr"),
        (cidr(""), ".from[0].ipBlock.cidr"),
        (
            json!({"from": [{"podSelector": {"matchLabels": {"a b": "1"}}}]}),
            ".from[0].podSelector.matchLabels.a b",
        ),
        (
            json!({"from": [{"podSelector": {"matchLabels": {"a": 1}}}]}),
            ".from[0].podSelector.matchLabels.a",
        ),
        (
            json!({"from": [{"podSelector": {"matchLabels": []}}]}),
            ".from[0].podSelector.matchLabels",
        ),
        (json!({"from": [{"podSelector": {"matchLabel": {}}}]}), ".from[0].podSelector"),
        (json!({"from": [{"podSelector": "app=a"}]}), ".from[0].podSelector"),
        (
            selector(json!({"key": "a", "operator": "In"})),
            ".from[0].podSelector.matchExpressions[0]",
        ),
        (
            selector(json!({"key": "a", "operator": "NotIn", "values": []})),
            ".from[0].podSelector.matchExpressions[0]",
        ),
        (
            selector(json!({"key": "a", "operator": "Exists", "values": ["1"]})),
            ".from[0].podSelector.matchExpressions[0]",
        ),
        (
            selector(json!({"key": "a", "operator": "in", "values": ["1"]})),
            ".from[0].podSelector.matchExpressions[0].operator",
        ),
        (
            selector(json!({"key": "a", "operator": "Gt", "values": ["1"]})),
            ".from[0].podSelector.matchExpressions[0].operator",
        ),
        (
            selector(json!({"key": "a", "values": ["1"]})),
            ".from[0].podSelector.matchExpressions[0]",
        ),
        (selector(json!({"operator": "Exists"})), ".from[0].podSelector.matchExpressions[0]"),
        (
            selector(json!({"key": "", "operator": "Exists"})),
            ".from[0].podSelector.matchExpressions[0].key",
        ),
        (port(json!({"port": 0})), ".ports[0].port"),
        (port(json!({"port": 70_000})), ".ports[0].port"),
        (port(json!({"port": -1})), ".ports[0].port"),
        (port(json!({"port": 80.5})), ".ports[0].port"),
        (port(json!({"port": "80"})), ".ports[0].port"),
        (port(json!({"port": ""})), ".ports[0].port"),
        (port(json!({"port": "Web"})), ".ports[0].port"),
        (port(json!({"port": "a--b"})), ".ports[0].port"),
        (port(json!({"port": 9, "endPort": 1})), ".ports[0].endPort"),
        (port(json!({"port": 9, "endPort": 70_000})), ".ports[0].endPort"),
        (port(json!({"port": "web", "endPort": 9})), ".ports[0].endPort"),
        (port(json!({"endPort": 9})), ".ports[0].endPort"),
        (port(json!({"protocol": "tcp"})), ".ports[0].protocol"),
        (port(json!({"protocol": "ICMP"})), ".ports[0].protocol"),
        (port(json!({"protocol": ""})), ".ports[0].protocol"),
        (port(json!({"port": 80, "sourcePort": 1})), ".ports[0]"),
    ] {
        let (read, notes) = rule(&written);
        let Read::Unknown(unknown) = read else { panic!("{written} is understood") };
        let field = format!("spec.ingress[0]{field}");
        assert!(unknown.why.starts_with(&format!("{field}: ")), "{written}: {}", unknown.why);
        assert_eq!(fields(&notes, Severity::Error), [field], "{written}");
    }
}

#[test]
fn a_field_of_the_spec_that_is_not_known_makes_every_rule_unknown() {
    let (policy, notes) = policy(&json!({"ingress": [{}], "egress": [{}], "scope": "all"}));
    for rule in policy.ingress.iter().chain(&policy.egress) {
        let Read::Unknown(unknown) = rule else { panic!("{rule:?}") };
        assert!(unknown.why.contains("`scope`"), "{}", unknown.why);
    }
    assert_eq!(policy.types, [PolicyType::Ingress, PolicyType::Egress]);
    assert_eq!(fields(&notes, Severity::Error), ["spec"]);
}

#[test]
fn a_subject_that_is_not_understood_selects_at_least_those_that_were_meant() {
    let requirement = |key: &str| json!({"key": key, "operator": "Exists"});
    let broken = json!({"key": "b", "operator": "In"});
    for (selector, left) in [
        (
            json!({"matchLabels": {"a": "1"}, "matchExpressions": [broken]}),
            Selector::equal("a", "1"),
        ),
        (json!({"matchLabels": {"a": "1"}, "new": 1}), Selector::equal("a", "1")),
        (json!({"matchLabels": {"a": "1", "b": 2}}), Selector::equal("a", "1")),
        (json!("a=1"), Selector::default()),
        (json!({"matchExpressions": requirement("a")}), Selector::default()),
    ] {
        let (policy, notes) = policy(&json!({"podSelector": selector, "ingress": [{}]}));
        assert_eq!(policy.subject.selects, left, "{selector}");
        let doubt = policy.subject.doubt.expect("a doubt");
        assert!(doubt.starts_with("spec.podSelector"), "{doubt}");
        assert_eq!(fields(&notes, Severity::Error).len(), 1);
        assert_eq!(policy.ingress, [Read::Known(ANY)]);
    }
}

#[test]
fn a_range_is_masked_and_what_was_odd_about_it_is_noted() {
    for (written, read) in [
        ("10.0.0.5/8", "10.0.0.0/8"),
        ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
        ("::ffff:10.0.0.5/104", "10.0.0.0/8"),
        ("010.000.000.001/32", "10.0.0.1/32"),
        ("10.0.0.0/08", "10.0.0.0/8"),
        ("2001:db8::1/32", "2001:db8::/32"),
        ("0.0.0.1/0", "0.0.0.0/0"),
    ] {
        let (peer, notes) = peer(&json!({"ipBlock": {"cidr": written}}));
        let cidr = read.parse().expect("a range");
        assert_eq!(peer, NetworkPeer::Block(Block { cidr, except: vec![] }), "{written}");
        assert_eq!(fields(&notes, Severity::Warning), ["spec.ingress[0].from[0].ipBlock.cidr"]);
        assert_eq!(notes.len(), 1);
    }
    for plain in ["10.0.0.0/8", "0.0.0.0/0", "::/0", "2001:DB8::/32", "10.0.0.1/32"] {
        assert_eq!(peer(&json!({"ipBlock": {"cidr": plain}})).1, [], "{plain}");
    }
}

#[test]
fn exceptions_are_kept_sorted_and_the_odd_ones_noted() {
    let except =
        ["10.2.0.0/16", "10.1.0.0/16", "10.2.0.0/16", "192.168.0.0/16", "10.0.0.0/8", "::/0"];
    let (peer, notes) = peer(&json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": except}}));
    let NetworkPeer::Block(block) = peer else { panic!("{peer:?}") };
    let kept: Vec<String> = block.except.iter().map(ToString::to_string).collect();
    assert_eq!(kept, ["10.0.0.0/8", "10.1.0.0/16", "10.2.0.0/16", "192.168.0.0/16", "::/0"]);
    let odd = [3, 4, 5].map(|n| format!("spec.ingress[0].from[0].ipBlock.except[{n}]"));
    assert_eq!(fields(&notes, Severity::Warning), odd);
}

#[test]
fn ten_thousand_exceptions_are_all_kept_and_get_few_notes() {
    let hole = |n: usize| format!("10.{}.{}.1/24", n / 256, n % 256);
    let except: Vec<String> = (0..10_000).map(hole).collect();
    let (peer, notes) = peer(&json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": except}}));
    let NetworkPeer::Block(block) = peer else { panic!("{peer:?}") };
    assert_eq!(block.except.len(), 10_000);
    assert!((2..100).contains(&notes.len()), "{}", notes.len());
    assert!(notes[0].text.contains("10000 exceptions"), "{}", notes[0].text);
}

#[test]
fn a_range_of_one_port_and_a_value_that_no_label_has_are_noted() {
    let (read, notes) = rule(&json!({"ports": [{"port": 80, "endPort": 80}]}));
    let expected =
        NetworkRule { peers: vec![], ports: vec![NetworkPort::number(Protocol::Tcp, 80)] };
    assert_eq!(read, Read::Known(expected));
    assert_eq!(fields(&notes, Severity::Warning), ["spec.ingress[0].ports[0].endPort"]);
    let (peer, notes) = peer(&json!({"podSelector": {"matchLabels": {"a": "not a value"}}}));
    let pods = Some(Selector::equal("a", "not a value"));
    assert_eq!(peer, NetworkPeer::Pods { namespaces: None, pods });
    assert_eq!(fields(&notes, Severity::Warning).len(), 1);
}

#[test]
fn names_are_peers_of_an_application_network_policys_egress_alone() {
    let egress = |peer: Value| {
        let (policy, _) = application(&json!({"egress": [{"to": [peer]}]}));
        policy.egress[0].known().map(|rule| rule.peers.clone())
    };
    let below = DomainName::Below("example.com".to_owned());
    let exact = DomainName::Exact("www.example.com".to_owned());
    let names = json!({"domainNames": ["*.Example.com", "www.example.com."]});
    assert_eq!(egress(names), Some(vec![NetworkPeer::Domains(vec![below, exact])]));
    for odd in [
        json!({"domainNames": []}),
        json!({"domainNames": ["com"]}),
        json!({"domainNames": ["*"]}),
        json!({"domainNames": ["*.com"]}),
        json!({"domainNames": ["a.*.com"]}),
        json!({"domainNames": ["a..com"]}),
        json!({"domainNames": ["a_b.com"]}),
        json!({"domainNames": ["a.b"], "podSelector": {}}),
        json!({"domainNames": "a.b"}),
    ] {
        assert_eq!(egress(odd.clone()), None, "{odd}");
    }
    let (policy, _) = application(&json!({"ingress": [{"from": [{"domainNames": ["a.b"]}]}]}));
    assert_eq!(policy.ingress[0].known(), None);
}

#[test]
fn an_application_network_policy_is_checked_here_since_its_api_server_does_not() {
    let ports = json!([{"port": 80}, {"port": 0}, {"port": 9, "endPort": 1}, {"protocol": "x"}]);
    let rules: Vec<Value> =
        ports.as_array().into_iter().flatten().map(|port| json!({"ports": [port]})).collect();
    let (policy, notes) = application(&json!({"ingress": rules}));
    let known: Vec<bool> = policy.ingress.iter().map(|rule| rule.known().is_some()).collect();
    assert_eq!(known, [true, false, false, false]);
    assert_eq!(policy.types, [PolicyType::Ingress]);
    assert_eq!(fields(&notes, Severity::Error).len(), 3);
}

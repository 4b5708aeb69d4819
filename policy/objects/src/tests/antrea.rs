use super::{fields, read};
use crate::{
    AntreaAction, AntreaAppliedTo, AntreaPeer, AntreaPolicy, AntreaPort, AntreaRule, Block,
    FqdnPattern, Group, GroupSpec, Icmp, Logging, Named, NamespaceMatch, Note, Object, PortRange,
    Protocol, Read, Selector, Severity, Subject, TargetPort, Tier,
};
use serde_json::{Value, json};

const CLUSTER: &str = "ClusterNetworkPolicy";
const NAMESPACED: &str = "NetworkPolicy";

fn policy(kind: &str, spec: &Value) -> (AntreaPolicy, Vec<Note>) {
    let (object, notes) = read("crd.antrea.io/v1beta1", kind, spec);
    let Object::AntreaPolicy(policy) = object else { panic!("another kind") };
    assert_eq!(policy.meta.namespace.is_empty(), kind == CLUSTER);
    (policy, notes)
}

fn spec(more: &Value) -> Value {
    let mut spec = json!({"priority": 5, "appliedTo": [{"podSelector": {}}]});
    let map = spec.as_object_mut().expect("an object");
    map.extend(more.as_object().expect("an object").clone());
    spec
}

/// A rule of a direction, and the notes.
fn rule(kind: &str, direction: &str, rule: &Value) -> (Read<AntreaRule>, Vec<Note>) {
    let (policy, notes) = policy(kind, &spec(&json!({direction: [rule, {"action": "Drop"}]})));
    let mut entries = if direction == "ingress" { policy.ingress } else { policy.egress };
    assert!(entries[1].rule.known().is_some(), "the other rule stands");
    (entries.remove(0).rule, notes)
}

fn known(read: (Read<AntreaRule>, Vec<Note>)) -> AntreaRule {
    let Read::Known(rule) = read.0 else { panic!("{read:?}") };
    rule
}

fn peer(kind: &str, direction: &str, peer: &Value) -> (Option<AntreaPeer>, Vec<Note>) {
    let side = if direction == "ingress" { "from" } else { "to" };
    let (read, notes) = rule(kind, direction, &json!({"action": "Allow", side: [peer]}));
    (read.known().map(|rule| rule.peers[0].clone()), notes)
}

fn named(namespace: &str, name: &str) -> Named {
    Named { namespace: namespace.to_owned(), name: name.to_owned() }
}

fn pods(namespaces: Option<Selector>, pods: Option<Selector>) -> AntreaPeer {
    AntreaPeer::Pods { namespaces, pods }
}

#[test]
fn a_rule_is_read_as_it_stands() {
    let (read, notes) = rule(
        CLUSTER,
        "egress",
        &json!({
            "name": "r", "action": "Reject", "to": [{"podSelector": {"matchLabels": {"a": "1"}}}],
            "ports": [
                {"port": 80}, {"protocol": "UDP", "port": 1, "endPort": 9}, {"port": "web"},
                {"protocol": "SCTP", "sourcePort": 7}, {"sourcePort": 7, "sourceEndPort": 9},
            ],
            "protocols": [{"icmp": {"icmpType": 8, "icmpCode": 0}}, {"icmp": {}}],
            "enableLogging": true, "logLabel": "l",
        }),
    );
    let transport = |protocol, port, source| AntreaPort::Transport { protocol, port, source };
    let range = |first, last| PortRange { first, last };
    assert_eq!(notes, []);
    assert_eq!(
        read,
        Read::Known(AntreaRule {
            name: Some("r".to_owned()),
            action: AntreaAction::Reject,
            peers: vec![pods(None, Some(Selector::equal("a", "1")))],
            ports: vec![
                transport(Protocol::Tcp, Some(TargetPort::Numbers(range(80, 80))), None),
                transport(Protocol::Udp, Some(TargetPort::Numbers(range(1, 9))), None),
                transport(Protocol::Tcp, Some(TargetPort::Named("web".to_owned())), None),
                transport(Protocol::Sctp, None, Some(range(7, 7))),
                transport(Protocol::Tcp, None, Some(range(7, 9))),
                AntreaPort::Icmp(Icmp { kind: Some(8), code: Some(0) }),
                AntreaPort::Icmp(Icmp { kind: None, code: None }),
            ],
            services: vec![],
            logging: Some(Logging { label: "l".to_owned() }),
        })
    );
}

#[test]
fn tier_and_priority_have_their_defaults_and_old_names() {
    let tier = |tier: Value| policy(CLUSTER, &spec(&json!({"tier": tier}))).0.tier;
    assert_eq!(tier(json!(null)), "application");
    assert_eq!(tier(json!("")), "application");
    for (old, new) in [
        ("Emergency", "emergency"),
        ("SecurityOps", "securityops"),
        ("NetworkOps", "networkops"),
        ("Platform", "platform"),
        ("Application", "application"),
        ("Baseline", "baseline"),
        ("mine", "mine"),
        ("BASELINE", "BASELINE"),
    ] {
        assert_eq!(tier(json!(old)), new);
    }
    let priority = |priority: Value| policy(NAMESPACED, &spec(&json!({"priority": priority})));
    assert!((priority(json!(2.5)).0.priority - 2.5).abs() < f64::EPSILON);
    for (extreme, noted) in [
        (json!(1), 0),
        (json!(10_000.0), 0),
        (json!(10_000.1), 1),
        (json!(0), 1),
        (json!(-1e300), 1),
        (json!(1e300), 1),
    ] {
        let (policy, notes) = priority(extreme.clone());
        assert_eq!(Some(policy.priority), extreme.as_f64());
        assert_eq!(fields(&notes, Severity::Warning).len(), noted, "{extreme}");
    }
}

#[test]
fn a_policy_with_a_field_that_is_not_understood_has_no_known_rule() {
    for odd in [
        json!({"tier": 1}),
        json!({"priority": null}),
        json!({"priority": "5"}),
        json!({"egres": []}),
    ] {
        let mut spec = spec(&json!({"ingress": [{"action": "Drop", "name": "r"}]}));
        spec.as_object_mut().expect("one").extend(odd.as_object().expect("one").clone());
        let (policy, notes) = policy(CLUSTER, &spec);
        let Read::Unknown(unknown) = &policy.ingress[0].rule else { panic!("{odd}") };
        assert_eq!(unknown.action.as_deref(), Some("Drop"));
        assert_eq!(unknown.name.as_deref(), Some("r"));
        assert_eq!(fields(&notes, Severity::Error).len(), 1, "{odd}");
        let first = odd.get("priority").is_some();
        assert_eq!(first, policy.priority < -1e300, "{odd}");
    }
    let (policy, _) = policy(CLUSTER, &json!("x"));
    assert_eq!((policy.ingress.len(), policy.egress.len()), (1, 1));
    assert!(policy.ingress[0].rule.known().is_none());
}

#[test]
fn selectors_mean_what_they_mean_in_their_kind() {
    let all = || Some(Selector::default());
    for kind in [CLUSTER, NAMESPACED] {
        for (written, expected, noted) in [
            (json!({"podSelector": {}}), pods(None, all()), 0),
            (json!({"namespaceSelector": {}}), pods(all(), None), 0),
            (json!({"namespaceSelector": {}, "podSelector": {}}), pods(all(), all()), 0),
            (json!({}), pods(None, None), 1),
            (json!({"nodeSelector": {}}), AntreaPeer::Nodes(Selector::default()), 0),
            (json!({"group": "g"}), AntreaPeer::Group("g".to_owned()), 0),
        ] {
            for direction in ["ingress", "egress"] {
                let (peer, notes) = peer(kind, direction, &written);
                assert_eq!(peer, Some(expected.clone()), "{written}");
                assert_eq!(fields(&notes, Severity::Warning).len(), noted, "{written}");
            }
        }
    }
}

#[test]
fn peers_of_cluster_policies_know_service_accounts_and_the_subjects_namespace() {
    let account = json!({"serviceAccount": {"name": "a", "namespace": "n"}});
    let this = json!({"namespaces": {"match": "Self"}});
    let same = json!({"namespaces": {"sameLabels": ["b", "a", "b"]}, "podSelector": {}});
    let matching = |namespaces, pods| AntreaPeer::Matching { namespaces, pods };
    let labels = NamespaceMatch::SameLabels(vec!["a".to_owned(), "b".to_owned()]);
    for (written, expected) in [
        (account, AntreaPeer::ServiceAccount(named("n", "a"))),
        (this, matching(NamespaceMatch::Same, None)),
        (same, matching(labels, Some(Selector::default()))),
    ] {
        assert_eq!(peer(CLUSTER, "ingress", &written).0, Some(expected), "{written}");
        assert_eq!(peer(NAMESPACED, "ingress", &written).0, None, "{written}");
    }
}

#[test]
fn names_are_peers_of_egress_alone() {
    let fqdn = json!({"fqdn": "*Foo.example.com"});
    let expected = AntreaPeer::Fqdn(FqdnPattern("*foo.example.com".to_owned()));
    assert_eq!(peer(NAMESPACED, "egress", &fqdn).0, Some(expected));
    assert_eq!(peer(NAMESPACED, "ingress", &fqdn).0, None);
    for odd in ["", "a b", "a/b", "ä.example"] {
        assert_eq!(peer(CLUSTER, "egress", &json!({"fqdn": odd})).0, None, "{odd}");
    }
}

#[test]
fn an_ip_block_wins_over_selectors_and_names_beside_it() {
    let block = Block { cidr: "10.0.0.0/8".parse().expect("a range"), except: vec![] };
    for beside in
        [json!({"podSelector": {}}), json!({"namespaceSelector": {}}), json!({"fqdn": "a"})]
    {
        let mut written = json!({"ipBlock": {"cidr": "10.0.0.0/8"}});
        written.as_object_mut().expect("one").extend(beside.as_object().expect("one").clone());
        let (peer, notes) = peer(CLUSTER, "egress", &written);
        assert_eq!(peer, Some(AntreaPeer::Block(block.clone())), "{written}");
        assert_eq!(fields(&notes, Severity::Warning), ["spec.egress[0].to[0]"]);
    }
}

#[test]
fn peers_that_are_not_understood_or_not_supported_make_the_rule_unknown() {
    for odd in [
        json!(null),
        json!({"new": 1}),
        json!({"externalEntitySelector": {}}),
        json!({"podSelector": {}, "scope": "ClusterSet"}),
        json!({"podSelector": {}, "scope": 1}),
        json!({"group": "g", "podSelector": {}}),
        json!({"group": "g", "ipBlock": {"cidr": "10.0.0.0/8"}}),
        json!({"group": ""}),
        json!({"serviceAccount": {"name": "a"}}),
        json!({"serviceAccount": {"name": "a", "namespace": "n"}, "podSelector": {}}),
        json!({"nodeSelector": {}, "podSelector": {}}),
        json!({"namespaces": {}}),
        json!({"namespaces": {"match": "Other"}}),
        json!({"namespaces": {"match": "Self", "sameLabels": ["a"]}}),
        json!({"namespaces": {"sameLabels": []}}),
        json!({"namespaces": {"sameLabels": [""]}}),
        json!({"namespaces": {"match": "Self"}, "namespaceSelector": {}}),
        json!({"podSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": []}]}}),
        json!({"ipBlock": {"cidr": "10.0.0.0/40"}}),
    ] {
        let (peer, notes) = peer(CLUSTER, "ingress", &odd);
        assert_eq!(peer, None, "{odd}");
        let errors = fields(&notes, Severity::Error);
        assert!(
            errors.len() == 1 && errors[0].starts_with("spec.ingress[0].from[0]"),
            "{errors:?}"
        );
    }
    let scoped = json!({"podSelector": {}, "scope": "Cluster"});
    assert!(peer(CLUSTER, "ingress", &scoped).0.is_some());
    assert!(peer(CLUSTER, "egress", &scoped).0.is_none());
}

#[test]
fn other_parts_that_are_not_understood_or_not_supported_make_the_rule_unknown() {
    let service = json!([{"name": "s", "namespace": "n"}]);
    for odd in [
        json!({"l7Protocols": [{"http": {}}]}),
        json!({"protocols": [{"igmp": {"igmpType": 17}}]}),
        json!({"protocols": [{}]}),
        json!({"protocols": [{"icmp": {"icmpType": 256}}]}),
        json!({"protocols": [{"icmp": {"icmpType": -1}}]}),
        json!({"protocols": [{"icmp": {"type": 1}}]}),
        json!({"ports": [{"port": 0}]}),
        json!({"ports": [{"port": 70_000}]}),
        json!({"ports": [{"port": 9, "endPort": 1}]}),
        json!({"ports": [{"endPort": 1}]}),
        json!({"ports": [{"sourceEndPort": 1}]}),
        json!({"ports": [{"sourcePort": 9, "sourceEndPort": 1}]}),
        json!({"ports": [{"protocol": "ICMP"}]}),
        json!({"enableLogging": "yes"}),
        json!({"name": 7}),
        json!({"from": []}),
        json!({"toServices": service, "ports": [{"port": 80}]}),
        json!({"toServices": service, "to": [{"podSelector": {}}]}),
        json!({"toServices": [{"name": "s", "namespace": "n", "scope": "ClusterSet"}]}),
        json!({"toServices": [{"name": "s"}]}),
        json!({"toServices": [{"namespace": "n"}]}),
    ] {
        let mut written = json!({"action": "Pass"});
        written.as_object_mut().expect("one").extend(odd.as_object().expect("one").clone());
        let (read, notes) = rule(CLUSTER, "egress", &written);
        let Read::Unknown(unknown) = read else { panic!("{odd} is understood") };
        assert_eq!(unknown.action.as_deref(), Some("Pass"));
        assert_eq!(fields(&notes, Severity::Error).len(), 1, "{odd}");
    }
}

#[test]
fn an_empty_list_is_one_that_is_absent() {
    let rule = known(rule(
        CLUSTER,
        "egress",
        &json!({
            "action": "Allow", "to": [], "ports": [], "protocols": [], "l7Protocols": [],
            "toServices": [], "appliedTo": [], "name": "",
        }),
    ));
    assert_eq!((rule.peers, rule.ports, rule.services, rule.name), (vec![], vec![], vec![], None));
}

#[test]
fn services_are_of_the_own_namespace_where_there_is_one() {
    let services = |kind, service: Value| {
        let written = json!({"action": "Drop", "toServices": [service]});
        known(rule(kind, "egress", &written)).services
    };
    assert_eq!(services(NAMESPACED, json!({"name": "s"})), [named("x", "s")]);
    assert_eq!(services(NAMESPACED, json!({"name": "s", "namespace": "n"})), [named("n", "s")]);
    assert_eq!(services(CLUSTER, json!({"name": "s", "namespace": "n"})), [named("n", "s")]);
    let ingress = json!({"action": "Drop", "toServices": [{"name": "s", "namespace": "n"}]});
    assert!(rule(CLUSTER, "ingress", &ingress).0.known().is_none());
}

#[test]
fn deny_is_what_antrea_calls_drop_and_other_words_are_kept() {
    let (read, notes) = rule(CLUSTER, "ingress", &json!({"action": "Deny"}));
    assert_eq!(fields(&notes, Severity::Warning), ["spec.ingress[0].action"]);
    assert_eq!(known((read, notes)).action, AntreaAction::Drop);
    for action in [json!("allow"), json!("Accept"), json!(1), json!(null)] {
        let (read, _) = rule(CLUSTER, "ingress", &json!({"action": action}));
        let Read::Unknown(unknown) = read else { panic!("{action}") };
        assert_eq!(unknown.action.as_deref(), action.as_str());
    }
}

#[test]
fn rules_of_the_same_name_are_kept_and_noted() {
    let rules = json!({"ingress": [{"action": "Drop", "name": "r"}, {"action": "Drop"}],
        "egress": [{"action": "Drop", "name": "r"}]});
    let (policy, notes) = policy(CLUSTER, &spec(&rules));
    assert_eq!((policy.ingress.len(), policy.egress.len()), (2, 1));
    assert_eq!(fields(&notes, Severity::Warning), ["spec.egress[0].name"]);
}

fn applied_to(kind: &str, item: &Value) -> Subject<AntreaAppliedTo> {
    let written = json!({"priority": 1, "ingress": [{"action": "Drop", "appliedTo": [item]}]});
    let (mut policy, notes) = policy(kind, &written);
    let mut entry = policy.ingress.remove(0);
    assert!(entry.rule.known().is_some());
    let subject = entry.applied_to.remove(0);
    let errors = fields(&notes, Severity::Error).len();
    assert_eq!(errors, usize::from(subject.doubt.is_some()), "{item}");
    subject
}

#[test]
fn a_subject_is_pods_a_group_or_a_service_account() {
    let pods = |namespaces, pods| AntreaAppliedTo::Pods { namespaces, pods };
    let all = || Some(Selector::default());
    for (kind, item, expected) in [
        (CLUSTER, json!({"podSelector": {}}), pods(None, all())),
        (CLUSTER, json!({"namespaceSelector": {}}), pods(all(), None)),
        (CLUSTER, json!({}), pods(None, None)),
        (NAMESPACED, json!({}), pods(None, None)),
        (NAMESPACED, json!({"podSelector": {}}), pods(None, all())),
        (NAMESPACED, json!({"group": "g"}), AntreaAppliedTo::Group("g".to_owned())),
        (NAMESPACED, json!({"group": "", "podSelector": {}}), pods(None, all())),
        (
            CLUSTER,
            json!({"serviceAccount": {"name": "a", "namespace": "n"}}),
            AntreaAppliedTo::ServiceAccount(named("n", "a")),
        ),
    ] {
        let subject = applied_to(kind, &item);
        assert_eq!((subject.selects, subject.doubt), (expected, None), "{item}");
    }
}

#[test]
fn a_subject_that_is_not_understood_or_not_supported_is_as_wide_as_it_may_have_been_meant() {
    let all = || Some(Selector::default());
    let pods = |namespaces, pods| AntreaAppliedTo::Pods { namespaces, pods };
    let broken =
        json!({"matchLabels": {"a": "1"}, "matchExpressions": [{"key": "b", "operator": "In"}]});
    for (kind, item, expected) in [
        (CLUSTER, json!({"service": {"name": "s"}}), AntreaAppliedTo::Service(None)),
        (NAMESPACED, json!({"service": {}, "podSelector": {}}), AntreaAppliedTo::Service(None)),
        (CLUSTER, json!({"nodeSelector": {}, "podSelector": {}}), pods(all(), all())),
        (CLUSTER, json!({"nodeSelector": {"new": 1}}), pods(all(), all())),
        (CLUSTER, json!({"externalEntitySelector": {}}), pods(all(), all())),
        (CLUSTER, json!({"group": "g", "podSelector": {}}), pods(all(), all())),
        (CLUSTER, json!({"group": ""}), pods(all(), all())),
        (NAMESPACED, json!({"group": ""}), pods(None, all())),
        (CLUSTER, json!({"serviceAccount": {"name": "a"}}), pods(all(), all())),
        (CLUSTER, json!({"new": 1}), pods(all(), all())),
        (CLUSTER, json!(7), pods(all(), all())),
        (CLUSTER, json!({"podSelector": broken}), pods(None, Some(Selector::equal("a", "1")))),
        (CLUSTER, json!({"podSelector": "x"}), pods(None, all())),
        (NAMESPACED, json!({"externalEntitySelector": {}, "group": "g"}), pods(None, all())),
        (NAMESPACED, json!({"nodeSelector": {}}), pods(None, all())),
        (NAMESPACED, json!({"namespaceSelector": {}}), pods(None, all())),
        (NAMESPACED, json!({"serviceAccount": {"name": "a", "namespace": "n"}}), pods(None, all())),
    ] {
        let subject = applied_to(kind, &item);
        assert_eq!(subject.selects, expected, "{item}");
        assert!(subject.doubt.is_some(), "{item}");
    }
    let (policy, _) = policy(CLUSTER, &json!({"priority": 1, "appliedTo": "all"}));
    assert_eq!(policy.applied_to[0].selects, pods(all(), all()));
    assert!(policy.applied_to[0].doubt.is_some());
}

#[test]
fn what_is_no_pod_is_known_not_to_be_one() {
    let service = json!({"service": {"name": "s", "namespace": "n"}});
    let (nodes, external) = (json!({"nodeSelector": {}}), json!({"externalEntitySelector": {}}));
    for (kind, item, expected) in [
        (CLUSTER, &service, AntreaAppliedTo::Service(Some(named("n", "s")))),
        (CLUSTER, &nodes, AntreaAppliedTo::Nodes),
        (NAMESPACED, &external, AntreaAppliedTo::External),
    ] {
        let spec = json!({"priority": 1, "appliedTo": [item], "ingress": []});
        let (policy, notes) = policy(kind, &spec);
        let subject = &policy.applied_to[0];
        assert_eq!((&subject.selects, &subject.doubt), (&expected, &None), "{item}");
        assert_eq!(fields(&notes, Severity::Error).len(), 1, "{item}");
    }
    let of_rule = |kind, direction: &str, item: &Value| {
        let rule = json!([{"action": "Drop", "appliedTo": [item]}]);
        let (policy, _) = policy(kind, &json!({"priority": 1, direction: rule}));
        let mut entries = policy.ingress.into_iter().chain(policy.egress);
        entries.next().expect("a rule").applied_to[0].doubt.is_none()
    };
    assert!(of_rule(CLUSTER, "ingress", &service));
    assert!(!of_rule(CLUSTER, "egress", &service));
    assert!(!of_rule(CLUSTER, "ingress", &nodes));
    assert!(!of_rule(NAMESPACED, "ingress", &external));
}

#[test]
fn a_policy_without_subject_and_one_with_two_are_noted() {
    let warnings = |spec: Value| {
        let (_, notes) = policy(CLUSTER, &spec);
        fields(&notes, Severity::Warning).len()
    };
    let own = json!([{"action": "Drop", "appliedTo": [{"podSelector": {}}]}]);
    assert_eq!(warnings(json!({"priority": 1, "ingress": own})), 0);
    assert_eq!(warnings(json!({"priority": 1})), 1);
    assert_eq!(warnings(json!({"priority": 1, "ingress": own, "egress": [{"action": "Drop"}]})), 1);
    assert_eq!(
        warnings(json!({"priority": 1, "appliedTo": [{"podSelector": {}}], "ingress": own})),
        1
    );
}

#[test]
fn a_tier_is_a_number_from_0_to_255_or_one_that_does_not_exist() {
    let tier = |spec: Value| {
        let (Object::Tier(Tier { priority, .. }), notes) =
            read("crd.antrea.io/v1beta1", "Tier", &spec)
        else {
            panic!("another kind")
        };
        (priority.known().copied(), fields(&notes, Severity::Error).len())
    };
    for (priority, read) in [
        (json!(0), Some(0)),
        (json!(255), Some(255)),
        (json!(256), None),
        (json!(-1), None),
        (json!(1.5), None),
        (json!("1"), None),
        (json!(null), None),
    ] {
        let errors = usize::from(read.is_none());
        assert_eq!(tier(json!({"priority": priority})), (read, errors), "{priority}");
    }
    assert_eq!(tier(json!({"priority": 7, "description": "d", "new": 1})), (Some(7), 0));
}

#[test]
fn a_group_has_one_kind_of_members() {
    let group = |kind: &str, spec: &Value| {
        let (Object::Group(Group { spec, .. }), _) = read("crd.antrea.io/v1beta1", kind, spec)
        else {
            panic!("another kind")
        };
        spec.known().cloned()
    };
    let all = || Some(Selector::default());
    let cidr = json!({"cidr": "10.0.0.0/8"});
    let block = Block { cidr: "10.0.0.0/8".parse().expect("a range"), except: vec![] };
    let service = json!({"serviceReference": {"name": "s", "namespace": "n"}});
    for (spec, members) in [
        (json!({}), GroupSpec::Empty),
        (json!({"ipBlocks": [], "childGroups": []}), GroupSpec::Empty),
        (json!({"podSelector": {}}), GroupSpec::Pods { namespaces: None, pods: all() }),
        (
            json!({"podSelector": {}, "namespaceSelector": {}}),
            GroupSpec::Pods { namespaces: all(), pods: all() },
        ),
        (json!({"ipBlocks": [cidr]}), GroupSpec::Blocks(vec![block])),
        (service, GroupSpec::Service(named("n", "s"))),
        (
            json!({"childGroups": ["a", "b"]}),
            GroupSpec::Children(vec!["a".to_owned(), "b".to_owned()]),
        ),
    ] {
        for kind in ["ClusterGroup", "Group"] {
            assert_eq!(group(kind, &spec), Some(members.clone()), "{spec}");
        }
    }
    for odd in [
        json!({"ipBlock": cidr}),
        json!({"ipBlocks": [cidr], "podSelector": {}}),
        json!({"childGroups": ["a"], "podSelector": {}}),
        json!({"childGroups": [""]}),
        json!({"externalEntitySelector": {}, "podSelector": {}}),
        json!({"externalEntitySelector": {"new": 1}}),
        json!({"externalEntitySelector": {}, "namespaceSelector": 1}),
        json!({"podSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}),
        json!({"new": 1}),
        json!([]),
    ] {
        for kind in ["ClusterGroup", "Group"] {
            assert_eq!(group(kind, &odd), None, "{odd}");
        }
    }
    let external = json!({"externalEntitySelector": {}, "namespaceSelector": {}});
    assert_eq!(group("Group", &external), Some(GroupSpec::External));
    let nodes = json!({"nodeSelector": {}});
    assert_eq!(group("ClusterGroup", &nodes), Some(GroupSpec::Nodes(Selector::default())));
    assert_eq!(group("Group", &nodes), None);
    let own = json!({"serviceReference": {"name": "s"}});
    assert_eq!(group("Group", &own), Some(GroupSpec::Service(named("x", "s"))));
    assert_eq!(group("ClusterGroup", &own), None);
}

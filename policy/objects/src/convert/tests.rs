use super::*;
use serde_json::json;

fn admin(kind: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "policy.networking.k8s.io/v1alpha1", "kind": kind,
        "metadata": {
            "name": "default", "uid": "u", "labels": {"a": "b"},
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
        },
        "spec": spec, "status": {"conditions": []},
    })
}

fn lost(object: &Value) -> String {
    match convert(object) {
        Err(ConvertError::Lost { field, .. }) => field,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_admin_network_policy_becomes_one_of_tier_admin() {
    let old = admin(
        "AdminNetworkPolicy",
        &json!({
            "priority": 7,
            "subject": {"pods": {"namespaces": {"namespaceSelector": {"matchLabels": {"x": "y"}}},
                                 "podSelector": {}}},
            "ingress": [{"name": "one", "action": "Allow", "from": [
                {"namespaces": {"namespaceSelector": {}}}, {"namespaces": {"matchLabels": {"t": "b"}}},
            ], "ports": [
                {"portNumber": {"port": 80}}, {"portNumber": {"protocol": "UDP", "port": 53}},
                {"portRange": {"protocol": "SCTP", "start": 1, "end": 9}},
                {"portRange": {"start": 4, "end": 4}}, {"namedPort": "web"},
            ]}],
            "egress": [{"action": "Pass", "to": [{"networks": ["10.0.0.0/8"]}]}],
        }),
    );
    let new = convert(&old).expect("nothing is lost");
    assert_eq!(
        new.object,
        json!({
            "apiVersion": "policy.networking.k8s.io/v1alpha2", "kind": "ClusterNetworkPolicy",
            "metadata": {"name": "default", "labels": {"a": "b"}},
            "spec": {
                "tier": "Admin", "priority": 7,
                "subject": {"pods": {"namespaceSelector": {"matchLabels": {"x": "y"}}, "podSelector": {}}},
                "ingress": [{"name": "one", "action": "Accept",
                    "from": [{"namespaces": {}}, {"namespaces": {"matchLabels": {"t": "b"}}}],
                    "protocols": [
                        {"tcp": {"destinationPort": {"number": 80}}},
                        {"udp": {"destinationPort": {"number": 53}}},
                        {"sctp": {"destinationPort": {"range": {"start": 1, "end": 9}}}},
                        {"tcp": {"destinationPort": {"number": 4}}},
                        {"destinationNamedPort": "web"},
                    ]}],
                "egress": [{"action": "Pass", "to": [{"networks": ["10.0.0.0/8"]}]}],
            },
        })
    );
    assert_eq!(new.notes, []);
}

#[test]
fn the_baseline_becomes_the_last_of_its_tier_under_a_name_of_its_own() {
    let spec = json!({"subject": {"namespaces": {}}, "ingress": [
        {"action": "Deny", "from": [{"namespaces": {}}]},
    ]});
    let new = convert(&admin(BASELINE, &spec)).expect("nothing is lost");
    assert_eq!(new.object["metadata"]["name"], "default-baseline");
    assert_eq!(new.object["spec"]["tier"], "Baseline");
    assert_eq!(new.object["spec"]["priority"], 1000);
    let fields: Vec<_> = new.notes.iter().map(|note| note.field.as_str()).collect();
    assert_eq!(fields, ["metadata.name", "spec.priority"]);
}

#[test]
fn what_the_current_version_cannot_say_is_named() {
    let rule = |rule: Value| {
        let spec = json!({"priority": 1, "subject": {"namespaces": {}}, "egress": [rule]});
        lost(&admin("AdminNetworkPolicy", &spec))
    };
    let to = json!([{"namespaces": {}}]);
    let same = json!([{"namespaces": {"sameLabels": ["team"]}}]);
    assert_eq!(
        rule(json!({"action": "Allow", "to": same})),
        "spec.egress[0].to[0].namespaces.sameLabels"
    );
    let same = json!([{"pods": {"namespaces": {"notSameLabels": ["team"]}, "podSelector": {}}}]);
    assert_eq!(
        rule(json!({"action": "Allow", "to": same})),
        "spec.egress[0].to[0].pods.namespaces.notSameLabels"
    );
    assert_eq!(rule(json!({"action": "Allow", "to": to, "new": 1})), "spec.egress[0]");
    assert_eq!(rule(json!({"action": "Drop", "to": to})), "spec.egress[0].action");
    assert_eq!(rule(json!({"action": "Allow", "to": []})), "spec.egress[0]");
    assert_eq!(rule(json!({"action": "Allow", "to": to, "ports": []})), "spec.egress[0]");
    assert_eq!(
        rule(json!({"action": "Allow", "to": to, "ports": [{}]})),
        "spec.egress[0].ports[0]"
    );
    assert_eq!(
        rule(json!({"action": "Deny", "to": [{"domainNames": ["a.b"]}]})),
        "spec.egress[0].to[0]"
    );
    let many = vec![json!({"namespaces": {}}); 26];
    assert_eq!(rule(json!({"action": "Allow", "to": many})), "spec.egress[0]");
    let spec = json!({"subject": {"namespaces": {}}, "egress": [{"action": "Pass", "to": to}]});
    assert_eq!(lost(&admin(BASELINE, &spec)), "spec.egress[0].action");
    assert_eq!(lost(&admin("AdminNetworkPolicy", &spec)), "spec");
    let spec = json!({"priority": 1001, "subject": {"namespaces": {}}});
    assert_eq!(lost(&admin("AdminNetworkPolicy", &spec)), "spec.priority");
}

#[test]
fn a_network_policy_of_extensions_keeps_its_spec() {
    let spec = json!({"podSelector": {}, "ingress": [{"ports": [{"port": 80}]}]});
    let old = json!({"apiVersion": "extensions/v1beta1", "kind": "NetworkPolicy",
        "metadata": {"name": "p", "namespace": "x"}, "spec": spec});
    let new = convert(&old).expect("nothing is lost").object;
    assert_eq!((&new["apiVersion"], &new["spec"]), (&json!("networking.k8s.io/v1"), &spec));
}

#[test]
fn antreas_old_kinds_become_current_ones() {
    for (version, kind) in [
        ("crd.antrea.io/v1alpha1", "ClusterNetworkPolicy"),
        ("crd.antrea.io/v1alpha1", "NetworkPolicy"),
        ("security.antrea.tanzu.vmware.com/v1alpha1", "Tier"),
        ("crd.antrea.io/v1alpha3", "Group"),
    ] {
        let old = json!({"apiVersion": version, "kind": kind,
            "metadata": {"name": "p"}, "spec": {"priority": 5}});
        let new = convert(&old).expect("nothing is lost").object;
        assert_eq!(new["apiVersion"], "crd.antrea.io/v1beta1");
        assert_eq!((&new["kind"], &new["spec"]), (&json!(kind), &json!({"priority": 5})));
    }
    let group = |spec: Value| {
        json!({"apiVersion": "crd.antrea.io/v1alpha2",
        "kind": "ClusterGroup", "metadata": {"name": "g"}, "spec": spec})
    };
    let block = json!({"cidr": "10.0.0.0/8"});
    let new = convert(&group(json!({"ipBlock": block}))).expect("nothing is lost");
    assert_eq!(new.object["spec"], json!({"ipBlocks": [block]}));
    assert_eq!(lost(&group(json!({"ipBlock": block, "ipBlocks": [block]}))), "spec");
}

#[test]
fn current_policies_and_other_objects_are_distinguished() {
    let of = |version: &str, kind: &str| convert(&json!({"apiVersion": version, "kind": kind}));
    for (version, kind, is_current) in
        [("networking.k8s.io/v1", "NetworkPolicy", true), ("v1", "Secret", false)]
    {
        let Err(ConvertError::NotOld { current, .. }) = of(version, kind) else {
            panic!("{version} {kind} was converted")
        };
        assert_eq!(current, is_current, "{version} {kind}");
    }
}

//! Antrea's kinds.

use crate::{Kind, Row, accepted, refused};
use serde_json::{Value, json};

const GROUP: &str = "crd.antrea.io";
const TIER: Kind = (GROUP, "v1beta1", "Tier", "tiers", false);
const ACNP: Kind = (GROUP, "v1beta1", "ClusterNetworkPolicy", "clusternetworkpolicies", false);
const ANNP: Kind = (GROUP, "v1beta1", "NetworkPolicy", "networkpolicies", true);
const CLUSTER_GROUP: Kind = (GROUP, "v1beta1", "ClusterGroup", "clustergroups", false);
const GROUP_OF_NAMESPACE: Kind = (GROUP, "v1beta1", "Group", "groups", true);

/// A policy for all pods with these egress rules.
fn egress(rules: Value) -> Value {
    json!({ "priority": 1, "appliedTo": [{ "podSelector": {} }], "egress": rules })
}

fn to(peer: Value) -> Value {
    egress(json!([{ "action": "Drop", "to": [peer] }]))
}

fn ports(port: Value) -> Value {
    egress(json!([{ "action": "Drop", "ports": [port] }]))
}

fn applied_to(item: Value) -> Value {
    json!({ "priority": 1, "appliedTo": [item] })
}

pub(crate) fn rows() -> Vec<Row> {
    [tiers(), policies(), subjects(), peers(), protocols(), groups(), large()].concat()
}

fn tiers() -> Vec<Row> {
    vec![
        accepted("application", TIER, json!({ "priority": 250, "description": "ours" })),
        accepted("a tier at 220", TIER, json!({ "priority": 220 })),
        refused("a reserved tier", TIER, json!({ "priority": 254 }), "are reserved"),
        refused("a tier above 255", TIER, json!({ "priority": 256 }), "less than or equal to 255"),
    ]
}

fn policies() -> Vec<Row> {
    let tier = |tier: &str, action: &str| {
        let mut spec = egress(json!([{ "action": action }]));
        spec["tier"] = json!(tier);
        spec
    };
    let priority =
        |priority: f64| json!({ "priority": priority, "appliedTo": [{ "podSelector": {} }] });
    vec![
        accepted("Pass in a tier", ACNP, tier("platform", "Pass")),
        refused("Pass in baseline", ACNP, tier("baseline", "Pass"), "cannot have the action Pass"),
        refused("Pass in Baseline", ANNP, tier("Baseline", "Pass"), "cannot have the action Pass"),
        accepted("Drop in baseline", ANNP, tier("baseline", "Drop")),
        refused("Deny", ACNP, tier("platform", "Deny"), "Unsupported value"),
        accepted("priority 1.5", ACNP, priority(1.5)),
        accepted("priority 10000", ANNP, priority(10000.0)),
        refused("priority 0.5", ACNP, priority(0.5), "greater than or equal to 1"),
        refused("priority 10001", ANNP, priority(10001.0), "less than or equal to 10000"),
        refused(
            "no priority",
            ACNP,
            json!({ "appliedTo": [{ "podSelector": {} }] }),
            "Required value",
        ),
        refused(
            "a log label with a blank",
            ACNP,
            egress(json!([{ "action": "Drop", "logLabel": "a b" }])),
            "should match",
        ),
    ]
}

fn subjects() -> Vec<Row> {
    let pods = || json!([{ "podSelector": {} }]);
    let both = json!({
        "priority": 1, "appliedTo": pods(),
        "ingress": [{ "action": "Drop", "appliedTo": pods() }],
    });
    let of_one_rule = json!({
        "priority": 1,
        "ingress": [{ "action": "Drop", "appliedTo": pods() }], "egress": [{ "action": "Drop" }],
    });
    let of_each_rule = json!({
        "priority": 1,
        "ingress": [{ "action": "Drop", "appliedTo": pods() }],
        "egress": [{ "action": "Drop", "appliedTo": pods() }],
    });
    let empty_in_rule = json!({
        "priority": 1, "appliedTo": pods(), "ingress": [{ "action": "Drop", "appliedTo": [] }],
    });
    let alone = "must validate at least one schema (anyOf)";
    vec![
        refused("no appliedTo", ACNP, json!({ "priority": 1 }), "or in every rule"),
        refused(
            "an empty appliedTo",
            ANNP,
            json!({ "priority": 1, "appliedTo": [] }),
            "or in every rule",
        ),
        refused("appliedTo in both", ACNP, both.clone(), "not in both"),
        refused("appliedTo in both, with a namespace", ANNP, both, "not in both"),
        refused("appliedTo of one rule of two", ACNP, of_one_rule, "or in every rule"),
        accepted("appliedTo of each rule", ACNP, of_each_rule.clone()),
        accepted("appliedTo of each rule, with a namespace", ANNP, of_each_rule),
        accepted("an empty appliedTo in a rule", ACNP, empty_in_rule),
        accepted("an empty item", ACNP, applied_to(json!({}))),
        accepted("a group", ACNP, applied_to(json!({ "group": "g" }))),
        accepted(
            "a group without a name",
            ACNP,
            applied_to(json!({ "group": "", "podSelector": {} })),
        ),
        refused(
            "a group and pods",
            ACNP,
            applied_to(json!({ "group": "g", "podSelector": {} })),
            alone,
        ),
        refused(
            "a group and pods, with a namespace",
            ANNP,
            applied_to(json!({ "group": "g", "podSelector": {} })),
            alone,
        ),
        accepted(
            "pods of namespaces",
            ACNP,
            applied_to(json!({ "podSelector": {}, "namespaceSelector": {} })),
        ),
        refused(
            "an account and namespaces",
            ACNP,
            applied_to(json!({
                "serviceAccount": { "name": "a", "namespace": "b" }, "namespaceSelector": {},
            })),
            alone,
        ),
        refused(
            "an account without a namespace",
            ACNP,
            applied_to(json!({ "serviceAccount": { "name": "a" } })),
            "Required value",
        ),
        accepted("nodes", ACNP, applied_to(json!({ "nodeSelector": {} }))),
        accepted(
            "a Service",
            ACNP,
            applied_to(json!({ "service": { "name": "a", "namespace": "b" } })),
        ),
    ]
}

fn peers() -> Vec<Row> {
    let alone = "must validate at least one schema (anyOf)";
    let block =
        |cidr: &str, except: &str| to(json!({ "ipBlock": { "cidr": cidr, "except": [except] } }));
    let to_services = |more: Value| {
        let mut rule = json!({
            "action": "Drop", "toServices": [{ "name": "db", "namespace": "prod" }],
        });
        rule.as_object_mut().into_iter().zip(more.as_object()).for_each(|(rule, more)| {
            rule.extend(more.clone());
        });
        egress(json!([rule]))
    };
    vec![
        accepted("an empty peer", ACNP, to(json!({}))),
        accepted("the same namespace", ACNP, to(json!({ "namespaces": { "match": "Self" } }))),
        accepted("the same labels", ACNP, to(json!({ "namespaces": { "sameLabels": ["team"] } }))),
        refused(
            "match and sameLabels",
            ACNP,
            to(json!({ "namespaces": { "match": "Self", "sameLabels": ["team"] } })),
            "must have at most 1",
        ),
        refused(
            "namespaces and namespaceSelector",
            ACNP,
            to(json!({ "namespaces": { "match": "Self" }, "namespaceSelector": {} })),
            "namespaces or namespaceSelector, not both",
        ),
        accepted(
            "a block with a selector, which it overrides",
            ACNP,
            to(json!({
                "ipBlock": { "cidr": "10.0.0.0/8" }, "podSelector": {},
            })),
        ),
        accepted("a block with an exception", ANNP, block("10.0.0.0/8", "10.0.1.0/24")),
        refused("an invalid block", ANNP, block("10.0.0.0/40", "10.0.1.0/24"), "cidr"),
        refused("an invalid exception", ACNP, block("10.0.0.0/8", "here"), "cidr"),
        accepted("a group", ANNP, to(json!({ "group": "g" }))),
        refused("a group and nodes", ANNP, to(json!({ "group": "g", "nodeSelector": {} })), alone),
        refused(
            "nodes and pods",
            ACNP,
            to(json!({ "nodeSelector": {}, "podSelector": {} })),
            alone,
        ),
        accepted("a name", ACNP, to(json!({ "fqdn": "*.example.org" }))),
        refused("a name with a slash", ANNP, to(json!({ "fqdn": "a/b" })), "should match"),
        accepted("Services", ACNP, to_services(json!({}))),
        accepted("Services and no peers", ACNP, to_services(json!({ "to": [] }))),
        refused(
            "Services and peers",
            ACNP,
            to_services(json!({ "to": [{ "podSelector": {} }] })),
            "cannot have to, ports or protocols",
        ),
        refused(
            "Services and ports",
            ANNP,
            to_services(json!({ "ports": [{ "port": 80 }] })),
            "cannot have to, ports or protocols",
        ),
        refused(
            "a Service without a namespace",
            ACNP,
            egress(json!([{ "action": "Drop", "toServices": [{ "name": "db" }] }])),
            "Required value",
        ),
        accepted(
            "a Service of the policy's namespace",
            ANNP,
            egress(json!([{ "action": "Drop", "toServices": [{ "name": "db" }] }])),
        ),
        refused(
            "a label's value with a blank",
            ACNP,
            to(json!({ "podSelector": { "matchLabels": { "app": "a b" } } })),
            "should match",
        ),
        refused(
            "an unknown operator",
            ACNP,
            to(
                json!({ "podSelector": { "matchExpressions": [{ "key": "a", "operator": "Has" }] } }),
            ),
            "Unsupported value",
        ),
    ]
}

fn protocols() -> Vec<Row> {
    let protocol = |protocol: Value| egress(json!([{ "action": "Drop", "protocols": [protocol] }]));
    vec![
        accepted("every port of TCP", ACNP, ports(json!({ "protocol": "TCP" }))),
        accepted("a port by name", ACNP, ports(json!({ "port": "web" }))),
        accepted("ports", ACNP, ports(json!({ "port": 80, "endPort": 90 }))),
        accepted("one port as a range", ANNP, ports(json!({ "port": 80, "endPort": 80 }))),
        accepted("a port above 65535", ACNP, ports(json!({ "port": 70000 }))),
        refused(
            "a reversed port range",
            ACNP,
            ports(json!({ "port": 90, "endPort": 80 })),
            "must not be less than port",
        ),
        refused(
            "an end without a start",
            ANNP,
            ports(json!({ "endPort": 80 })),
            "requires a numeric port",
        ),
        refused(
            "an end with a named port",
            ACNP,
            ports(json!({ "port": "web", "endPort": 80 })),
            "requires a numeric port",
        ),
        accepted("source ports", ACNP, ports(json!({ "sourcePort": 1, "sourceEndPort": 2 }))),
        refused(
            "reversed source ports",
            ACNP,
            ports(json!({ "sourcePort": 3, "sourceEndPort": 2 })),
            "requires a sourcePort",
        ),
        refused(
            "a protocol without ports",
            ACNP,
            ports(json!({ "protocol": "ICMP" })),
            "Unsupported",
        ),
        accepted("echo", ACNP, protocol(json!({ "icmp": { "icmpType": 8 } }))),
        refused(
            "an ICMP type above 255",
            ACNP,
            protocol(json!({ "icmp": { "icmpType": 256 } })),
            "less than or equal to 255",
        ),
        accepted(
            "IGMP",
            ANNP,
            protocol(json!({ "igmp": { "igmpType": 22, "groupAddress": "224.0.0.1" } })),
        ),
        refused(
            "ICMP and IGMP",
            ANNP,
            protocol(json!({ "icmp": {}, "igmp": {} })),
            "must validate one and only one schema",
        ),
        accepted(
            "HTTP",
            ACNP,
            egress(json!([{
                "action": "Allow",
                "l7Protocols": [{ "http": { "host": "a", "method": "GET", "path": "/" } }],
            }])),
        ),
    ]
}

fn groups() -> Vec<Row> {
    let one_of = "a group has one of";
    vec![
        accepted("an empty group", CLUSTER_GROUP, json!({})),
        accepted(
            "pods of namespaces",
            CLUSTER_GROUP,
            json!({ "podSelector": {}, "namespaceSelector": {} }),
        ),
        accepted("nodes", CLUSTER_GROUP, json!({ "nodeSelector": {} })),
        accepted("groups", GROUP_OF_NAMESPACE, json!({ "childGroups": ["a", "b"] })),
        accepted(
            "addresses and empty childGroups",
            GROUP_OF_NAMESPACE,
            json!({ "ipBlocks": [{ "cidr": "10.0.0.0/8" }], "childGroups": [] }),
        ),
        refused(
            "pods and nodes",
            CLUSTER_GROUP,
            json!({ "podSelector": {}, "nodeSelector": {} }),
            one_of,
        ),
        refused(
            "pods and addresses",
            GROUP_OF_NAMESPACE,
            json!({ "podSelector": {}, "ipBlocks": [{ "cidr": "10.0.0.0/8" }] }),
            one_of,
        ),
        refused(
            "pods and external entities",
            CLUSTER_GROUP,
            json!({ "podSelector": {}, "externalEntitySelector": {} }),
            "podSelector or externalEntitySelector, not both",
        ),
        refused(
            "a Service and groups",
            GROUP_OF_NAMESPACE,
            json!({ "serviceReference": { "name": "a", "namespace": "b" }, "childGroups": ["c"] }),
            one_of,
        ),
    ]
}

/// Large objects that are still valid: the API server bounds the cost of CEL at run time too.
fn large() -> Vec<Row> {
    let holes: Vec<String> =
        (0..10_000).map(|hole| format!("10.{}.{}.0/24", hole / 256, hole % 256)).collect();
    let rule = json!({ "action": "Drop", "ports": [{ "port": 1, "endPort": 2 }] });
    vec![
        accepted(
            "10,000 exceptions",
            ACNP,
            to(json!({ "ipBlock": { "cidr": "10.0.0.0/8", "except": holes } })),
        ),
        accepted("5,000 rules", ANNP, egress(json!(vec![rule; 5000]))),
    ]
}

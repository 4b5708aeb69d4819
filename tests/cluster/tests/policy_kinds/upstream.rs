//! Upstream's ClusterNetworkPolicy.

use crate::{Kind, Row, accepted, refused};
use serde_json::{Value, json};

const CNP: Kind = (
    "policy.networking.k8s.io",
    "v1alpha2",
    "ClusterNetworkPolicy",
    "clusternetworkpolicies",
    false,
);

/// A policy with one egress rule.
fn egress(action: &str, to: Value, protocols: Option<Value>) -> Value {
    let mut rule = json!({ "action": action, "to": to });
    if let Some(protocols) = protocols {
        rule["protocols"] = protocols;
    }
    json!({ "tier": "Admin", "priority": 0, "subject": { "namespaces": {} }, "egress": [rule] })
}

fn ports(port: Value) -> Value {
    egress("Accept", json!([{ "namespaces": {} }]), Some(json!([{ "tcp": port }])))
}

fn with(field: &str, value: Value) -> Value {
    let mut spec = json!({ "tier": "Admin", "priority": 0, "subject": { "namespaces": {} } });
    spec[field] = value;
    spec
}

pub(crate) fn rows() -> Vec<Row> {
    let to_networks = |cidr: &str| egress("Deny", json!([{ "networks": [cidr] }]), None);
    let rule = json!({ "action": "Deny", "from": [{ "namespaces": {} }] });
    let peers = |count: usize| {
        with(
            "ingress",
            json!([{ "action": "Deny", "from": vec![json!({ "namespaces": {} }); count] }]),
        )
    };
    vec![
        accepted("no rule", CNP, with("tier", json!("Baseline"))),
        refused("tcp without a port", CNP, ports(json!({})), "should have at least 1"),
        refused(
            "a range of one port",
            CNP,
            ports(json!({ "destinationPort": { "range": { "start": 80, "end": 80 } } })),
            "start must be less than end",
        ),
        refused(
            "a reversed port range",
            CNP,
            ports(json!({ "destinationPort": { "range": { "start": 81, "end": 80 } } })),
            "start must be less than end",
        ),
        accepted(
            "all of TCP",
            CNP,
            ports(json!({ "destinationPort": { "range": { "start": 1, "end": 65535 } } })),
        ),
        refused(
            "port 0",
            CNP,
            ports(json!({ "destinationPort": { "number": 0 } })),
            "greater than or equal to 1",
        ),
        refused(
            "number and range",
            CNP,
            ports(json!({ "destinationPort": {
                "number": 1, "range": { "start": 1, "end": 2 } } })),
            "must have at most 1",
        ),
        accepted("25 rules", CNP, with("ingress", json!(vec![rule.clone(); 25]))),
        refused(
            "26 rules",
            CNP,
            with("ingress", json!(vec![rule; 26])),
            "must have at most 25 items",
        ),
        accepted("25 peers", CNP, peers(25)),
        refused("26 peers", CNP, peers(26), "must have at most 25 items"),
        refused("no peer", CNP, peers(0), "should have at least 1 items"),
        accepted("priority 1000", CNP, with("priority", json!(1000))),
        refused("priority 1001", CNP, with("priority", json!(1001)), "less than or equal to 1000"),
        refused("priority -1", CNP, with("priority", json!(-1)), "greater than or equal to 0"),
        refused("no subject", CNP, json!({ "tier": "Admin", "priority": 1 }), "Required value"),
        refused("an empty subject", CNP, with("subject", json!({})), "should have at least 1"),
        refused(
            "two subjects",
            CNP,
            with("subject", json!({ "namespaces": {}, "pods": { "podSelector": {} } })),
            "must have at most 1",
        ),
        accepted(
            "pods of all namespaces",
            CNP,
            with("subject", json!({ "pods": { "podSelector": {} } })),
        ),
        refused("an unknown tier", CNP, with("tier", json!("Middle")), "Unsupported value"),
        refused(
            "an unknown action",
            CNP,
            egress("Drop", json!([{ "namespaces": {} }]), None),
            "Unsupported value",
        ),
        refused("an empty peer", CNP, egress("Deny", json!([{}]), None), "should have at least 1"),
        accepted("a network", CNP, to_networks("fd00::/8")),
        accepted("a network with host bits", CNP, to_networks("10.0.0.5/8")),
        refused("an invalid network", CNP, to_networks("10.0.0.0/33"), "10.0.0.0/8 or fd00::/8"),
        refused("an address", CNP, to_networks("10.0.0.1"), "10.0.0.0/8 or fd00::/8"),
        refused(
            "a duplicate network",
            CNP,
            egress("Deny", json!([{ "networks": ["10.0.0.0/8", "10.0.0.0/8"] }]), None),
            "Duplicate value",
        ),
        accepted("nodes", CNP, egress("Pass", json!([{ "nodes": {} }]), None)),
        accepted(
            "names",
            CNP,
            egress("Accept", json!([{ "domainNames": ["*.example.com."] }]), None),
        ),
        accepted(
            "names with an underscore",
            CNP,
            egress("Accept", json!([{ "domainNames": ["_dmarc.example.com"] }]), None),
        ),
        accepted(
            "Deny with names",
            CNP,
            egress("Deny", json!([{ "domainNames": ["example.com"] }]), None),
        ),
        refused(
            "a name of one label",
            CNP,
            egress("Accept", json!([{ "domainNames": ["localhost"] }]), None),
            "should match",
        ),
        refused(
            "a named port with a network",
            CNP,
            egress(
                "Accept",
                json!([{ "networks": ["10.0.0.0/8"] }]),
                Some(json!([{ "destinationNamedPort": "web" }])),
            ),
            "only pods have named ports",
        ),
        accepted(
            "a named port with pods",
            CNP,
            egress(
                "Accept",
                json!([{ "namespaces": {} }]),
                Some(json!([{ "destinationNamedPort": "web" }])),
            ),
        ),
    ]
}

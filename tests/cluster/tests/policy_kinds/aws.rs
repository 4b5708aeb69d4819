//! AWS's kinds.

use crate::{Kind, Row, accepted, refused};
use serde_json::{Value, json};

const ECNP: Kind =
    ("networking.k8s.aws", "v1alpha1", "ClusterNetworkPolicy", "clusternetworkpolicies", false);
const EANP: Kind = (
    "networking.k8s.aws",
    "v1alpha1",
    "ApplicationNetworkPolicy",
    "applicationnetworkpolicies",
    true,
);

fn egress(action: &str, to: Value, ports: Value) -> Value {
    json!({
        "tier": "Admin", "priority": 0, "subject": { "namespaces": {} },
        "egress": [{ "action": action, "to": [to], "ports": [ports] }],
    })
}

fn of_port(port: Value) -> Value {
    egress("Accept", json!({ "namespaces": {} }), port)
}

fn application(peer: Value) -> Value {
    json!({ "podSelector": {}, "egress": [{ "to": [peer] }] })
}

pub(crate) fn rows() -> Vec<Row> {
    let names = || json!({ "domainNames": ["*.example.com"] });
    let rule = json!({ "action": "Deny", "from": [{ "namespaces": {} }] });
    let ingress = |rules: Value| {
        json!({
            "tier": "Baseline", "priority": 1000, "subject": { "namespaces": {} },
            "ingress": rules,
        })
    };
    vec![
        accepted("Accept with names", ECNP, egress("Accept", names(), json!({}))),
        refused(
            "Deny with names",
            ECNP,
            egress("Deny", names(), json!({})),
            "require the action Accept",
        ),
        refused(
            "Pass with names",
            ECNP,
            egress("Pass", names(), json!({})),
            "require the action Accept",
        ),
        accepted("a port without protocol", ECNP, of_port(json!({ "portNumber": { "port": 80 } }))),
        accepted("a port by name", ECNP, of_port(json!({ "namedPort": "web" }))),
        accepted(
            "ports",
            ECNP,
            of_port(json!({ "portRange": { "protocol": "UDP", "start": 1, "end": 2 } })),
        ),
        refused(
            "a range of one port",
            ECNP,
            of_port(json!({ "portRange": { "start": 2, "end": 2 } })),
            "start must be less than end",
        ),
        accepted(
            "an invalid network",
            ECNP,
            egress("Deny", json!({ "networks": ["10.0.0.0/33"] }), json!({})),
        ),
        accepted("100 rules", ECNP, ingress(json!(vec![rule.clone(); 100]))),
        refused("101 rules", ECNP, ingress(json!(vec![rule; 101])), "must have at most 100 items"),
        refused(
            "pods without a namespaceSelector",
            ECNP,
            json!({
                "tier": "Admin", "priority": 1, "subject": { "pods": { "podSelector": {} } },
            }),
            "Required value",
        ),
        accepted("names", EANP, application(names())),
        accepted(
            "an egress rule without peers",
            EANP,
            json!({ "podSelector": {}, "egress": [{}] }),
        ),
        accepted(
            "pods of namespaces",
            EANP,
            application(json!({
                "podSelector": {}, "namespaceSelector": {},
            })),
        ),
        refused(
            "names and pods",
            EANP,
            application(json!({ "domainNames": ["example.com"], "podSelector": {} })),
            "cannot have other fields",
        ),
        refused("no name", EANP, application(json!({ "domainNames": [] })), "at least 1 items"),
        refused("no podSelector", EANP, json!({ "egress": [] }), "Required value"),
        accepted(
            "ports of any kind",
            EANP,
            json!({
                "podSelector": {}, "policyTypes": ["Egress"],
                "egress": [{ "ports": [{ "port": "web" }, { "port": 80, "endPort": 70000 }] }],
            }),
        ),
    ]
}

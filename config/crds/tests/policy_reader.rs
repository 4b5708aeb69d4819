//! Policy reads each field that the definitions accept. A field that an API server keeps is either understood, or
//! the answer is "not supported" with the name of the field.

#![expect(clippy::unwrap_used, reason = "a test fails at the place of the panic")]

use config_crds::policy_crds;
use policy_objects::{Object, Parsed, Severity};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Specs that have every field of a kind between them, and specs with a field that is not supported.
struct Kind {
    /// The definition's name.
    name: &'static str,
    understood: Vec<Value>,
    /// With the field's path.
    refused: Vec<(&'static str, Value)>,
    /// Fields that do not affect the allowed traffic.
    words: &'static [&'static str],
}

fn selector() -> Value {
    json!({
        "matchLabels": {"a": "b"},
        "matchExpressions": [{"key": "c", "operator": "In", "values": ["d"]}],
    })
}

fn kinds() -> Vec<Kind> {
    vec![
        upstream(),
        aws(),
        application(),
        tier(),
        antrea_cluster_policy(),
        antrea_policy(),
        cluster_group(),
        group(),
    ]
}

fn upstream() -> Kind {
    let pods = json!({"namespaceSelector": selector(), "podSelector": selector()});
    let port = |of: Value| json!({"destinationPort": of});
    let range = port(json!({"range": {"start": 1, "end": 2}}));
    let number = port(json!({"number": 1}));
    let protocols = json!([
        {"tcp": range}, {"tcp": number}, {"udp": range}, {"udp": number},
        {"sctp": range}, {"sctp": number}, {"destinationNamedPort": "web"},
    ]);
    Kind {
        name: "clusternetworkpolicies.policy.networking.k8s.io",
        understood: vec![
            json!({
                "tier": "Baseline", "priority": 1, "subject": {"namespaces": selector()},
                "ingress": [{
                    "name": "a", "action": "Pass", "protocols": protocols,
                    "from": [{"namespaces": selector()}, {"pods": pods}],
                }],
                "egress": [
                    {
                        "name": "a", "action": "Pass", "protocols": protocols,
                        "to": [{"namespaces": selector()}, {"pods": pods}],
                    },
                    {"action": "Pass", "to": [
                        {"nodes": selector()}, {"networks": ["10.0.0.0/8"]},
                    ]},
                    {"action": "Accept", "to": [{"domainNames": ["*.example.com"]}]},
                ],
            }),
            json!({"tier": "Baseline", "priority": 1, "subject": {"pods": pods}}),
        ],
        refused: vec![],
        words: &[],
    }
}

fn aws() -> Kind {
    let pods = json!({"namespaceSelector": selector(), "podSelector": selector()});
    let ports = json!([
        {"portNumber": {"protocol": "UDP", "port": 1}},
        {"portRange": {"protocol": "UDP", "start": 1, "end": 2}},
        {"namedPort": "web"},
    ]);
    Kind {
        name: "clusternetworkpolicies.networking.k8s.aws",
        understood: vec![
            json!({
                "tier": "Baseline", "priority": 1, "subject": {"namespaces": selector()},
                "ingress": [{
                    "name": "a", "action": "Pass", "ports": ports,
                    "from": [{"namespaces": selector()}, {"pods": pods}],
                }],
                "egress": [
                    {
                        "name": "a", "action": "Pass", "ports": ports,
                        "to": [{"namespaces": selector()}, {"pods": pods}],
                    },
                    {"action": "Pass", "to": [{"networks": ["10.0.0.0/8"]}]},
                    {"action": "Accept", "to": [{"domainNames": ["*.example.com"]}]},
                ],
            }),
            json!({"tier": "Baseline", "priority": 1, "subject": {"pods": pods}}),
        ],
        refused: vec![],
        words: &[],
    }
}

fn application() -> Kind {
    let pods = json!({"podSelector": selector(), "namespaceSelector": selector()});
    let block = json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}});
    let ports = json!([{"protocol": "UDP", "port": 1, "endPort": 2}]);
    Kind {
        name: "applicationnetworkpolicies.networking.k8s.aws",
        understood: vec![json!({
            "podSelector": selector(), "policyTypes": ["Egress", "Ingress"],
            "ingress": [{"from": [pods, block], "ports": ports}],
            "egress": [{
                "to": [pods, block, {"domainNames": ["example.com"]}], "ports": ports,
            }],
        })],
        refused: vec![],
        // Egress and Ingress follow from the rules.
        words: &["spec.policyTypes[]"],
    }
}

fn tier() -> Kind {
    Kind {
        name: "tiers.crd.antrea.io",
        understood: vec![json!({"priority": 10, "description": "a"})],
        refused: vec![],
        words: &["spec.description"],
    }
}

/// The fields that rules of both kinds have.
fn antrea_rule(way: &str, mut peers: Vec<Value>) -> Value {
    peers.extend([
        json!({"podSelector": selector(), "namespaceSelector": selector()}),
        json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}),
        json!({"group": "g"}),
        json!({"nodeSelector": selector()}),
    ]);
    json!({
        "name": way, "action": "Pass", "enableLogging": true, "logLabel": "l", way: peers,
        "ports": [
            {"protocol": "UDP", "port": 1, "endPort": 2, "sourcePort": 3, "sourceEndPort": 4},
        ],
        "protocols": [{"icmp": {"icmpType": 8, "icmpCode": 1}}],
    })
}

/// Fields that no rule supports.
fn antrea_refused(of_spec: impl Fn(&str, Value) -> Value) -> Vec<(&'static str, Value)> {
    let rule = |more: Value| {
        let mut rule = json!({"action": "Allow"});
        rule.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        rule
    };
    let http = |more: Value| rule(json!({"l7Protocols": [{"http": more}]}));
    let igmp = |more: Value| rule(json!({"protocols": [{"igmp": more}]}));
    let all = http(json!({"host": "a", "method": "GET", "path": "/"}));
    let tls = rule(json!({"l7Protocols": [{"tls": {"sni": "a"}}]}));
    let scope = rule(json!({"from": [{"podSelector": {}, "scope": "ClusterSet"}]}));
    let services = rule(json!({"toServices": [{
        "name": "a", "namespace": "b", "scope": "ClusterSet",
    }]}));
    vec![
        ("spec.ingress[].l7Protocols", of_spec("ingress", all.clone())),
        ("spec.egress[].l7Protocols", of_spec("egress", all)),
        ("spec.ingress[].l7Protocols", of_spec("ingress", tls.clone())),
        ("spec.egress[].l7Protocols", of_spec("egress", tls)),
        (
            "spec.ingress[].protocols[].igmp",
            of_spec("ingress", igmp(json!({"igmpType": 17, "groupAddress": "224.0.0.1"}))),
        ),
        (
            "spec.egress[].protocols[].igmp",
            of_spec("egress", igmp(json!({"igmpType": 18, "groupAddress": "224.0.0.1"}))),
        ),
        ("spec.ingress[].from[].scope", of_spec("ingress", scope)),
        ("spec.egress[].toServices[].scope", of_spec("egress", services)),
    ]
}

fn antrea_cluster_policy() -> Kind {
    let account = json!({"serviceAccount": {"name": "a", "namespace": "b"}});
    let own = [
        account.clone(),
        json!({"namespaces": {"match": "Self"}}),
        json!({"namespaces": {"sameLabels": ["a"]}}),
    ];
    let subjects = json!([
        {"podSelector": selector(), "namespaceSelector": selector()}, {"group": "g"}, account,
    ]);
    let with = |mut rule: Value| {
        rule["appliedTo"] = subjects.clone();
        rule
    };
    let spec = |direction: &str, rule: Value| json!({"tier": "platform", "priority": 2, "appliedTo": [{"podSelector": {}}], direction: [rule]});
    let of_rule = |item: Value| {
        json!({"tier": "platform", "priority": 2,
               "ingress": [{"action": "Allow", "appliedTo": [item]}]})
    };
    let service = json!({"service": {"name": "a", "namespace": "b"}});
    let mut refused = antrea_refused(spec);
    refused.extend([
        (
            "spec.appliedTo[].service",
            json!({"priority": 2, "appliedTo": [service],
            "ingress": [{"action": "Allow"}]}),
        ),
        (
            "spec.appliedTo[].nodeSelector",
            json!({"priority": 2,
            "appliedTo": [{"nodeSelector": selector()}], "ingress": [{"action": "Allow"}]}),
        ),
        ("spec.ingress[].appliedTo[].service", of_rule(service)),
    ]);
    Kind {
        name: "clusternetworkpolicies.crd.antrea.io",
        understood: vec![
            json!({"tier": "platform", "priority": 2, "appliedTo": subjects}),
            json!({
                "tier": "platform", "priority": 2,
                "ingress": [with(antrea_rule("from", own.to_vec()))],
                "egress": [
                    with(antrea_rule("to", [&own[..], &[json!({"fqdn": "*.example.com"})]].concat())),
                    with(json!({"action": "Drop", "toServices": [{"name": "a", "namespace": "b"}]})),
                ],
            }),
        ],
        refused,
        words: &[],
    }
}

fn antrea_policy() -> Kind {
    let subjects = json!([{"podSelector": selector()}, {"group": "g"}]);
    let with = |mut rule: Value| {
        rule["appliedTo"] = subjects.clone();
        rule
    };
    let spec = |direction: &str, rule: Value| json!({"tier": "platform", "priority": 2, "appliedTo": [{"podSelector": {}}], direction: [rule]});
    let entity = json!({"externalEntitySelector": selector()});
    let mut refused = antrea_refused(spec);
    refused.extend([
        (
            "spec.appliedTo[].externalEntitySelector",
            json!({"priority": 2,
            "appliedTo": [entity], "ingress": [{"action": "Allow"}]}),
        ),
        (
            "spec.ingress[].from[].externalEntitySelector",
            spec("ingress", json!({"action": "Allow", "from": [entity]})),
        ),
        (
            "spec.egress[].to[].externalEntitySelector",
            spec("egress", json!({"action": "Allow", "to": [entity]})),
        ),
    ]);
    Kind {
        name: "networkpolicies.crd.antrea.io",
        understood: vec![
            json!({"tier": "platform", "priority": 2, "appliedTo": subjects}),
            json!({
                "tier": "platform", "priority": 2,
                "ingress": [with(antrea_rule("from", vec![]))],
                "egress": [
                    with(antrea_rule("to", vec![json!({"fqdn": "*.example.com"})])),
                    with(json!({"action": "Drop", "toServices": [{"name": "a", "namespace": "b"}]})),
                ],
            }),
        ],
        refused,
        words: &[],
    }
}

fn groups() -> Vec<Value> {
    vec![
        json!({"podSelector": selector(), "namespaceSelector": selector()}),
        json!({"ipBlocks": [{"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}]}),
        json!({"serviceReference": {"name": "a", "namespace": "b"}}),
        json!({"childGroups": ["a"]}),
    ]
}

fn external() -> Vec<(&'static str, Value)> {
    vec![("spec.externalEntitySelector", json!({"externalEntitySelector": selector()}))]
}

fn cluster_group() -> Kind {
    let nodes = vec![json!({"nodeSelector": selector()})];
    Kind {
        name: "clustergroups.crd.antrea.io",
        understood: [groups(), nodes].concat(),
        refused: external(),
        words: &[],
    }
}

fn group() -> Kind {
    Kind { name: "groups.crd.antrea.io", understood: groups(), refused: external(), words: &[] }
}

#[test]
fn every_field_of_a_definition_is_in_one_of_these_and_no_other() {
    let definitions = policy_crds();
    assert_eq!(definitions.len(), kinds().len());
    for kind in kinds() {
        let definition = definition(&definitions, &kind);
        let spec =
            &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        let mut defined = BTreeSet::new();
        of_schema(spec, "spec", &mut defined);
        let mut written = BTreeSet::new();
        for spec in kind.understood.iter().chain(kind.refused.iter().map(|(_, spec)| spec)) {
            of_value(spec, "spec", &mut |path, _| _ = written.insert(path.to_owned()));
        }
        assert_eq!(defined, written, "{}", kind.name);
    }
}

#[test]
fn what_is_understood_is_understood_without_a_word_and_each_field_counts() {
    let definitions = policy_crds();
    for kind in kinds() {
        let definition = definition(&definitions, &kind);
        for spec in &kind.understood {
            let whole = read(definition, spec);
            assert!(whole.notes.is_empty(), "{}: {:?}", kind.name, whole.notes);
            let mut pointers = Vec::new();
            of_value(spec, "spec", &mut |path, pointer| {
                pointers.push((path.to_owned(), pointer.to_owned()));
            });
            for (path, pointer) in
                pointers.iter().filter(|(path, _)| !kind.words.contains(&path.as_str()))
            {
                let mut less = spec.clone();
                remove(&mut less, pointer);
                let less = read(definition, &less);
                assert_ne!(whole, less, "{}: {path} is not read", kind.name);
            }
        }
    }
}

#[test]
fn unsupported_fields_are_reported_by_name() {
    let definitions = policy_crds();
    for kind in kinds() {
        let definition = definition(&definitions, &kind);
        for (path, spec) in &kind.refused {
            let notes = read(definition, spec).notes;
            let (place, field) = path.rsplit_once('.').unwrap();
            let rule = place.split("[]").next().unwrap();
            let is_reported = notes.iter().any(|note| {
                let whole = format!("{} {}", note.field, note.text);
                note.severity == Severity::Error && whole.starts_with(rule) && whole.contains(field)
            });
            assert!(is_reported, "{}: {path} is not reported: {notes:?}", kind.name);
        }
    }
}

fn definition<'a>(definitions: &'a [Value], kind: &Kind) -> &'a Value {
    definitions.iter().find(|definition| definition["metadata"]["name"] == kind.name).unwrap()
}

fn read(definition: &Value, spec: &Value) -> Parsed {
    let names = &definition["spec"];
    let version = names["versions"][0]["name"].as_str().unwrap();
    let mut object = json!({
        "apiVersion": format!("{}/{version}", names["group"].as_str().unwrap()),
        "kind": names["names"]["kind"], "metadata": {"name": "a"}, "spec": spec,
    });
    if names["scope"] == "Namespaced" {
        object["metadata"]["namespace"] = json!("n");
    }
    Object::read_value(&object).unwrap()
}

/// The fields that have no fields of their own.
fn of_schema(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
        for (name, schema) in properties {
            of_schema(schema, &format!("{path}.{name}"), found);
        }
    } else if let Some(items) = schema.get("items") {
        of_schema(items, &format!("{path}[]"), found);
    } else {
        found.insert(path.to_owned());
    }
}

/// The same of a value, with a JSON pointer to each.
fn of_value(value: &Value, path: &str, found: &mut dyn FnMut(&str, &str)) {
    walk(value, path, "", found);
}

fn walk(value: &Value, path: &str, pointer: &str, found: &mut dyn FnMut(&str, &str)) {
    match value {
        // Labels are no fields.
        Value::Object(map) if !path.ends_with("matchLabels") => {
            for (name, value) in map {
                walk(value, &format!("{path}.{name}"), &format!("{pointer}/{name}"), found);
            }
        }
        Value::Array(items) => {
            for (number, value) in items.iter().enumerate() {
                walk(value, &format!("{path}[]"), &format!("{pointer}/{number}"), found);
            }
        }
        Value::Object(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            found(path, pointer)
        }
    }
}

fn remove(value: &mut Value, pointer: &str) {
    let (parent, last) = pointer.rsplit_once('/').unwrap();
    match value.pointer_mut(parent).unwrap() {
        Value::Object(map) => drop(map.remove(last)),
        Value::Array(items) => drop(items.remove(last.parse().unwrap())),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            unreachable!("a parent has children")
        }
    }
}

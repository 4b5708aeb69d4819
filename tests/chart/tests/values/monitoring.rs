//! Definitions of the Prometheus operator's kinds, with the fields that the chart may use. The API server refuses other
//! fields as misspelled.

use serde_json::{Value, json};

pub(crate) fn definitions() -> Vec<Value> {
    let text = || json!({ "type": "string" });
    let texts = || json!({ "type": "object", "additionalProperties": { "type": "string" } });
    let list = |items: Value| json!({ "type": "array", "items": items });
    let object = |properties: Value| json!({ "type": "object", "properties": properties });
    let relabeling = object(json!({
        "sourceLabels": list(text()), "targetLabel": text(), "regex": text(), "action": text(),
        "replacement": text(), "separator": text(), "modulus": { "type": "integer" },
    }));
    let monitor = object(json!({
        "namespaceSelector": object(json!({ "matchNames": list(text()) })),
        "selector": object(json!({ "matchLabels": texts() })),
        "podTargetLabels": list(text()),
        "podMetricsEndpoints": list(object(json!({
            "port": text(), "path": text(), "interval": text(), "scrapeTimeout": text(),
            "relabelings": list(relabeling),
        }))),
    }));
    let rule = object(json!({
        "alert": text(), "record": text(), "expr": { "x-kubernetes-int-or-string": true },
        "for": text(), "keep_firing_for": text(), "labels": texts(), "annotations": texts(),
    }));
    let rules = object(json!({ "groups": list(object(json!({
        "name": text(), "interval": text(), "rules": list(rule),
    })))}));
    vec![
        definition("PodMonitor", "podmonitors", monitor),
        definition("PrometheusRule", "prometheusrules", rules),
    ]
}

fn definition(kind: &str, plural: &str, spec: Value) -> Value {
    let group = "monitoring.coreos.com";
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{group}") },
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": { "kind": kind, "plural": plural, "singular": kind.to_lowercase() },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": {
                    "type": "object", "required": ["spec"], "properties": { "spec": spec },
                }},
            }],
        },
    })
}

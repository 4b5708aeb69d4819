//! The objects of a test: a namespace, two DaemonSets of probes and a Service. Without a host port they meet the
//! *restricted* pod security standard.

use crate::probe::PORT;
use serde_json::{Value, json};
use view_cluster::TemplateSpec;

/// The label values of probes that test and of probes that are only tested.
pub(super) const PROBE: &str = "probe";
pub(super) const TARGET: &str = "target";
pub(super) const SERVICE_PORT: u16 = 80;

/// The annotation with the run that created the namespace.
pub(super) const RUN: &str = "ferrule.io/check-run";

pub(super) fn namespace(name: &str, run: &str, host_port: Option<u16>) -> Value {
    let level = if host_port.is_some() { "privileged" } else { "restricted" };
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {
            "name": name, "labels": {
                "app.kubernetes.io/managed-by": "ferrule-check",
                "pod-security.kubernetes.io/enforce": level,
            },
            "annotations": { RUN: run },
        },
    })
}

pub(super) fn daemon_set(
    name: &str,
    image: &str,
    nodes: &TemplateSpec,
    host_port: Option<u16>,
) -> Value {
    let port = |port: u16| json!({ "containerPort": PORT, "hostPort": port, "protocol": "TCP" });
    let ports: Vec<Value> = host_port.into_iter().map(port).collect();
    let labels = json!({ "app": name });
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": name },
        "spec": { "selector": { "matchLabels": labels }, "template": {
            "metadata": { "labels": labels },
            "spec": {
                "automountServiceAccountToken": false,
                "enableServiceLinks": false,
                "terminationGracePeriodSeconds": 1,
                "nodeSelector": nodes.node_selector, "affinity": nodes.affinity,
                "tolerations": [{ "operator": "Exists" }],
                "securityContext": {
                    "runAsNonRoot": true, "runAsUser": 65532,
                    "seccompProfile": { "type": "RuntimeDefault" },
                },
                "containers": [{
                    "name": "probe", "image": image, "ports": ports,
                    "command": ["ferrule", "probe", "serve", "--port", PORT.to_string()],
                    "readinessProbe": {
                        "httpGet": { "path": "/", "port": PORT }, "periodSeconds": 1,
                    },
                    "resources": { "requests": { "cpu": "5m", "memory": "8Mi" } },
                    "securityContext": {
                        "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                        "capabilities": { "drop": ["ALL"] },
                    },
                }],
            },
        } },
    })
}

pub(super) fn service() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": TARGET },
        "spec": {
            "type": "NodePort", "ipFamilyPolicy": "PreferDualStack", "selector": { "app": TARGET },
            "ports": [{ "port": SERVICE_PORT, "targetPort": PORT, "protocol": "TCP" }],
        },
    })
}

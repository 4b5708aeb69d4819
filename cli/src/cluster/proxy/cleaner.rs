//! The DaemonSet that removes kube-proxy's rules from switched nodes, and the ConfigMap with kube-proxy's manifest.
//!
//! A pod of the DaemonSet is ready if its node has no rule of kube-proxy and the Service of the API server answers. So the
//! state of each node is in the status of its pod.

use cli_migrate::services::{LABEL, SWITCHED, objects};
use serde_json::{Value, json};

/// The name of the DaemonSet.
pub(super) const NAME: &str = "ferrule-kube-proxy-rules";
/// The name of the ConfigMap, and its key with the manifest.
pub(super) const SAVED: &str = "ferrule-kube-proxy";
pub(super) const MANIFEST: &str = "daemonset.json";

/// Returns the DaemonSet. Image and pull secrets are those of Ferrule's DaemonSet.
pub(super) fn daemon_set(ferrule: &Value, image: &str) -> Value {
    let labels = json!({ "app.kubernetes.io/name": NAME });
    let command = |flag: &str| json!(["ferrule", "migrate", "services", "rules", flag]);
    let security = json!({
        // Root, because root owns the lock of iptables and the list of its tables.
        "runAsUser": 0,
        "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
        // iptables opens raw sockets.
        "capabilities": { "drop": ["ALL"], "add": ["NET_ADMIN", "NET_RAW"] },
    });
    let resources = json!({ "requests": { "cpu": "5m", "memory": "16Mi" } });
    let secrets = &ferrule["spec"]["template"]["spec"]["imagePullSecrets"];
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": { "name": NAME, "labels": { "app.kubernetes.io/managed-by": "ferrule-migrate" } },
        "spec": { "selector": { "matchLabels": labels }, "template": {
            "metadata": { "labels": labels },
            "spec": {
                "hostNetwork": true,
                // The names of the node's processes show whether kube-proxy runs.
                "hostPID": true,
                "automountServiceAccountToken": false,
                "terminationGracePeriodSeconds": 1,
                // A node without memory evicts other pods first, as for kube-proxy.
                "priorityClassName": "system-node-critical",
                "nodeSelector": { LABEL: SWITCHED, "kubernetes.io/os": "linux" },
                "tolerations": [{ "operator": "Exists" }],
                "imagePullSecrets": secrets.as_array().cloned().unwrap_or_default(),
                "securityContext": { "seccompProfile": { "type": "RuntimeDefault" } },
                "initContainers": [{
                    "name": "reach", "image": image, "command": command("--only-reach"),
                    "resources": resources, "securityContext": security,
                }],
                "containers": [{
                    "name": objects::CLEANER, "image": image, "command": command("--stay"),
                    "resources": resources, "securityContext": security,
                    "readinessProbe": {
                        "exec": { "command": command("--reach") },
                        "periodSeconds": 10, "timeoutSeconds": 30,
                    },
                    "volumeMounts": [{ "name": "xtables-lock", "mountPath": "/run/xtables.lock" }],
                }],
                "volumes": [{
                    "name": "xtables-lock",
                    "hostPath": { "path": "/run/xtables.lock", "type": "FileOrCreate" },
                }],
            },
        } },
    })
}

/// Returns the ConfigMap with the manifest.
pub(super) fn config_map(manifest: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": SAVED, "labels": { "app.kubernetes.io/managed-by": "ferrule-migrate" } },
        "data": { MANIFEST: manifest.to_string() },
    })
}

/// Returns the manifest of a ConfigMap; `None` if it has none that can be read.
pub(super) fn manifest(config_map: &Value) -> Option<Value> {
    serde_json::from_str(config_map["data"][MANIFEST].as_str()?).ok()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;
    use k8s_openapi::api::{apps::v1::DaemonSet, core::v1::ConfigMap};

    #[test]
    fn the_objects_have_only_fields_of_kubernetes() {
        let ferrule = json!({ "spec": { "template": { "spec": {
            "imagePullSecrets": [{ "name": "registry" }],
        } } } });
        let object = daemon_set(&ferrule, "registry/ferrule:1");
        let typed: DaemonSet = serde_json::from_value(object.clone()).unwrap();
        let pod = typed.spec.clone().unwrap().template.spec.unwrap();
        assert_eq!(pod.image_pull_secrets.unwrap()[0].name, "registry");
        assert_eq!(pod.node_selector.unwrap()[LABEL], SWITCHED);
        assert_eq!(pod.priority_class_name.as_deref(), Some("system-node-critical"));
        // A field that Kubernetes does not have would be missing.
        let again = serde_json::to_value(typed).unwrap();
        let of = |object: &Value| object["spec"]["template"]["spec"].clone();
        assert_eq!(of(&again), of(&object));
        let object = config_map(&json!({ "kind": "DaemonSet" }));
        let typed: ConfigMap = serde_json::from_value(object.clone()).unwrap();
        assert_eq!(typed.metadata.name.as_deref(), Some(SAVED));
        assert_eq!(manifest(&object), Some(json!({ "kind": "DaemonSet" })));
        assert_eq!(manifest(&json!({ "data": {} })), None);
    }
}

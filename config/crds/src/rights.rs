//! What the daemon may do in the cluster: exactly what it does.

use serde_json::{Value, json};

/// The daemon's service account.
pub const SERVICE_ACCOUNT: &str = "ferrule-ipamd";
/// Its namespace.
pub const NAMESPACE: &str = "kube-system";

/// A resource and what may be done to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Right {
    /// The API group; empty is the core's.
    pub group: &'static str,
    /// The resource, with its subresource.
    pub resource: &'static str,
    /// What may be done.
    pub verbs: &'static [&'static str],
    /// What it is for.
    pub purpose: &'static str,
}

const fn right(
    group: &'static str,
    resource: &'static str,
    verbs: &'static [&'static str],
    purpose: &'static str,
) -> Right {
    Right { group, resource, verbs, purpose }
}

/// What holds in all namespaces.
pub const CLUSTER_RIGHTS: &[Right] = &[
    right("", "nodes", &["list", "watch", "patch"], "own node; taking off the startup taint"),
    right("", "nodes/status", &["patch"], "condition IPPoolHealthy"),
    right("", "pods", &["list", "watch", "patch"], "own pods; ANNOTATE_POD_IP"),
    right("crd.k8s.amazonaws.com", "eniconfigs", &["list", "watch"], "custom networking"),
    right(
        "vpcresources.k8s.aws",
        "cninodes",
        &["list", "watch", "patch"],
        "security groups for pods: asking for a trunk",
    ),
    right("events.k8s.io", "events", &["create", "patch"], "events about pods and the daemon"),
];

/// What holds in the daemon's own namespace.
pub const RIGHTS_IN_NAMESPACE: &[Right] = &[right(
    "coordination.k8s.io",
    "leases",
    &["get", "create", "update"],
    "election of the collector of leaked ENIs",
)];

/// The service account, its roles and what binds them.
pub fn rbac() -> Vec<Value> {
    let metadata = |namespaced: bool| {
        let mut metadata = json!({ "name": SERVICE_ACCOUNT });
        if namespaced {
            metadata["namespace"] = json!(NAMESPACE);
        }
        metadata
    };
    let rules = |rights: &[Right]| -> Vec<Value> {
        let rule = |right: &Right| {
            json!({
                "apiGroups": [right.group],
                "resources": [right.resource],
                "verbs": right.verbs,
            })
        };
        rights.iter().map(rule).collect()
    };
    let api = "rbac.authorization.k8s.io";
    let version = format!("{api}/v1");
    let binds = |kind: &str, binding: &str, namespaced: bool| {
        json!({
            "apiVersion": version, "kind": binding, "metadata": metadata(namespaced),
            "roleRef": { "apiGroup": api, "kind": kind, "name": SERVICE_ACCOUNT },
            "subjects": [{
                "kind": "ServiceAccount", "name": SERVICE_ACCOUNT, "namespace": NAMESPACE,
            }],
        })
    };
    vec![
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(true) }),
        json!({
            "apiVersion": version, "kind": "ClusterRole", "metadata": metadata(false),
            "rules": rules(CLUSTER_RIGHTS),
        }),
        binds("ClusterRole", "ClusterRoleBinding", false),
        json!({
            "apiVersion": version, "kind": "Role", "metadata": metadata(true),
            "rules": rules(RIGHTS_IN_NAMESPACE),
        }),
        binds("Role", "RoleBinding", true),
    ]
}

//! RBAC rights of the daemon, the policy controller, the agents and the viewers. Each account has only the rights that
//! it uses.

use serde_json::{Value, json};

/// The daemon's service account.
pub const SERVICE_ACCOUNT: &str = "ferrule-ipamd";
/// Namespace of all accounts in the manifests.
pub const NAMESPACE: &str = "kube-system";

/// A resource and its allowed verbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Right {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Plural of the resource, with the subresource after `/`.
    pub resource: &'static str,
    /// Verbs of the API server.
    pub verbs: &'static [&'static str],
    /// Names of the objects; empty for all objects.
    pub names: &'static [&'static str],
    /// Reason why the account needs the right.
    pub purpose: &'static str,
}

const fn right(
    group: &'static str,
    resource: &'static str,
    verbs: &'static [&'static str],
    purpose: &'static str,
) -> Right {
    Right { group, resource, verbs, names: &[], purpose }
}

/// A right to named objects only.
const fn named(
    group: &'static str,
    resource: &'static str,
    verbs: &'static [&'static str],
    names: &'static [&'static str],
    purpose: &'static str,
) -> Right {
    Right { group, resource, verbs, names, purpose }
}

/// The daemon's rights in all namespaces.
pub const CLUSTER_RIGHTS: &[Right] = &[
    right("", "nodes", &["list", "watch", "patch"], "reads its node; removes the startup taint"),
    right("", "nodes/status", &["patch"], "sets the condition IPPoolHealthy"),
    right(
        "",
        "pods",
        &["list", "watch", "patch"],
        "reads the pods of its node; annotates them with ANNOTATE_POD_IP",
    ),
    right(
        "crd.k8s.amazonaws.com",
        "eniconfigs",
        &["list", "watch"],
        "reads ENIConfigs, for custom networking",
    ),
    right(
        "vpcresources.k8s.aws",
        "cninodes",
        &["list", "watch", "patch"],
        "requests a trunk ENI, for security groups for pods",
    ),
    right(
        "events.k8s.io",
        "events",
        &["create", "patch"],
        "writes events about pods and the daemon",
    ),
];

/// The daemon's rights in its own namespace.
pub const RIGHTS_IN_NAMESPACE: &[Right] = &[right(
    "coordination.k8s.io",
    "leases",
    &["get", "create", "update"],
    "elects the collector of leaked ENIs",
)];

/// The policy controller's service account, in the same namespace.
pub const CONTROLLER_ACCOUNT: &str = "ferrule-controller";

const READ: &[&str] = &["list", "watch"];
const ANTREA: &str = "crd.antrea.io";
const UPSTREAM: &str = "policy.networking.k8s.io";
const AWS: &str = "networking.k8s.aws";
const STATUS: &[&str] = &["update"];
const CREATE: &[&str] = &["create"];
const KEEP: &[&str] = &["get", "update"];
const VIEW: &str = "registers the aggregated API for policies, groups and nodes";
const LEASE: &str = "elects the replica that writes status";

/// The policy controller's rights in all namespaces.
pub const CONTROLLER_CLUSTER_RIGHTS: &[Right] = &[
    right("", "pods", READ, "reads subjects and peers of policies, and the agents' pods"),
    right("", "namespaces", READ, "reads labels for selectors"),
    right("", "nodes", READ, "reads labels and addresses for peers"),
    right("", "services", READ, "reads Services that rules refer to"),
    right("networking.k8s.io", "networkpolicies", READ, "reads policies"),
    right(UPSTREAM, "clusternetworkpolicies", &["get", "list", "watch"], "reads policies"),
    right(UPSTREAM, "clusternetworkpolicies/status", STATUS, "writes the progress of the policy"),
    right(AWS, "clusternetworkpolicies", &["get", "list", "watch"], "reads policies"),
    right(AWS, "clusternetworkpolicies/status", STATUS, "writes the progress of the policy"),
    right(AWS, "applicationnetworkpolicies", &["get", "list", "watch"], "reads policies"),
    right(AWS, "applicationnetworkpolicies/status", STATUS, "writes the progress of the policy"),
    right(ANTREA, "clusternetworkpolicies", &["get", "list", "watch"], "reads policies"),
    right(ANTREA, "clusternetworkpolicies/status", STATUS, "writes the progress of the policy"),
    right(ANTREA, "networkpolicies", &["get", "list", "watch"], "reads policies"),
    right(ANTREA, "networkpolicies/status", STATUS, "writes the progress of the policy"),
    right(ANTREA, "tiers", READ, "reads the order of policies"),
    right(ANTREA, "clustergroups", READ, "reads groups that policies refer to"),
    right(ANTREA, "groups", READ, "reads groups that policies refer to"),
    right(
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        &["get", "list", "watch"],
        "detects kinds that are installed or removed later",
    ),
    right("authentication.k8s.io", "tokenreviews", &["create"], "verifies the tokens of agents"),
    right("apiregistration.k8s.io", "apiservices", CREATE, VIEW),
    named(
        "apiregistration.k8s.io",
        "apiservices",
        &["get", "patch"],
        &["v1alpha1.view.policy.ferrule.io"],
        VIEW,
    ),
    right(
        "policy.ferrule.io",
        "networkpolicyrealizations",
        &["get", "list", "create", "update", "delete"],
        "writes the progress of NetworkPolicies",
    ),
    // The admission plugin OwnerReferencesPermissionEnforcement requires this right for an owner reference.
    right(
        "networking.k8s.io",
        "networkpolicies/finalizers",
        &["update"],
        "makes a NetworkPolicy the owner of its realization",
    ),
];

/// The policy controller's rights in its own namespace.
pub const CONTROLLER_RIGHTS_IN_NAMESPACE: &[Right] = &[
    right("", "configmaps", CREATE, "publishes the CA certificates for agents"),
    named(
        "",
        "configmaps",
        KEEP,
        &["ferrule-controller-ca"],
        "publishes the CA certificates for agents",
    ),
    named("", "configmaps", &["get"], &["extension-apiserver-authentication"], VIEW),
    right("discovery.k8s.io", "endpointslices", CREATE, VIEW),
    named(
        "discovery.k8s.io",
        "endpointslices",
        &["get", "patch"],
        &["ferrule-controller-view"],
        VIEW,
    ),
    right("", "secrets", CREATE, "shares the CA key between replicas"),
    named("", "secrets", KEEP, &["ferrule-controller-tls"], "shares the CA key between replicas"),
    right("coordination.k8s.io", "leases", CREATE, LEASE),
    named("coordination.k8s.io", "leases", KEEP, &["ferrule-controller"], LEASE),
];

/// Service account of the agents, in the same namespace.
pub const AGENT_ACCOUNT: &str = "ferrule-agent";

/// Rights of the agent in its own namespace. It has no other rights.
pub const AGENT_RIGHTS_IN_NAMESPACE: &[Right] =
    &[right("discovery.k8s.io", "endpointslices", READ, "finds the replicas of the controller")];

/// The roles of viewers, in the whole cluster and in the daemon's namespace. They are not bound to any user.
pub const VIEWER: &str = "ferrule-viewer";

const LOOK: &[&str] = &["get", "list"];
/// `get` is the verb for WebSocket clients of older API servers; newer ones check `create` as well.
const FORWARD: &[&str] = &["get", "create"];

/// Rights in all namespaces for `ferrule status`, `ferrule pod` and `ferrule policy`.
pub const VIEWER_CLUSTER_RIGHTS: &[Right] = &[
    right("", "nodes", LOOK, "reads readiness and conditions of nodes"),
    right("", "pods", LOOK, "reads node, addresses and state of pods; reads subjects of policies"),
    right("", "events", LOOK, "reads the reason why a pod waits"),
    right("", "namespaces", LOOK, "reads labels for selectors"),
    right("", "services", LOOK, "reads Services that rules refer to"),
    right("networking.k8s.io", "networkpolicies", LOOK, "reads policies"),
    right(UPSTREAM, "clusternetworkpolicies", LOOK, "reads policies"),
    right(AWS, "clusternetworkpolicies", LOOK, "reads policies"),
    right(AWS, "applicationnetworkpolicies", LOOK, "reads policies"),
    right(ANTREA, "clusternetworkpolicies", LOOK, "reads policies"),
    right(ANTREA, "networkpolicies", LOOK, "reads policies"),
    right(ANTREA, "tiers", LOOK, "reads policies"),
    right(ANTREA, "clustergroups", LOOK, "reads policies"),
    right(ANTREA, "groups", LOOK, "reads policies"),
    right("crd.k8s.amazonaws.com", "eniconfigs", LOOK, "collected by ferrule bundle"),
    right("vpcresources.k8s.aws", "cninodes", LOOK, "collected by ferrule bundle"),
    right(
        "policy.ferrule.io",
        "networkpolicyrealizations",
        LOOK,
        "reads the progress of NetworkPolicies",
    ),
    right(
        "view.policy.ferrule.io",
        "*",
        LOOK,
        "reads the controller's state of policies and nodes",
    ),
];

/// Rights in the daemon's namespace for the same commands. A user who may forward to a pod with its node's network
/// reaches the ports of that node's loopback: this right is for operators.
pub const VIEWER_RIGHTS_IN_NAMESPACE: &[Right] = &[
    right(
        "",
        "pods/portforward",
        FORWARD,
        "reads the introspection of each daemon on the loopback of its node",
    ),
    right("", "pods/log", &["get"], "collected by ferrule bundle"),
    right("", "configmaps", LOOK, "collected by ferrule bundle"),
    right("apps", "daemonsets", LOOK, "reads the nodes on which a daemon has to run"),
    right("apps", "deployments", LOOK, "collected by ferrule bundle"),
    right("coordination.k8s.io", "leases", LOOK, "reads which replica writes status"),
];

/// Returns the daemon's service account, roles and bindings.
pub fn rbac() -> Vec<Value> {
    rbac_of(SERVICE_ACCOUNT, CLUSTER_RIGHTS, RIGHTS_IN_NAMESPACE)
}

/// Returns the policy controller's service account, roles and bindings.
pub fn controller_rbac() -> Vec<Value> {
    rbac_of(CONTROLLER_ACCOUNT, CONTROLLER_CLUSTER_RIGHTS, CONTROLLER_RIGHTS_IN_NAMESPACE)
}

/// Returns the agent's service account, role and binding.
pub fn agent_rbac() -> Vec<Value> {
    rbac_of(AGENT_ACCOUNT, &[], AGENT_RIGHTS_IN_NAMESPACE)
}

/// Returns the roles of viewers, without bindings.
pub fn viewer_rbac() -> Vec<Value> {
    let is_role = |object: &Value| matches!(object["kind"].as_str(), Some("ClusterRole" | "Role"));
    let mut objects = rbac_of(VIEWER, VIEWER_CLUSTER_RIGHTS, VIEWER_RIGHTS_IN_NAMESPACE);
    objects.retain(is_role);
    objects
}

fn rbac_of(account: &str, in_cluster: &[Right], in_namespace: &[Right]) -> Vec<Value> {
    let metadata = |namespaced: bool| {
        let mut metadata = json!({ "name": account });
        if namespaced {
            metadata["namespace"] = json!(NAMESPACE);
        }
        metadata
    };
    let rules = |rights: &[Right]| -> Vec<Value> {
        let rule = |right: &Right| {
            let mut rule = json!({
                "apiGroups": [right.group],
                "resources": [right.resource],
                "verbs": right.verbs,
            });
            if !right.names.is_empty() {
                rule["resourceNames"] = json!(right.names);
            }
            rule
        };
        rights.iter().map(rule).collect()
    };
    let api = "rbac.authorization.k8s.io";
    let version = format!("{api}/v1");
    let binds = |kind: &str, binding: &str, namespaced: bool| {
        json!({
            "apiVersion": version, "kind": binding, "metadata": metadata(namespaced),
            "roleRef": { "apiGroup": api, "kind": kind, "name": account },
            "subjects": [{
                "kind": "ServiceAccount", "name": account, "namespace": NAMESPACE,
            }],
        })
    };
    let account =
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(true) });
    let of_cluster = [
        json!({
            "apiVersion": version, "kind": "ClusterRole", "metadata": metadata(false),
            "rules": rules(in_cluster),
        }),
        binds("ClusterRole", "ClusterRoleBinding", false),
    ];
    let of_cluster = of_cluster.into_iter().filter(|_| !in_cluster.is_empty());
    let of_namespace = [
        json!({
            "apiVersion": version, "kind": "Role", "metadata": metadata(true),
            "rules": rules(in_namespace),
        }),
        binds("Role", "RoleBinding", true),
    ];
    std::iter::once(account).chain(of_cluster).chain(of_namespace).collect()
}

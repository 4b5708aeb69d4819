//! Rights of the daemon, the policy controller and the nodes' agents in the cluster: exactly those that they use.

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
    /// Verbs of the API server.
    pub verbs: &'static [&'static str],
    /// To which objects; none named: to all.
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

/// To one object alone.
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

/// The daemon's rights in its own namespace.
pub const RIGHTS_IN_NAMESPACE: &[Right] = &[right(
    "coordination.k8s.io",
    "leases",
    &["get", "create", "update"],
    "election of the collector of leaked ENIs",
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
const VIEW: &str = "the API at which people ask about policies, groups and nodes";
const LEASE: &str = "election of the replica that writes status";

/// The policy controller's rights in all namespaces.
pub const CONTROLLER_CLUSTER_RIGHTS: &[Right] = &[
    right("", "pods", READ, "whom policies are about; the agents' own"),
    right("", "namespaces", READ, "their labels"),
    right("", "nodes", READ, "their labels and addresses"),
    right("", "services", READ, "rules that name them"),
    right("networking.k8s.io", "networkpolicies", READ, "policy"),
    right(UPSTREAM, "clusternetworkpolicies", &["get", "list", "watch"], "policy"),
    right(UPSTREAM, "clusternetworkpolicies/status", STATUS, "how far it is enforced"),
    right(AWS, "clusternetworkpolicies", &["get", "list", "watch"], "policy"),
    right(AWS, "clusternetworkpolicies/status", STATUS, "how far it is enforced"),
    right(AWS, "applicationnetworkpolicies", &["get", "list", "watch"], "policy"),
    right(AWS, "applicationnetworkpolicies/status", STATUS, "how far it is enforced"),
    right(ANTREA, "clusternetworkpolicies", &["get", "list", "watch"], "policy"),
    right(ANTREA, "clusternetworkpolicies/status", STATUS, "how far it is enforced"),
    right(ANTREA, "networkpolicies", &["get", "list", "watch"], "policy"),
    right(ANTREA, "networkpolicies/status", STATUS, "how far it is enforced"),
    right(ANTREA, "tiers", READ, "the order of policies"),
    right(ANTREA, "clustergroups", READ, "groups that policies name"),
    right(ANTREA, "groups", READ, "groups that policies name"),
    right(
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        &["get", "list", "watch"],
        "kinds that are installed later, or removed",
    ),
    right("authentication.k8s.io", "tokenreviews", &["create"], "the agents' tokens"),
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
        "how far a NetworkPolicy is enforced",
    ),
    // Where OwnerReferencesPermissionEnforcement is on, who names an owner must be allowed to.
    right("networking.k8s.io", "networkpolicies/finalizers", &["update"], "owner of the former"),
];

/// The policy controller's rights in its own namespace.
pub const CONTROLLER_RIGHTS_IN_NAMESPACE: &[Right] = &[
    right("", "configmaps", CREATE, "the authority that agents trust"),
    named("", "configmaps", KEEP, &["ferrule-controller-ca"], "the authority that agents trust"),
    named("", "configmaps", &["get"], &["extension-apiserver-authentication"], VIEW),
    right("discovery.k8s.io", "endpointslices", CREATE, VIEW),
    named(
        "discovery.k8s.io",
        "endpointslices",
        &["get", "patch"],
        &["ferrule-controller-view"],
        VIEW,
    ),
    right("", "secrets", CREATE, "that authority's key, for all replicas"),
    named(
        "",
        "secrets",
        KEEP,
        &["ferrule-controller-tls"],
        "that authority's key, for all replicas",
    ),
    right("coordination.k8s.io", "leases", CREATE, LEASE),
    named("coordination.k8s.io", "leases", KEEP, &["ferrule-controller"], LEASE),
];

/// The service account of the agent that holds policy on a node, in the same namespace.
pub const AGENT_ACCOUNT: &str = "ferrule-agent";

/// The agent's rights in its own namespace; it has none in others.
pub const AGENT_RIGHTS_IN_NAMESPACE: &[Right] =
    &[right("discovery.k8s.io", "endpointslices", READ, "where the controller's replicas are")];

/// The roles of viewers, in the whole cluster and in the daemon's namespace. They are not bound to any user.
pub const VIEWER: &str = "ferrule-viewer";

const LOOK: &[&str] = &["get", "list"];
/// The older verb is what WebSocket clients were asked for before they were asked for both.
const FORWARD: &[&str] = &["get", "create"];

/// Rights in all namespaces for `ferrule status`, `ferrule pod` and `ferrule policy`.
pub const VIEWER_CLUSTER_RIGHTS: &[Right] = &[
    right("", "nodes", LOOK, "each node's readiness and conditions"),
    right("", "pods", LOOK, "a pod's node, addresses and state; whom policies are about"),
    right("", "events", LOOK, "why a pod waits"),
    right("", "namespaces", LOOK, "their labels, in policies"),
    right("", "services", LOOK, "policies that name them"),
    right("networking.k8s.io", "networkpolicies", LOOK, "policy"),
    right(UPSTREAM, "clusternetworkpolicies", LOOK, "policy"),
    right(AWS, "clusternetworkpolicies", LOOK, "policy"),
    right(AWS, "applicationnetworkpolicies", LOOK, "policy"),
    right(ANTREA, "clusternetworkpolicies", LOOK, "policy"),
    right(ANTREA, "networkpolicies", LOOK, "policy"),
    right(ANTREA, "tiers", LOOK, "policy"),
    right(ANTREA, "clustergroups", LOOK, "policy"),
    right(ANTREA, "groups", LOOK, "policy"),
    right("crd.k8s.amazonaws.com", "eniconfigs", LOOK, "ferrule bundle"),
    right("vpcresources.k8s.aws", "cninodes", LOOK, "ferrule bundle"),
    right("policy.ferrule.io", "networkpolicyrealizations", LOOK, "how far policy is enforced"),
    right("view.policy.ferrule.io", "*", LOOK, "what the controller knows of policies and nodes"),
];

/// Rights in the daemon's namespace for the same commands. A user who may forward to a pod with its node's network
/// reaches the ports of that node's loopback: this right is for operators.
pub const VIEWER_RIGHTS_IN_NAMESPACE: &[Right] = &[
    right("", "pods/portforward", FORWARD, "asking each node's daemon, on its node's loopback"),
    right("", "pods/log", &["get"], "ferrule bundle"),
    right("", "configmaps", LOOK, "ferrule bundle"),
    right("apps", "daemonsets", LOOK, "on which nodes a daemon is to be"),
    right("apps", "deployments", LOOK, "ferrule bundle"),
    right("coordination.k8s.io", "leases", LOOK, "which replica of the controller writes status"),
];

/// The daemon's service account, its roles and what binds them.
pub fn rbac() -> Vec<Value> {
    rbac_of(SERVICE_ACCOUNT, CLUSTER_RIGHTS, RIGHTS_IN_NAMESPACE)
}

/// The policy controller's.
pub fn controller_rbac() -> Vec<Value> {
    rbac_of(CONTROLLER_ACCOUNT, CONTROLLER_CLUSTER_RIGHTS, CONTROLLER_RIGHTS_IN_NAMESPACE)
}

/// The agent's.
pub fn agent_rbac() -> Vec<Value> {
    rbac_of(AGENT_ACCOUNT, &[], AGENT_RIGHTS_IN_NAMESPACE)
}

/// The roles of viewers; the operator who installs them binds them.
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

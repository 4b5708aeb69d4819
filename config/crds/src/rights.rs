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

/// The daemon's rights with which it reads Services for an agent. The chart grants them with `FERRULE_SERVICES=ebpf`.
pub(crate) const SERVICES_FOR_AGENTS: [Right; 2] = [
    right("", "services", READ, "reads Services for an agent without a replica"),
    right(
        "discovery.k8s.io",
        "endpointslices",
        READ,
        "reads endpoints for an agent without a replica",
    ),
];

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
    SERVICES_FOR_AGENTS[0],
    SERVICES_FOR_AGENTS[1],
];

/// The daemon's rights in its own namespace.
pub const RIGHTS_IN_NAMESPACE: &[Right] = &[
    right(
        "coordination.k8s.io",
        "leases",
        &["get", "create", "update"],
        "elects the collector of leaked ENIs",
    ),
    right(
        "discovery.k8s.io",
        "endpointslices",
        READ,
        "finds the replicas of the policy controller for the agent",
    ),
];

/// The policy controller's service account, in the same namespace.
pub const CONTROLLER_ACCOUNT: &str = "ferrule-controller";

const READ: &[&str] = &["list", "watch"];
const ANTREA: &str = "crd.antrea.io";
const UPSTREAM: &str = "policy.networking.k8s.io";
const AWS: &str = "networking.k8s.aws";
const STATUS: &[&str] = &["update"];
const KEEP: &[&str] = &["get", "update"];

/// The right to the endpoints of all Services. The chart grants it with `FERRULE_SERVICES=ebpf`.
pub(crate) const SLICES_OF_SERVICES: Right = right(
    "discovery.k8s.io",
    "endpointslices",
    READ,
    "reads endpoints, for nodes that serve Services",
);

/// The policy controller's rights in all namespaces.
pub const CONTROLLER_CLUSTER_RIGHTS: &[Right] = &[
    right("", "pods", READ, "reads subjects and peers of policies, and the agents' pods"),
    right("", "namespaces", READ, "reads labels for selectors"),
    right("", "nodes", READ, "reads labels and addresses for peers"),
    right("", "services", READ, "reads Services that rules refer to"),
    SLICES_OF_SERVICES,
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

/// The policy controller's rights in its own namespace. It creates none of these objects: a right to create has no names.
pub const CONTROLLER_RIGHTS_IN_NAMESPACE: &[Right] = &[
    named(
        "",
        "configmaps",
        KEEP,
        &["ferrule-controller-ca"],
        "publishes the CA certificates for agents",
    ),
    named("", "secrets", KEEP, &["ferrule-controller-tls"], "shares the CA key between replicas"),
    named(
        "coordination.k8s.io",
        "leases",
        KEEP,
        &["ferrule-controller"],
        "elects the replica that writes status",
    ),
];

/// Roles of the controller for the aggregated API, in addition to its other roles.
pub const VIEW: &str = "ferrule-controller-view";

/// The policy controller's rights in all namespaces for the aggregated API.
pub const VIEW_CLUSTER_RIGHTS: &[Right] = &[named(
    "apiregistration.k8s.io",
    "apiservices",
    &["get", "patch"],
    &["v1alpha1.view.policy.ferrule.io"],
    "publishes the CA certificates for the API server",
)];

/// The policy controller's rights in its own namespace for the aggregated API.
pub const VIEW_RIGHTS_IN_NAMESPACE: &[Right] = &[
    named(
        "",
        "configmaps",
        &["get"],
        &["extension-apiserver-authentication"],
        "authenticates the API server",
    ),
    named(
        "discovery.k8s.io",
        "endpointslices",
        &["patch"],
        &["ferrule-controller-view", "ferrule-controller-view-ipv6"],
        "publishes the address of the lease holder",
    ),
];

/// Service account of agents that run in pods of their own. It has no rights: replicas identify agents by their tokens.
pub const AGENT_ACCOUNT: &str = "ferrule-agent";

/// The roles of viewers, in the whole cluster and in the daemon's namespace. They are not bound to any user.
pub const VIEWER: &str = "ferrule-viewer";

const LOOK: &[&str] = &["get", "list"];
/// `get` is the verb for WebSocket clients of older API servers; newer ones check `create` as well.
const FORWARD: &[&str] = &["get", "create"];

/// Rights in all namespaces for `ferrule status`, `ferrule pod`, `ferrule service` and `ferrule policy`.
pub const VIEWER_CLUSTER_RIGHTS: &[Right] = &[
    right("", "nodes", LOOK, "reads readiness and conditions of nodes"),
    right("", "pods", LOOK, "reads node, addresses and state of pods; reads subjects of policies"),
    right("", "events", LOOK, "reads the reason why a pod waits"),
    right("", "namespaces", LOOK, "reads labels for selectors"),
    right("", "services", LOOK, "reads Services that rules refer to; reads frontends of Services"),
    right("discovery.k8s.io", "endpointslices", LOOK, "reads endpoints of Services"),
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
    named(
        "",
        "configmaps",
        &["get"],
        &["amazon-vpc-cni", "ferrule-controller-ca"],
        "collected by ferrule bundle",
    ),
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

/// Returns the roles and bindings of the policy controller for the aggregated API.
pub fn view_rbac() -> Vec<Value> {
    roles(VIEW, Some(CONTROLLER_ACCOUNT), VIEW_CLUSTER_RIGHTS, VIEW_RIGHTS_IN_NAMESPACE)
}

/// Returns the agent's service account, without rights.
pub fn agent_rbac() -> Vec<Value> {
    vec![account(AGENT_ACCOUNT)]
}

/// Returns the roles of viewers, without bindings.
pub fn viewer_rbac() -> Vec<Value> {
    roles(VIEWER, None, VIEWER_CLUSTER_RIGHTS, VIEWER_RIGHTS_IN_NAMESPACE)
}

fn rbac_of(account: &str, in_cluster: &[Right], in_namespace: &[Right]) -> Vec<Value> {
    let mut objects = vec![self::account(account)];
    objects.extend(roles(account, Some(account), in_cluster, in_namespace));
    objects
}

fn account(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": { "name": name, "namespace": NAMESPACE },
    })
}

/// Returns roles, and their bindings if there is an account.
fn roles(
    name: &str,
    account: Option<&str>,
    in_cluster: &[Right],
    in_namespace: &[Right],
) -> Vec<Value> {
    let api = "rbac.authorization.k8s.io";
    let version = format!("{api}/v1");
    let mut objects = Vec::new();
    for (kind, rights) in [("ClusterRole", in_cluster), ("Role", in_namespace)] {
        let mut metadata = json!({ "name": name });
        if kind == "Role" {
            metadata["namespace"] = json!(NAMESPACE);
        }
        let rules: Vec<Value> = rights.iter().map(rule).collect();
        objects.push(json!({
            "apiVersion": version, "kind": kind, "metadata": metadata, "rules": rules,
        }));
        let Some(account) = account else { continue };
        objects.push(json!({
            "apiVersion": version, "kind": format!("{kind}Binding"), "metadata": metadata,
            "roleRef": { "apiGroup": api, "kind": kind, "name": name },
            "subjects": [{
                "kind": "ServiceAccount", "name": account, "namespace": NAMESPACE,
            }],
        }));
    }
    objects
}

fn rule(right: &Right) -> Value {
    let mut rule = json!({
        "apiGroups": [right.group],
        "resources": [right.resource],
        "verbs": right.verbs,
    });
    if !right.names.is_empty() {
        rule["resourceNames"] = json!(right.names);
    }
    rule
}

/// Returns the empty objects that the replicas of the controller fill.
pub fn controller_objects() -> Vec<Value> {
    let object = |version: &str, kind: &str, name: &str| {
        json!({
            "apiVersion": version, "kind": kind,
            "metadata": { "name": name, "namespace": NAMESPACE },
        })
    };
    let mut secret = object("v1", "Secret", "ferrule-controller-tls");
    secret["type"] = json!("Opaque");
    vec![
        secret,
        object("v1", "ConfigMap", "ferrule-controller-ca"),
        object("coordination.k8s.io/v1", "Lease", CONTROLLER_ACCOUNT),
    ]
}

/// Returns the objects of the aggregated API: its Service, an EndpointSlice for each family of addresses, and its
/// registration. The replica that holds the Lease fills the EndpointSlice of its address, and the CA certificates.
pub fn view_objects() -> Vec<Value> {
    let metadata = json!({ "name": VIEW, "namespace": NAMESPACE });
    let slice = |name: &str, family: &str| {
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": { "name": name, "namespace": NAMESPACE, "labels": {
                "kubernetes.io/service-name": VIEW,
                "endpointslice.kubernetes.io/managed-by": CONTROLLER_ACCOUNT,
            }},
            "addressType": family,
        })
    };
    vec![
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": metadata,
            "spec": { "ports": [{
                "name": "https", "port": 443, "targetPort": 61692, "protocol": "TCP",
            }]},
        }),
        slice(VIEW, "IPv4"),
        slice("ferrule-controller-view-ipv6", "IPv6"),
        json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": { "name": "v1alpha1.view.policy.ferrule.io" },
            "spec": {
                "group": "view.policy.ferrule.io", "version": "v1alpha1",
                "groupPriorityMinimum": 2000, "versionPriority": 15,
                "service": { "namespace": NAMESPACE, "name": VIEW, "port": 443 },
            },
        }),
    ]
}

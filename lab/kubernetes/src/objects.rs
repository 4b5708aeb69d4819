//! Objects of a new cluster: the rights of its own parts, and the name server.

use crate::{CLUSTER_DNS, image, started::KUBELETS_CLIENT};
use anyhow::{Context as _, Result};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DynamicObject, Patch, PatchParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};

/// Makes or changes an object of any kind.
///
/// # Errors
/// When it is no object, or the API server does not take it.
pub async fn apply(client: &Client, object: &Value) -> Result<()> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let (group, version) = version.split_once('/').unwrap_or(("", &version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
    let object: DynamicObject =
        serde_json::from_value(object.clone()).context("understand an object")?;
    let api: Api<DynamicObject> = match object.metadata.namespace.as_deref() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let how = PatchParams::apply("ferrule-lab").force();
    let name = object.name_any();
    api.patch(&name, &how, &Patch::Apply(&object))
        .await
        .with_context(|| format!("apply {kind} {name}"))?;
    Ok(())
}

/// Objects of every cluster with nodes.
pub fn usual() -> Vec<Value> {
    let mut all = vec![json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "lab:kubelet-api"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
            "name": "system:kubelet-api-admin",
        },
        "subjects": [{
            "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": KUBELETS_CLIENT,
        }],
    })];
    all.extend(name_server());
    all
}

/// CoreDNS, as clusters have it, with one replica.
fn name_server() -> Vec<Value> {
    let labels = json!({"k8s-app": "kube-dns"});
    let meta = |name: &str| json!({"name": name, "namespace": "kube-system", "labels": labels});
    let probe = |path: &str, port: u16| json!({"httpGet": {"path": path, "port": port}});
    vec![
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta("coredns")}),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "system:coredns"},
            "rules": [
                {"apiGroups": [""], "resources": ["services", "pods", "namespaces"],
                 "verbs": ["list", "watch"]},
                {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"],
                 "verbs": ["list", "watch"]},
            ],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "system:coredns"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                "name": "system:coredns",
            },
            "subjects": [
                {"kind": "ServiceAccount", "name": "coredns", "namespace": "kube-system"},
            ],
        }),
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": meta("coredns"),
            "data": {"Corefile": COREFILE},
        }),
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta("coredns"),
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "serviceAccountName": "coredns",
                        "priorityClassName": "system-cluster-critical",
                        "dnsPolicy": "Default",
                        "containers": [{
                            "name": "coredns",
                            "image": image::COREDNS,
                            "args": ["-conf", "/etc/coredns/Corefile"],
                            "ports": [
                                {"name": "dns", "containerPort": 53, "protocol": "UDP"},
                                {"name": "dns-tcp", "containerPort": 53, "protocol": "TCP"},
                                {"name": "metrics", "containerPort": 9153, "protocol": "TCP"},
                            ],
                            "readinessProbe": probe("/ready", 8181),
                            "livenessProbe": probe("/health", 8080),
                            "securityContext": {
                                "allowPrivilegeEscalation": false,
                                "readOnlyRootFilesystem": true,
                                "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
                            },
                            "volumeMounts": [
                                {"name": "config", "mountPath": "/etc/coredns", "readOnly": true},
                            ],
                        }],
                        "volumes": [{"name": "config", "configMap": {"name": "coredns"}}],
                    },
                },
            },
        }),
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": meta("kube-dns"),
            "spec": {
                "clusterIP": CLUSTER_DNS,
                "selector": labels,
                "ports": [
                    {"name": "dns", "port": 53, "protocol": "UDP"},
                    {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
                ],
            },
        }),
    ]
}

/// Names outside the cluster do not exist: the lab has no other names.
const COREFILE: &str = "\
.:53 {
    errors
    health
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl 30
    }
    prometheus :9153
    cache 30
    reload
    loadbalance
}
";

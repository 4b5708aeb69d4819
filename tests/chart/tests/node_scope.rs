//! The admission policy for the account that all nodes share. A token of a pod can write objects of the pod's node
//! only.

#![expect(clippy::unwrap_used, reason = "a failing test panics with its line")]

use kube::Client;
use lab_kubernetes::{Cluster, ClusterSpec};
use serde_json::{Value, json};
use tests_chart::{
    Chart,
    requests::{as_account, ask},
};
use tests_eventually::{PATIENCE, eventually_async};

/// A request, and the expectation of the API server's answer.
struct Row {
    what: &'static str,
    verb: &'static str,
    path: &'static str,
    body: Value,
    done: bool,
}

async fn must(client: &Client, verb: &str, path: &str, body: &Value) -> Value {
    ask(client, verb, path, body).await.unwrap_or_else(|error| panic!("{verb} {path}: {error}"))
}

fn node(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": { "pool": "blue" } },
        "spec": { "taints": [
            { "key": "ferrule.io/not-ready", "effect": "NoSchedule" },
            { "key": "mine", "effect": "NoSchedule" },
        ]},
        "status": {
            "capacity": { "pods": "10" },
            "conditions": [{ "type": "DiskPressure", "status": "True" }],
            "daemonEndpoints": { "kubeletEndpoint": { "Port": 10250 } },
        },
    })
}

fn pod(name: &str, node: &str, account: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "annotations": { "kept": "so" } },
        "spec": {
            "nodeName": node, "serviceAccountName": account,
            "containers": [{ "name": "c", "image": "i" }],
        },
    })
}

/// Returns all requests. `taints` are those of the node, because the API server adds one to new nodes.
fn rows(taints: &[Value]) -> Vec<Row> {
    let without = |key: &str| -> Value {
        let left: Vec<&Value> = taints.iter().filter(|taint| taint["key"] != key).collect();
        json!({ "spec": { "taints": left } })
    };
    let row = |what, verb, path, body, done| Row { what, verb, path, body, done };
    let features = json!({ "spec": { "features": [{ "name": "SecurityGroupsForPods" }] } });
    let condition = json!({ "status": { "conditions": [{
        "type": "IPPoolHealthy", "status": "True", "reason": "serves", "message": "",
        "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]}});
    let annotation =
        json!({ "metadata": { "annotations": { "vpc.amazonaws.com/pod-ips": "10.0.0.9" } } });
    let label = json!({ "metadata": { "labels": { "role": "admin" } } });
    let ready = without("ferrule.io/not-ready");
    let tainted = json!({ "spec": { "taints": [{ "key": "evil", "effect": "NoExecute" }] } });
    let others_taint = without("mine");
    let others_condition =
        json!({ "status": { "conditions": [{ "$patch": "delete", "type": "DiskPressure" }] } });
    let endpoint = json!({ "status": { "daemonEndpoints": { "kubeletEndpoint": { "Port": 1 } } } });
    let info = json!({ "status": { "nodeInfo": { "kubeletVersion": "v0" } } });
    let finalizer = json!({ "metadata": { "finalizers": ["evil.example/held"] } });
    let owner = json!({ "metadata": { "ownerReferences": [{
        "apiVersion": "v1", "kind": "Namespace", "name": "gone", "uid": "1",
    }]}});
    let capacity = json!({ "status": { "capacity": { "pods": "1000" } } });
    let image = json!({ "spec": { "containers": [{ "name": "c", "image": "evil" }] } });
    let event = |instance: &str, name: &str| {
        json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": { "name": name, "namespace": "default" },
            "eventTime": "2026-01-01T00:00:00.000000Z", "type": "Normal", "reason": "r", "action": "a",
            "reportingController": "ferrule.io/ipamd", "reportingInstance": instance, "note": "n",
            "regarding": { "kind": "Pod", "namespace": "default", "name": "own" },
        })
    };
    let lease = |name: &str| {
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": name },
            "spec": { "holderIdentity": "node-a_1" },
        })
    };
    let again =
        json!({ "series": { "count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z" } });
    let taken = json!({ "reportingInstance": "node-a" });
    let given = json!({ "reportingInstance": "node-b" });
    let mut owned_lease = lease("ferrule-leaked-eni-collector-y");
    owned_lease["metadata"]["ownerReferences"] = owner["metadata"]["ownerReferences"].clone();
    let provider = json!({ "spec": { "providerID": "aws:///us-west-2a/i-0evil" } });
    let ranges = json!({ "spec": { "podCIDR": "10.9.0.0/24", "podCIDRs": ["10.9.0.0/24"] } });
    let nodes = "/apis/vpcresources.k8s.aws/v1alpha1/cninodes";
    let [own, other] = ["/api/v1/nodes/node-a", "/api/v1/nodes/node-b"];
    let [own_status, other_status] = ["/api/v1/nodes/node-a/status", "/api/v1/nodes/node-b/status"];
    let pods = "/api/v1/namespaces/default/pods";
    let events = "/apis/events.k8s.io/v1/namespaces/default/events";
    let core_events = "/api/v1/namespaces/default/events";
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    let joined = |base: &str, name: &str| -> &'static str { format!("{base}/{name}").leak() };
    vec![
        row("another node's CNINode", "PATCH", joined(nodes, "node-b"), features.clone(), false),
        row("its own CNINode", "PATCH", joined(nodes, "node-a"), features, true),
        row("another node's condition", "PATCH", other_status, condition.clone(), false),
        row("its own condition", "PATCH", own_status, condition, true),
        row("its own node's capacity", "PATCH", own_status, capacity, false),
        row("the kubelet's port of its own node", "PATCH", own_status, endpoint, false),
        row("its own node's nodeInfo", "PATCH", own_status, info, false),
        row("removal of a foreign condition", "PATCH", own_status, others_condition, false),
        row("its own node's finalizers", "PATCH", own, finalizer.clone(), false),
        row("its own node's owners", "PATCH", own, owner.clone(), false),
        row("its own node's provider ID", "PATCH", own, provider, false),
        row("its own node's ranges", "PATCH", own, ranges, false),
        row("another node's taint", "PATCH", other, ready.clone(), false),
        row("removal of a foreign taint", "PATCH", own, others_taint, false),
        row("removal of the startup taint", "PATCH", own, ready, true),
        row("a new taint", "PATCH", own, tainted, false),
        row("its own node's labels", "PATCH", own, label.clone(), false),
        row("its own pod's address", "PATCH", joined(pods, "own"), annotation.clone(), true),
        row("another node's pod's address", "PATCH", joined(pods, "other"), annotation, false),
        row("its own pod's labels", "PATCH", joined(pods, "own"), label, false),
        row("its own pod's image", "PATCH", joined(pods, "own"), image, false),
        row(
            "its own pod's other annotations",
            "PATCH",
            joined(pods, "own"),
            json!({ "metadata": { "annotations": { "kept": null } } }),
            false,
        ),
        row(
            "a new empty annotation of its own pod",
            "PATCH",
            joined(pods, "own"),
            json!({ "metadata": { "annotations": { "evil.example/inject": "" } } }),
            false,
        ),
        row("its own pod's finalizers", "PATCH", joined(pods, "own"), finalizer.clone(), false),
        row("its own pod's owners", "PATCH", joined(pods, "own"), owner.clone(), false),
        row("its own CNINode's finalizers", "PATCH", joined(nodes, "node-a"), finalizer, false),
        row("an event of its own node", "POST", events, event("node-a", "one"), true),
        row("an event of another node", "POST", events, event("node-b", "two"), false),
        row("a second event of its own node", "PATCH", joined(events, "one"), again.clone(), true),
        row(
            "an event that exists of another node",
            "PATCH",
            joined(core_events, "foreign"),
            taken,
            false,
        ),
        row(
            "its own event as that of another node",
            "PATCH",
            joined(core_events, "one"),
            given,
            false,
        ),
        row("the collectors' Lease", "POST", leases, lease("ferrule-leaked-eni-collector-x"), true),
        row("a Lease with an owner", "POST", leases, owned_lease, false),
        row("another Lease", "POST", leases, lease("kube-scheduler"), false),
    ]
}

#[tokio::test]
async fn a_nodes_token_can_write_the_objects_of_its_own_node_only() {
    let chart = Chart::of_this_clone().unwrap();
    // RBAC allows these requests, so each refusal must be from the admission policy.
    let cluster = Cluster::start(&ClusterSpec::default()).unwrap();
    let admin = cluster.client().await.unwrap();
    let values = json!({
        "crds": { "cniNode": true }, "env": { "ENABLE_POD_ENI": "true", "ANNOTATE_POD_IP": "true" },
    });
    chart.command(cluster.kubeconfig(), "install", &[], Some(&values)).unwrap();
    let nodes = "/apis/vpcresources.k8s.aws/v1alpha1/cninodes";
    for (name, other) in [("node-a", "own"), ("node-b", "other")] {
        must(&admin, "POST", "/api/v1/nodes", &node(name)).await;
        let object = json!({
            "apiVersion": "vpcresources.k8s.aws/v1alpha1", "kind": "CNINode",
            "metadata": { "name": name }, "spec": {},
        });
        must(&admin, "POST", nodes, &object).await;
        let default = json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "default" },
        });
        let accounts = "/api/v1/namespaces/default/serviceaccounts";
        let _ = ask(&admin, "POST", accounts, &default).await;
        must(&admin, "POST", "/api/v1/namespaces/default/pods", &pod(other, name, "default")).await;
        let daemon = pod(&format!("ferrule-{name}"), name, "ferrule");
        must(&admin, "POST", "/api/v1/namespaces/kube-system/pods", &daemon).await;
    }
    let foreign = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": { "name": "foreign", "namespace": "default" },
        "eventTime": "2026-01-01T00:00:00.000000Z", "type": "Normal", "reason": "r", "action": "a",
        "reportingController": "ferrule.io/ipamd", "reportingInstance": "node-b", "note": "n",
        "regarding": { "kind": "Pod", "namespace": "default", "name": "other" },
    });
    let events = "/apis/events.k8s.io/v1/namespaces/default/events";
    must(&admin, "POST", events, &foreign).await;
    // Through the core group an event can change its node. The account has no right to it.
    let metadata = json!({ "name": "more" });
    let api = "rbac.authorization.k8s.io";
    let role = json!({
        "apiVersion": format!("{api}/v1"), "kind": "ClusterRole", "metadata": metadata,
        "rules": [{ "apiGroups": [""], "resources": ["events"], "verbs": ["patch"] }],
    });
    let binding = json!({
        "apiVersion": format!("{api}/v1"), "kind": "ClusterRoleBinding", "metadata": metadata,
        "roleRef": { "apiGroup": api, "kind": "ClusterRole", "name": "more" },
        "subjects": [{ "kind": "ServiceAccount", "name": "ferrule", "namespace": "kube-system" }],
    });
    must(&admin, "POST", &format!("/apis/{api}/v1/clusterroles"), &role).await;
    must(&admin, "POST", &format!("/apis/{api}/v1/clusterrolebindings"), &binding).await;
    let client = as_account(&cluster, &admin, "ferrule", Some("ferrule-node-a")).await.unwrap();
    // The admission policy is in force as soon as the API server refuses a forbidden write.
    let probe = json!({ "metadata": { "labels": { "probe": "1" } } });
    eventually_async("the admission policy to be in force", PATIENCE, async || {
        ask(&client, "PATCH", "/api/v1/nodes/node-b?dryRun=All", &probe).await.is_err()
    })
    .await;
    let mut wrong = Vec::new();
    let before = must(&admin, "GET", "/api/v1/nodes/node-a", &json!({})).await;
    let taints = before["spec"]["taints"].as_array().unwrap();
    for Row { what, verb, path, body, done } in rows(taints) {
        let printed = ask(&client, verb, path, &body).await;
        match &printed {
            Ok(_) if done => {}
            Ok(_) => wrong.push(format!("{what}: done")),
            Err(error) if !done && error.to_string().contains("ferrule-node-scope") => {}
            Err(error) => wrong.push(format!("{what}: {error}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    let unbound = as_account(&cluster, &admin, "ferrule", None).await.unwrap();
    let away = json!({ "spec": { "taints": null } });
    let printed =
        ask(&unbound, "PATCH", "/api/v1/nodes/node-a", &away).await.unwrap_err().to_string();
    assert!(printed.contains("names no node"), "{printed}");
    // The policy does not restrict other accounts.
    must(&admin, "PATCH", "/api/v1/nodes/node-a", &away).await;
}

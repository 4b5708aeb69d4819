//! The steps of docs/guide/eks.md for amazon-vpc-cni's DaemonSet, at a real API server with the real DaemonSet
//! controller. The patch replaces no pod, and a node's label removes the node's pod.

#![expect(clippy::unwrap_used, reason = "a failing test panics with its line")]

use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{Node, Pod, ServiceAccount},
};
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams, PostParams},
    core::Resource,
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, fmt};
use tests_cluster::{Cluster, ClusterSpec, Part};
use tests_docs::{page::Page, root};
use tests_eventually::{PATIENCE, eventually_async};

const SPACE: &str = "kube-system";

#[tokio::test]
async fn the_patch_replaces_no_pod_and_a_label_takes_a_node_out() {
    let parts = vec![Part::ControllerManager, Part::Scheduler];
    let cluster = Cluster::start(&ClusterSpec { parts, ..ClusterSpec::default() }).unwrap();
    let client = cluster.client().await.unwrap();
    let nodes: Api<Node> = Api::all(client.clone());
    for name in ["one", "two", "three"] {
        let labels = json!({
            "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name,
        });
        let room = json!({ "cpu": "4", "memory": "8Gi", "pods": "58" });
        let status = json!({ "capacity": room, "allocatable": room });
        let node = json!({ "metadata": { "name": name, "labels": labels }, "status": status });
        make(&nodes, node).await;
    }
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), SPACE);
    make(&accounts, json!({ "metadata": { "name": "aws-node" } })).await;
    let sets: Api<DaemonSet> = Api::namespaced(client.clone(), SPACE);
    make(&sets, daemon_set(AWS_NODE)).await;
    make(&sets, daemon_set(ROLLING)).await;
    let are_complete = |pods: &Pods| pods.len() == 3 && none_goes(pods);
    let first = wait_for_pods(&client, AWS_NODE, are_complete).await;
    let rolling = wait_for_pods(&client, ROLLING, are_complete).await;

    sets.patch(AWS_NODE, &PatchParams::default(), &Patch::<Value>::Json(the_patch()))
        .await
        .unwrap();
    wait_until_observed(&sets).await;
    // The controller works: it replaces the pods of a later rolling update.
    sets.patch(ROLLING, &PatchParams::default(), &Patch::Merge(another_template())).await.unwrap();
    wait_for_pods(&client, ROLLING, |pods| are_other_pods(&rolling, pods)).await;
    assert_eq!(pods(&client, AWS_NODE).await, first, "the patch replaced pods");

    label(&nodes, "two", json!("ferrule")).await;
    let there =
        wait_for_pods(&client, AWS_NODE, |pods| pods.get("two").is_none_or(|pod| pod.goes)).await;
    for node in ["one", "three"] {
        assert_eq!(there.get(node), first.get(node), "the pod of {node}");
    }
    // The test deletes the pod, because no kubelet runs.
    let gone = &first["two"].uid;
    end(&client, gone).await;

    // In a rollback the pod returns without the label only, not with another value.
    label(&nodes, "two", json!("leaving")).await;
    // A DaemonSet that selects this value shows that the controller acts on the label.
    let mut leaving = daemon_set(LEAVING);
    leaving["spec"]["template"]["spec"]["nodeSelector"] =
        json!({ "ferrule.io/network": "leaving" });
    make(&sets, leaving).await;
    wait_for_pods(&client, LEAVING, |pods| pods.contains_key("two")).await;
    assert_eq!(pods(&client, AWS_NODE).await.get("two"), None, "a pod before the label is removed");
    label(&nodes, "two", Value::Null).await;
    let back = wait_for_pods(&client, AWS_NODE, are_complete).await;
    assert_ne!(back["two"].uid, *gone);

    // A check of the test itself: with the strategy RollingUpdate the same change replaces pods.
    let strategy = json!({ "spec": { "updateStrategy": rolling_update("100%") } });
    sets.patch(AWS_NODE, &PatchParams::default(), &Patch::Merge(strategy)).await.unwrap();
    wait_for_pods(&client, AWS_NODE, |pods| {
        ["one", "three"].iter().all(|node| pods.get(*node) != first.get(*node))
    })
    .await;
}

type Pods = BTreeMap<String, Seen>;

fn are_other_pods(before: &Pods, now: &Pods) -> bool {
    before.iter().all(|(node, pod)| now.get(node) != Some(pod))
}

fn another_template() -> Value {
    json!({
        "spec": {
            "updateStrategy": rolling_update("100%"),
            "template": { "metadata": { "annotations": { "version": "two" } } },
        },
    })
}

fn rolling_update(unavailable: &str) -> Value {
    json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": unavailable } })
}

/// The identity and state of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    uid: String,
    /// True if the pod has a deletion timestamp.
    goes: bool,
}

fn none_goes(pods: &Pods) -> bool {
    pods.values().all(|pod| !pod.goes)
}

/// Returns the pods of the DaemonSet, by node.
async fn pods(client: &Client, set: &str) -> Pods {
    let all: Api<Pod> = Api::namespaced(client.clone(), SPACE);
    let all = all.list(&ListParams::default().labels(&format!("k8s-app={set}"))).await.unwrap();
    let seen = all.items.into_iter().filter_map(|pod| {
        let node = pod.spec?.node_name?;
        let goes = pod.metadata.deletion_timestamp.is_some();
        Some((node, Seen { uid: pod.metadata.uid?, goes }))
    });
    seen.collect()
}

async fn wait_for_pods(client: &Client, set: &str, is_so: impl Fn(&Pods) -> bool) -> Pods {
    eventually_async(&format!("the expected pods of {set}"), PATIENCE, async || {
        let seen = pods(client, set).await;
        if is_so(&seen) { Ok(seen) } else { Err(format!("{seen:?}")) }
    })
    .await
}

async fn wait_until_observed(sets: &Api<DaemonSet>) {
    eventually_async("the controller to observe the patch", PATIENCE, async || {
        let set = sets.get(AWS_NODE).await.unwrap();
        let observed = set.status.and_then(|status| status.observed_generation);
        observed == set.metadata.generation
    })
    .await;
}

async fn label(nodes: &Api<Node>, name: &str, value: Value) {
    let patch = json!({ "metadata": { "labels": { "ferrule.io/network": value } } });
    nodes.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// Deletes a pod, as the kubelet does after its processes have exited.
async fn end(client: &Client, uid: &str) {
    let all: Api<Pod> = Api::namespaced(client.clone(), SPACE);
    let found = all.list(&ListParams::default()).await.unwrap().items;
    let pod = found.into_iter().find(|pod| pod.metadata.uid.as_deref() == Some(uid));
    if let Some(name) = pod.and_then(|pod| pod.metadata.name) {
        let now = kube::api::DeleteParams::default().grace_period(0);
        all.delete(&name, &now).await.unwrap();
    }
}

async fn make<K>(api: &Api<K>, object: Value)
where
    K: Resource + Clone + fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    let object: K = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

/// Returns the patch of the page.
fn the_patch() -> json_patch::Patch {
    let path = root().join("docs/guide/eks.md");
    let page = Page::of(path.clone(), &std::fs::read_to_string(path).unwrap());
    let mut json = page.blocks.iter().filter(|block| block.language == "json");
    let block = json.find(|block| block.text.contains("updateStrategy")).unwrap();
    serde_json::from_str(&block.text).unwrap()
}

/// Returns a DaemonSet of this name with the scheduling fields of `aws-node`.
fn daemon_set(name: &str) -> Value {
    let labels = json!({ "k8s-app": name });
    json!({
        "metadata": { "name": name },
        "spec": {
            "selector": { "matchLabels": labels },
            "updateStrategy": rolling_update("10%"),
            "template": {
                "metadata": { "labels": labels },
                "spec": {
                    "hostNetwork": true,
                    "serviceAccountName": "aws-node",
                    "priorityClassName": "system-node-critical",
                    "tolerations": [{ "operator": "Exists" }],
                    "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{ "matchExpressions": [
                            { "key": "kubernetes.io/os", "operator": "In", "values": ["linux"] },
                            { "key": "kubernetes.io/arch", "operator": "In", "values": ["amd64", "arm64"] },
                            {
                                "key": "eks.amazonaws.com/compute-type", "operator": "NotIn",
                                "values": ["fargate", "hybrid", "auto"],
                            },
                        ]}],
                    }}},
                    "containers": [{
                        "name": "aws-node", "image": "localhost/aws-node:1",
                    }],
                },
            },
        },
    })
}

const AWS_NODE: &str = "aws-node";
/// A DaemonSet whose pods are replaced by a rolling update.
const ROLLING: &str = "rolling";
/// A DaemonSet for nodes with the label's other value.
const LEAVING: &str = "leaving";

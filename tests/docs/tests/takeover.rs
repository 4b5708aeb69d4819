//! What docs/guide/eks.md says of amazon-vpc-cni's DaemonSet, before a real API server with the real
//! controller of DaemonSets: the one patch replaces no pod, and a node's label takes its pod away.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

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
use std::{
    collections::BTreeMap,
    fmt,
    time::{Duration, Instant},
};
use tests_cluster::{Cluster, Part, Wanted};
use tests_docs::{page::Page, root};

const SPACE: &str = "kube-system";

#[tokio::test]
async fn the_patch_replaces_no_pod_and_a_label_takes_a_node_out() {
    let parts = vec![Part::ControllerManager, Part::Scheduler];
    let cluster = Cluster::start(&Wanted { parts, ..Wanted::default() }).unwrap();
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
    make(&sets, aws_node()).await;
    let first = wait_for_pods(&client, |pods| pods.len() == 3 && none_goes(pods)).await;

    sets.patch("aws-node", &PatchParams::default(), &Patch::<Value>::Json(the_patch()))
        .await
        .unwrap();
    // Were it a rolling update, a pod would be replaced as soon as the controller has seen it.
    wait_until_seen(&sets).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(pods(&client).await, first, "the patch has replaced pods");

    label(&nodes, "two", json!("ferrule")).await;
    let there = wait_for_pods(&client, |pods| pods.get("two").is_none_or(|pod| pod.goes)).await;
    for node in ["one", "three"] {
        assert_eq!(there.get(node), first.get(node), "the pod of {node}");
    }
    // Nobody plays the kubelet, which would end it.
    let gone = &first["two"].uid;
    end(&client, gone).await;

    // On the way back: with any other value it does not come yet, without the label it does.
    label(&nodes, "two", json!("leaving")).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(pods(&client).await.get("two"), None, "a pod came too early");
    label(&nodes, "two", Value::Null).await;
    let back = wait_for_pods(&client, |pods| pods.len() == 3 && none_goes(pods)).await;
    assert_ne!(back["two"].uid, *gone);

    // The test could fail: with the usual strategy the same change does replace pods.
    let rolling = json!({
        "spec": {
            "updateStrategy": {
                "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": "100%" },
            },
        },
    });
    sets.patch("aws-node", &PatchParams::default(), &Patch::Merge(rolling)).await.unwrap();
    wait_for_pods(&client, |pods| {
        ["one", "three"].iter().all(|node| pods.get(*node) != first.get(*node))
    })
    .await;
}

/// A pod, as far as it matters whether it is still the same.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    uid: String,
    /// It was told to end.
    goes: bool,
}

fn none_goes(pods: &BTreeMap<String, Seen>) -> bool {
    pods.values().all(|pod| !pod.goes)
}

/// The pods of the DaemonSet, by their node.
async fn pods(client: &Client) -> BTreeMap<String, Seen> {
    let all: Api<Pod> = Api::namespaced(client.clone(), SPACE);
    let all = all.list(&ListParams::default().labels("k8s-app=aws-node")).await.unwrap();
    let seen = all.items.into_iter().filter_map(|pod| {
        let node = pod.spec?.node_name?;
        let goes = pod.metadata.deletion_timestamp.is_some();
        Some((node, Seen { uid: pod.metadata.uid?, goes }))
    });
    seen.collect()
}

async fn wait_for_pods(
    client: &Client,
    is_so: impl Fn(&BTreeMap<String, Seen>) -> bool,
) -> BTreeMap<String, Seen> {
    let until = Instant::now() + PATIENCE;
    loop {
        let seen = pods(client).await;
        if is_so(&seen) {
            return seen;
        }
        assert!(Instant::now() < until, "pods are {seen:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn wait_until_seen(sets: &Api<DaemonSet>) {
    let until = Instant::now() + PATIENCE;
    loop {
        let set = sets.get("aws-node").await.unwrap();
        let seen = set.status.and_then(|status| status.observed_generation);
        if seen == set.metadata.generation {
            return;
        }
        assert!(Instant::now() < until, "the controller has not seen the patch");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn label(nodes: &Api<Node>, name: &str, value: Value) {
    let patch = json!({ "metadata": { "labels": { "ferrule.io/network": value } } });
    nodes.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// As a kubelet does when a pod's processes have ended.
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

/// The block of the page that begins with a `test`.
fn the_patch() -> json_patch::Patch {
    let path = root().join("docs/guide/eks.md");
    let page = Page::of(path.clone(), &std::fs::read_to_string(path).unwrap());
    let mut json = page.blocks.iter().filter(|block| block.language == "json");
    let block = json.find(|block| block.text.contains("updateStrategy")).unwrap();
    serde_json::from_str(&block.text).unwrap()
}

/// As far as its pods' places depend on it.
fn aws_node() -> Value {
    let labels = json!({ "k8s-app": "aws-node" });
    json!({
        "metadata": { "name": "aws-node" },
        "spec": {
            "selector": { "matchLabels": labels },
            "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": "10%" } },
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
                        "ports": [{ "name": "metrics", "containerPort": 61678 }],
                    }],
                },
            },
        },
    })
}

const PATIENCE: Duration = Duration::from_secs(60);

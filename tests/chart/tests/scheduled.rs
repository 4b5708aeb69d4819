//! The chart's pods before a real scheduler, on a cluster with one node.

#![expect(clippy::unwrap_used, reason = "a failing test panics with its line")]

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, PostParams},
};
use lab_kubernetes::{Cluster, ClusterSpec, Part};
use serde_json::{Value, json};
use tests_chart::Chart;
use tests_eventually::{PATIENCE, within_async};

const NODE: &str = "one";

struct Scene {
    cluster: Cluster,
    chart: Chart,
    pods: Api<Pod>,
}

impl Scene {
    /// Starts a control plane with one node, which has no kubelet.
    async fn start() -> Self {
        let parts = vec![Part::ControllerManager, Part::Scheduler];
        let cluster = Cluster::start(&ClusterSpec { parts, ..ClusterSpec::default() }).unwrap();
        let client: Client = cluster.client().await.unwrap();
        let labels = json!({
            "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": NODE,
        });
        let room = json!({ "cpu": "4", "memory": "8Gi", "pods": "58" });
        let node: Node = serde_json::from_value(json!({
            "metadata": { "name": NODE, "labels": labels },
            "status": { "capacity": room, "allocatable": room },
        }))
        .unwrap();
        Api::all(client.clone()).create(&PostParams::default(), &node).await.unwrap();
        let pods = Api::namespaced(client, "kube-system");
        Self { cluster, chart: Chart::of_this_clone().unwrap(), pods }
    }

    fn helm(&self, verb: &str, values: &Value) {
        self.chart.command(self.cluster.kubeconfig(), verb, &[], Some(values)).unwrap();
    }

    /// Waits until the pods of this component are as `expected`: on the node, or the reason of the scheduler.
    async fn wait_for(&self, component: &str, expected: &[&str]) {
        let selector = format!("app.kubernetes.io/component={component}");
        let what = format!("pods of {component}: {expected:?}");
        within_async(&what, PATIENCE, async || {
            let pods = self.pods.list(&ListParams::default().labels(&selector)).await;
            let mut found: Vec<String> =
                pods.map_err(|error| error.to_string())?.items.iter().map(place).collect();
            found.sort();
            let fits = found.len() == expected.len()
                && found.iter().zip(expected).all(|(found, expected)| found.contains(expected));
            if fits { Ok(()) } else { Err(format!("{found:?}")) }
        })
        .await
        .unwrap();
    }
}

/// Returns the pod's node, or the scheduler's message.
fn place(pod: &Pod) -> String {
    if let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()) {
        return format!("at {node}");
    }
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let mut messages =
        conditions.into_iter().flatten().filter_map(|condition| condition.message.clone());
    messages.next().unwrap_or_else(|| "not scheduled yet".to_owned())
}

const HERE: &str = "at one";
const NO_PORTS: &str = "didn't have free ports";

/// The notes of the installation name this value for a cluster with fewer nodes.
#[tokio::test]
async fn the_only_node_has_one_replica_with_its_ports_or_two_with_pod_addresses() {
    let scene = Scene::start().await;
    // Without a kubelet the node gets taints after some time.
    let tolerations = json!([{ "operator": "Exists" }]);
    let controller = json!({ "tolerations": tolerations });
    let mut values = json!({ "enableNetworkPolicy": true, "controller": controller });
    scene.helm("install", &values);
    scene.wait_for("controller", &[NO_PORTS, HERE]).await;
    values["controller"]["replicas"] = json!(1);
    scene.helm("upgrade", &values);
    scene.wait_for("controller", &[HERE]).await;

    let scene = Scene::start().await;
    values["controller"] = json!({ "hostNetwork": false, "tolerations": tolerations });
    scene.helm("install", &values);
    scene.wait_for("controller", &[HERE, HERE]).await;
}

#[tokio::test]
async fn a_node_of_amazon_vpc_cni_gets_no_daemon_also_without_metrics() {
    let scene = Scene::start().await;
    let aws_node: Pod = serde_json::from_value(json!({
        "metadata": { "name": "aws-node", "labels": { "app.kubernetes.io/component": "theirs" } },
        "spec": {
            "hostNetwork": true, "tolerations": [{ "operator": "Exists" }],
            "automountServiceAccountToken": false,
            "containers": [{
                "name": "aws-node", "image": "registry.example/amazon-k8s-cni:1",
                "ports": [{ "name": "metrics", "containerPort": 61678 }],
            }],
        },
    }))
    .unwrap();
    within_async("a pod, once its account exists", PATIENCE, async || {
        scene.pods.create(&PostParams::default(), &aws_node).await
    })
    .await
    .unwrap();
    scene.wait_for("theirs", &[HERE]).await;
    scene.helm("install", &json!({ "env": { "DISABLE_METRICS": "true" } }));
    scene.wait_for("node", &[NO_PORTS]).await;
    // No kubelet confirms the end of the pod.
    let now = DeleteParams::default().grace_period(0);
    scene.pods.delete("aws-node", &now).await.unwrap();
    scene.wait_for("node", &[HERE]).await;
}

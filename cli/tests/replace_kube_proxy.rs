//! `ferrule migrate services` with a real API server: the objects of kube-proxy change as planned, and the way back restores
//! them. The cluster has no nodes; `cli_migrate::services` has tests of plans with nodes.

#![expect(clippy::unwrap_used, reason = "a failing test panics with its line")]

use k8s_openapi::api::{apps::v1::DaemonSet, core::v1::ConfigMap};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use std::{
    path::Path,
    process::{Command, Output},
};
use tests_cluster::{Cluster, ClusterSpec};

const SPACE: &str = "kube-system";

#[tokio::test]
async fn kube_proxy_leaves_and_returns_with_all_its_fields() {
    let cluster = Cluster::start(&ClusterSpec::default()).unwrap();
    let client = cluster.client().await.unwrap();
    let kubeconfig = cluster.kubeconfig();
    let sets: Api<DaemonSet> = Api::namespaced(client.clone(), SPACE);
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), SPACE);
    put(&client, "ferrule", ferrule("none")).await;
    put(&client, "kube-proxy", kube_proxy()).await;
    let config = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: nftables\n";
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "kube-proxy-config" }, "data": { "config": config },
    });
    let manager = PatchParams::apply("test");
    maps.patch("kube-proxy-config", &manager, &Patch::Apply(object)).await.unwrap();
    let before = spec(&sets).await;

    let blocked = run(kubeconfig, &["apply"]);
    assert_eq!(blocked.status.code(), Some(1), "{}", printed(&blocked));
    assert!(
        printed(&blocked)
            .contains("BLOCKER  daemonset kube-system/ferrule: FERRULE_SERVICES is not ebpf")
    );
    assert_eq!(spec(&sets).await, before, "a blocked plan changes nothing");

    put(&client, "ferrule", ferrule("ebpf")).await;
    let plan = run(kubeconfig, &["plan", "-o", "json"]);
    assert_eq!(plan.status.code(), Some(0), "{}", printed(&plan));
    let plan: Value = serde_json::from_slice(&plan.stdout).unwrap();
    assert_eq!(plan["steps"].as_array().map(Vec::len), Some(3), "{plan}");
    let findings = plan["findings"].to_string();
    assert!(findings.contains("its mode is nftables"), "{findings}");

    applied(&run(kubeconfig, &["apply"]), "patch kube-proxy's DaemonSet");
    let kept_off = spec(&sets).await;
    assert_eq!(kept_off["updateStrategy"]["type"], "OnDelete");
    assert!(kept_off.to_string().contains("ferrule.io/services"), "{kept_off}");
    let cleaner = sets.get("ferrule-kube-proxy-rules").await.unwrap();
    let pod = cleaner.spec.unwrap().template.spec.unwrap();
    assert_eq!(pod.node_selector.unwrap()["ferrule.io/services"], "ebpf");
    applied(&run(kubeconfig, &["apply"]), "no steps remain");

    let removal = run(kubeconfig, &["apply", "--remove-kube-proxy"]);
    applied(&removal, "delete kube-proxy's DaemonSet");
    for name in ["kube-proxy", "ferrule-kube-proxy-rules"] {
        let left = sets.get_opt(name).await.unwrap();
        assert!(left.is_none_or(|set| set.metadata.deletion_timestamp.is_some()), "{name}");
    }
    // The setting of the chart is still on.
    let waits = run(kubeconfig, &["rollback", "--wait", "1"]);
    assert_eq!(waits.status.code(), Some(2), "{}", printed(&waits));
    assert!(printed(&waits).contains("create kube-proxy's DaemonSet from the saved manifest"));
    assert!(printed(&waits).contains("set env.FERRULE_SERVICES=none in the chart"));
    put(&client, "ferrule", ferrule("none")).await;
    applied(&run(kubeconfig, &["rollback"]), "undo the patch of kube-proxy's DaemonSet");
    assert_eq!(spec(&sets).await, before);
    assert!(maps.get_opt("ferrule-kube-proxy").await.unwrap().is_none(), "the saved manifest");
    applied(&run(kubeconfig, &["rollback"]), "no steps remain");
}

async fn spec(sets: &Api<DaemonSet>) -> Value {
    serde_json::to_value(sets.get("kube-proxy").await.unwrap().spec).unwrap()
}

fn applied(output: &Output, text: &str) {
    let printed = printed(output);
    assert_eq!(output.status.code(), Some(0), "{printed}");
    assert!(printed.contains(text), "{text}: {printed}");
    assert!(printed.lines().last().unwrap_or_default().starts_with("no steps remain"), "{printed}");
}

fn run(kubeconfig: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferrule"));
    command.args(["migrate", "services"]).args(words).arg("--kubeconfig").arg(kubeconfig);
    command.output().unwrap()
}

fn printed(output: &Output) -> String {
    [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat()
}

async fn put(client: &Client, name: &str, spec: Value) {
    let sets: Api<DaemonSet> = Api::namespaced(client.clone(), SPACE);
    let object = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": name }, "spec": spec,
    });
    let manager = PatchParams::apply("test").force();
    sets.patch(name, &manager, &Patch::Apply(object)).await.unwrap();
}

fn ferrule(services: &str) -> Value {
    let labels = json!({ "app": "ferrule" });
    let env = json!([
        { "name": "FERRULE_SERVICES", "value": services },
        { "name": "FERRULE_AGENT_BACKEND", "value": "ebpf" },
        { "name": "CLUSTER_ENDPOINT", "value": "https://192.0.2.1:443" },
    ]);
    json!({
        "selector": { "matchLabels": labels },
        "updateStrategy": { "type": "OnDelete" },
        "template": { "metadata": { "labels": labels }, "spec": { "containers": [
            { "name": "ipamd", "image": "localhost/ferrule:1" },
            { "name": "agent", "image": "localhost/ferrule:1", "env": env },
        ] } },
    })
}

/// A DaemonSet as that of EKS.
fn kube_proxy() -> Value {
    let labels = json!({ "k8s-app": "kube-proxy" });
    let term = json!({ "matchExpressions": [
        { "key": "kubernetes.io/os", "operator": "In", "values": ["linux"] },
        { "key": "eks.amazonaws.com/compute-type", "operator": "NotIn", "values": ["fargate"] },
    ] });
    json!({
        "selector": { "matchLabels": labels },
        "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": "10%" } },
        "template": { "metadata": { "labels": labels }, "spec": {
            "hostNetwork": true,
            "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [term],
            } } },
            "containers": [{
                "name": "kube-proxy", "image": "localhost/kube-proxy:1",
                "volumeMounts": [{ "name": "config", "mountPath": "/var/lib/kube-proxy-config" }],
            }],
            "volumes": [{ "name": "config", "configMap": { "name": "kube-proxy-config" } }],
        } },
    })
}

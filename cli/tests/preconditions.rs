//! `ferrule migrate check`, `plan` and `apply` with the DaemonSets of a real API server: a setting that differs, and a service
//! account without a role. No node is observed: its folders are empty.

#![expect(clippy::unwrap_used, reason = "a failing test panics with its line")]

use k8s_openapi::api::{apps::v1::DaemonSet, core::v1::ServiceAccount};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use std::{
    fs,
    path::Path,
    process::{Command, Output},
};
use tests_cluster::{Cluster, ClusterSpec};

const SPACE: &str = "kube-system";

#[tokio::test]
async fn a_difference_stops_the_takeover_before_its_first_step() {
    let cluster = Cluster::start(&ClusterSpec::default()).unwrap();
    let client = cluster.client().await.unwrap();
    let kubeconfig = cluster.kubeconfig();
    let node = tempfile::tempdir().unwrap();
    fs::create_dir(node.path().join("net.d")).unwrap();
    let conflist = r#"{"cniVersion":"0.4.0","name":"aws-cni","plugins":[{"type":"aws-cni","mtu":"9001","vethPrefix":"eni"}]}"#;
    fs::write(node.path().join("net.d/10-aws.conflist"), conflist).unwrap();

    let none = check(kubeconfig, "REFUSED the DaemonSet aws-node: the cluster does not have it");
    assert_eq!(none, Some(1));
    account(&client, "aws-node", json!({ ROLE: ARN })).await;
    account(&client, "ferrule", json!({})).await;
    // The manifest of amazon-vpc-cni sets ENABLE_IPv4.
    let of_vpc_cni = [("ENABLE_IPv4", "true"), (SNAT, "true"), ("WARM_IP_TARGET", "5")];
    put(&client, "aws-node", "aws-node", &of_vpc_cni).await;
    let none = check(kubeconfig, "REFUSED the DaemonSet of Ferrule: the cluster does not have it");
    assert_eq!(none, Some(1));
    put(&client, "ferrule", "ipamd", &[(SNAT, "false")]).await;

    let refused = format!(
        "REFUSED setting {SNAT}: aws-node has \"true\", the DaemonSet of Ferrule has \"false\""
    );
    let warned =
        "seen    setting WARM_IP_TARGET: aws-node has \"5\", the DaemonSet of Ferrule has \"0\"";
    let no_role =
        "REFUSED service account kube-system:ferrule: eks.amazonaws.com/role-arn is not set";
    for line in [&*refused, warned, no_role] {
        assert_eq!(check(kubeconfig, line), Some(1));
        for verb in ["plan", "apply"] {
            let output = migrate(kubeconfig, node.path(), verb);
            assert_eq!(output.status.code(), Some(1), "{}", printed(&output));
            assert!(printed(&output).contains(line), "{verb}: {line}: {}", printed(&output));
        }
    }
    assert!(!node.path().join("state").exists(), "apply has changed the node");

    account(&client, "ferrule", json!({ ROLE: ARN })).await;
    put(&client, "ferrule", "ipamd", &[(SNAT, "1")]).await;
    assert_eq!(check(kubeconfig, warned), Some(0), "a harmless difference is no refusal");
    let text = printed(&migrate(kubeconfig, node.path(), "plan"));
    assert!(!text.contains(&refused) && !text.contains(no_role) && text.contains(warned), "{text}");
}

#[test]
fn a_missing_kubeconfig_is_refused_with_a_next_step_of_this_command() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("none");
    let next = "next: fix the cause and run this again where kubectl works";
    for text in ["; name one with --kubeconfig or KUBECONFIG\n", next] {
        assert_eq!(check(&missing, text), Some(1));
    }
}

/// Runs the check, which has to print this text. Returns the exit code.
fn check(kubeconfig: &Path, text: &str) -> Option<i32> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferrule"));
    command.args(["migrate", "check", "--kubeconfig"]).arg(kubeconfig);
    let output = command.output().unwrap();
    assert!(printed(&output).contains(text), "{text}: {}", printed(&output));
    assert!(!printed(&output).contains("hidden"), "a credential: {}", printed(&output));
    output.status.code()
}

fn migrate(kubeconfig: &Path, node: &Path, verb: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferrule"));
    command.args(["migrate", verb, "--kubeconfig"]).arg(kubeconfig);
    for (flag, at) in [
        ("--net-d", "net.d"),
        ("--bin", "bin"),
        ("--results", "results"),
        ("--aws-node", "aws-node"),
        ("--pins", "aws-pins"),
        ("--state-dir", "state"),
        ("--socket", "ipamd.sock"),
        ("--agent", "agent.sock"),
        ("--agent-pins", "pins"),
        ("--proc", "proc"),
    ] {
        command.arg(flag).arg(node.join(at));
    }
    command.args(["--imds", "http://127.0.0.1:9"]).output().unwrap()
}

fn printed(output: &Output) -> String {
    [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat()
}

async fn account(client: &Client, name: &str, annotations: Value) {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), SPACE);
    let object = json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": { "name": name, "annotations": annotations },
    });
    apply(&accounts, name, object).await;
}

/// Applies a DaemonSet with these settings and a credential.
async fn put(client: &Client, name: &str, container: &str, settings: &[(&str, &str)]) {
    let sets: Api<DaemonSet> = Api::namespaced(client.clone(), SPACE);
    let mut env: Vec<Value> =
        settings.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect();
    env.push(json!({ "name": "MY_PASSWORD", "value": "hidden" }));
    let labels = json!({ "app": name });
    let object = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": name },
        "spec": {
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": {
                    "serviceAccountName": name,
                    "containers": [{ "name": container, "image": "localhost/none:1", "env": env }],
                },
            },
        },
    });
    apply(&sets, name, object).await;
}

async fn apply<K>(api: &Api<K>, name: &str, object: Value)
where
    K: kube::core::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let manager = PatchParams::apply("test").force();
    api.patch(name, &manager, &Patch::Apply(object)).await.unwrap();
}

const ARN: &str = "arn:aws:iam::111122223333:role/cni";
const ROLE: &str = "eks.amazonaws.com/role-arn";
const SNAT: &str = "AWS_VPC_K8S_CNI_EXTERNALSNAT";

//! The daemon finds the API server as any pod does: from its environment and the files of its service account.

use crate::world::{PATIENCE, World};
use anyhow::{Context as _, Result, ensure};
use config_crds::{NAMESPACE, SERVICE_ACCOUNT};
use k8s_openapi::api::{authentication::v1::TokenRequest, core::v1::ServiceAccount};
use kube::{Api, api::PostParams};
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use tests_cluster::ClusterSpec;
use tests_lab::{Lab, programs, wait_for};

/// The address of the API server for the lab's nodes.
const AT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

impl World {
    /// Requests a token of the daemon's service account, as the kubelet does for its pod.
    fn token(&self) -> Result<String> {
        let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), NAMESPACE);
        let wish = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"audiences": [], "expirationSeconds": 3600},
        });
        let (how, wish): (_, TokenRequest) = (PostParams::default(), serde_json::from_value(wish)?);
        let made = api.create_subresource("token", SERVICE_ACCOUNT, &how, &wish);
        let made: TokenRequest = self.runtime.block_on(made)?;
        made.status.and_then(|status| status.token).context("a token request without a token")
    }

    /// Returns the authority's certificate in base64.
    fn authority(&self) -> Result<String> {
        let config: Value = serde_json::from_slice(&std::fs::read(self.cluster.kubeconfig())?)?;
        let data = &config["clusters"][0]["cluster"]["certificate-authority-data"];
        Ok(data.as_str().context("no authority in the kubeconfig")?.to_owned())
    }
}

/// Writes the files of the service account, with this token.
fn mount(lab: &Lab, authority: &str, token: &str) -> Result<()> {
    let script = format!(
        "set -e; cd $(mkdir -p {FILES} && echo {FILES}); \
         echo {authority} | base64 -d > ca.crt; printf %s {token} > token; \
         printf %s {NAMESPACE} > namespace"
    );
    lab.on_node("node1", &["bash", "-c", &script]).map(drop)
}

/// Returns the daemon's state of a concern.
fn standing(lab: &Lab, concern: &str) -> Result<String> {
    let explained: Value =
        serde_json::from_str(&lab.get("node1", 61679, "/v1/ferrule/explain")?)?;
    let printed = explained["kubernetes"][concern].as_str();
    printed.map(str::to_owned).with_context(|| format!("{concern} is not in {explained}"))
}

#[test]
fn a_daemon_in_a_pod_uses_its_service_account_token() -> Result<()> {
    let name = "a_daemon_in_a_pod_uses_its_service_account_token";
    let Some(bin) = programs(name) else { return Ok(()) };
    let world = World::of(&ClusterSpec { also_at: vec![AT], ..ClusterSpec::default() })?;
    world.make_node("node1", &json!({}))?;
    let server = format!("127.0.0.1:{}", world.cluster.port());
    // There is no kubeconfig. The Service's address and port are in every pod's environment.
    let up = ["--nodes", "1", "--no-daemon", "--api-server", &server];
    let lab = Lab::up(&bin, "t-in-pod", &up)?;
    let by_environment = ["--env", "CLUSTER_ENDPOINT=", "--env", "ANNOTATE_POD_IP=true"];
    let start = |more: &[&str]| lab.run(&[&["daemon", "start", "node1"], more].concat());

    // The API server refuses an unknown token, and the daemon continues without Kubernetes.
    let authority = world.authority()?;
    mount(&lab, &authority, "not-a-token")?;
    start(&by_environment)?;
    wait_for("the daemon to report the refused token", PATIENCE, || {
        let printed = standing(&lab, "node")?;
        ensure!(printed.starts_with("failing"), "{printed}");
        Ok(printed.contains("401") || printed.contains("Unauthorized"))
    })?;
    lab.run(&["daemon", "stop", "node1"])?;
    ensure!(world.condition("node1")?.is_none(), "the node has a condition");

    mount(&lab, &authority, &world.token()?)?;
    start(&by_environment)?;
    world.wait_for_condition("node1", "True", &[])?;
    world.make_pod("node1", "annotated")?;
    lab.run(&["pod", "add", "node1", "--pod", "annotated"])?;
    wait_for("the pod's annotation", PATIENCE, || {
        Ok(world.annotation("annotated", "vpc.amazonaws.com/pod-ips")?.is_some())
    })?;
    lab.run(&["daemon", "stop", "node1"])?;

    // The endpoint of the setting has priority over the environment.
    start(&[
        "--env",
        &format!("CLUSTER_ENDPOINT=https://{AT}"),
        "--env",
        "KUBERNETES_SERVICE_HOST=10.0.0.3",
    ])?;
    wait_for("the daemon to read the node from the endpoint of the setting", PATIENCE, || {
        Ok(standing(&lab, "node")? == "good")
    })?;
    lab.down()
}

const FILES: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

//! `ferrule policy` in a cluster with a controller and agents: the lines about the nodes' state in force.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use clap::Parser as _;
use config_settings::Settings;
use datapath_backend::{Backend, BackendError, NoBackend};
use datapath_node::{Applied, BackendEvent, Desired, Observed, Retire, Trace};
use k8s_openapi::api::{
    authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
    core::v1::{ConfigMap, Pod, ServiceAccount},
};
use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};
use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    process::{Command, Output},
    time::Duration,
};
use tests_cluster::{Cluster, ClusterSpec, free_ports};
use tests_eventually::eventually_async;
use tokio::{sync::watch, task::JoinHandle};

const SYSTEM: &str = "kube-system";
const ACCOUNT: &str = "ferrule-agent";
/// Longest wait for an event, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_shows_whether_its_nodes_have_it_in_force() {
    let cluster = Cluster::start(&ClusterSpec::default()).unwrap();
    let client = cluster.client().await.unwrap();
    prepare(&client).await;
    let folder = tempfile::tempdir().unwrap();
    let controller = Controller::start(&cluster, &client).await;
    let mut agents = Vec::new();
    for node in ["n1", "n2"] {
        agents.push(
            Node::start(&client, folder.path(), node, controller.at, EnforcingBackend::default())
                .await,
        );
    }
    let question = ["verdict", "--from", "default/web", "--to", "default/api:80"];
    eventually_async("both nodes have it in force", PATIENCE, async || {
        let output = ferrule(&cluster, &question);
        let printed = text(&output.stdout);
        (output.status.code() == Some(0) && printed.ends_with("\nin force on n1 and n2\n"))
            .then_some(())
    })
    .await;
    all_is_in_force(&cluster, folder.path()).await;
    eventually_async("each node has reported", PATIENCE, async || {
        (ferrule(&cluster, &["status"]).status.code() == Some(0)).then_some(())
    })
    .await;
    // The agent of one node runs without a backend.
    agents.pop().unwrap().stop().await;
    fs::remove_dir_all(folder.path().join("n2")).unwrap();
    let idle = Node::start(&client, folder.path(), "n2", controller.at, NoBackend::default()).await;
    eventually_async("the node without a backend has no policy in force", PATIENCE, async || {
        let printed = text(&ferrule(&cluster, &question).stdout);
        let not_there = printed.contains("\nNOT IN FORCE on n2: the agent has no backend");
        let output = ferrule(&cluster, &["status"]);
        let is_listed =
            text(&output.stdout).contains("NOTHING IN FORCE on n2: the agent has no backend");
        (not_there && is_listed && output.status.code() == Some(1)).then_some(())
    })
    .await;
    idle.stop().await;
    fs::remove_dir_all(folder.path().join("n2")).unwrap();
    let agent =
        Node::start(&client, folder.path(), "n2", controller.at, EnforcingBackend::default()).await;
    // The agent's last report counts after its stop, so this waits for the report.
    eventually_async("both nodes have it in force again", PATIENCE, async || {
        let printed = text(&ferrule(&cluster, &question).stdout);
        let is_listed = printed.ends_with("\nin force on n1 and n2\n");
        (is_listed && ferrule(&cluster, &["status"]).status.code() == Some(0)).then_some(())
    })
    .await;
    // One node no longer has an agent, so it does not receive the new policy.
    agent.stop().await;
    put(&client, shut()).await;
    eventually_async("one node has it in force, the other has not", PATIENCE, async || {
        let output =
            ferrule(&cluster, &["verdict", "--from", "default/web", "--to", "default/api:80"]);
        let printed = text(&output.stdout);
        let denied = output.status.code() == Some(1);
        let not_there = printed.contains("\nNOT IN FORCE on n2: the node has NetworkPolicy up to ");
        (denied && not_there && printed.contains("\nin force on n1\n")).then_some(())
    })
    .await;
    for words in [&["matrix"][..], &["lint"]] {
        let printed = text(&ferrule(&cluster, words).stdout);
        assert!(printed.contains("\nNOT IN FORCE on n2: "), "{printed}");
    }
    let output = ferrule(&cluster, &["of", "default/api", "-o", "json"]);
    let output: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output["realized"]["nodes"][0]["realized"], false, "{output}");
    // A node whose agent never ran.
    put(&client, json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n3" } })).await;
    eventually_async("a node without an agent is listed", PATIENCE, async || {
        let output = ferrule(&cluster, &["status"]);
        let silent = text(&output.stdout)
            .lines()
            .any(|line| line.starts_with("n3 ") || line.starts_with(" n3 "));
        (output.status.code() == Some(1) && silent).then_some(())
    })
    .await;
    for agent in agents {
        agent.stop().await;
    }
    controller.stop().await;
}

/// Answers about all pods list all nodes, as text and as JSON.
async fn all_is_in_force(cluster: &Cluster, folder: &Path) {
    let file = folder.join("shut.json");
    fs::write(&file, shut().to_string()).unwrap();
    let diff = ["diff", "-f", file.to_str().unwrap(), "--port", "80"];
    for words in [&["matrix", "--port", "80"][..], &["lint"], &diff] {
        eventually_async("every node has all in force", PATIENCE, async || {
            let printed = text(&ferrule(cluster, words).stdout);
            printed.ends_with("\nin force on n1 and n2\n").then_some(())
        })
        .await;
        eventually_async("the JSON lists all nodes", PATIENCE, async || {
            let output = ferrule(cluster, &[words, &["-o", "json"]].concat());
            let output: Value = serde_json::from_slice(&output.stdout).unwrap();
            let nodes = output["realized"]["nodes"].as_array().unwrap();
            (nodes.len() == 2 && nodes.iter().all(|on| on["realized"] == true)).then_some(())
        })
        .await;
    }
}

/// A policy that denies all ingress of the API's pod.
fn shut() -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": { "name": "shut", "namespace": "default" },
        "spec": { "podSelector": { "matchLabels": { "app": "api" } } },
    })
}

/// Accounts, nodes with an agent's pod each, and a pod on each node.
async fn prepare(client: &Client) {
    for (namespace, name) in [(SYSTEM, ACCOUNT), ("default", "default")] {
        let metadata = json!({ "name": name, "namespace": namespace });
        let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata });
        put(client, account).await;
    }
    for (node, app, address) in [("n1", "web", "10.9.0.1"), ("n2", "api", "10.9.0.2")] {
        put(client, json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": node } }))
            .await;
        put(client, pod(SYSTEM, &format!("agent-{node}"), node, "agent")).await;
        put(client, pod("default", app, node, app)).await;
        let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
        let status = json!({ "status": {
            "phase": "Running", "podIP": address, "podIPs": [{ "ip": address }],
        } });
        pods.patch_status(app, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    }
}

fn pod(namespace: &str, name: &str, node: &str, app: &str) -> Value {
    let agent = namespace == SYSTEM;
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": namespace, "labels": { "app": app } },
        "spec": {
            "nodeName": node, "hostNetwork": agent,
            "serviceAccountName": if agent { ACCOUNT } else { "default" },
            "containers": [{ "name": "main", "image": "none" }],
        },
    })
}

async fn put(client: &Client, object: Value) {
    let version = object["apiVersion"].as_str().unwrap();
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let kind = GroupVersionKind::gvk(group, version, object["kind"].as_str().unwrap());
    let resource = ApiResource::from_gvk(&kind);
    let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    // The system's namespaces are created shortly after the API server starts.
    eventually_async("the namespace of the object", PATIENCE, async || {
        match api.create(&PostParams::default(), &object).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Err(status.message),
            Err(error) => panic!("{error}"),
        }
    })
    .await;
}

/// A part of the system that runs in this process.
struct Running {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Running {
    async fn end(self) {
        self.stop.send_replace(true);
        self.task.await.unwrap();
    }
}

async fn stopped(mut stop: watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

struct Controller {
    at: SocketAddr,
    running: Running,
}

impl Controller {
    async fn start(cluster: &Cluster, client: &Client) -> Self {
        let [at, health, view] = free();
        let objects = [config_crds::controller_objects(), config_crds::view_objects()].concat();
        for mut object in objects {
            match object["kind"].as_str() {
                Some("Service") => {
                    object["spec"] = json!({ "type": "ExternalName", "externalName": "127.0.0.1" });
                }
                Some("APIService") => object["spec"]["service"]["port"] = json!(view.port()),
                _ => {}
            }
            put(client, object).await;
        }
        let (listen, health) = (at.to_string(), health.to_string());
        let view_at = view.to_string();
        let words = [
            "ferrule-controller",
            "--kubeconfig",
            cluster.kubeconfig().to_str().unwrap(),
            "--listen",
            &listen,
            "--health",
            &health,
            "--view",
            &view_at,
            "--grace",
            "100ms",
        ];
        let options = control_controller::Options::try_parse_from(words).unwrap();
        let (stop, stopping) = watch::channel(false);
        let task = tokio::spawn(async move {
            control_controller::run(options, stopped(stopping)).await.unwrap();
        });
        Self { at, running: Running { stop, task } }
    }

    async fn stop(self) {
        self.running.end().await;
    }
}

fn free() -> [SocketAddr; 3] {
    free_ports().unwrap().map(|port| (Ipv4Addr::LOCALHOST, port).into())
}

/// Reports every state as in force, as a backend that enforces does.
#[derive(Default)]
struct EnforcingBackend(NoBackend);

#[async_trait::async_trait]
impl Backend for EnforcingBackend {
    fn name(&self) -> &'static str {
        "held"
    }

    async fn observe(&mut self) -> Result<Observed, BackendError> {
        self.0.observe().await
    }

    async fn apply(&mut self, desired: &Desired) -> Applied {
        self.0.apply(desired).await
    }

    async fn event(&mut self) -> BackendEvent {
        self.0.event().await
    }

    async fn trace(&mut self, trace: &Trace) -> Result<(), BackendError> {
        self.0.trace(trace).await
    }

    async fn retire(&mut self, retire: Retire) -> Result<(), BackendError> {
        self.0.retire(retire).await
    }
}

struct Node {
    running: Running,
}

impl Node {
    async fn start(
        client: &Client,
        folder: &Path,
        node: &str,
        at: SocketAddr,
        backend: impl Backend,
    ) -> Self {
        let folder = folder.join(node);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("token"), token(client, node).await).unwrap();
        fs::write(folder.join("ca.crt"), authority(client).await).unwrap();
        let path = |name: &str| folder.join(name).display().to_string();
        let env = [
            ("MY_NODE_NAME", node.to_owned()),
            ("FERRULE_AGENT_SOCKET", path("agent.sock")),
            ("FERRULE_AGENT_STATE_DIR", path("state")),
            ("FERRULE_CONTROLLER_CA", path("ca.crt")),
            ("FERRULE_CONTROLLER_TOKEN", path("token")),
        ];
        let env = env.map(|(name, value)| (name.to_owned(), value));
        let (settings, _) = Settings::resolve(env).unwrap();
        let options = datapath_agent::Options {
            agent: settings.agent,
            node: node.to_owned(),
            replicas: vec![at],
            proc_sys_net: settings.proc_sys_net,
        };
        let (stop, stopping) = watch::channel(false);
        let task = tokio::spawn(async move {
            datapath_agent::run(options, backend, stopped(stopping)).await.unwrap();
        });
        Self { running: Running { stop, task } }
    }

    async fn stop(self) {
        self.running.end().await;
    }
}

/// Of the agent's pod, for the controller.
async fn token(client: &Client, node: &str) -> String {
    let pods: Api<Pod> = Api::namespaced(client.clone(), SYSTEM);
    let pod = pods.get(&format!("agent-{node}")).await.unwrap();
    let bound = BoundObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        name: pod.metadata.name,
        uid: pod.metadata.uid,
    };
    let spec = TokenRequestSpec {
        audiences: Some(vec!["ferrule-controller".to_owned()]),
        bound_object_ref: Some(bound),
        expiration_seconds: Some(3_600),
    };
    let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), SYSTEM);
    let made = accounts.create_token_request(ACCOUNT, &PostParams::default(), &request).await;
    made.unwrap().status.unwrap().token.unwrap()
}

/// The controller's, as it publishes it.
async fn authority(client: &Client) -> String {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), SYSTEM);
    eventually_async("the controller's CA to be published", PATIENCE, async || {
        let map = maps.get_opt("ferrule-controller-ca").await.unwrap();
        map.and_then(|map| map.data?.remove("ca.crt"))
    })
    .await
}

fn ferrule(cluster: &Cluster, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferrule"));
    command.arg("policy").args(words).arg("--kubeconfig").arg(cluster.kubeconfig());
    tokio::task::block_in_place(|| command.output().unwrap())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

//! `ferrule status` against a real API server, as an account with the rights of the role ferrule-viewer alone. No kubelet
//! runs, so no daemon can be called: each row has the reason.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

#[path = "status/chosen.rs"]
mod chosen;
#[path = "status/manners.rs"]
mod manners;
#[path = "status/services.rs"]
mod services;
#[path = "status/terminal.rs"]
mod terminal;

use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use serde_json::{Value, json};
use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};
use tests_cluster::{Cluster, ClusterSpec, Identity};

/// The API server does not require service accounts for pods, because no controller creates them.
const NO_ACCOUNTS: &str = "--disable-admission-plugins=ServiceAccount";
const RBAC: &str = "rbac.authorization.k8s.io/v1";

#[tokio::test]
async fn a_viewer_gets_a_row_for_each_node_without_daemons() {
    let wanted =
        ClusterSpec { api_server_args: vec![NO_ACCOUNTS.to_owned()], ..ClusterSpec::default() };
    let cluster = Cluster::start(&wanted).unwrap();
    let client = cluster.client().await.unwrap();
    for role in config_crds::viewer_rbac() {
        create(&client, role).await;
    }
    let viewer = cluster.kubeconfig_of("viewer", &Identity::user("viewer")).unwrap();
    bind(&client, "ClusterRole", "viewer").await;

    let output = status(&viewer, &[]);
    let printed = text(&output.stdout);
    assert!(printed.contains("not read: cannot list daemonsets"), "{printed}");

    bind(&client, "Role", "viewer").await;
    node(&client, "n1", json!({})).await;
    node(&client, "n2", json!({})).await;
    node(&client, "f1", json!({ "eks.amazonaws.com/compute-type": "fargate" })).await;
    let output = status(&viewer, &[]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("namespace kube-system has none"));

    daemon_set(&client).await;
    daemon(&client, "n1").await;
    let output = status(&viewer, &[]);
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let line = |name: &str| printed.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(line("f1").contains("a fargate node has a network of its own"), "{printed}");
    assert!(line("n1").ends_with("unreachable"), "{printed}");
    assert!(line("n2").ends_with("missing"), "{printed}");
    assert!(
        printed.contains("TROUBLE  n1: ferrule-ipamd: cannot forward port 61679: "),
        "{printed}"
    );
    assert!(printed.contains("kubectl -n kube-system describe daemonset ferrule"), "{printed}");
    let output = status(&viewer, &["--node", "f1"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    let output = status(&viewer, &["--node", "no-such-node"]);
    assert!(
        text(&output.stderr).contains("cannot find node no-such-node"),
        "{}",
        text(&output.stderr)
    );
    let output = status(&viewer, &["-o", "json"]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["nodes"][1]["troubles"][0]["kind"], "unreachable", "{document}");
    image(&client).await;
    let printed = text(&status(&viewer, &[]).stdout);
    assert!(printed.contains("repo/ferrule:9: ImagePullBackOff: not found"), "{printed}");
    without_forwarding(&client, &cluster).await;
    event(&client, "DaemonSet", "ferrule").await;
    event(&client, "Pod", "a-tenants-pod").await;
    an_archive_lists_the_missing_parts(&viewer);
    addresses_that_are_not_read_are_no_finding(&viewer);
    probes_that_do_not_start_are_reported_and_their_namespace_is_deleted(&client, &cluster).await;
    chosen::all(&client, cluster.kubeconfig()).await;
    manners::all(cluster.kubeconfig());
    a_pod_on_a_node_without_a_daemon_is_not_read(&client, cluster.kubeconfig()).await;
    services::all(&client, &viewer).await;
    terminal::all(&client, &viewer).await;
}

/// No daemon answers, so the check is incomplete.
fn addresses_that_are_not_read_are_no_finding(viewer: &Path) {
    let output = ferrule("ip", viewer, &["check"]);
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(2), "{printed}{}", text(&output.stderr));
    assert!(printed.contains("not read: addresses of n1: cannot forward port 61679"), "{printed}");
    assert!(printed.contains("0 nodes: incomplete, no problem in the data"), "{printed}");
    assert!(printed.contains("not read: addresses of n2: no Ferrule pod runs there"), "{printed}");
    let none = [
        (["--ferrule-namespace", "elsewhere"], "namespace elsewhere has no Ferrule pod; install"),
        (["--node", "n2"], "cannot read addresses of n2: no Ferrule pod runs there"),
        (["--subnet", "subnet-x"], "cannot find subnet subnet-x"),
    ];
    for (words, why) in none {
        let output = ferrule("ip", viewer, &["check", words[0], words[1]]);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", text(&output.stdout));
        assert!(text(&output.stderr).contains(why), "{}", text(&output.stderr));
    }
    let output = ferrule("ip", viewer, &["--node", "n1", "-o", "yaml"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("subnets: []"), "{}", text(&output.stdout));
    let output = ferrule("ip", viewer, &["--node", "no-such-node"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stdout));
    assert!(
        text(&output.stderr).contains("cannot find node no-such-node"),
        "{}",
        text(&output.stderr)
    );
}

/// The rights of a viewer are enough for it.
fn an_archive_lists_the_missing_parts(viewer: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("b.tar.gz");
    let output =
        ferrule("bundle", viewer, &["--node", "no-such-node", "-o", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stdout));
    assert!(
        text(&output.stderr).contains("cannot find node no-such-node"),
        "{}",
        text(&output.stderr)
    );
    assert!(!file.exists(), "an archive without a node exists");
    let output = ferrule("bundle", viewer, &["-o", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let unpacked = Command::new("tar").arg("-xzf").arg(&file).arg("-C").arg(folder.path()).status();
    assert!(unpacked.unwrap().success());
    let read = |name: &str| -> Value {
        let path = folder.path().join("ferrule-bundle").join(name);
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    };
    let env = &read("cluster/pods.json")["items"][0]["spec"]["containers"][0]["env"];
    assert_eq!(env[0], json!({ "name": "WARM_IP_TARGET", "value": "3" }));
    assert_eq!(env[1], json!({ "name": "HTTPS_PROXY", "value": "REDACTED" }));
    assert_eq!(read("status.json")["nodes"][1]["node"], "n1");
    let events = read("cluster/events.json").to_string();
    assert!(events.contains("an event of ferrule") && !events.contains("tenant"), "{events}");
    let index = read("index.json");
    let missing = index["missing"].as_array().unwrap();
    let why = |path: &str| missing.iter().find(|it| it["path"] == path).unwrap()["why"].to_string();
    assert!(why("nodes/n1/status.json").contains("cannot forward port 61679"), "{index}");
    assert!(why("cluster/cninodes.json").contains("there is no cninodes"), "{index}");
}

/// Without a controller of DaemonSets no probe comes.
async fn probes_that_do_not_start_are_reported_and_their_namespace_is_deleted(
    client: &Client,
    cluster: &Cluster,
) {
    let output = ferrule("check", cluster.kubeconfig(), &["--wait", "1"]);
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(printed.contains("FAIL  n1: its probe: the node has no probe pod"), "{printed}");
    assert!(!printed.contains("f1"), "a fargate node has no probe: {printed}");
    assert!(!printed.contains("tested "), "all nodes were tested: {printed}");
    let folder = tempfile::tempdir().unwrap();
    let junit = folder.path().join("junit.xml");
    let sample = ["--sample", "1", "--node", "n2", "--wait", "1", "--junit"];
    let words: Vec<&str> = sample.into_iter().chain(junit.to_str()).collect();
    let output = ferrule("check", cluster.kubeconfig(), &words);
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(printed.starts_with("tested 1 of 2 nodes"), "{printed}");
    assert!(printed.contains("FAIL  n2: ") && !printed.contains("n1"), "{printed}");
    let cases = std::fs::read_to_string(&junit).unwrap();
    assert!(cases.contains("<testcase classname=\"n2\" name=\"probe\">"), "{cases}");
    let words: Vec<&str> = ["--node", "f1", "--junit"].into_iter().chain(junit.to_str()).collect();
    let output = ferrule("check", cluster.kubeconfig(), &words);
    let why = "cannot test from node f1: a fargate node has a network of its own";
    assert!(text(&output.stderr).contains(why), "{}", text(&output.stderr));
    let cases = std::fs::read_to_string(&junit).unwrap();
    assert!(cases.contains(&format!("<error message=\"{why}")), "{cases}");
    let output = ferrule("check", cluster.kubeconfig(), &["--junit", "/no/such/folder/junit.xml"]);
    let said = text(&output.stderr);
    assert!(said.contains("cannot create /no/such") && said.contains("; name a file"), "{said}");
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client.clone());
    let all = namespaces.list(&kube::api::ListParams::default()).await.unwrap();
    let ours = |name: &str| name.starts_with("ferrule-check-");
    let left: Vec<_> =
        all.iter().filter(|it| it.metadata.name.as_deref().is_some_and(ours)).collect();
    assert!(left.iter().all(|it| it.metadata.deletion_timestamp.is_some()), "{left:?}");
}

/// Runs as a user who may read all objects, but may not forward ports.
async fn without_forwarding(client: &Client, cluster: &Cluster) {
    let mut role = config_crds::viewer_rbac().pop().unwrap();
    role["metadata"]["name"] = json!("no-forwarding");
    let rules = role["rules"].as_array_mut().unwrap();
    rules.retain(|rule| rule["resources"][0] != "pods/portforward");
    create(client, role).await;
    let who = Identity::user("lesser");
    let lesser = cluster.kubeconfig_of("lesser", &who).unwrap();
    bind(client, "ClusterRole", "lesser").await;
    bind_to(client, "Role", "no-forwarding", "lesser").await;
    let output = status(&lesser, &[]);
    let printed = text(&output.stdout);
    assert!(printed.contains("cannot create pods/portforward in kube-system"), "{printed}");
    assert!(printed.contains("request the role ferrule-viewer"), "{printed}");
}

async fn node(client: &Client, name: &str, labels: Value) {
    create(
        client,
        json!({ "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": name, "labels": labels } }),
    )
    .await;
    // No program listens at port 1 of this machine.
    let status = json!({ "status": {
        "conditions": [{ "type": "Ready", "status": "True" }],
        "addresses": [{ "type": "InternalIP", "address": "127.0.0.1" }],
        "daemonEndpoints": { "kubeletEndpoint": { "Port": 1 } },
    } });
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(client.clone());
    nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

/// As the chart has them with `nameOverride: aws-node`.
fn labels() -> Value {
    json!({ "app.kubernetes.io/name": "aws-node", "app.kubernetes.io/part-of": "ferrule" })
}

async fn daemon_set(client: &Client) {
    create(
        client,
        json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": { "name": "ferrule", "namespace": "kube-system", "labels": labels() },
            "spec": { "selector": { "matchLabels": labels() }, "template": {
                "metadata": { "labels": labels() },
                "spec": { "containers": [{ "name": "ipamd", "image": "repo/ferrule:9" }] },
            } },
        }),
    )
    .await;
}

async fn daemon(client: &Client, node: &str) {
    create(
        client,
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": "ferrule-x", "namespace": "kube-system", "labels": labels() },
            "spec": {
                "nodeName": node, "hostNetwork": true, "automountServiceAccountToken": false,
                "containers": [{ "name": "ipamd", "image": "repo/ferrule:9", "env": [
                    { "name": "WARM_IP_TARGET", "value": "3" },
                    { "name": "HTTPS_PROXY", "value": "http://user:word@proxy" },
                ] }],
            },
        }),
    )
    .await;
    set_status(client, json!({ "phase": "Running" })).await;
}

async fn image(client: &Client) {
    let waiting = json!({ "reason": "ImagePullBackOff", "message": "not found" });
    set_status(client, json!({ "phase": "Pending", "containerStatuses": [{
        "name": "ipamd", "image": "repo/ferrule:9", "imageID": "", "ready": false, "restartCount": 0,
        "state": { "waiting": waiting },
    }] }))
    .await;
}

/// The cluster has no aggregated API, which is the default of the chart.
async fn a_pod_on_a_node_without_a_daemon_is_not_read(client: &Client, admin: &Path) {
    let spec = json!({ "nodeName": "n2", "automountServiceAccountToken": false,
        "containers": [{ "name": "web", "image": "web" }] });
    let metadata = json!({ "name": "web", "namespace": "default" });
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec });
    create(client, pod).await;
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(client.clone(), "default");
    let running = json!({ "status": { "phase": "Running", "podIP": "10.0.0.9", "podIPs": [{ "ip": "10.0.0.9" }] } });
    pods.patch_status("web", &PatchParams::default(), &Patch::Merge(running)).await.unwrap();
    let output = ferrule("pod", admin, &[]);
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(2), "{printed}{}", text(&output.stderr));
    let line = "\nnot read: no Ferrule pod runs on n2; run ferrule status\n";
    assert!(printed.ends_with(line), "{printed}");
    let printed = text(&ferrule("pod", admin, &["web"]).stdout);
    let why = "unknown: the cluster has no aggregated API of ferrule-controller; set controller.view=true";
    assert!(printed.contains(why), "{printed}");
}

async fn set_status(client: &Client, status: Value) {
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(client.clone(), "kube-system");
    let patch = Patch::Merge(json!({ "status": status }));
    pods.patch_status("ferrule-x", &PatchParams::default(), &patch).await.unwrap();
}

async fn bind(client: &Client, kind: &str, user: &str) {
    bind_to(client, kind, config_crds::VIEWER, user).await;
}

async fn bind_to(client: &Client, kind: &str, role: &str, user: &str) {
    let mut metadata = json!({ "name": format!("{role}-{user}") });
    if kind == "Role" {
        metadata["namespace"] = json!("kube-system");
    }
    let api = "rbac.authorization.k8s.io";
    create(
        client,
        json!({
            "apiVersion": RBAC, "kind": format!("{kind}Binding"), "metadata": metadata,
            "roleRef": { "apiGroup": api, "kind": kind, "name": role },
            "subjects": [{ "apiGroup": api, "kind": "User", "name": user }],
        }),
    )
    .await;
}

async fn event(client: &Client, kind: &str, name: &str) {
    let object = json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": { "name": format!("{name}.1"), "namespace": "kube-system" },
        "involvedObject": { "kind": kind, "name": name, "namespace": "kube-system" },
        "reason": "Test", "message": format!("an event of {name}"),
    });
    create(client, object).await;
}

async fn create(client: &Client, object: Value) {
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let types = object.types.clone().unwrap();
    let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types).unwrap());
    let api: Api<DynamicObject> = match &object.metadata.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    api.create(&PostParams::default(), &object).await.unwrap();
}

fn status(kubeconfig: &Path, more: &[&str]) -> Output {
    ferrule("status", kubeconfig, more)
}

fn ferrule(verb: &str, kubeconfig: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferrule"));
    command.arg(verb).args(more).arg("--kubeconfig").arg(kubeconfig).env_remove("KUBECONFIG");
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A kubeconfig for this server.
fn kubeconfig_for(folder: &Path, server: &str) -> PathBuf {
    let kubeconfig = folder.join("kubeconfig");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{ "name": "c", "cluster": { "server": server } }],
        "users": [{ "name": "u", "user": {} }],
        "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
    });
    std::fs::write(&kubeconfig, config.to_string()).unwrap();
    kubeconfig
}

#[test]
fn an_archive_of_an_unreachable_cluster_is_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = kubeconfig_for(folder.path(), "http://127.0.0.1:1");
    let file = folder.path().join("b.tar.gz");
    let output = ferrule("bundle", &kubeconfig, &["-o", file.to_str().unwrap()]);
    assert!(text(&output.stdout).contains(": 0 files, "), "{}", text(&output.stdout));
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_cluster_behind_a_proxy_is_asked_through_it() {
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = kubeconfig_for(folder.path(), "https://192.0.2.1:6443");
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferrule"));
    command.arg("status").arg("--kubeconfig").arg(&kubeconfig);
    let address = proxy.local_addr().unwrap();
    command.env("HTTPS_PROXY", format!("http://{address}"));
    command.env_remove("NO_PROXY").env_remove("no_proxy").stderr(Stdio::piped());
    let asked = std::thread::spawn(move || {
        let (mut stream, _) = proxy.accept().unwrap();
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).unwrap();
        stream.write_all(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n").unwrap();
        line
    });
    let output = command.output().unwrap();
    let printed = text(&output.stderr);
    assert!(
        !printed.contains("cannot find a cluster") && !printed.contains("feature"),
        "{printed}"
    );
    assert_eq!(output.status.code(), Some(2));
    // Without a client the thread would wait forever.
    drop(TcpStream::connect(address));
    assert_eq!(asked.join().unwrap().trim(), "CONNECT 192.0.2.1:6443 HTTP/1.1");
}

#[test]
fn the_wait_for_probes_is_bounded() {
    for seconds in ["0", "86401", "18446744073709551615"] {
        let output = ferrule("check", Path::new("/none"), &["--wait", seconds]);
        assert!(text(&output.stderr).contains("not in 1..=86400"), "{}", text(&output.stderr));
    }
}

//! `ferrule policy` against a real API server: the answers equal those about the cluster's objects in files, and
//! unreadable objects are reported.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use k8s_openapi::{
    api::{
        core::v1::{Namespace, Pod},
        networking::v1::NetworkPolicy,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams, PostParams},
    core::Resource,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::{
    fs,
    path::Path,
    process::{Command, Output},
};
use tests_cluster::{Cluster, ClusterSpec, Identity};

/// The API server does not require service accounts for pods, because no controller creates them.
const NO_ACCOUNTS: &str = "--disable-admission-plugins=ServiceAccount";
const NOT_KNOWN: &str =
    "\nin force: unknown: the cluster has no aggregated API of ferrule-controller\n";
/// More than a page of a list.
const MANY: usize = 1_100;

#[tokio::test]
async fn a_cluster_is_answered_for_as_its_objects_in_files() {
    let wanted =
        ClusterSpec { api_server_args: vec![NO_ACCOUNTS.to_owned()], ..ClusterSpec::default() };
    let cluster = Cluster::start(&wanted).unwrap();
    let client = cluster.client().await.unwrap();
    for definition in config_crds::policy_crds() {
        put::<CustomResourceDefinition>(&Api::all(client.clone()), definition).await;
    }
    fill(&client).await;
    let folder = tempfile::tempdir().unwrap();
    dump(&client, folder.path()).await;
    let live = Ferrule { kubeconfig: cluster.kubeconfig() };
    let questions: &[&[&str]] = &[
        &["verdict", "--from", "shop/web", "--to", "pay/api:8080"],
        &["verdict", "--from", "shop/many-1099", "--to", "pay/api:8080"],
        &["of", "pay/api"],
        &["matrix", "--port", "8080"],
        &["lint"],
    ];
    for question in questions {
        let output = live.ask(question, &[]);
        let wanted = ferrule(folder.path(), &[*question, &["-f", "."][..]].concat());
        assert_eq!(output.status.code(), wanted.status.code(), "{}", text(&output.stderr));
        let mut wanted_text = without_places(&text(&wanted.stdout));
        // No controller runs, so the state of the nodes is unknown.
        wanted_text.push_str(NOT_KNOWN);
        assert_eq!(text(&output.stdout), wanted_text);
        assert_eq!(text(&output.stderr), "");
    }
    assert_eq!(live.ask(questions[0], &[]).status.code(), Some(0));
    assert_eq!(live.ask(questions[1], &[]).status.code(), Some(1));
    let status = live.ask(&["status"], &[]);
    assert_eq!(status.status.code(), Some(2));
    let printed = text(&status.stderr);
    assert!(
        printed.starts_with("ferrule: cannot read the state of nodes in cluster")
            && printed.contains("set controller.view of the chart"),
        "{printed}"
    );
    the_effect_of_a_change_is_shown(&live, folder.path());
    a_missing_right_to_list_is_reported(&cluster, questions[0]);
    a_question_without_a_cluster_is_an_error(folder.path(), questions[0]);
}

/// Objects in files have places, those of a cluster have none.
fn without_places(text: &str) -> String {
    let mut without = text.to_owned();
    while let Some(start) = without.find(" [./") {
        let length = without[start..].find(']').unwrap() + 1;
        without.replace_range(start..start + length, "");
    }
    without
}

/// A policy that is not applied yet, on the cluster as it is.
fn the_effect_of_a_change_is_shown(live: &Ferrule<'_>, folder: &Path) {
    let closed = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": { "name": "api", "namespace": "pay" }, "spec": { "podSelector": {} },
    });
    let file = folder.join("closed.json");
    fs::write(&file, closed.to_string()).unwrap();
    let output =
        live.ask(&["diff", "-f", file.to_str().unwrap(), "--port", "8080"], &["-o", "json"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let output: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output["pairs"].as_array().unwrap().len(), 1, "{output}");
    assert!(output["realized"]["unknown"].is_string(), "{output}");
    fs::remove_file(file).unwrap();
}

fn a_missing_right_to_list_is_reported(cluster: &Cluster, question: &[&str]) {
    let who = Identity { user: "nobody-here".to_owned(), group: None, namespace: None };
    let kubeconfig = cluster.kubeconfig_of("nobody-here", &who).unwrap();
    let output = Ferrule { kubeconfig: &kubeconfig }.ask(question, &[]);
    assert_eq!(output.status.code(), Some(2));
    let printed = text(&output.stderr);
    let pods = printed.lines().find(|line| line.contains("list pods:")).unwrap();
    assert!(pods.starts_with("NOT UNDERSTOOD: Pod: cannot list pods: "), "{printed}");
    let scope = "at the cluster scope; ask an administrator for the right to list them there";
    assert!(pods.ends_with(scope), "{printed}");
}

fn a_question_without_a_cluster_is_an_error(folder: &Path, question: &[&str]) {
    for (file, wanted) in [
        ("there-is-none", "cannot find a cluster: "),
        ("closed-port", "cannot list the API server's kinds: "),
        ("no-context", "cannot find a cluster: "),
    ] {
        let path = folder.join(file);
        if file == "closed-port" {
            let kubeconfig = json!({
                "apiVersion": "v1", "kind": "Config", "current-context": "c",
                "clusters": [{ "name": "c", "cluster": { "server": "http://127.0.0.1:1" } }],
                "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
                "users": [{ "name": "u", "user": {} }],
            });
            fs::write(&path, kubeconfig.to_string()).unwrap();
        }
        if file == "no-context" {
            fs::write(&path, "apiVersion: v1\nkind: Config\n").unwrap();
        }
        let output = Ferrule { kubeconfig: &path }.ask(question, &[]);
        assert_eq!(output.status.code(), Some(2));
        let printed = text(&output.stderr);
        assert!(printed.starts_with(&format!("ferrule: {wanted}")), "{file}: {printed}");
    }
    let both = ["-f", ".", "--context", "c"];
    let output = ferrule(folder, &[question, &both[..]].concat());
    assert!(text(&output.stderr).contains("use one of them"), "{}", text(&output.stderr));
}

/// A shop of many pods that talks to an API, which lets in those that are of the front alone.
async fn fill(client: &Client) {
    for name in ["shop", "pay"] {
        let labels = json!({ "team": name });
        let namespace = json!({ "metadata": { "name": name, "labels": labels } });
        put::<Namespace>(&Api::all(client.clone()), namespace).await;
    }
    let spec = json!({
        "podSelector": { "matchLabels": { "app": "api" } },
        "ingress": [{ "from": [{
            "namespaceSelector": { "matchLabels": { "team": "shop" } },
            "podSelector": { "matchLabels": { "app": "web" } },
        }] }],
    });
    let policy = json!({ "metadata": { "name": "api" }, "spec": spec });
    put::<NetworkPolicy>(&Api::namespaced(client.clone(), "pay"), policy).await;
    pod(client, "pay", "api", "api", "10.1.0.1").await;
    pod(client, "shop", "web", "web", "10.1.0.2").await;
    for n in 0..MANY {
        let address = format!("10.2.{}.{}", n / 250, n % 250 + 1);
        // Most have no address, as pods that wait for one: they are cheaper to make.
        let address = if n + 1 == MANY { address.as_str() } else { "" };
        pod(client, "shop", &format!("many-{n}"), "many", address).await;
    }
}

async fn pod(client: &Client, namespace: &str, name: &str, app: &str, address: &str) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let container = json!({ "name": "main", "image": "none" });
    let spec = json!({
        "containers": [container], "nodeName": "node-1", "automountServiceAccountToken": false,
    });
    let meta = json!({ "name": name, "labels": { "app": app } });
    put::<Pod>(&pods, json!({ "metadata": meta, "spec": spec })).await;
    if !address.is_empty() {
        let status = json!({ "status": {
            "phase": "Running", "podIP": address, "podIPs": [{ "ip": address }],
        } });
        let params = PatchParams::default();
        pods.patch_status(name, &params, &Patch::Merge(status)).await.unwrap();
    }
}

async fn put<K>(api: &Api<K>, object: Value)
where
    K: Resource + Clone + DeserializeOwned + Serialize + std::fmt::Debug,
{
    let object: K = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

/// Writes the output of `kubectl get … -A -o json`.
async fn dump(client: &Client, folder: &Path) {
    let all = ListParams::default();
    let namespaces = Api::<Namespace>::all(client.clone()).list(&all).await.unwrap();
    let pods = Api::<Pod>::all(client.clone()).list(&all).await.unwrap();
    let policies = Api::<NetworkPolicy>::all(client.clone()).list(&all).await.unwrap();
    let write = |name: &str, kind: &str, version: &str, items: Value| {
        let list = json!({ "apiVersion": version, "kind": format!("{kind}List"), "items": items });
        fs::write(folder.join(name), list.to_string()).unwrap();
    };
    write("namespaces.json", "Namespace", "v1", json!(namespaces.items));
    write("pods.json", "Pod", "v1", json!(pods.items));
    write("policies.json", "NetworkPolicy", "networking.k8s.io/v1", json!(policies.items));
}

/// With a cluster to ask.
struct Ferrule<'a> {
    kubeconfig: &'a Path,
}

impl Ferrule<'_> {
    fn ask(&self, question: &[&str], more: &[&str]) -> Output {
        let which = ["--kubeconfig", self.kubeconfig.to_str().unwrap()];
        ferrule(Path::new("/"), &[question, more, &which].concat())
    }
}

fn ferrule(folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferrule"));
    command.current_dir(folder).arg("policy").args(words).env_remove("KUBECONFIG");
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

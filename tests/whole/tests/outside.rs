//! Clients outside the VPC on a cluster without kube-proxy: node ports, and a load balancer that keeps their addresses.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test panics and prints its progress"
)]

use serde_json::{Value, json};
use std::{collections::BTreeSet, time::Duration};
use tests_lab::wait_for;
use tests_whole::{Client, Installed, LaneInputs, LongConnections, Pod, ShortConnections};

const PATIENCE: Duration = Duration::from_secs(120);
const NODES: [&str; 2] = ["node1", "node2"];
/// The lab's client.
const CLIENT: &str = "192.0.2.1";
const CLUSTER_PORT: u16 = 30_080;
const LOCAL_PORT: u16 = 30_081;
/// Of lines that the pods echo.
const ECHO_PORT: u16 = 30_082;
const HEALTH_PORT: u16 = 32_081;
/// The label of the only endpoint.
const ONE: &str = "example.com/one";

#[test]
fn clients_outside_reach_services_without_kube_proxy() {
    let Some(inputs) = LaneInputs::or_skip("clients_outside_reach_services_without_kube_proxy")
    else {
        return;
    };
    let cluster = Installed::without_proxy(inputs, "outside", 2, &[]).unwrap();
    cluster.install_with_services().unwrap();
    let pods = cluster.probes("web").unwrap();
    assert_eq!(pods.iter().map(|pod| pod.node.as_str()).collect::<Vec<_>>(), NODES);
    cluster.cluster().apply(&services()).unwrap();
    cluster.open_to_clients().unwrap();

    println!("node ports of each node");
    for node in NODES {
        let public = cluster.lab().node(node).unwrap()["public_address"].clone();
        let public = public.as_str().unwrap().to_owned();
        answers_become(&cluster, &format!("{public}/{CLUSTER_PORT}"), &names(&pods));
        let own = pods.iter().find(|pod| pod.node == node).unwrap();
        let to = format!("{public}/{LOCAL_PORT}");
        answers_become(&cluster, &to, &BTreeSet::from([own.name.clone()]));
        has_own_address(&cluster, &to);
    }

    println!("the load balancer, with both policies");
    let wide = cluster.balancer(&["wide", "--listener", &format!("80:{CLUSTER_PORT}")]);
    let wide = wide.unwrap();
    answers_become(&cluster, &format!("{wide}/80"), &names(&pods));
    let address = cluster.balancer(&[
        "local",
        "--listener",
        &format!("80:{LOCAL_PORT}"),
        "--listener",
        &format!("7:{ECHO_PORT}"),
        "--check",
        &format!("http:{HEALTH_PORT}/healthz"),
    ]);
    let address = address.unwrap();
    let (local, echo) = (format!("{address}/80"), format!("{address}:7"));
    targets_become(&cluster, ["healthy", "healthy"]);
    answers_become(&cluster, &local, &names(&pods));
    has_own_address(&cluster, &local);

    println!("a load balancer whose targets are the addresses of pods");
    let mut of_pods = vec!["pods", "--listener", "80:8080"];
    of_pods.extend(pods.iter().flat_map(|pod| ["--target", pod.address.as_str()]));
    let of_pods = format!("{}/80", cluster.balancer(&of_pods).unwrap());
    answers_become(&cluster, &of_pods, &names(&pods));
    has_own_address(&cluster, &of_pods);
    cluster.lab().run(&["nlb", "deregister", "pods", &pods[0].address]).unwrap();
    answers_become(&cluster, &of_pods, &BTreeSet::from([pods[1].name.clone()]));

    println!("a drained node: no connection fails, and open ones continue");
    let outside = Client::Outside(cluster.lab());
    let long = LongConnections::from(outside, &echo, 20).unwrap();
    let short = ShortConnections::from(outside, &echo).unwrap();
    short.wait_for_answers(10).unwrap();
    cluster.lab().run(&["nlb", "deregister", "local", "node1"]).unwrap();
    targets_become(&cluster, ["draining", "healthy"]);
    let second = BTreeSet::from([pods[1].name.clone()]);
    answers_become(&cluster, &local, &second);
    let counts = long.end().unwrap();
    assert_eq!((counts.connections, counts.broken), (20, 0), "{counts:?}");
    assert!(counts.answered > counts.connections, "{counts:?}");
    // The only endpoint is on node2.
    let label = format!("{ONE}=true");
    cluster.kubectl(&["-n", "default", "label", "pod", &pods[1].name, &label]).unwrap();
    select(&cluster, json!({ "app": null, ONE: "true" }));
    // Otherwise the node is healthy until the change is in force, and gets connections.
    wait_for("no ready endpoint on node1", PATIENCE, || {
        Ok(health(&cluster, "node1").contains(" 503 "))
    })
    .unwrap();
    cluster.lab().run(&["nlb", "register", "local", "node1"]).unwrap();
    targets_become(&cluster, ["unhealthy", "healthy"]);
    answers_become(&cluster, &local, &second);
    has_own_address(&cluster, &local);
    let (answered, failed) = short.end().unwrap();
    assert!(answered > 10 && failed.is_empty(), "{answered} answered; {failed:?}");
    select(&cluster, json!({ "app": "web", ONE: null }));
    targets_become(&cluster, ["healthy", "healthy"]);
    answers_become(&cluster, &local, &names(&pods));

    programs_of_a_node_act_for_its_processes_only(&cluster, &names(&pods));
}

/// One Service of the pods `web` for each external policy.
fn services() -> [Value; 2] {
    let service = |name: &str, ports: Value, more: Value| {
        let mut service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": { "name": name, "namespace": "default" },
            "spec": { "type": "LoadBalancer", "selector": { "app": "web" }, "ports": ports },
        });
        for (key, value) in more.as_object().unwrap() {
            service["spec"][key] = value.clone();
        }
        service
    };
    let http = |node_port: u16| json!({ "name": "http", "port": 80, "targetPort": 8080, "nodePort": node_port });
    let echo = json!({ "name": "echo", "port": 7, "targetPort": 8081, "nodePort": ECHO_PORT });
    let of_local = json!({ "externalTrafficPolicy": "Local", "healthCheckNodePort": HEALTH_PORT });
    [
        service("wide", json!([http(CLUSTER_PORT)]), json!({})),
        service("local", json!([http(LOCAL_PORT), echo]), of_local),
    ]
}

/// Changes the selector of the Service with local endpoints.
fn select(cluster: &Installed, selector: Value) {
    let patch = json!({ "spec": { "selector": selector } }).to_string();
    cluster.kubectl(&["-n", "default", "patch", "service", "local", "-p", &patch]).unwrap();
}

fn targets_become(cluster: &Installed, states: [&str; 2]) {
    cluster.targets_become("local", |targets| *targets == states).unwrap();
}

/// The status line of a node's health check node port, as a client outside reads it.
fn health(cluster: &Installed, node: &str) -> String {
    let public = cluster.lab().node(node).unwrap()["public_address"].clone();
    let read = http(&format!("{}/{HEALTH_PORT}", public.as_str().unwrap()), "/healthz");
    let command = ["client", "exec", "--", "timeout", "10", "bash", "-c", &read];
    let answer = cluster.lab().run(&command).unwrap_or_default();
    answer.lines().next().unwrap_or_default().to_owned()
}

/// The answer of a pod to a client outside; null without one.
fn ask(cluster: &Installed, to: &str) -> Value {
    let read = http(to, "/");
    let command = ["client", "exec", "--", "timeout", "10", "bash", "-c", &read];
    let printed = cluster.lab().run(&command).unwrap_or_default();
    let body = printed.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    serde_json::from_str(body).unwrap_or_default()
}

/// A request by bash alone.
fn http(to: &str, path: &str) -> String {
    format!(
        r#"exec 3<>/dev/tcp/{to} && printf 'GET {path} HTTP/1.0\r\n\r\n' >&3 && timeout 5 cat <&3"#
    )
}

/// Waits until 24 clients in a row have had answers of exactly these pods.
fn answers_become(cluster: &Installed, to: &str, expected: &BTreeSet<String>) {
    let mut last = BTreeSet::new();
    wait_for("answers of these pods", PATIENCE, || {
        let answers = (0..24).map(|_| ask(cluster, to)["host"].as_str().map(str::to_owned));
        last = answers.map(Option::unwrap_or_default).collect();
        Ok(last == *expected)
    })
    .unwrap_or_else(|error| panic!("{to}: {error:#}: {last:?}, not {expected:?}"));
}

/// The pod that answers has the client's own address.
fn has_own_address(cluster: &Installed, to: &str) {
    for _ in 0..8 {
        let answer = ask(cluster, to);
        let caller = answer["caller"].as_str().unwrap_or_default();
        assert!(caller.starts_with(&format!("{CLIENT}:")), "{to}: {answer}");
    }
}

fn names(pods: &[Pod]) -> BTreeSet<String> {
    pods.iter().map(|pod| pod.name.clone()).collect()
}

/// A process of another node in a node's network namespace is not in the cgroup with the node's programs.
fn programs_of_a_node_act_for_its_processes_only(cluster: &Installed, pods: &BTreeSet<String>) {
    println!("processes of another node");
    let lab = cluster.lab();
    let cgroup = lab.node("node1").unwrap()["cgroup"].as_str().unwrap_or_default().to_owned();
    if cgroup.is_empty() {
        println!(
            "SKIP programs_of_a_node_act_for_its_processes_only: the machine has no cgroup v2"
        );
        return;
    }
    let status = lab.json(&["cluster", "status"]).unwrap();
    let programs = status["programs"].as_array().unwrap();
    let kubelet = programs.iter().find(|of| of["name"] == "kubelet" && of["node"] == "node1");
    let namespace = format!("--net=/proc/{}/ns/net", kubelet.unwrap()["pid"]);
    let service = cluster.cluster().json(&["-n", "default", "get", "service", "wide"]).unwrap();
    let read = http(&format!("{}/80", service["spec"]["clusterIP"].as_str().unwrap()), "/");
    let answer = |node: &str| {
        let command = ["timeout", "10", "nsenter", &namespace, "bash", "-c", &read];
        lab.on_node(node, &command).unwrap_or_default()
    };
    let is_answered = |answer: &str| pods.iter().any(|pod| answer.contains(pod));
    let own = answer("node1");
    assert!(is_answered(&own), "{own}");
    let other = answer("node2");
    assert!(!is_answered(&other), "{other}");
}

//! Services of pods on a cluster without kube-proxy, with the chart: the agents serve them.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test panics and prints its progress"
)]

use serde_json::{Value, json};
use std::{collections::BTreeSet, time::Duration};
use tests_lab::wait_for;
use tests_whole::{Installed, LaneInputs, NODE_PODS, Pod};

const PATIENCE: Duration = Duration::from_secs(120);
const NODES: [&str; 2] = ["node1", "node2"];
const NODE_PORT: u16 = 30_080;

#[test]
fn pods_reach_services_without_kube_proxy() {
    let Some(inputs) = LaneInputs::or_skip("pods_reach_services_without_kube_proxy") else {
        return;
    };
    let cluster = Installed::without_proxy(inputs, "services", 2, &[]).unwrap();
    cluster.install_with_services().unwrap();
    let pods = cluster.probes("web").unwrap();
    let web = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": { "name": "web", "namespace": "default" },
        "spec": {
            "type": "NodePort", "selector": { "app": "web" },
            "ports": [{ "port": 80, "targetPort": 8080, "nodePort": NODE_PORT }],
        },
    });
    cluster.cluster().apply(&[web]).unwrap();
    let service = cluster.cluster().json(&["-n", "default", "get", "service", "web"]).unwrap();
    let url = format!("http://{}/", service["spec"]["clusterIP"].as_str().unwrap());
    println!("each pod reaches each pod by the Service");
    each_answers(&cluster, &pods, &pods, &url);
    println!("the API server and the name server");
    for pod in &pods {
        let version = cluster.cluster().probe(&pod.name, &["api", "/version"]).unwrap();
        assert!(version.contains(lab_kubernetes::VERSION), "{version}");
    }
    each_answers(&cluster, &pods, &pods, "http://web.default.svc.cluster.local/");
    for node in NODES {
        let rules = cluster.lab().on_node(node, &["iptables-save"]).unwrap();
        assert!(!rules.contains("KUBE-SVC") && !rules.contains("KUBE-SERVICES"), "{rules}");
    }
    println!("processes of the nodes, by the Service and by its node port");
    let vip = service["spec"]["clusterIP"].as_str().unwrap().to_owned();
    let reach_from_nodes = || {
        for node in NODES {
            let own = format!("127.0.0.1/{NODE_PORT}");
            for to in [&format!("{vip}/80"), &own] {
                let answer = from_node(&cluster, node, to);
                assert!(pods.iter().any(|pod| answer.contains(&pod.name)), "{node}: {answer}");
            }
        }
    };
    wait_for("an answer to each node", PATIENCE, || {
        let answer = from_node(&cluster, NODES[1], &format!("{vip}/80"));
        Ok(answer.contains("web"))
    })
    .unwrap();
    reach_from_nodes();
    println!("the report about the Service on each node");
    for node in NODES {
        is_in_force(&cluster, &pods, node);
    }
    println!("without agents, and after their start");
    cluster.kubectl(&["-n", "kube-system", "delete", "pod", "-l", NODE_PODS]).unwrap();
    each_answers(&cluster, &pods, &pods, &url);
    reach_from_nodes();
    cluster.rolled_out().unwrap();
    reach_from_nodes();
    each_answers(&cluster, &pods, &pods, &url);
    println!("another endpoint");
    cluster.kubectl(&["-n", "default", "delete", "pod", &pods[0].name]).unwrap();
    let pods = cluster.probes("web").unwrap();
    each_answers(&cluster, &pods, &pods, &url);
    println!("another endpoint without a controller");
    let controllers = ["-n", "kube-system", "scale", "deployment", "ferrule-controller"];
    cluster.kubectl(&[&controllers[..], &["--replicas=0"]].concat()).unwrap();
    // A new pod would wait for its policies, so the Service gets another selector.
    let patch = format!(r#"{{"spec":{{"selector":{{"app":null,"{ONE}":"true"}}}}}}"#);
    cluster
        .kubectl(&["-n", "default", "label", "pod", &pods[1].name, &format!("{ONE}=true")])
        .unwrap();
    cluster.kubectl(&["-n", "default", "patch", "service", "web", "-p", &patch]).unwrap();
    each_answers(&cluster, &pods, &pods[1..2], &url);
}

/// Waits until `ferrule service` shows that the Service is in force on a node, with all pods as backends.
fn is_in_force(cluster: &Installed, pods: &[Pod], node: &str) {
    let words = ["service", "default/web", "--node", node, "-o", "json"];
    let mut last = Value::Null;
    wait_for("the Service in force", PATIENCE, || {
        let output = cluster.ferrule_as(cluster.cluster().kubeconfig(), &words).output()?;
        last = serde_json::from_slice(&output.stdout)?;
        Ok(last["inForce"]["state"] == "yes")
    })
    .unwrap_or_else(|error| panic!("{node}: {error:#}; {last}"));
    let expected: BTreeSet<String> =
        pods.iter().map(|pod| format!("{}:8080", pod.address)).collect();
    let node_port = format!("node port {NODE_PORT}/TCP (IPv4)");
    let frontends = last["frontends"].as_array().unwrap();
    let frontend = frontends.iter().find(|of| of["at"] == node_port.as_str()).unwrap();
    let backends = frontend["inside"]["backends"].as_array().unwrap();
    let backends: BTreeSet<String> =
        backends.iter().map(|at| at.as_str().unwrap().to_owned()).collect();
    assert_eq!(backends, expected, "{node}: {last}");
}

/// The label of the only endpoint.
const ONE: &str = "example.com/one";

/// The page at an address and a port, as bash reads it on a node; empty without an answer.
fn from_node(cluster: &Installed, node: &str, to: &str) -> String {
    let read = format!(
        r#"exec 3<>/dev/tcp/{to} && printf 'GET / HTTP/1.0\r\n\r\n' >&3 && timeout 5 cat <&3"#
    );
    cluster.lab().on_node(node, &["timeout", "10", "bash", "-c", &read]).unwrap_or_default()
}

/// Waits until each client has had answers of exactly these pods.
fn each_answers(cluster: &Installed, clients: &[Pod], pods: &[Pod], url: &str) {
    let expected: BTreeSet<&str> = pods.iter().map(|pod| pod.name.as_str()).collect();
    for client in clients {
        let mut last = String::new();
        wait_for("an answer of each pod of the Service", PATIENCE, || {
            let mut hosts = BTreeSet::new();
            for _ in 0..16 {
                match cluster.cluster().probe(&client.name, &["get", url]) {
                    Ok(answer) => {
                        let answer: Value = serde_json::from_str(&answer)?;
                        hosts.insert(answer["host"].as_str().unwrap_or_default().to_owned());
                    }
                    Err(error) => last = format!("{error:#}"),
                }
            }
            Ok(hosts.iter().map(String::as_str).eq(expected.iter().copied()))
        })
        .unwrap_or_else(|error| panic!("{} asks {url}: {error:#}; {last}", client.name));
    }
}

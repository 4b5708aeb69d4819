//! IPv6 Services on a cluster without kube-proxy whose pods have IPv6 addresses, and whose nodes have both families.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test panics and prints its progress"
)]

use anyhow::ensure;
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    time::Duration,
};
use tests_eventually::within;
use tests_whole::{Client, Installed, LaneInputs, Pod, probe};

const PATIENCE: Duration = Duration::from_secs(120);
const NODES: [&str; 2] = ["node1", "node2"];
const NODE_PORT: u16 = 30_080;
const LOCAL_PORT: u16 = 30_081;

#[test]
fn pods_of_ipv6_and_nodes_of_both_families_reach_services() {
    let name = "pods_of_ipv6_and_nodes_of_both_families_reach_services";
    let Some(inputs) = LaneInputs::or_skip(name) else { return };
    let cluster = Installed::of_both_families(inputs, "families", 2).unwrap();
    let settings =
        ["env.ENABLE_IPv4=false", "env.ENABLE_IPv6=true", "env.ENABLE_PREFIX_DELEGATION=true"];
    cluster.install_with_services_and(&settings).unwrap();
    cluster.open_to_clients().unwrap();
    let pods = cluster.probes("web").unwrap();
    let addresses: Vec<IpAddr> = pods.iter().map(|pod| pod.address.parse().unwrap()).collect();
    assert!(addresses.iter().all(IpAddr::is_ipv6), "{pods:?}");
    cluster.cluster().apply(&services()).unwrap();
    let names: BTreeSet<String> = pods.iter().map(|pod| pod.name.clone()).collect();
    let lab = cluster.lab();

    println!("a cluster IP of IPv6, for pods and for processes of the nodes");
    let [web] = cluster_ips(&cluster, "web")[..] else { panic!("one cluster IP") };
    assert!(web.is_ipv6(), "{web}");
    let web = SocketAddr::new(web, 7);
    for pod in &pods {
        answers_become(Client::Pod(pod), web, &names);
    }
    for node in NODES {
        answers_become(Client::Node(lab, node), web, &names);
        let loopback = SocketAddr::new("::1".parse().unwrap(), NODE_PORT);
        answers_become(Client::Node(lab, node), loopback, &names);
    }

    println!("node ports at the IPv6 addresses of the nodes, for clients outside");
    for node in NODES {
        let own = node_address(&cluster, node);
        answers_become(Client::Outside(lab), SocketAddr::new(own, NODE_PORT), &names);
        let here = pods.iter().find(|pod| pod.node == node).unwrap();
        let here = BTreeSet::from([here.name.clone()]);
        answers_become(Client::Outside(lab), SocketAddr::new(own, LOCAL_PORT), &here);
    }

    println!("a load balancer of nodes, and one of pods");
    let listener = format!("80:{NODE_PORT}");
    let of_nodes = balancer_v6(&cluster, &["nodes", "--listener", &listener]);
    answers_become(Client::Outside(lab), of_nodes, &names);
    let mut of_pods = vec!["pods", "--listener", "80:8081"];
    of_pods.extend(pods.iter().flat_map(|pod| ["--target", pod.address.as_str()]));
    let of_pods = balancer_v6(&cluster, &of_pods);
    cluster.targets_become("pods", |states| *states == ["healthy", "healthy"]).unwrap();
    answers_become(Client::Outside(lab), of_pods, &names);
    lab.run(&["nlb", "deregister", "pods", &pods[0].address]).unwrap();
    answers_become(Client::Outside(lab), of_pods, &BTreeSet::from([pods[1].name.clone()]));

    a_service_of_both_families(&cluster, &pods);
}

/// The endpoints are pods with host networking, which have the addresses of their nodes.
fn a_service_of_both_families(cluster: &Installed, pods: &[Pod]) {
    println!("a Service of both families");
    let mut of_host = probe();
    of_host["hostNetwork"] = json!(true);
    of_host["containers"][0]["args"] = json!(["serve", "8090"]);
    of_host["containers"][0]["readinessProbe"]["httpGet"]["port"] = json!(8090);
    let labels = json!({ "app": "host" });
    let hosts = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": { "name": "host", "namespace": "default" },
        "spec": {
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": of_host },
        },
    });
    cluster.cluster().apply(&[hosts]).unwrap();
    let wait = ["rollout", "status", "daemonset/host", "--timeout=300s"];
    cluster.kubectl(&wait).unwrap();
    let [v4, v6] = cluster_ips(cluster, "host")[..] else { panic!("two cluster IPs") };
    assert!(v4.is_ipv4() && v6.is_ipv6(), "{v4} {v6}");
    let names = NODES.map(str::to_owned).into();
    for node in NODES {
        for address in [v4, v6] {
            let client = Client::Node(cluster.lab(), node);
            answers_become(client, SocketAddr::new(address, 7), &names);
        }
    }
    for pod in pods {
        answers_become(Client::Pod(pod), SocketAddr::new(v6, 7), &names);
    }
}

fn services() -> [Value; 3] {
    let service = |name: &str, spec: Value| {
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": { "name": name, "namespace": "default" }, "spec": spec,
        })
    };
    let of_web = |node_port: u16, policy: &str| {
        json!({
            "type": "NodePort", "selector": { "app": "web" }, "ipFamilies": ["IPv6"],
            "externalTrafficPolicy": policy,
            "ports": [{ "port": 7, "targetPort": 8081, "nodePort": node_port }],
        })
    };
    let of_host = json!({
        "selector": { "app": "host" }, "ipFamilyPolicy": "RequireDualStack",
        "ipFamilies": ["IPv4", "IPv6"], "ports": [{ "port": 7, "targetPort": 8091 }],
    });
    [
        service("web", of_web(NODE_PORT, "Cluster")),
        service("local", of_web(LOCAL_PORT, "Local")),
        service("host", of_host),
    ]
}

fn cluster_ips(cluster: &Installed, name: &str) -> Vec<IpAddr> {
    let service = cluster.cluster().json(&["-n", "default", "get", "service", name]).unwrap();
    let addresses = service["spec"]["clusterIPs"].as_array().unwrap();
    addresses.iter().map(|address| address.as_str().unwrap().parse().unwrap()).collect()
}

/// The IPv6 address of a node.
fn node_address(cluster: &Installed, node: &str) -> IpAddr {
    let addresses = cluster.lab().enis(node).unwrap()[0]["ipv6_addresses"].clone();
    addresses[0].as_str().unwrap().parse().unwrap()
}

/// Creates a load balancer and returns its IPv6 address with the port 80.
fn balancer_v6(cluster: &Installed, args: &[&str]) -> SocketAddr {
    cluster.balancer(args).unwrap();
    let all = cluster.lab().json(&["nlb", "list"]).unwrap();
    let view = all.as_array().unwrap().iter().find(|view| view["name"] == args[0]).unwrap();
    SocketAddr::new(view["address_v6"].as_str().unwrap().parse().unwrap(), 80)
}

/// Waits until 24 clients in a row have had answers of exactly these pods.
fn answers_become(client: Client<'_>, to: SocketAddr, expected: &BTreeSet<String>) {
    within(&format!("answers of {expected:?} at {to}"), PATIENCE, || {
        let mut hosts = BTreeSet::new();
        for _ in 0..24 {
            let answer = client.answer(&to.to_string())?.unwrap_or_default();
            hosts.insert(answer.split_whitespace().next().unwrap_or_default().to_owned());
        }
        ensure!(hosts == *expected, "{hosts:?}");
        Ok(())
    })
    .unwrap();
}

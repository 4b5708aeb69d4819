//! Rolling restarts and drained nodes on a cluster without kube-proxy: 200 clients of a Deployment lose nothing.
//!
//! The servers end as those of real deployments: a container receives SIGTERM five seconds after its pod is deleted. It then
//! accepts no further connection, answers on each open one once more, and closes it. CoreDNS serves for five more seconds, as on EKS.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test panics and prints its progress"
)]

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use std::time::Duration;
use tests_lab::wait_for;
use tests_whole::{
    Crowd, CrowdReport, EndpointWatch, Installed, LaneInputs, NODE_PODS, Removals, Requests, Size,
};

const PATIENCE: Duration = Duration::from_secs(300);
const REPLICAS: usize = 20;
/// Of each kind.
const CLIENTS: u32 = 50;
const SHORT: &str = "250ms";
const LONG: &str = "100ms";
/// 50 clients send 1,000 datagrams a second.
const DATAGRAM: &str = "50ms";
const QUESTION: &str = "500ms";
const NAME: &str = "web.default.svc.cluster.local";
const CLUSTER_DNS: &str = "172.20.0.10";

/// A datagram may be lost until then after the test has read that its endpoint is not ready any longer. The test reads it after the
/// agents' replica does, so a delayed test has a later bound, never an earlier one.
const DATAGRAM_BOUND: Duration = Duration::from_secs(1);

/// The time of clients without a change, before and after it. Clients start at different times of it.
const QUIET: Duration = Duration::from_secs(3);

/// Ports of the nodes: echo over TCP and UDP with their health check, and DNS.
const ECHO: u16 = 30_181;
const DATAGRAMS: u16 = 30_182;
const DNS: u16 = 30_183;
const ECHO_HEALTH: u16 = 32_181;
const DNS_HEALTH: u16 = 32_183;

#[test]
fn rolling_restarts_and_drained_nodes_lose_nothing_without_kube_proxy() {
    let test = "rolling_restarts_and_drained_nodes_lose_nothing_without_kube_proxy";
    let Some(inputs) = LaneInputs::or_skip(test) else { return };
    let cluster = Installed::without_proxy(inputs, "rolling", 3, &[]).unwrap();
    cluster.install_with_services().unwrap();
    cluster.controllers_ready().unwrap();
    cluster.cluster().apply(&objects()).unwrap();
    dns_as_on_eks(&cluster);
    rolled_out(&cluster);
    let clients = cluster.probes("clients").unwrap();
    let service = cluster.cluster().json(&["-n", "default", "get", "service", "web"]).unwrap();
    let web = service["spec"]["clusterIP"].as_str().unwrap().to_owned();

    let mut losses = Vec::new();
    let inside = || -> Result<Vec<Crowd>> {
        let size = |pace| Size { clients: CLIENTS / 2, pace };
        let (echo, datagrams) = (format!("{web}:7"), format!("{web}:9"));
        let dns = format!("{CLUSTER_DNS}:53");
        let mut crowds = Vec::new();
        for pod in &clients[..2] {
            crowds.push(Crowd::between(pod, &echo, Requests::Short, size(SHORT))?);
            crowds.push(Crowd::between(pod, &echo, Requests::Long, size(LONG))?);
            let port_life = Requests::Datagrams { port_life: "0s" };
            crowds.push(Crowd::between(pod, &datagrams, port_life, size(DATAGRAM))?);
            let questions = Requests::Questions { name: NAME };
            crowds.push(Crowd::between(pod, &dns, questions, size(QUESTION))?);
        }
        Ok(crowds)
    };
    println!("a rolling restart, with clients in pods");
    losses.extend(judge(&cluster, inside().unwrap(), || restart(&cluster)));

    println!("the same and drained nodes, with clients outside of a load balancer");
    cluster.open_to_clients().unwrap();
    let echo = cluster.balancer(&[
        "echo",
        "--listener",
        &format!("7:{ECHO}"),
        "--listener",
        &format!("9:{DATAGRAMS}/udp"),
        "--check",
        &format!("http:{ECHO_HEALTH}/healthz"),
    ]);
    let dns = cluster.balancer(&[
        "dns",
        "--listener",
        &format!("53:{DNS}/udp"),
        "--check",
        &format!("http:{DNS_HEALTH}/healthz"),
    ]);
    let (echo, dns) = (echo.unwrap(), dns.unwrap());
    cluster.targets_become("echo", |states| states == ["healthy"; 3]).unwrap();
    let two = |states: &[&str]| states.iter().filter(|state| **state == "healthy").count() == 2;
    cluster.targets_become("dns", two).unwrap();
    let outside = || -> Result<Vec<Crowd>> {
        let size = |pace| Size { clients: CLIENTS, pace };
        // A load balancer of the lab keeps an open flow at its node, so a client changes its port.
        let datagrams = Requests::Datagrams { port_life: "1s" };
        Ok(vec![
            Crowd::outside(cluster.lab(), &format!("{echo}:7"), Requests::Short, size(SHORT))?,
            Crowd::outside(cluster.lab(), &format!("{echo}:7"), Requests::Long, size(LONG))?,
            Crowd::outside(cluster.lab(), &format!("{echo}:9"), datagrams, size(DATAGRAM))?,
            Crowd::outside(
                cluster.lab(),
                &format!("{dns}:53"),
                Requests::Questions { name: NAME },
                size(QUESTION),
            )?,
        ])
    };
    let change = || {
        restart(&cluster);
        for node in ["node2", "node3"] {
            drain(&cluster, node);
        }
    };
    losses.extend(judge(&cluster, outside().unwrap(), change));

    println!("a rolling restart without a controller, with clients in pods");
    scale_controllers(&cluster, 0);
    nodes_read_services(&cluster);
    losses.extend(judge(&cluster, inside().unwrap(), || restart(&cluster)));

    println!("the same and drained nodes, with clients outside of a load balancer");
    cluster.targets_become("echo", |states| states == ["healthy"; 3]).unwrap();
    cluster.targets_become("dns", two).unwrap();
    losses.extend(judge(&cluster, outside().unwrap(), change));
    assert!(losses.is_empty(), "{} losses:\n{}", losses.len(), losses.join("\n"));
}

/// Changes the cluster while the crowds run. Returns one line for each loss.
fn judge(cluster: &Installed, crowds: Vec<Crowd>, change: impl FnOnce()) -> Vec<String> {
    let watch = EndpointWatch::start(cluster.cluster(), "default", "web").unwrap();
    watch.has_begun().unwrap();
    std::thread::sleep(QUIET);
    change();
    std::thread::sleep(QUIET);
    // All stop before the slowest one has its last answers.
    let ended: Vec<_> = std::thread::scope(|scope| {
        let ends: Vec<_> = crowds
            .into_iter()
            .map(|crowd| scope.spawn(|| (crowd.title().to_owned(), crowd.end())))
            .collect();
        ends.into_iter().map(|end| end.join().unwrap()).collect()
    });
    let removals = watch.end().unwrap();
    assert!(removals.len() >= REPLICAS, "{removals:?}");
    let reports = ended.into_iter().map(|(title, report)| (title, report.unwrap()));
    reports.flat_map(|(title, report)| losses(&title, &report, &removals)).collect()
}

/// Prints a report, and returns one line for each loss.
fn losses(title: &str, report: &CrowdReport, removals: &Removals) -> Vec<String> {
    let CrowdReport { clients, sent, answered, closed, failed, .. } = report;
    let (servers, longest) = (report.hosts.len(), report.longest_use(removals));
    println!(
        "{title}: {clients} clients, {sent} requests, {answered} answered by {servers} servers, \
         {closed} connections closed by servers, {failed} failed; the longest use of a removed endpoint: {longest:?} ms"
    );
    let (is_dns, is_long) = (title.starts_with("dns "), title.starts_with("long "));
    let bound = if title.starts_with("udp ") { DATAGRAM_BOUND } else { Duration::ZERO };
    let excused = report.failures.len() - report.losses(removals, bound).len();
    println!("{title}: {excused} datagrams lost within the bound");
    let mut lines: Vec<String> =
        report.losses(removals, bound).iter().map(|loss| format!("{title}: {loss}")).collect();
    let unlisted = failed - u64::try_from(report.failures.len()).unwrap();
    if unlisted > 0 {
        lines.push(format!("{title}: {unlisted} more failures"));
    }
    // Otherwise the clients have missed the change.
    let removed = report.removed_servers(removals);
    if !is_dns && (removed == 0 || removed == servers) {
        lines.push(format!("{title}: {removed} of {servers} servers were removed"));
    }
    if is_long && *closed == 0 {
        lines.push(format!("{title}: no server has closed a connection"));
    }
    if *answered < u64::from(CLIENTS) {
        lines.push(format!("{title}: only {answered} answers"));
    }
    lines
}

/// Restarts the servers and the name servers, and waits until no old pod is left.
fn restart(cluster: &Installed) {
    cluster.kubectl(&["-n", "default", "rollout", "restart", "deployment/web"]).unwrap();
    cluster.kubectl(&["-n", "kube-system", "rollout", "restart", "deployment/coredns"]).unwrap();
    rolled_out(cluster);
}

fn drain(cluster: &Installed, node: &str) {
    println!("{node} is drained");
    let timeout = format!("--timeout={}s", PATIENCE.as_secs());
    cluster.kubectl(&["drain", node, "--ignore-daemonsets", "--force", &timeout]).unwrap();
    rolled_out(cluster);
    let pods = cluster.pods("default", "app=web").unwrap();
    assert!(pods.iter().all(|pod| pod.node != node), "{pods:?}");
    cluster.kubectl(&["uncordon", node]).unwrap();
}

/// Waits until the Deployments have all their pods and no other ones.
fn rolled_out(cluster: &Installed) {
    for (namespace, deployment, label, replicas) in [
        ("default", "deployment/web", "app=web", REPLICAS),
        ("kube-system", "deployment/coredns", "k8s-app=kube-dns", 2),
    ] {
        let timeout = format!("--timeout={}s", PATIENCE.as_secs());
        cluster.kubectl(&["-n", namespace, "rollout", "status", deployment, &timeout]).unwrap();
        wait_for(&format!("the end of other pods of {deployment}"), PATIENCE, || {
            Ok(cluster.pods(namespace, label)?.len() == replicas)
        })
        .unwrap();
    }
}

fn scale_controllers(cluster: &Installed, replicas: usize) {
    let replicas = format!("--replicas={replicas}");
    let scale = ["-n", "kube-system", "scale", "deployment", "ferrule-controller", &replicas];
    cluster.kubectl(&scale).unwrap();
}

/// Waits until each agent follows Services by itself.
fn nodes_read_services(cluster: &Installed) {
    wait_for("agents without a controller", PATIENCE, || {
        let agents = cluster.pods("kube-system", NODE_PODS)?;
        ensure!(agents.len() == 3, "{agents:?}");
        for agent in agents {
            let log = ["-n", "kube-system", "logs", &agent.name, "-c", "agent"];
            if !cluster.kubectl(&log)?.contains("the daemon reads Services at the API server") {
                return Ok(false);
            }
        }
        Ok(true)
    })
    .unwrap();
}

/// Two replicas on different nodes, which serve for five seconds after SIGTERM.
fn dns_as_on_eks(cluster: &Installed) {
    let config =
        cluster.cluster().json(&["-n", "kube-system", "get", "configmap", "coredns"]).unwrap();
    let corefile = config["data"]["Corefile"].as_str().unwrap();
    assert!(corefile.contains("    health\n"), "{corefile}");
    let corefile = corefile.replace("    health\n", "    health {\n        lameduck 5s\n    }\n");
    let apart = json!({
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": { "matchLabels": { "k8s-app": "kube-dns" } },
    });
    let affinity =
        json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [apart] } });
    for (object, patch) in [
        ("configmap/coredns", json!({ "data": { "Corefile": corefile } })),
        (
            "deployment/coredns",
            json!({ "spec": { "replicas": 2, "template": {
                // The new pods read the new file.
                "metadata": { "annotations": { "example.com/lameduck": "5s" } },
                "spec": { "affinity": affinity },
            } } }),
        ),
    ] {
        let patch = patch.to_string();
        cluster.kubectl(&["-n", "kube-system", "patch", object, "-p", &patch]).unwrap();
    }
}

/// The servers, and their Services for clients in pods and outside.
fn objects() -> [Value; 4] {
    let labels = json!({ "app": "web" });
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": "web", "namespace": "default" },
        "spec": {
            "replicas": REPLICAS, "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": server() },
        },
    });
    let service =
        |namespace: &str, name: &str, selector: Value, ports: Value, health: Option<u16>| {
            let mut service = json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": { "name": name, "namespace": namespace },
                "spec": { "selector": selector, "ports": ports },
            });
            if let Some(port) = health {
                service["spec"]["type"] = json!("LoadBalancer");
                service["spec"]["externalTrafficPolicy"] = json!("Local");
                service["spec"]["healthCheckNodePort"] = json!(port);
            }
            service
        };
    let echo = json!({ "name": "echo", "port": 7, "targetPort": 8081 });
    let datagrams = json!({ "name": "udp", "port": 9, "targetPort": 8082, "protocol": "UDP" });
    let dns = json!({ "port": 53, "protocol": "UDP", "nodePort": DNS });
    let with_node_port = |port: &Value, node_port: u16| {
        let mut port = port.clone();
        port["nodePort"] = json!(node_port);
        port
    };
    let outside = [with_node_port(&echo, ECHO), with_node_port(&datagrams, DATAGRAMS)];
    let of_dns = json!({ "k8s-app": "kube-dns" });
    [
        deployment,
        service("default", "web", labels.clone(), json!([echo, datagrams]), None),
        service("default", "web-outside", labels, json!(outside), Some(ECHO_HEALTH)),
        service("kube-system", "dns-outside", of_dns, json!([dns]), Some(DNS_HEALTH)),
    ]
}

/// The spec of a server that ends in good order.
fn server() -> Value {
    let mut pod = tests_whole::probe();
    pod["terminationGracePeriodSeconds"] = json!(30);
    let container = &mut pod["containers"][0];
    container["args"] = json!(["serve", "8080", "15s"]);
    container["lifecycle"] = json!({ "preStop": { "sleep": { "seconds": 5 } } });
    container["readinessProbe"]["periodSeconds"] = json!(1);
    // A server that the machine delays loses no datagram in a full buffer.
    container["securityContext"] = json!({ "capabilities": { "add": ["NET_ADMIN"] } });
    container["resources"] = json!({ "requests": { "cpu": "50m" } });
    pod
}

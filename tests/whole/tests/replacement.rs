//! `ferrule migrate services` on a cluster with the real kube-proxy as a DaemonSet, and the way back, under connections.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test panics and prints its progress"
)]

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::Stdio,
    time::Duration,
};
use tests_lab::wait_for;
use tests_whole::{Client, Flows, Installed, LaneInputs, NODE_PODS, Pod};

const PATIENCE: Duration = Duration::from_secs(180);
const NODES: [&str; 3] = ["node1", "node2", "node3"];
const CLEANERS: &str = "app.kubernetes.io/name=ferrule-kube-proxy-rules";

#[test]
fn kube_proxy_is_replaced_and_returns_under_connections() {
    replace_and_return("kube_proxy_is_replaced_and_returns_under_connections", "iptables", false);
}

#[test]
fn agents_that_are_killed_at_each_step_lose_no_connection() {
    replace_and_return("agents_that_are_killed_at_each_step_lose_no_connection", "nftables", true);
}

fn replace_and_return(test: &str, mode: &str, kills: bool) {
    let Some(inputs) = LaneInputs::or_skip(test) else { return };
    let cluster = Installed::without_proxy(inputs, "replacement", NODES.len(), &[]).unwrap();
    cluster.run_kube_proxy(mode).unwrap();
    // The kernel may not see the last packets of a pod that ends. Its connection then leaves the table after this time.
    let timeout = "echo 120 >/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_established";
    for node in NODES {
        cluster.lab().on_node(node, &["bash", "-c", timeout]).unwrap();
    }
    let sets = cluster.services("none").unwrap();
    cluster.install(&words(&sets)).unwrap();
    cluster.probes("web").unwrap();
    let clients = cluster.probes("client").unwrap();
    let echo = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": { "name": "echo", "namespace": "default" },
        "spec": { "selector": { "app": "web" }, "ports": [{ "port": 7, "targetPort": 8081 }] },
    });
    cluster.cluster().apply(&[echo]).unwrap();
    let service = cluster.cluster().json(&["-n", "default", "get", "service", "echo"]).unwrap();
    let echo = format!("{}:7", service["spec"]["clusterIP"].as_str().unwrap());
    let ends = ends(&cluster, &clients);
    wait_for("an answer of the Service to each client", PATIENCE, || {
        ends.iter().try_fold(true, |all, (client, _)| Ok(all && client.is_answered(&echo)?))
    })
    .unwrap();
    let original = spec(&cluster);
    let pods = workload(&cluster);

    println!("kube-proxy in the mode {mode} leaves; agents are killed: {kills}");
    let flows = Flows::from(&ends, &echo).unwrap();
    flows.wait_for_answers(10).unwrap();
    set(&cluster, "ebpf");
    let mut killed = 0;
    let printed = migrate(&cluster, &["apply"], |line| {
        if kills {
            killed += kill_agents(&cluster, line);
        }
    });
    assert_eq!(kube_proxies(&cluster), 0, "{printed:#?}");
    assert_eq!(killed >= 2 * NODES.len(), kills, "{killed} agents were killed");
    flows.wait_for_more_answers(20).unwrap();
    // kube-proxy translates the long connections until they end.
    for node in NODES {
        assert!(rules(&cluster, node).contains("default/echo"), "{node}");
    }
    flows.end().unwrap();
    assert_eq!(workload(&cluster), pods, "a pod has restarted");

    println!("the rules leave with the last connection that they translate");
    // kube-proxy translates the connections of a pod that starts while its node has no agent.
    let ready = ["wait", "--for=condition=Ready", "pod", "-l", NODE_PODS, "--timeout=180s"];
    cluster.kubectl(&[&["-n", "kube-system"][..], &ready].concat()).unwrap();
    // They keep a connection to the Service of the API server.
    for deployment in ["coredns", "ferrule-controller"] {
        let deployment = format!("deployment/{deployment}");
        cluster.kubectl(&["-n", "kube-system", "rollout", "restart", &deployment]).unwrap();
        let status = ["-n", "kube-system", "rollout", "status", &deployment, "--timeout=180s"];
        cluster.kubectl(&status).unwrap();
    }
    wait_for("nodes without rules of kube-proxy", PATIENCE, || {
        Ok(NODES.iter().all(|node| !has_rules(&cluster, node)))
    })
    .unwrap_or_else(|error| panic!("{error:#}: {}", logs(&cluster, CLEANERS)));
    let printed = migrate(&cluster, &["apply", "--remove-kube-proxy"], |_| {});
    assert!(printed.iter().any(|line| line == "delete kube-proxy's DaemonSet"), "{printed:#?}");
    let sets = ["-n", "kube-system", "get", "daemonsets"];
    let left = cluster.cluster().json(&sets).unwrap();
    let left: Vec<&Value> =
        left["items"].as_array().unwrap().iter().map(|set| &set["metadata"]["name"]).collect();
    assert_eq!(left, ["ferrule"]);

    println!("kube-proxy returns");
    let pods = workload(&cluster);
    let flows = Flows::from(&ends, &echo).unwrap();
    flows.wait_for_answers(10).unwrap();
    migrate(&cluster, &["rollback"], |line| {
        if kills {
            killed += kill_agents(&cluster, line);
        }
        if line.contains("FERRULE_SERVICES is none") {
            set(&cluster, "none");
        }
    });
    flows.wait_for_more_answers(20).unwrap();
    flows.end().unwrap();
    assert_eq!(workload(&cluster), pods, "a pod has restarted");
    assert_eq!(kube_proxies(&cluster), NODES.len());
    assert_eq!(spec(&cluster), original);
    for node in NODES {
        assert!(rules(&cluster, node).contains("default/echo"), "{node}");
    }
    let labeled = ["get", "nodes", "-l", "ferrule.io/services", "-o", "name"];
    assert_eq!(cluster.kubectl(&labeled).unwrap(), "");
}

/// The clients with their numbers of long connections.
fn ends<'a>(cluster: &'a Installed, pods: &'a [Pod]) -> Vec<(Client<'a>, u32)> {
    let nodes = NODES.iter().map(|node| (Client::Node(cluster.lab(), node), 7));
    pods.iter().map(|pod| (Client::Pod(pod), 10)).chain(nodes).collect()
}

/// The operator sets FERRULE_SERVICES. No pod of the DaemonSet restarts.
fn set(cluster: &Installed, value: &str) {
    let mut sets = cluster.services(value).unwrap();
    sets.push("updateStrategy.type=OnDelete".to_owned());
    cluster.upgrade(&words(&sets)).unwrap();
}

fn words(sets: &[String]) -> Vec<&str> {
    sets.iter().map(String::as_str).collect()
}

/// Runs `ferrule migrate services` to its end and returns its lines. `on_line` acts while the command continues.
fn migrate(cluster: &Installed, args: &[&str], mut on_line: impl FnMut(&str)) -> Vec<String> {
    let args = [&["migrate", "services"], args].concat();
    let mut command = cluster.ferrule_as(cluster.cluster().kubeconfig(), &args);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut printed = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        println!("    {line}");
        on_line(&line);
        printed.push(line);
    }
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success(),
        "{}: {errors}{}{}",
        output.status,
        logs(cluster, NODE_PODS),
        logs(cluster, CLEANERS)
    );
    assert!(printed.last().unwrap().starts_with("no steps remain"), "{printed:#?}");
    printed
}

/// Kills the agents on the node that a line names, or on all nodes if it names none. Returns the number of killed agents.
fn kill_agents(cluster: &Installed, line: &str) -> usize {
    let named = NODES.iter().filter(|node| line.contains(**node)).collect::<Vec<_>>();
    let nodes = if named.is_empty() { NODES.iter().collect() } else { named };
    // The name of a node's cgroup is that of the lab, a number and the node's name.
    let of_lab = format!("/ferrule-lab.{}.", cluster.lab().name());
    let of_nodes: Vec<String> = nodes.into_iter().map(|node| format!(".{node}/")).collect();
    let mut count = 0;
    for entry in fs::read_dir("/proc").unwrap() {
        let process = entry.unwrap().path();
        let read = |file: &str| fs::read_to_string(process.join(file)).unwrap_or_default();
        if read("comm").trim_end() != "ferrule-agent" {
            continue;
        }
        let cgroup = read("cgroup");
        if cgroup.contains(&of_lab) && of_nodes.iter().any(|node| cgroup.contains(node)) {
            let id = process.file_name().unwrap().to_str().unwrap().parse().unwrap();
            // It may have ended meanwhile.
            count += usize::from(kill(Pid::from_raw(id), Signal::SIGKILL).is_ok());
        }
    }
    println!("        {count} agents killed");
    count
}

/// The pods of workloads with their restarts.
fn workload(cluster: &Installed) -> Vec<Pod> {
    let of = |namespace: &str, labels: &str| cluster.pods(namespace, labels).unwrap();
    let all = [of("default", "app in (web, client)"), of("kube-system", "k8s-app=kube-dns")];
    all.concat()
}

fn kube_proxies(cluster: &Installed) -> usize {
    cluster.pods("kube-system", "k8s-app=kube-proxy").unwrap().len()
}

/// The desired state of kube-proxy's DaemonSet.
fn spec(cluster: &Installed) -> Value {
    let set = ["-n", "kube-system", "get", "daemonset", "kube-proxy"];
    cluster.cluster().json(&set).unwrap()["spec"].clone()
}

/// All rules of a node.
fn rules(cluster: &Installed, node: &str) -> String {
    let programs = [&["iptables-save"][..], &["ip6tables-save"], &["nft", "list", "ruleset"]];
    programs.map(|words| cluster.lab().on_node(node, words).unwrap()).concat()
}

fn has_rules(cluster: &Installed, node: &str) -> bool {
    let rules = rules(cluster, node);
    ["KUBE-SVC-", "KUBE-SERVICES", "KUBE-POSTROUTING", "KUBE-FORWARD", "KUBE-PROXY", "kube-proxy"]
        .iter()
        .any(|name| rules.contains(name))
}

fn logs(cluster: &Installed, labels: &str) -> String {
    let args = ["-n", "kube-system", "logs", "-l", labels, "--all-containers", "--prefix"];
    cluster
        .kubectl(&[&args[..], &["--tail=30"]].concat())
        .unwrap_or_else(|error| format!("{error:#}"))
}

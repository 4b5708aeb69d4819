//! The life of a lab's cluster: pods reach each other and Services, parts restart, and the removal leaves no trace.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};
use tests_lab::{programs, wait_for};
use tests_whole::Cluster;

const PATIENCE: Duration = Duration::from_secs(120);

/// Returns a DaemonSet and a Service of its pods.
fn web() -> [Value; 2] {
    [
        json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "web"},
            "spec": {
                "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {
                        "terminationGracePeriodSeconds": 1,
                        "containers": [{
                            "name": "web", "image": "localhost/probe:1", "args": ["serve"],
                            "readinessProbe": {"httpGet": {"path": "/", "port": 8080}},
                        }],
                    },
                },
            },
        }),
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
            "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]},
        }),
    ]
}

struct Pod {
    name: String,
    node: String,
    address: String,
}

fn pods(cluster: &Cluster) -> Result<Vec<Pod>> {
    let all = cluster.json(&["get", "pods", "-l", "app=web"])?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let pods = all["items"].as_array().context("no list of pods")?.iter();
    Ok(pods
        .map(|pod| Pod {
            name: text(&pod["metadata"]["name"]),
            node: text(&pod["spec"]["nodeName"]),
            address: text(&pod["status"]["podIP"]),
        })
        .collect())
}

/// Fails unless every pod reaches every other by its address, and the Service's name leads to each pod.
fn all_answer(cluster: &Cluster) -> Result<()> {
    cluster.kubectl(&["rollout", "status", "daemonset/web", "--timeout=120s"])?;
    let pods = pods(cluster)?;
    let nodes: BTreeSet<_> = pods.iter().map(|pod| &pod.node).collect();
    ensure!(nodes.len() == 2, "pods are on {nodes:?}");
    for from in &pods {
        for to in &pods {
            let url = format!("http://{}:8080/", to.address);
            let answer: Value = serde_json::from_str(&cluster.probe(&from.name, &["get", &url])?)?;
            ensure!(answer["host"] == *to.name, "{} asked {}: {answer}", from.name, to.name);
        }
        let mut met = BTreeSet::new();
        wait_for("an answer of each pod of the Service", PATIENCE, || {
            let answer =
                cluster.probe(&from.name, &["get", "http://web.default.svc.cluster.local/"])?;
            let answer: Value = serde_json::from_str(&answer)?;
            met.insert(answer["host"].as_str().unwrap_or_default().to_owned());
            Ok(met.len() == pods.len())
        })?;
    }
    Ok(())
}

/// Checks that the API server answers a pod through its Service and refuses a request of the pod's account.
fn the_api_server_answers(cluster: &Cluster) -> Result<()> {
    let pods = pods(cluster)?;
    let pod = &pods.first().context("no pod")?.name;
    let version = cluster.probe(pod, &["api", "/version"])?;
    ensure!(version.contains(lab_kubernetes::VERSION), "{version}");
    let refused = cluster.probe(pod, &["api", "/api/v1/namespaces/default/secrets"]);
    let words =
        refused.map_or_else(|error| error.to_string(), |text| format!("no refusal: {text}"));
    ensure!(words.contains("system:serviceaccount:default:default"), "{words}");
    Ok(())
}

fn services_answer(test: &str, name: &str, proxy: &str) -> Result<()> {
    let Some(bin) = programs(test) else { return Ok(()) };
    let args = ["--nodes", "2", "--proxy", proxy, "--cni", "ferrule"];
    let cluster = Cluster::up(&bin, name, &args)?;
    cluster.apply(&web())?;
    all_answer(&cluster)?;
    the_api_server_answers(&cluster)?;
    // The API server's connection to pods.
    let proxied =
        cluster.kubectl(&["get", "--raw", "/api/v1/namespaces/default/services/web/proxy/"])?;
    ensure!(proxied.contains("\"host\":\"web-"), "{proxied}");
    let nodes = cluster.json(&["get", "nodes"])?;
    for node in nodes["items"].as_array().context("no list of nodes")? {
        // c5.xlarge: 4 ENIs with 15 addresses.
        ensure!(node["status"]["capacity"]["pods"] == "58", "{}", node["status"]["capacity"]);
        let provider = node["spec"]["providerID"].as_str().unwrap_or_default();
        ensure!(provider.starts_with("aws:///eu-west-1"), "{provider}");
    }
    Ok(())
}

#[test]
fn pods_services_and_names_answer_with_iptables() -> Result<()> {
    services_answer("pods_services_and_names_answer_with_iptables", "t-whole-ipt", "iptables")
}

#[test]
fn pods_services_and_names_answer_with_nftables() -> Result<()> {
    services_answer("pods_services_and_names_answer_with_nftables", "t-whole-nft", "nftables")
}

/// Objects of the machine that a lab could leave.
#[derive(Debug, PartialEq, Eq)]
struct Traces {
    sysctls: Vec<String>,
    mounts: BTreeSet<String>,
    cgroups: BTreeSet<PathBuf>,
    folders: BTreeSet<PathBuf>,
}

fn traces(lab: &str) -> Result<Traces> {
    let sysctls = [
        "vm/overcommit_memory",
        "vm/panic_on_oom",
        "kernel/panic",
        "kernel/panic_on_oops",
        "kernel/keys/root_maxkeys",
        "kernel/keys/root_maxbytes",
        "net/netfilter/nf_conntrack_max",
    ];
    let read = |key: &str| fs::read_to_string(Path::new("/proc/sys").join(key));
    let mounts = fs::read_to_string("/proc/self/mountinfo").context("cannot list mounts")?;
    let mut cgroups = BTreeSet::new();
    let top = Path::new("/sys/fs/cgroup");
    let roots = fs::read_dir(top).context("cannot list cgroups")?;
    let roots = roots.flatten().map(|root| root.path());
    // In cgroup version 2 the top folder is the tree.
    for root in roots.chain([top.to_owned()]) {
        let inside = fs::read_dir(root).into_iter().flatten().flatten();
        cgroups.extend(inside.map(|entry| entry.path()).filter(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().contains(lab))
        }));
    }
    let labs = std::env::var_os("FERRULE_LAB_DIR").unwrap_or_else(|| "/run/ferrule-lab".into());
    let folders = fs::read_dir(&labs).into_iter().flatten().flatten().map(|entry| entry.path());
    Ok(Traces {
        sysctls: sysctls.iter().map(|key| read(key).unwrap_or_default()).collect(),
        mounts: mounts.lines().filter(|line| line.contains(lab)).map(ToOwned::to_owned).collect(),
        cgroups,
        folders: folders.filter(|path| path.ends_with(lab)).collect(),
    })
}

/// Returns the processes of these programs and of their PID namespaces, with their start times.
fn processes(status: &Value) -> Result<BTreeSet<(i32, String)>> {
    let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let own = namespace("self");
    let listed = status["programs"].as_array().context("no list of programs")?;
    let pids: BTreeSet<i32> =
        listed.iter().filter_map(|of| of["pid"].as_i64()?.try_into().ok()).collect();
    ensure!(pids.len() == listed.len(), "not all programs run: {status}");
    let inner: BTreeSet<_> =
        pids.iter().map(|pid| namespace(&pid.to_string())).filter(|of| *of != own).collect();
    let mut found = BTreeSet::new();
    for entry in fs::read_dir("/proc").context("cannot list processes")? {
        let Ok(pid) = entry?.file_name().to_string_lossy().parse::<i32>() else { continue };
        if pids.contains(&pid) || inner.contains(&namespace(&pid.to_string())) {
            found.extend(started(pid).map(|began| (pid, began)));
        }
    }
    Ok(found)
}

fn started(pid: i32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    // A zombie does not count.
    let dead = matches!(*fields.first()?, "Z" | "X");
    (!dead).then(|| fields.get(19).map(|began| (*began).to_owned()))?
}

#[test]
fn a_cluster_is_removed_without_a_trace() -> Result<()> {
    let test = "a_cluster_is_removed_without_a_trace";
    let Some(bin) = programs(test) else { return Ok(()) };
    let lab = "t-whole-gone";
    let before = traces(lab)?;
    let cluster = Cluster::up(&bin, lab, &["--nodes", "2", "--cni", "ferrule"])?;
    cluster.apply(&web())?;
    cluster.kubectl(&["rollout", "status", "daemonset/web", "--timeout=120s"])?;
    let meanwhile = traces(lab)?;
    ensure!(meanwhile != before, "a running cluster has no traces: {meanwhile:?}");
    ensure!(meanwhile.sysctls == before.sysctls, "{meanwhile:?}");
    let ran = processes(&cluster.lab.json(&["cluster", "status"])?)?;
    // Runtime, kubelet, proxy, shims, sandboxes and containers of two nodes.
    ensure!(ran.len() > 16, "{ran:?}");
    drop(cluster);
    ensure!(traces(lab)? == before, "left: {:?}", traces(lab)?);
    let left: Vec<_> =
        ran.iter().filter(|(pid, began)| started(*pid).as_ref() == Some(began)).collect();
    ensure!(left.is_empty(), "processes {left:?} still run");
    Ok(())
}

#[test]
fn a_cluster_outlives_its_parts() -> Result<()> {
    let test = "a_cluster_outlives_its_parts";
    let Some(bin) = programs(test) else { return Ok(()) };
    let cluster = Cluster::up(&bin, "t-whole-life", &["--nodes", "2", "--cni", "ferrule"])?;
    cluster.apply(&web())?;
    all_answer(&cluster)?;

    // The node restarts its kubelet.
    let first = kubelet(&cluster)?.context("node1 has no kubelet")?;
    let killed = Command::new("kill").args(["-9", &first.to_string()]).status()?;
    ensure!(killed.success(), "cannot kill the kubelet: {killed}");
    wait_for("a new kubelet", PATIENCE, || Ok(kubelet(&cluster)?.is_some_and(|pid| pid != first)))?;

    // Pods communicate while the control plane is stopped.
    let two = pods(&cluster)?;
    cluster.lab.run(&["cluster", "stop", "kube-apiserver"])?;
    ensure!(cluster.kubectl(&["get", "nodes"]).is_err(), "the API server still answers");
    for pod in &two {
        let greeting =
            format!("exec 3<>/dev/tcp/{}/8081; echo hello >&3; head -1 <&3", pod.address);
        let printed =
            cluster.lab.on_node(&pod.node, &["timeout", "10", "bash", "-c", &greeting])?;
        ensure!(printed.trim() == format!("{} hello", pod.name), "{printed}");
    }
    cluster.lab.run(&["cluster", "start", "kube-apiserver"])?;

    // A node reboots. Its pods start again once it has joined.
    cluster.lab.run(&["node", "reboot", "node2"])?;
    cluster.lab.run(&["cluster", "join", "node2"])?;
    wait_for("node2 to run its pod again", PATIENCE, || {
        all_answer(&cluster)?;
        Ok(true)
    })
}

/// Returns the process ID of node1's kubelet.
fn kubelet(cluster: &Cluster) -> Result<Option<i64>> {
    let status = cluster.lab.json(&["cluster", "status"])?;
    let all = status["programs"].as_array().context("no list of programs")?;
    let kubelet = all.iter().find(|of| of["name"] == "kubelet" && of["node"] == "node1");
    Ok(kubelet.context("no kubelet is listed")?["pid"].as_i64())
}

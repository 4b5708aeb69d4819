//! The demo: two nodes, ninety pods, every pod to every other, with faults in the middle.

mod cluster;

use crate::{
    binaries,
    deps::{self, Need},
    interrupt::Guard,
    say,
};
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use std::{collections::BTreeMap, process::ExitCode, time::Instant};
use tests_lab::Lab;

const NODES: usize = 2;
const INSTANCE_TYPE: &str = "c5.xlarge";

#[derive(clap::Args, Clone)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Option<What>,
    /// Leave the lab running and print commands to explore it
    #[arg(long)]
    keep: bool,
    /// Pods on each of the two nodes; a c5.xlarge has 56 addresses for pods
    #[arg(long, default_value_t = 45, value_parser = clap::value_parser!(u16).range(2..=45))]
    pods: u16,
}

#[derive(clap::Subcommand, Clone)]
enum What {
    /// A cluster of three nodes: image, chart, sixty pods, a Service, and a check that they leave no state
    Cluster(cluster::Args),
}

impl Default for Args {
    fn default() -> Self {
        Self { what: None, keep: false, pods: 45 }
    }
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if let Some(What::Cluster(args)) = &args.what {
        return cluster::run(args);
    }
    deps::need_root("demo")?;
    deps::install(&[Need::Linker, Need::Iproute, Need::Nft])?;
    let programs = binaries::build(binaries::Profile::Dev)?;
    let name = format!("demo-{}", std::process::id());
    let guard = Guard::lab(&programs, &name)?;
    let started = Instant::now();

    say::step(&format!("a VPC with two subnets and {NODES} nodes of {INSTANCE_TYPE}"));
    let count = NODES.to_string();
    let mut lab = Lab::up(&programs.dir, &name, &["--nodes", &count, "--type", INSTANCE_TYPE])?;
    let outcome = play(&lab, usize::from(args.pods));
    if args.keep {
        guard.release();
        lab.keep();
        look_around(&lab);
    } else {
        say::step("taking the lab down");
        lab.down()?;
    }
    match outcome {
        Ok(()) => {
            say::result(&format!("demo: PASS in {}", say::took(started)));
            Ok(ExitCode::SUCCESS)
        }
        Err(err) => {
            say::fail(&format!("{err:#}"));
            say::result(&format!("demo: FAIL in {}", say::took(started)));
            Ok(ExitCode::FAILURE)
        }
    }
}

fn play(lab: &Lab, per_node: usize) -> Result<()> {
    let nodes = node_names(lab)?;
    ensure!(nodes.len() == NODES, "{} nodes came up, not {NODES}", nodes.len());

    say::step(&format!("{per_node} pods on each node; ADDs wait while the pool grows"));
    // The daemon of the first node is killed while its pods start.
    let first = per_node / 2;
    let batch = |node: &str, from: usize, count: usize| {
        let (from, count) = (from.to_string(), count.to_string());
        lab.run(&[
            "pod",
            "add",
            node,
            "--prefix",
            &format!("{node}-"),
            "--from",
            &from,
            "--count",
            &count,
        ])
        .map(drop)
    };
    let started = Instant::now();
    on_every(&nodes, |node| batch(node, 0, first))?;
    say::note(&format!("SIGKILL to the daemon of {}, and on", nodes[0]));
    lab.run(&["daemon", "kill", &nodes[0]])?;
    on_every(&nodes, |node| batch(node, first, per_node - first))?;
    say::good(&format!("{} pods have addresses after {}", NODES * per_node, say::took(started)));
    say::result(&lab.run(&["pod", "list"])?);
    let before = pods(lab)?;
    inspect(lab, &before, NODES * per_node)?;

    check(lab, NODES * per_node)?;
    leaves_by_its_eni(lab, &before)?;

    say::step("deleting half of the pods, making as many new ones");
    let started = Instant::now();
    let half: Vec<String> =
        before.iter().step_by(2).map(|pod| format!("{}/{}", pod.namespace, pod.name)).collect();
    let mut delete = vec!["pod", "delete"];
    delete.extend(half.iter().map(String::as_str));
    lab.run(&delete)?;
    let gone = |node: &str| before.iter().step_by(2).filter(|pod| pod.node == node).count();
    on_every(&nodes, |node| batch(node, per_node, gone(node)))?;
    say::good(&format!("replaced {} pods in {}", half.len(), say::took(started)));
    let after = pods(lab)?;
    inspect(lab, &after, NODES * per_node)?;
    check(lab, NODES * per_node)?;
    leaves_by_its_eni(lab, &after)?;

    say::step("towards the internet, which knows primary addresses only");
    let mut senders: BTreeMap<(&str, u64), &Pod> = BTreeMap::new();
    for pod in &after {
        senders.entry((&pod.node, pod.device)).or_insert(pod);
    }
    for ((node, device), pod) in &senders {
        lab.run(&["exec", &pod.name, "--", "timeout", "5", "bash", "-c", CONNECT])
            .with_context(|| format!("{} of {node}'s device {device}", pod.name))?;
    }
    lab.on_node(&nodes[0], &["timeout", "5", "bash", "-c", CONNECT])
        .context("the node itself reaches the internet")?;
    let counters = lab.json(&["counters"])?;
    let dropped = counters["drops"]["no-public-address"]["packets"].as_u64();
    let dropped = dropped.context("drop counters")?;
    ensure!(dropped == 0, "packets left the VPC with a pod's own address: {dropped}");
    say::good(&format!("a pod of each of {} ENIs gets through by SNAT", senders.len()));

    say::step("what the VPC counted");
    say::result(&lab.run(&["counters"])?);
    let counters = lab.json(&["counters"])?;
    let dropped = counters["drops"]["source-check"]["packets"].as_u64().context("drop counters")?;
    ensure!(
        dropped == 0,
        "the source check dropped packets, so routing by ENI is wrong: {dropped}"
    );
    say::good("0 packets dropped by the source check");
    Ok(())
}

/// Connects to the host on the internet with bash alone.
const CONNECT: &str = "exec 3<>/dev/tcp/192.0.2.1/7";

fn node_names(lab: &Lab) -> Result<Vec<String>> {
    let nodes = lab.json(&["node", "list"])?;
    let nodes = nodes.as_array().context("node list is no array")?;
    Ok(nodes.iter().filter_map(|node| Some(node["name"].as_str()?.to_owned())).collect())
}

/// Runs the function on all nodes in parallel.
fn on_every(nodes: &[String], act: impl Fn(&str) -> Result<()> + Sync) -> Result<()> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = nodes.iter().map(|node| scope.spawn(|| act(node))).collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?
        })
    })
}

struct Pod {
    namespace: String,
    name: String,
    node: String,
    address: String,
    eni: String,
    device: u64,
}

fn pods(lab: &Lab) -> Result<Vec<Pod>> {
    let list = lab.json(&["pod", "list"])?;
    let list = list.as_array().context("pod list is no array")?;
    let text = |pod: &Value, field: &str| -> Result<String> {
        let value = pod[field].as_str();
        Ok(value.with_context(|| format!("a pod without {field}: {pod}"))?.to_owned())
    };
    list.iter()
        .map(|pod| {
            Ok(Pod {
                namespace: text(pod, "namespace")?,
                name: text(pod, "name")?,
                node: text(pod, "node")?,
                address: text(pod, "address")?,
                eni: text(pod, "eni")?,
                device: pod["device"].as_u64().context("a pod without device")?,
            })
        })
        .collect()
}

/// Checks that every pod exists and that no address is held twice.
fn inspect(lab: &Lab, pods: &[Pod], wanted: usize) -> Result<()> {
    ensure!(pods.len() == wanted, "{} pods, not {wanted}", pods.len());
    let mut holders: BTreeMap<&str, &Pod> = BTreeMap::new();
    for pod in pods {
        if let Some(other) = holders.insert(&pod.address, pod) {
            bail!("{} is held by {} and by {}", pod.address, other.name, pod.name);
        }
    }
    let mut by_device: BTreeMap<u64, usize> = BTreeMap::new();
    for pod in pods {
        *by_device.entry(pod.device).or_default() += 1;
    }
    let spread: Vec<String> =
        by_device.iter().map(|(device, pods)| format!("device {device}: {pods}")).collect();
    say::good(&format!("no address is held twice; pods by ENI: {}", spread.join(", ")));
    lab.run(&["pod", "check"]).context("CNI CHECK")?;
    say::good("CNI CHECK agrees for every pod");
    Ok(())
}

fn check(lab: &Lab, pods: usize) -> Result<()> {
    say::step("every pod to every other: 9001-byte ICMP, never fragmented; TCP; hosts both ways");
    let started = Instant::now();
    let output = lab.output(&["-o", "json", "check"])?;
    let report: Value = serde_json::from_slice(&output.stdout).with_context(|| {
        format!("cannot parse the output of check: {}", String::from_utf8_lossy(&output.stderr))
    })?;
    let number = |field: &str| report[field].as_u64().unwrap_or(0);
    let pairs = u64::try_from(pods * (pods - 1))?;
    ensure!(
        output.status.success() && number("pod_pairs_reached") == pairs,
        "{} of {pairs} pod pairs reached; the rest: {:#}",
        number("pod_pairs_reached"),
        report["failures"]
    );
    say::good(&format!("{pairs} pod pairs reached in {}", say::took(started)));
    Ok(())
}

/// Checks that the VPC received every pod's packets only from the ENI that holds its address.
fn leaves_by_its_eni(lab: &Lab, pods: &[Pod]) -> Result<()> {
    let counters = lab.json(&["counters"])?;
    let enis = counters["enis"].as_object().context("counters without ENIs")?;
    for pod in pods {
        let by_own = &enis.get(&pod.eni).context("an ENI without counters")?["sources"];
        let sent = by_own[&pod.address]["packets"].as_u64().unwrap_or(0);
        ensure!(sent > 0, "no packet of {} ({}) left by {}", pod.name, pod.address, pod.eni);
        for (eni, counted) in enis.iter().filter(|(eni, _)| **eni != pod.eni) {
            let strayed = &counted["spoofed"][&pod.address];
            ensure!(strayed.is_null(), "packets of {} left by {eni}: {strayed}", pod.name);
        }
    }
    let secondary = pods.iter().filter(|pod| pod.device > 0).count();
    say::good(&format!("each of {secondary} pods of secondary ENIs leaves by its own ENI"));
    Ok(())
}

fn look_around(lab: &Lab) {
    let tool = lab.command_line();
    say::step("the lab is up; to look around:");
    for line in [
        "status",
        "pod list",
        "node exec node1 -- ip rule",
        "exec node1-3 -- ip addr",
        "counters",
        "logs node1",
        "check",
        "down",
    ] {
        say::note(&format!("{tool} {line}"));
    }
}

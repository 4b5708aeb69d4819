//! The benchmark of ADDs on a node that enforces policies, beside a node that does not and a node of
//! aws-network-policy-agent.

use crate::{
    crowd::Crowd,
    enforced::{Site, connect, serve},
    policed::{
        AgentSite, Controllers,
        gate::Gate,
        pods,
        sandbox::{Answer, Started, until_all_start, until_all_start_in},
    },
    proxy::{NetworkNamespace, SERVED},
    theirs::{self, Theirs},
    world::{PATIENCE, World},
};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::{
    fs::{self, File},
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};
use tests_lab::{Lab, bpf_object, programs};

/// The node whose agent enforces policies, the one whose agent does not, and the one of aws-network-policy-agent.
const NODES: [&str; 3] = ["node1", "node2", "node3"];
/// The pods of each node.
const PODS: usize = 110;
const POLICIES: usize = 20;
/// The time between the state in force and the measurement of memory.
const REST: Duration = Duration::from_secs(20);
const LAB: &str = "t-adds";

/// Policies that all pods are subjects of, in both directions.
fn policy(number: usize) -> Value {
    let app = |name: &str| json!({"matchLabels": {"app": name}});
    let peers = [{
        let of = format!("peer-{number}");
        json!({"podSelector": app(&of)})
    }];
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": format!("client-{number}"), "namespace": "default"},
        "spec": {
            "podSelector": app("client"), "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": peers}], "egress": [{"to": peers}],
        },
    })
}

/// A started pod.
struct Running {
    address: IpAddr,
    netns: NetworkNamespace,
    /// The name of the host end of its link.
    link: String,
}

impl Running {
    fn of(lab: &Lab, node: &str, netns: &str, result: &Value) -> Result<Self> {
        let link = result["interfaces"][0]["name"].as_str().context("no interface")?;
        Ok(Self {
            address: pods::address_of(result)?,
            netns: pods::enter(lab, node, netns)?,
            link: link.to_owned(),
        })
    }

    fn reaches(&self, other: &Self) -> Result<bool> {
        Ok(connect(&self.netns, (other.address, SERVED).into())?.is_some())
    }
}

/// Starts two pods without policies, and one that all policies are about. Fails if the node does not enforce them, or
/// enforces others. The pods stay.
fn ensure_enforced(
    lab: &Lab,
    node: &str,
    filters: [&str; 2],
    start: impl Fn(&str, &str) -> Result<Running>,
) -> Result<()> {
    let free = start(&format!("free-{node}"), "free")?;
    let other = start(&format!("other-{node}"), "free")?;
    let policed = start(&format!("{node}-held"), "client")?;
    for pod in [&free, &other, &policed] {
        serve(&pod.netns)?;
    }
    ensure!(other.reaches(&free)?, "{node}: a pod without policies is closed");
    ensure!(!policed.reaches(&free)?, "{node}: no policy for egress is in force");
    ensure!(!free.reaches(&policed)?, "{node}: no policy for ingress is in force");
    for (side, name) in [("ingress", filters[0]), ("egress", filters[1])] {
        let found = lab.on_node(node, &["tc", "filter", "show", "dev", &policed.link, side])?;
        ensure!(found.contains(name), "{node}: no filter {name} in:\n{found}");
    }
    Ok(())
}

#[test]
#[ignore = "a benchmark: `cargo xtask bench enforce` runs it"]
fn measures_adds_beside_a_node_without_enforcement() -> Result<()> {
    let test = "measures_adds_beside_a_node_without_enforcement";
    let (Some(bin), Some(object)) = (programs(test), bpf_object(test)) else { return Ok(()) };
    let path = |name: &str| std::env::var_os(name).map(PathBuf::from).context(name.to_owned());
    let (bench, figures) = (path("FERRULE_BENCH_ADD")?, path("FERRULE_BENCH_FIGURES")?);
    let world = World::new()?;
    for node in NODES {
        world.make_node(node, &json!({}))?;
    }
    for number in 0..POLICIES {
        world.apply(&policy(number))?;
    }
    let [enforced, open, other] = NODES;
    let settings =
        [
            &[
                "--type",
                "m5.24xlarge",
                "--env",
                "MINIMUM_IP_TARGET=250",
                "--env",
                "WARM_IP_TARGET=1",
            ][..],
            &["--env", "IP_COOLDOWN_PERIOD=2", "--env", "AWS_VPC_K8S_CNI_LOGLEVEL=INFO"],
        ]
        .concat();
    let ours = ["--nodes", "2", "--env", "FERRULE_POLICY=true"];
    let lab = world.lab(&bin, LAB, &[&ours[..], &settings].concat())?;
    let theirs = Theirs::new(&world)?;
    let log = ["--env", "AWS_VPC_K8S_PLUGIN_LOG_LEVEL=INFO"];
    let more = [&log[..], &["--env", "NETWORK_POLICY_ENFORCING_MODE=standard"]].concat();
    // Their daemon reads the number of pods from the node's status.
    world.patch_node_status(other, &json!({"status": {"capacity": {"pods": "737"}}}))?;
    theirs.add_node(&lab, other, &[&settings[..], &more].concat())?;
    let controllers = Controllers::new(&world, &bin)?;
    let replica = controllers.start()?;
    let folder = tempfile::tempdir()?;
    for node in NODES {
        let pods = (0..PODS).map(|number| {
            let pod = pods::create(&world, node, &format!("{node}-{number}"), "client")?;
            Ok(json!({"namespace": "default", "name": pod.name, "uid": pod.uid}))
        });
        let pods: Value = pods.collect::<Result<Vec<_>>>()?.into();
        fs::write(folder.path().join(format!("{node}.json")), pods.to_string())?;
    }
    let mut site = Site::new(&world, &lab, &bin, &object, enforced, replica.at)?;
    let gate = Gate::open(&lab, open, Ipv4Addr::LOCALHOST)?;
    gate.lead_to(Some(replica.at));
    let unenforced = AgentSite::new(&world, &bin, open)?;
    let agent = unenforced.start(&lab, &["--replica", &gate.at.to_string()])?;
    let enforcing = site.agent.as_ref().context("no agent")?;
    for (site, agent) in [(&site.site, enforcing), (&unenforced, &agent)] {
        site.until(agent, "a state in force", |status| status.applied > 0)?;
    }
    ensure_enforced(&lab, enforced, ["from_pod", "to_pod"], |name, app| {
        let pod = pods::start(&world, &lab, enforced, name, app)?;
        Running::of(&lab, enforced, &pod.path, &pod.result)
    })?;

    // A replica of the pods runs on another node, so their agent knows the policies of the pods that start.
    for number in 0..POLICIES {
        let replica = theirs::selected(&format!("{other}-elsewhere"), "10.0.255.9", "10.0.255.1");
        world.apply(&theirs::endpoint(&policy(number), &[replica], &[]))?;
    }
    let their_agent = theirs.start(&lab, other)?;
    their_agent.wait_for_lines("Processing Policy Endpoint", POLICIES)?;
    ensure_enforced(&lab, other, ["handle_egress", "handle_ingress"], |name, app| {
        let pod: Started = pods::create(&world, other, name, app)?;
        let (netns, result) = theirs::start(&lab, other, &pod)?;
        Running::of(&lab, other, &netns, &result)
    })?;
    let mut command = Command::new(&bench);
    command.arg("enforced").arg("--lab").arg(bin.join("ferrule-lab")).args(["--name", LAB]);
    command.arg("--plugin").arg(bin.join("ferrule-cni")).arg("--pods").arg(folder.path());
    command.args(["--enforced", enforced, "--open", open, "--theirs", other]);
    if let Some(rounds) = std::env::var_os("FERRULE_BENCH_ROUNDS") {
        command.arg("--rounds").arg(rounds);
    }
    let file = File::create(&figures)?;
    let status = command.stdin(Stdio::null()).stdout(file.try_clone()?).status()?;
    ensure!(status.success(), "the benchmark failed: {status}\n{}", site.site.log());

    // Both agents start in a large cluster, on nodes with pods.
    let size = std::env::var("FERRULE_BENCH_PODS").ok().and_then(|size| size.parse().ok());
    let peers: usize = size.unwrap_or(10_000);
    let crowd = Crowd { peers, policies: peers / 10 };
    crowd.create(&world)?;
    let ours = crowd.pods_of(&world, enforced)?;
    until_all_start(&lab, enforced, &ours, PATIENCE)?;
    let pods = crowd.pods_of(&world, other)?;
    let config = theirs::config(&lab, other)?;
    let sandbox = |pod| theirs::sandbox(&lab, other, pod, &config);
    let answers = until_all_start_in(&pods, PATIENCE, sandbox)?;
    let started = pods.iter().zip(&answers).map(|(pod, answers)| match answers.last() {
        Some(Answer::Starts(result)) => {
            Ok((pod.name.clone(), pods::address_of(result)?.to_string()))
        }
        answer => anyhow::bail!("{}: {answer:?}", pod.name),
    });
    let started: Vec<_> = started.collect::<Result<_>>()?;
    let host = lab.on_node(other, &["sh", "-c", "ip -4 -o address show dev eth0"])?;
    let host = host.split_whitespace().nth(3).and_then(|of| of.split('/').next());
    crowd.endpoints(&world, host.context("no address of the node")?, &started)?;
    drop(their_agent);
    site.agent = None;
    site.start(&object)?;
    let enforcing = site.agent.as_ref().context("no agent")?;
    let policies = u64::try_from(crowd.policies)?;
    site.site.until(enforcing, "all policies in force", |status| {
        status.policies >= policies && status.applied > 0 && status.applied == status.revision
    })?;
    let their_agent = theirs.start(&lab, other)?;
    their_agent.wait_for_lines("Processing Policy Endpoint", crowd.policies)?;
    std::thread::sleep(REST);
    let mut command = Command::new(&bench);
    command.arg("agents").arg("--lab").arg(bin.join("ferrule-lab")).args(["--name", LAB]);
    command.arg("--plugin").arg(bin.join("ferrule-cni"));
    command.args(["--enforced", enforced, "--theirs", other]);
    let status = command.stdin(Stdio::null()).stdout(file).status()?;
    ensure!(status.success(), "the benchmark failed: {status}");
    lab.down()
}

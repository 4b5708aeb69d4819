//! The benchmark of ADDs on a node that enforces policies, beside one that does not.

use crate::{
    enforced::Site,
    policed::{AgentSite, Controllers, gate::Gate, pods},
    world::World,
};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::{
    fs::{self, File},
    net::Ipv4Addr,
    path::PathBuf,
    process::{Command, Stdio},
};
use tests_lab::{bpf_object, programs};

/// The node whose agent enforces policies, and the one whose agent does not.
const NODES: [&str; 2] = ["node1", "node2"];
/// The pods of each node.
const PODS: usize = 110;
const POLICIES: usize = 20;
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
    let settings = [
        &["--nodes", "2", "--type", "m5.24xlarge", "--env", "FERRULE_POLICY=true"][..],
        &["--env", "MINIMUM_IP_TARGET=250", "--env", "WARM_IP_TARGET=1"],
        &["--env", "IP_COOLDOWN_PERIOD=2", "--env", "AWS_VPC_K8S_CNI_LOGLEVEL=INFO"],
    ];
    let lab = world.lab(&bin, LAB, &settings.concat())?;
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
    let [enforced, open] = NODES;
    let site = Site::new(&world, &lab, &bin, &object, enforced, replica.at)?;
    let gate = Gate::open(&lab, open, Ipv4Addr::LOCALHOST)?;
    gate.lead_to(Some(replica.at));
    let other = AgentSite::new(&world, &bin, open)?;
    let agent = other.start(&lab, &["--replica", &gate.at.to_string()])?;
    let enforcing = site.agent.as_ref().context("no agent")?;
    for (site, agent) in [(&site.site, enforcing), (&other, &agent)] {
        site.until(agent, "a state in force", |status| status.applied > 0)?;
    }
    let mut command = Command::new(bench);
    command.arg("enforced").arg("--lab").arg(bin.join("ferrule-lab")).args(["--name", LAB]);
    command.arg("--plugin").arg(bin.join("ferrule-cni")).arg("--pods").arg(folder.path());
    command.args(["--enforced", enforced, "--open", open]);
    if let Some(rounds) = std::env::var_os("FERRULE_BENCH_ROUNDS") {
        command.arg("--rounds").arg(rounds);
    }
    let status = command.stdin(Stdio::null()).stdout(File::create(&figures)?).status()?;
    ensure!(status.success(), "the benchmark failed: {status}\n{}", site.site.log());
    lab.down()
}

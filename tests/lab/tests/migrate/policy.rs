//! A policy agent beside amazon-vpc-cni in a migration: refused, dropped with its programs, or kept. The real plugin
//! and agent of amazon-vpc-cni call the test's agent before Ferrule does.

use super::{
    Migrate, NODE, PATIENCE, added,
    agent::{Agent, FOREIGN, PINS},
    ensure_routed, ensure_talking, lab_with, migrate, rollback,
};
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::path::{Path, PathBuf};
use tests_lab::{Lab, flow::Flow, programs, wait_for};

const MODE: &str = "NETWORK_POLICY_ENFORCING_MODE=standard";
const OUTSIDE: &str = "192.0.2.1:7";

/// Starts a lab with a node of amazon-vpc-cni, a policy agent and three pods of it, one of them without traffic.
fn policed(bin: &Path, name: &str, folder: &Path, settings: &[&str]) -> Result<(Lab, Agent)> {
    let lab = lab_with(bin, name, "m5.large", 6, &[&[MODE], settings].concat())?;
    let agent = Agent::start(&lab, NODE, folder)?;
    agent.has("config standard false")?;
    // amazon-vpc-cni's ADD fails if the agent is slow, and a runtime repeats it.
    for pod in ["t0", "t1", "closed0"] {
        wait_for(&format!("an ADD of {pod}"), PATIENCE, || {
            lab.run(&["pod", "add", NODE, "--pod", pod]).map(|_| true)
        })?;
    }
    agent.has("enforce default/t1 standard 1")?;
    Ok((lab, agent))
}

/// Returns true if the pod reaches the host outside.
fn reaches(lab: &Lab, pod: &str) -> Result<bool> {
    let (host, port) = OUTSIDE.split_once(':').context("no port")?;
    let dial = format!("exec 3<>/dev/tcp/{host}/{port}");
    let output = lab.output(&["exec", pod, "--", "timeout", "3", "bash", "-c", &dial])?;
    Ok(output.status.success())
}

fn host_veths(lab: &Lab) -> Result<Vec<String>> {
    let text = lab.on_node(NODE, &["ip", "-j", "link", "show", "type", "veth"])?;
    let links: Vec<Value> = serde_json::from_str(&text).context("JSON of ip link")?;
    let names = links.iter().filter_map(|link| link["ifname"].as_str());
    // The lab's ENIs are veths too.
    Ok(names.filter(|name| name.starts_with("eni")).map(str::to_owned).collect())
}

/// Returns the programs on host veths with their kernel IDs, from `tc filter show`.
fn attached(lab: &Lab) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for veth in host_veths(lab)? {
        for side in ["ingress", "egress"] {
            let shown = lab.on_node(NODE, &["tc", "filter", "show", "dev", &veth, side])?;
            let programs = shown.lines().filter(|line| line.contains(" id "));
            found.extend(programs.map(|line| format!("{veth} {side} {line}")));
        }
    }
    Ok(found)
}

fn pins(lab: &Lab) -> Result<String> {
    lab.on_node(NODE, &["find", PINS, "-type", "f", "-printf", "%P "])
}

fn held(lab: &Lab, pods: &[&str]) -> Result<Vec<Flow>> {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_lab-flow"));
    pods.iter().map(|pod| Flow::hold(lab, &program, pod, &[OUTSIDE])).collect()
}

#[test]
fn a_policy_agent_is_refused_or_its_programs_are_detached() -> Result<()> {
    let Some(bin) = programs("a_policy_agent_is_refused_or_its_programs_are_detached") else {
        return Ok(());
    };
    let folder = tempfile::tempdir()?;
    let (lab, mut agent) = policed(&bin, "t-policy-drop", folder.path(), &[])?;
    let veths = host_veths(&lab)?;
    Agent::attach_foreign(&lab, NODE, folder.path(), veths.first().context("no veth")?)?;
    ensure!(attached(&lab)?.len() == 7, "{:?}", attached(&lab)?);
    ensure!(!reaches(&lab, "closed0")?, "the agent's programs drop nothing");
    let mut flows = held(&lab, &["t0", "t1"])?;
    ensure_talking(&mut flows)?;

    // A serving agent alone is refused, and so are its programs alone.
    let refused = |sign: &str| -> Result<()> {
        let (code, printed) = migrate(&lab, &bin, &["apply"])?;
        ensure!(
            code == Some(1) && printed.contains(sign) && printed.contains("--policy drop"),
            "{printed}"
        );
        Ok(())
    };
    refused("it answers at its socket")?;
    let plan = |words: &[&str]| migrate(&lab, &bin, &[&["plan"], words].concat());
    wait_for("a plan without refusals", PATIENCE, || {
        let (code, printed) = plan(&["--policy", "drop"])?;
        ensure!(code == Some(0), "{printed}");
        Ok(true)
    })?;
    let (_, printed) = plan(&["--policy", "drop"])?;
    for veth in &veths {
        let named = format!("{veth} has the policy agent's handle_egress and handle_ingress");
        ensure!(printed.contains(&named), "{named}: {printed}");
    }
    ensure!(printed.contains("wait until the policy agent has stopped"), "{printed}");
    ensure!(
        printed.contains("detach 6 programs of the policy agent from 3 host veths"),
        "{printed}"
    );
    agent.end()?;
    refused("6 of its programs are on host veths")?;
    // The migration waits until a running agent has exited.
    let mut agent = Agent::start(&lab, NODE, folder.path())?;

    let mut swap = || lab.run(&["daemon", "start", NODE, "--cni", "ferrule"]).map(drop);
    let mut end = || agent.end();
    let run = Migrate::start(&lab, &bin, &["apply", "--policy", "drop", "--wait", "120"])?;
    run.run(vec![
        ("amazon-vpc-cni's agent has stopped", &mut swap),
        ("the policy agent has stopped", &mut end),
    ])?;
    let left = attached(&lab)?;
    ensure!(left.len() == 1 && left[0].contains(FOREIGN), "{left:?}");
    let left = pins(&lab)?;
    let mut left: Vec<&str> = left.split_whitespace().collect();
    left.sort_unstable();
    ensure!(left == ["maps/of_somebody", "programs/of_somebody"], "{left:?}");
    ensure!(reaches(&lab, "closed0")?, "the agent's programs still drop traffic");
    ensure_talking(&mut flows)?;
    ensure_routed(&lab)?;
    let (code, again) = migrate(&lab, &bin, &["apply", "--policy", "drop"])?;
    ensure!(code == Some(0) && again.contains("no steps remain"), "{code:?}: {again}");
    // A new pod of Ferrule has no program, and all pods are deleted.
    added(&lab, NODE, 1, "o")?;
    ensure!(attached(&lab)?.len() == 1, "{:?}", attached(&lab)?);
    for flow in flows {
        flow.end()?;
    }
    lab.run(&["pod", "delete", "--node", NODE])?;
    lab.down()
}

#[test]
fn a_policy_agent_that_is_kept_is_served_as_before() -> Result<()> {
    let Some(bin) = programs("a_policy_agent_that_is_kept_is_served_as_before") else {
        return Ok(());
    };
    let folder = tempfile::tempdir()?;
    let (lab, mut agent) =
        policed(&bin, "t-policy-keep", folder.path(), &["FERRULE_POLICY_AGENT=true"])?;
    let (attached_before, pinned) = (attached(&lab)?, pins(&lab)?);
    ensure!(attached_before.len() == 6, "{attached_before:?}");
    let mut flows = held(&lab, &["t0"])?;
    wait_for("a plan without refusals", PATIENCE, || {
        let (code, printed) = migrate(&lab, &bin, &["plan", "--policy", "keep"])?;
        ensure!(code == Some(0), "{printed}");
        Ok(true)
    })?;
    let mut swap = || lab.run(&["daemon", "start", NODE, "--cni", "ferrule"]).map(drop);
    let run = Migrate::start(&lab, &bin, &["apply", "--policy", "keep", "--wait", "120"])?;
    run.run(vec![("amazon-vpc-cni's agent has stopped", &mut swap)])?;
    ensure!(attached(&lab)? == attached_before, "a running pod's programs were changed");
    ensure!(pins(&lab)? == pinned, "pins were changed");
    ensure!(!reaches(&lab, "closed0")?, "the pod's policies are no longer in force");
    ensure_talking(&mut flows)?;
    let (code, status) = migrate(&lab, &bin, &["status"])?;
    ensure!(code == Some(0) && status.contains("amazon-vpc-cni's agent serves: no"), "{status}");

    // The agent gets calls for Ferrule's pods before they run and after they are deleted.
    added(&lab, NODE, 1, "o")?;
    agent.has("enforce default/o0 standard 1")?;
    lab.run(&["pod", "add", NODE, "--count", "1", "--prefix", "closedo"])?;
    ensure!(!reaches(&lab, "closedo0")?, "the pod runs without its policies");
    ensure!(reaches(&lab, "o0")?, "the pod has no traffic");
    lab.run(&["pod", "delete", "o0"])?;
    agent.has("delete default/o0")?;
    lab.run(&["pod", "delete", "t1"]).context("DEL of a pod that amazon-vpc-cni created")?;
    agent.has("delete default/t1")?;

    // A restarted agent gets the node's settings.
    agent.end()?;
    let mut agent = Agent::start(&lab, NODE, folder.path())?;
    agent.has("config standard false i-")?;

    // A refused pod does not start and leaves nothing.
    let veths = host_veths(&lab)?;
    let refused = lab.run(&["pod", "add", NODE, "--count", "1", "--prefix", "refused"]);
    let printed = format!("{:#}", refused.err().context("the pod starts")?);
    ensure!(printed.contains("no probe for this pod") && printed.contains("103"), "{printed}");
    wait_for("the removal of the refused pod's link", PATIENCE, || Ok(host_veths(&lab)? == veths))?;
    ensure_routed(&lab)?;

    // Without the agent no pod starts, and the first DEL of a pod fails.
    agent.end()?;
    let refused = lab.run(&["pod", "add", NODE, "--count", "1", "--prefix", "late"]);
    let printed = format!("{:#}", refused.err().context("the pod starts")?);
    ensure!(
        printed.contains("cannot connect to the policy agent at /var/run/aws-node/npa.sock"),
        "{printed}"
    );
    let missed = lab.run(&["pod", "delete", "closedo0"]);
    let printed = format!("{:#}", missed.err().context("the DEL succeeds without the agent")?);
    ensure!(printed.contains("103"), "{printed}");
    lab.run(&["pod", "delete", "closedo0"]).context("the second DEL")?;
    ensure_routed(&lab)?;
    let mut agent = Agent::start(&lab, NODE, folder.path())?;

    // After the rollback amazon-vpc-cni serves its socket again.
    rollback(&lab, &bin)?;
    ensure!(!reaches(&lab, "closed0")?, "the pod's policies are no longer in force");
    added(&lab, NODE, 1, "b")?;
    agent.has("enforce default/b0 standard 1")?;
    ensure_talking(&mut flows)?;
    for flow in flows {
        flow.end()?;
    }
    agent.end()?;
    lab.down()
}

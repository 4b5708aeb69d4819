//! Settings and nodes that are not as they should be: each is told by name, with the next step, and
//! everything else goes on. What is wrong in Kubernetes is in `kubernetes/bad_input.rs`.

use anyhow::{Context as _, Result, ensure};
use std::time::Duration;
use tests_lab::{Lab, programs, wait_for};

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn tags_that_cannot_be_read_are_told_and_enis_are_made_without_them() -> Result<()> {
    let Some(bin) = programs("tags_that_cannot_be_read_are_told_and_enis_are_made_without_them")
    else {
        return Ok(());
    };
    let tags = r#"ADDITIONAL_ENI_TAGS={"team": "secret-value""#;
    let lab = Lab::up(&bin, "t-tags", &["--nodes", "1", "--env", tags])?;
    lab.wait_for_line("node1", &["WARN", "ADDITIONAL_ENI_TAGS", "a JSON object of strings", "{}"])?;
    ensure!(!lab.logs("node1")?.contains("secret-value"), "a log shows a value that may be secret");
    lab.run(&["pod", "add", "node1", "--count", "16"])?;
    let enis = lab.json(&["eni", "list"])?;
    let enis = enis.as_array().context("no list of ENIs")?;
    let made = enis.iter().find(|eni| eni["device"].as_u64() > Some(0)).context("no second ENI")?;
    ensure!(made["tags"]["cluster.k8s.amazonaws.com/name"] == "lab", "{made}");
    ensure!(made["tags"]["team"].is_null(), "{made}");
    lab.run(&["check", "--tcp", "2"])?;
    lab.down()
}

#[test]
fn an_instance_type_that_nobody_knows_is_told_and_other_nodes_serve() -> Result<()> {
    let Some(bin) = programs("an_instance_type_that_nobody_knows_is_told_and_other_nodes_serve")
    else {
        return Ok(());
    };
    let lab = Lab::up(&bin, "t-type", &["--nodes", "1", "--imds-lag", "0s"])?;
    // It has what somebody gave it, and nobody knows how much more it may have.
    let strange = ["node", "add", "strange", "--show-type", "z9.mystery", "--no-daemon"];
    lab.run(&[&strange[..], &["--env", "FERRULE_ADD_WAIT=3"]].concat())?;
    lab.attach_theirs("strange", &["b", "--addresses", "3"])?;
    lab.run(&["daemon", "start", "strange"])?;
    let next_step = "use an instance type that EC2 knows in this region";
    lab.wait_for_line("strange", &["ERROR", "limits_unknown", "z9.mystery", next_step])?;
    wait_for("the pool to be ready", PATIENCE, || lab.is("strange", "ready"))?;
    lab.run(&["pod", "add", "strange", "--count", "3"])?;
    let said = lab.refused(&["pod", "add", "strange", "--pod", "one-more"])?;
    ensure!(said.contains("z9.mystery") && said.contains("code 11"), "the plugin said: {said}");
    ensure!(lab.is("strange", "live")?, "a strange type must not get the daemon restarted");
    for action in ["CreateNetworkInterface", "AssignPrivateIpAddresses"] {
        ensure!(lab.calls("strange", action)? == 0.0, "{action} without knowing the limits");
    }
    lab.run(&["pod", "add", "node1", "--count", "3"])?;
    lab.run(&["pod", "check"])?;
    lab.run(&["check", "--tcp", "2"])?;
    lab.down()
}

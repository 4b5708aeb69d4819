//! Invalid settings. The daemon uses the default or refuses to start, and logs the setting's name.

use anyhow::{Context as _, Result, ensure};
use std::time::Duration;
use tests_lab::{Lab, programs, wait_for};

const PATIENCE: Duration = Duration::from_secs(30);

fn logs(lab: &Lab) -> Result<String> {
    lab.run(&["logs", "node1", "--lines", "10000"])
}

#[test]
fn a_value_that_is_not_a_number_is_logged_and_defaulted() -> Result<()> {
    let Some(bin) = programs("a_value_that_is_not_a_number_is_logged_and_defaulted") else {
        return Ok(());
    };
    let env = ["--env", "WARM_ENI_TARGET=many", "--env", "DISABLE_METRICS=perhaps"];
    let lab = Lab::up(&bin, "t-set", &[&["--nodes", "1"], &env[..]].concat())?;
    lab.run(&["pod", "add", "node1", "--count", "2"])?;
    let logs = logs(&lab)?;
    for name in ["WARM_ENI_TARGET", "DISABLE_METRICS"] {
        let line = logs.lines().find(|line| line.contains(name)).context(name)?;
        ensure!(line.to_lowercase().contains("warn"), "{line}");
    }
    lab.down()
}

#[test]
fn settings_that_contradict_each_other_are_refused_by_both_names() -> Result<()> {
    let Some(bin) = programs("settings_that_contradict_each_other_are_refused_by_both_names")
    else {
        return Ok(());
    };
    let env = ["--env", "ENABLE_IPv4=false", "--env", "ENABLE_IPv6=false"];
    let lab = Lab::up(&bin, "t-refuse", &[&["--nodes", "1"], &env[..]].concat())?;
    wait_for("the daemon to log the refused settings", PATIENCE, || {
        let logs = logs(&lab)?;
        ensure!(logs.contains("ENABLE_IPv4") && logs.contains("ENABLE_IPv6"), "{logs}");
        Ok(true)
    })?;
    lab.run(&["daemon", "start", "node1", "--env", "ENABLE_IPv4=true"])?;
    lab.run(&["pod", "add", "node1", "--count", "2"])?;
    lab.down()
}

#[test]
fn the_nodes_credentials_appear_in_no_log() -> Result<()> {
    let Some(bin) = programs("the_nodes_credentials_appear_in_no_log") else { return Ok(()) };
    let env = ["--env", "AWS_VPC_K8S_CNI_LOGLEVEL=DEBUG"];
    let lab = Lab::up(&bin, "t-secret", &[&["--nodes", "1"], &env[..]].concat())?;
    lab.run(&["pod", "add", "node1", "--count", "20"])?;
    let ask = |method: &str, path: &str, header: &str| {
        let script = format!(
            "exec 3<>/dev/tcp/169.254.169.254/80; printf '{method} /latest/{path} HTTP/1.1\\r\\n\
             Host: imds\\r\\nConnection: close\\r\\n{header}\\r\\n\\r\\n' >&3; cat <&3"
        );
        lab.on_node("node1", &["bash", "-c", &script])
    };
    let body = |answer: String| -> Result<String> {
        Ok(answer.split_once("\r\n\r\n").context("no HTTP response")?.1.trim().to_owned())
    };
    let token = body(ask("PUT", "api/token", "X-aws-ec2-metadata-token-ttl-seconds: 60")?)?;
    let with_token = format!("X-aws-ec2-metadata-token: {token}");
    let folder = "meta-data/iam/security-credentials/";
    let role = body(ask("GET", folder, &with_token)?)?;
    let answer = body(ask("GET", &format!("{folder}{role}"), &with_token)?)?;
    let credentials: serde_json::Value = serde_json::from_str(&answer)?;
    let logs = logs(&lab)?;
    ensure!(logs.contains("AttachNetworkInterface"), "the debug log has no EC2 call");
    for name in ["SecretAccessKey", "Token"] {
        let secret = credentials[name].as_str().context(name)?;
        ensure!(secret.len() > 10 && !logs.contains(secret), "a log contains the {name}");
    }
    lab.down()
}

#[test]
fn early_demux_follows_the_setting_also_after_a_manual_change() -> Result<()> {
    let name = "early_demux_follows_the_setting_also_after_a_manual_change";
    let Some(bin) = programs(name) else { return Ok(()) };
    let file = "/proc/sys/net/ipv4/tcp_early_demux";
    let up = ["--nodes", "1", "--env", "DISABLE_TCP_EARLY_DEMUX=true"];
    let lab = Lab::up(&bin, "t-demux", &up)?;
    let reaches = |wanted: &str| {
        wait_for(&format!("{file} to be {wanted}"), PATIENCE, || {
            Ok(lab.on_node("node1", &["cat", file])?.trim() == wanted)
        })
    };
    reaches("0")?;
    lab.on_node("node1", &["sh", "-c", &format!("echo 1 > {file}")])?;
    reaches("0")?;
    lab.run(&["daemon", "start", "node1", "--env", "DISABLE_TCP_EARLY_DEMUX=false"])?;
    reaches("1")?;
    lab.down()
}

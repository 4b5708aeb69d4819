//! `ferrule doctor` on a Ferrule node: the work of the daemon and the plugin causes no findings.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::{collections::BTreeSet, path::Path};
use tests_lab::{Lab, programs};

/// More than the addresses of one ENI of a c5.xlarge.
const PODS: usize = 20;

/// Returns the report of `ferrule doctor` on the node, with the files below `root`.
fn report(lab: &Lab, node: &str, bin: &Path, root: &Path) -> Result<Value> {
    let program = bin.join("ferrule");
    let program = program.to_str().context("the path is not UTF-8")?;
    let root = root.to_str().context("the path is not UTF-8")?;
    // The exit code depends on the findings, so a failure is not an error here.
    let output =
        lab.output(&["node", "exec", node, "--", program, "doctor", "-o", "json", "--root", root])?;
    serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Returns the findings that need a fix, as `check object`.
fn findings(report: &Value) -> Result<Vec<String>> {
    let findings = report["findings"].as_array().context("no findings")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let bad = findings.iter().filter(|finding| finding["severity"] != "notice");
    Ok(bad.map(|found| format!("{} {}", text(&found["check"]), text(&found["object"]))).collect())
}

#[test]
fn a_ferrule_node_with_pods_on_two_enis_has_no_findings() -> Result<()> {
    let Some(bin) = programs("a_ferrule_node_with_pods_on_two_enis_has_no_findings") else {
        return Ok(());
    };
    // The machine's files do not belong to the node.
    let root = tempfile::tempdir()?;
    let lab = Lab::up(&bin, "t-doctor", &["--imds-lag", "0s", "--attach-delay", "200ms"])?;
    lab.run(&["node", "add", "n"])?;
    lab.run(&["pod", "add", "n", "--count", &PODS.to_string()])?;
    let pods = lab.pods("n")?;
    let enis: BTreeSet<&str> = pods.iter().filter_map(|pod| pod["eni"].as_str()).collect();
    ensure!(enis.len() == 2, "pods on {enis:?}");
    let good = report(&lab, "n", &bin, root.path())?;
    ensure!(findings(&good)?.is_empty(), "{good:#}");
    // Only the check of the kernel's options may be unable to run: the machine may not show them.
    let unseen = good["unseen"].as_array().context("no list of checks that did not run")?;
    ensure!(unseen.iter().all(|unseen| unseen["check"] == "kernel-features"), "{good:#}");

    let eni = lab.on_node("n", &["ip", "-o", "route", "show", "default", "table", "2"])?;
    let words: Vec<&str> = eni.split_whitespace().collect();
    let eni = words.windows(2).find(|pair| pair[0] == "dev").context("table 2 has no link")?[1];
    lab.on_node("n", &["ip", "route", "add", "198.51.100.0/24", "dev", eni])?;
    let spoiled = report(&lab, "n", &bin, root.path())?;
    ensure!(findings(&spoiled)? == [format!("main-routes {eni}")], "{spoiled:#}");
    Ok(())
}

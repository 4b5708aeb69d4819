//! A node of the real amazon-vpc-cni beside a Ferrule node in the lab.

use anyhow::{Context as _, Result, ensure};
use lab_programs::Program;
use std::time::Duration;
use tests_lab::{Lab, programs, vpc_cni, wait_for};

#[test]
fn pods_of_amazon_vpc_cni_and_ours_reach_each_other() -> Result<()> {
    let Some(bin) = programs("pods_of_amazon_vpc_cni_and_ours_reach_each_other") else {
        return Ok(());
    };
    let theirs = Program::vpc_cni()?;
    let theirs = theirs.path().to_str().context("the path is not UTF-8")?;
    let lab = Lab::up(&bin, "amazon", &["--nodes", "1", "--type", "m5.large"])?;
    let how = ["--type", "m5.large", "--cni", "amazon-vpc-cni", "--cni-dir", theirs];
    lab.run(&[&["node", "add", "theirs"][..], &how[..]].concat())?;
    vpc_cni::wait_until_ready(&lab, "theirs")?;
    vpc_cni::wait_for_free(&lab, "theirs", 9)?;
    lab.run(&["pod", "add", "theirs", "--count", "9", "--prefix", "t"])?;
    vpc_cni::wait_for_free(&lab, "theirs", 3)?;
    lab.run(&["pod", "add", "theirs", "--count", "3", "--prefix", "u"])?;
    lab.run(&["pod", "add", "node1", "--count", "4", "--prefix", "o"])?;
    let devices: Vec<_> = lab.pods("theirs")?.iter().map(|pod| pod["device"].as_u64()).collect();
    ensure!(devices.contains(&Some(1)), "no pod is on a second ENI: {devices:?}");
    lab.run(&["check"])?;
    let rules = lab.on_node("theirs", &["ip", "rule"])?;
    ensure!(rules.contains("512:") && rules.contains("1536:"), "{rules}");
    lab.run(&["pod", "delete", "--node", "theirs"])?;
    wait_for("the removal of all rules of pods", Duration::from_secs(10), || {
        let rules = lab.on_node("theirs", &["ip", "rule"])?;
        Ok(!rules.contains("512:") && !rules.contains("1536:"))
    })?;
    lab.down()
}

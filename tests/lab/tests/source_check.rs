//! The check of pods' source addresses in each mode that needs no Kubernetes. Pods of amazon-vpc-cni are in `migrate`,
//! custom networking is in `kubernetes/custom.rs`.

use anyhow::Result;
use tests_lab::{
    Lab, programs,
    spoof::{ATTACKER, Spoof, TARGET, VICTIM},
};

const PREFIXES: [&str; 2] = ["--env", "ENABLE_PREFIX_DELEGATION=true"];

#[test]
fn a_pod_cannot_send_with_the_ipv4_address_of_another() -> Result<()> {
    let test = "a_pod_cannot_send_with_the_ipv4_address_of_another";
    let Some(bin) = programs(test) else { return Ok(()) };
    let lab = Lab::up(&bin, "t-source4", &["--nodes", "1"])?;
    let spoof = Spoof::v4(&lab, "node1", &[]);
    spoof.add_pods()?;
    spoof.check_pods()?;
    spoof.test()?;
    lab.down()
}

#[test]
fn a_pod_cannot_send_with_the_ipv6_address_of_another() -> Result<()> {
    let test = "a_pod_cannot_send_with_the_ipv6_address_of_another";
    let Some(bin) = programs(test) else { return Ok(()) };
    let family = ["--env", "ENABLE_IPv6=true", "--env", "ENABLE_IPv4=false"];
    let env = [&family[..], &PREFIXES].concat();
    let lab = Lab::up(&bin, "t-source6", &[&["--nodes", "1", "--ipv6"], &env[..]].concat())?;
    let spoof = Spoof { v6: true, gateway: "fe80::1", ..Spoof::v4(&lab, "node1", &env) };
    spoof.add_pods()?;
    spoof.check_pods()?;
    spoof.test()?;
    lab.down()
}

#[test]
fn a_pod_cannot_send_with_the_address_of_another_from_a_prefix() -> Result<()> {
    let test = "a_pod_cannot_send_with_the_address_of_another_from_a_prefix";
    let Some(bin) = programs(test) else { return Ok(()) };
    let lab = Lab::up(&bin, "t-source-pd", &[&["--nodes", "1"], &PREFIXES[..]].concat())?;
    let spoof = Spoof::v4(&lab, "node1", &PREFIXES);
    spoof.add_pods()?;
    spoof.check_pods()?;
    spoof.test()?;
    lab.down()
}

#[test]
fn a_pod_cannot_send_with_the_address_of_another_by_a_further_card() -> Result<()> {
    let test = "a_pod_cannot_send_with_the_address_of_another_by_a_further_card";
    let Some(bin) = programs(test) else { return Ok(()) };
    let env = ["--env", "ENABLE_MULTI_NIC=true"];
    let up = [&["--nodes", "1", "--type", "p4d.24xlarge"], &env[..]].concat();
    let lab = Lab::up(&bin, "t-source-nic", &up)?;
    let annotation = "k8s.amazonaws.com/nicConfig=multi-nic-attachment";
    lab.run(&["pod", "add", "node1", "--pod", ATTACKER, "--annotation", annotation])?;
    for pod in [VICTIM, TARGET] {
        lab.run(&["pod", "add", "node1", "--pod", pod])?;
    }
    let first = Spoof::v4(&lab, "node1", &env);
    let further = Spoof { dev: "mNicIf1", gateway: "169.254.1.2", ..first };
    further.check_pods()?;
    further.test()?;
    lab.down()
}

//! Kills of the daemon at random moments while pods are created and deleted. No address is assigned twice, no pod loses
//! its network, and no object is left at the end.
//!
//! `FERRULE_CHURN_SECONDS` is the duration (default 60). `FERRULE_CHURN_SEED` repeats the choices of a run.

#![expect(clippy::print_stdout, reason = "the seed is needed to repeat a run")]

use anyhow::{Context as _, Result, ensure};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};
use tests_lab::{
    Lab,
    dice::{Dice, number, seed},
    programs, wait_for,
};

const PATIENCE: Duration = Duration::from_secs(180);

/// Returns the address of each pod. Fails if two pods have the same.
fn held(lab: &Lab) -> Result<BTreeMap<String, String>> {
    let mut addresses = BTreeSet::new();
    let mut held = BTreeMap::new();
    for pod in lab.pods("node1")? {
        let text = |key: &str| pod[key].as_str().map(str::to_owned);
        let (name, address) = text("name").zip(text("address")).context("a pod without address")?;
        ensure!(addresses.insert(address.clone()), "{address} is held twice");
        held.insert(name, address);
    }
    Ok(held)
}

#[test]
fn a_daemon_killed_at_random_loses_no_address_and_assigns_none_twice() -> Result<()> {
    let name = "a_daemon_killed_at_random_loses_no_address_and_assigns_none_twice";
    let Some(bin) = programs(name) else { return Ok(()) };
    let seconds = number("FERRULE_CHURN_SECONDS")?.unwrap_or(60);
    let seed = seed("FERRULE_CHURN_SEED")?;
    println!("{name}: FERRULE_CHURN_SEED={seed} FERRULE_CHURN_SECONDS={seconds}");
    let mut dice = Dice::new(seed);
    let settings = ["--env", "WARM_IP_TARGET=4", "--env", "IP_COOLDOWN_PERIOD=5"];
    let lab = Lab::up(&bin, "t-churn", &[&["--nodes", "2"], &settings[..]].concat())?;
    // These pods run all the time, and their addresses must not change.
    lab.run(&["pod", "add", "node1", "--prefix", "steady-", "--count", "6"])?;
    lab.run(&["pod", "add", "node2", "--prefix", "far-", "--count", "2"])?;
    let steady = held(&lab)?;
    let until = Instant::now() + Duration::from_secs(seconds);
    let (mut round, mut kills) = (0_u64, 0_u64);
    let mut living: Vec<String> = Vec::new();
    while Instant::now() < until {
        round += 1;
        let count = 1 + dice.below(4);
        let prefix = format!("c{round}-");
        let count_text = count.to_string();
        let mut add = lab.command(&["pod", "add", "node1", "--prefix", &prefix, "--count"]);
        let mut adding = add.arg(&count_text).stdout(std::process::Stdio::null()).spawn()?;
        let gone = living.len().min(usize::try_from(dice.below(4))?);
        let going: Vec<String> = living.drain(..gone).collect();
        let mut deleting = None;
        if !going.is_empty() {
            let words: Vec<&str> =
                ["pod", "delete"].into_iter().chain(going.iter().map(String::as_str)).collect();
            let mut delete = lab.command(&words);
            deleting = Some(delete.stdout(std::process::Stdio::null()).spawn()?);
        }
        if dice.below(3) == 0 {
            std::thread::sleep(Duration::from_millis(dice.below(120)));
            // The kill fails if the daemon is still down after the last one.
            kills += u64::from(lab.output(&["daemon", "kill", "node1"])?.status.success());
        }
        // An ADD that reaches a stopping daemon waits for the next one instead of failing.
        ensure!(adding.wait()?.success(), "round {round}: an ADD failed");
        if let Some(mut deleting) = deleting {
            ensure!(deleting.wait()?.success(), "round {round}: a DEL failed");
        }
        living.extend((0..count).map(|n| format!("{prefix}{n}")));
        while living.len() > 24 {
            let oldest = living.remove(0);
            lab.run(&["pod", "delete", &oldest])?;
        }
        let now = held(&lab)?;
        for (pod, address) in &steady {
            ensure!(now.get(pod) == Some(address), "round {round}: {pod} lost its address");
        }
        if round.is_multiple_of(10) {
            lab.run(&["check", "--tcp", "0"])?;
        }
    }
    println!("{name}: {round} rounds, {kills} kills");
    ensure!(kills > 0, "the daemon was never killed");
    lab.run(&["pod", "check"])?;
    lab.run(&["check", "--tcp", "2"])?;
    let assigned = |want: usize| {
        wait_for("the address book to have the pods only", PATIENCE, || {
            let book = lab.metric("node1", "awscni_assigned_ip_addresses", &[])?;
            let want = f64::from(u32::try_from(want)?);
            ensure!(book == Some(want), "the address book has {book:?}, not {want}");
            Ok(true)
        })
    };
    assigned(held(&lab)?.len())?;
    lab.run(&["pod", "delete", "--all"])?;
    assigned(0)?;
    // No rule of a pod is left, and every address in use in EC2 belongs to a node.
    wait_for("the kernel to be clean", PATIENCE, || {
        let rules = lab.on_node("node1", &["ip", "rule"])?;
        let left: Vec<&str> = rules
            .lines()
            .filter(|line| line.starts_with("512:") || line.starts_with("1536:"))
            .collect();
        ensure!(left.is_empty(), "{left:?}");
        Ok(true)
    })?;
    wait_for("every address in use to be a node's", PATIENCE, || {
        let mut on_nodes = 0;
        for node in ["node1", "node2"] {
            let node = lab.node(node)?;
            let enis = node["enis"].as_array().context("a node without ENIs")?;
            let secondary = enis.iter().filter_map(|eni| eni["secondary"].as_array());
            on_nodes += enis.len() + secondary.map(Vec::len).sum::<usize>();
        }
        let used = lab.addresses_in_use()?;
        ensure!(used == u64::try_from(on_nodes)?, "{used} in use, {on_nodes} of them by nodes");
        Ok(true)
    })?;
    lab.down()
}

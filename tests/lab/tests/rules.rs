//! Compact rules: switches of the layout under traffic, repair and removal.

use anyhow::{Context as _, Result, ensure};
use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, SocketAddrV4, TcpListener},
    path::Path,
    thread,
    time::Duration,
};
use tests_lab::{
    Lab, programs,
    streams::{Streams, echo_connection, inside, namespaces},
    wait_for,
};

const PATIENCE: Duration = Duration::from_secs(60);
/// A few more addresses than pods, so that no pool grows or shrinks during the test.
const POOL: [&str; 4] = ["--env", "MINIMUM_IP_TARGET=24", "--env", "WARM_IP_TARGET=1"];

/// Starts a node with single addresses and compact rules, and a node with prefixes and rules for each pod. Both have
/// pods on several ENIs; the second has one prefix on each of two ENIs.
fn two_nodes(bin: &Path, name: &str) -> Result<Lab> {
    let lab = Lab::up(bin, name, &["--nodes", "0"])?;
    let add = |node: &str, kind: &str, env: &[&str]| {
        lab.run(&[&["node", "add", node, "--type", kind], &POOL[..], env].concat())
    };
    add("singles", "m5.large", &["--env", "FERRULE_RULES=compact"])?;
    add("prefixes", "t3.micro", &["--env", "ENABLE_PREFIX_DELEGATION=true"])?;
    for node in ["singles", "prefixes"] {
        lab.run(&["pod", "add", node, "--count", "20", "--prefix", node])?;
        let pods = lab.pods(node)?;
        let devices: BTreeSet<_> = pods.iter().map(|pod| pod["device"].as_u64()).collect();
        ensure!(devices.len() > 1, "all pods of {node} are on one ENI");
    }
    Ok(lab)
}

/// Restarts the node's daemon with a layout, and waits until no rule of the other layout is left.
fn switch(lab: &Lab, node: &str, layout: &str) -> Result<()> {
    lab.run(&["daemon", "start", node, "--env", &format!("FERRULE_RULES={layout}")])?;
    settled(lab, node, layout)
}

fn settled(lab: &Lab, node: &str, layout: &str) -> Result<()> {
    let pods: Vec<String> = addresses(lab, node)?.iter().map(Ipv4Addr::to_string).collect();
    wait_for(&format!("{layout} rules on {node}"), PATIENCE, || {
        let dump = dump(lab, node)?;
        let is_of_pod = |line: &&String| {
            let words: Vec<&str> = line.split_whitespace().collect();
            line.starts_with("512:") && words.contains(&"to")
                || line.starts_with("1536:")
                    && pods.iter().any(|pod| words.get(2) == Some(&pod.as_str()))
        };
        let own = dump.iter().filter(is_of_pod).count();
        let shared = dump.iter().filter(|line| is_shared(line)).count();
        let (most, least) = if layout == "compact" { (own, shared) } else { (shared, own) };
        ensure!(most == 0 && least > 0, "{own} rules of pods, {shared} shared objects: {dump:#?}");
        Ok(true)
    })
}

/// Returns true if the line belongs to compact rules only.
fn is_shared(line: &str) -> bool {
    line.contains("17989")
        || line.contains("fwmark 0x") && line.contains("/0x3f00")
        || line.contains("mark-0x")
}

/// Returns the node's rules, routes and nftables table of marks, sorted.
fn dump(lab: &Lab, node: &str) -> Result<Vec<String>> {
    let script = "ip rule; ip route show table all; nft list table ip ferrule-sources 2>&1 || true";
    let text = lab.on_node(node, &["sh", "-c", script])?;
    let mut lines: Vec<String> = text.lines().map(|line| line.trim().to_owned()).collect();
    lines.sort();
    Ok(lines)
}

fn addresses(lab: &Lab, node: &str) -> Result<Vec<Ipv4Addr>> {
    let pods = lab.pods(node)?;
    pods.iter().map(|pod| Ok(pod["address"].as_str().context("an address")?.parse()?)).collect()
}

/// Starts streams between four pairs of pods of both nodes, in both directions.
fn streams(lab: &Lab) -> Result<Streams> {
    let (here, there) = (namespaces(lab, "singles")?, namespaces(lab, "prefixes")?);
    let mut streams = Streams::new();
    for (one, other) in here.into_iter().zip(there).take(4) {
        streams.add(&one, &other)?;
        streams.add(&other, &one)?;
    }
    Ok(streams)
}

#[test]
fn rules_change_their_layout_under_traffic_and_back_without_losing_a_packet() -> Result<()> {
    let name = "rules_change_their_layout_under_traffic_and_back_without_losing_a_packet";
    let Some(bin) = programs(name) else { return Ok(()) };
    let lab = two_nodes(&bin, "t-rules")?;
    settled(&lab, "singles", "compact")?;
    settled(&lab, "prefixes", "per-pod")?;
    let fresh = [dump(&lab, "singles")?, dump(&lab, "prefixes")?];
    let streams = streams(&lab)?;
    for _ in 0..2 {
        switch(&lab, "singles", "per-pod")?;
        switch(&lab, "prefixes", "compact")?;
        for node in ["singles", "prefixes"] {
            let dump = dump(&lab, node)?;
            let rules: Vec<&String> = dump.iter().filter(|line| line.contains(":\t")).collect();
            let twins = rules.windows(2).find(|pair| pair[0] == pair[1]);
            ensure!(twins.is_none(), "twin rules: {twins:?}");
        }
        switch(&lab, "singles", "compact")?;
        switch(&lab, "prefixes", "per-pod")?;
    }
    let count = streams.end()?;
    ensure!(count > 1000, "only {count} packets were sent");
    for (node, before) in ["singles", "prefixes"].into_iter().zip(fresh) {
        let now = dump(&lab, node)?;
        ensure!(now == before, "{node} is not in its first state: {now:#?}\n{before:#?}");
    }
    lab.run(&["pod", "check"])?;
    lab.run(&["check", "--tcp", "2"])?;
    lab.down()
}

#[test]
fn compact_rules_are_repaired_and_go_with_their_pods() -> Result<()> {
    let Some(bin) = programs("compact_rules_are_repaired_and_go_with_their_pods") else {
        return Ok(());
    };
    let lab = two_nodes(&bin, "t-compact")?;
    switch(&lab, "prefixes", "compact")?;
    settled(&lab, "singles", "compact")?;
    let whole = [dump(&lab, "singles")?, dump(&lab, "prefixes")?];
    let breakages = [
        "ip rule del pref 512",
        "while ip rule del pref 1536; do :; done",
        "ip route flush table 17989",
        "nft flush ruleset",
        "nft delete table ip ferrule-sources || true",
    ];
    for breakage in breakages {
        for (node, before) in ["singles", "prefixes"].into_iter().zip(&whole) {
            lab.on_node(node, &["sh", "-c", breakage])?;
            wait_for(&format!("the repair of: {breakage}"), PATIENCE, || {
                let now = dump(&lab, node)?;
                ensure!(now == *before, "{now:#?}\n{before:#?}");
                Ok(true)
            })?;
        }
    }
    lab.run(&["check", "--tcp", "2"])?;
    lab.run(&["pod", "check"])?;
    for node in ["singles", "prefixes"] {
        lab.run(&["pod", "delete", "--node", node])?;
        wait_for("no route to a pod", PATIENCE, || {
            let dump = dump(&lab, node)?;
            ensure!(!dump.iter().any(|line| line.contains("table 17989")), "{dump:#?}");
            Ok(true)
        })?;
    }
    lab.down()
}

#[test]
fn a_node_port_leads_to_pods_of_every_eni_and_back() -> Result<()> {
    let Some(bin) = programs("a_node_port_leads_to_pods_of_every_eni_and_back") else {
        return Ok(());
    };
    let lab = two_nodes(&bin, "t-ports")?;
    switch(&lab, "prefixes", "compact")?;
    settled(&lab, "singles", "compact")?;
    for (node, client) in [("singles", "prefixes"), ("prefixes", "singles")] {
        let own = lab.node(node)?;
        let own = own["address"].as_str().context("a node's address")?;
        let pods = namespaces(&lab, node)?;
        for (port, (pod, namespace)) in (30_000_u16..).zip(&pods) {
            let at = SocketAddrV4::new(*pod, port);
            let bound = inside(namespace, move || Ok(TcpListener::bind(at)?))?;
            let listener = bound.join().expect("it does not panic")?;
            thread::spawn(move || echo_connection(&listener));
            let script = format!(
                "nft add table ip ports; nft add chain ip ports in \
                 '{{ type nat hook prerouting priority -100; }}'; \
                 nft add rule ip ports in ip daddr {own} tcp dport {port} dnat to {pod}"
            );
            lab.on_node(node, &["sh", "-c", &script])?;
            // The VPC drops a reply through another ENI than the primary one, because its source is wrong.
            let script = format!(
                "exec 3<>/dev/tcp/{own}/{port}; echo a-line- >&3; read -t 5 line <&3; \
                 [ \"$line\" = a-line- ]"
            );
            lab.on_node(client, &["timeout", "5", "bash", "-c", &script])
                .with_context(|| format!("the port of {node} to {pod}"))?;
        }
    }
    lab.down()
}

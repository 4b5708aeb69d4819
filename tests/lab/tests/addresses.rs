//! The address books of two production daemons, as `ferrule ip` judges them. A healthy lab has no finding.
//!
//! One finding each: a lost DEL, an address in two pods, a pod without a record, a fragmented subnet.

use anyhow::{Context as _, Result, ensure};
use config_model::registry;
use serde_json::{Value, json};
use std::time::Duration;
use tests_lab::{Lab, programs, wait_for};
use view_cluster::{AddressData, AddressReport, Pod, Width};
use view_node::Addresses;

const PATIENCE: Duration = Duration::from_secs(60);
const NODES: [&str; 2] = ["node1", "node2"];

/// Reads the books, and the pods of the lab as the API server would list them.
fn data(lab: &Lab) -> Result<AddressData> {
    let mut data = AddressData { pods: Some(Vec::new()), ..AddressData::default() };
    for node in NODES {
        let book = lab.get(node, registry::INTROSPECTION_PORT, view_node::ADDRESSES)?;
        let book: Addresses = serde_json::from_str(&book)?;
        data.answers.insert(node.to_owned(), Ok(book));
        let of_node = lab.pods(node)?;
        let pods = of_node.iter().map(|pod| api_pod(pod, node)).collect::<Result<Vec<_>>>()?;
        data.pods.get_or_insert_default().extend(pods);
    }
    Ok(data)
}

fn api_pod(pod: &Value, node: &str) -> Result<Pod> {
    let (name, address) = (&pod["name"], &pod["address"]);
    Ok(serde_json::from_value(json!({
        "metadata": { "namespace": "default", "name": name }, "spec": { "nodeName": node },
        "status": { "phase": "Running", "podIPs": [{ "ip": address }] },
    }))?)
}

fn findings(data: &AddressData) -> Vec<(String, String)> {
    let findings = AddressReport::of(data).findings.into_iter();
    findings.map(|finding| (finding.kind, finding.object)).collect()
}

fn one(kind: &str, object: &str) -> Vec<(String, String)> {
    vec![(kind.to_owned(), object.to_owned())]
}

#[test]
fn books_of_daemons_have_the_planted_faults_and_no_others() -> Result<()> {
    let Some(bin) = programs("books_of_daemons_have_the_planted_faults_and_no_others") else {
        return Ok(());
    };
    let settings =
        ["--env", "ENABLE_PREFIX_DELEGATION=true", "--env", "ENABLE_SUBNET_DISCOVERY=true"];
    let lab = Lab::up(&bin, "t-ip", &["--nodes", "0"])?;
    for node in NODES {
        lab.run(&[&["node", "add", node, "--subnet", "0"][..], &settings].concat())?;
        lab.run(&["pod", "add", node, "--prefix", &format!("{node}-"), "--count", "4"])?;
    }
    let healthy = data(&lab)?;
    ensure!(findings(&healthy).is_empty(), "{:?}", AddressReport::of(&healthy).findings);
    the_tree_has_each_pod(&healthy)?;
    faults_of_pods_are_found(&healthy)?;
    a_fragmented_subnet_is_found(&lab)?;
    lab.down()
}

fn the_tree_has_each_pod(data: &AddressData) -> Result<()> {
    let report = AddressReport::of(data);
    let subnet = report.subnets.iter().find(|subnet| subnet.nodes == 2).context("no subnet")?;
    let count = subnet.count.context("no count of EC2")?;
    ensure!(count.available > 0 && u64::from(count.available) < count.total, "{count:?}");
    ensure!(subnet.free_prefixes_at_most > Some(0) && subnet.prefixes, "{subnet:?}");
    ensure!(subnet.assigned == 8, "{subnet:?}");
    let tree = report.text(Width::Wide, None).to_string();
    for pod in data.pods.iter().flatten() {
        let line = format!("      {}  default/{}\n", pod.status.pod_ips[0].ip, pod.metadata.name);
        ensure!(tree.contains(&line), "no {line} in {tree}");
    }
    Ok(())
}

fn faults_of_pods_are_found(healthy: &AddressData) -> Result<()> {
    let pods = healthy.pods.clone().context("no pods")?;
    let address = &pods[0].status.pod_ips[0].ip;

    let mut leak = healthy.clone();
    leak.pods = Some(pods[1..].to_vec());
    ensure!(findings(&leak) == one("address_leaked", address), "{:?}", findings(&leak));

    let mut twin = pods[0].clone();
    twin.metadata.name = "twin".to_owned();
    twin.spec.node_name = Some("nowhere".to_owned());
    let mut twice = healthy.clone();
    twice.pods.get_or_insert_default().push(twin);
    ensure!(findings(&twice) == one("address_twice", address), "{:?}", findings(&twice));

    // The next free address of the prefix.
    let mut foreign = pods[0].clone();
    let free = address_beside(healthy, address)?;
    foreign.metadata.name = "foreign".to_owned();
    foreign.status.pod_ips[0].ip.clone_from(&free);
    let mut unrecorded = healthy.clone();
    unrecorded.pods.get_or_insert_default().push(foreign);
    ensure!(
        findings(&unrecorded) == one("address_unrecorded", &free),
        "{:?}",
        findings(&unrecorded)
    );
    Ok(())
}

/// A free address of the prefix in which another one is.
fn address_beside(data: &AddressData, address: &str) -> Result<String> {
    let report = AddressReport::of(data);
    let blocks = report.subnets.iter().flat_map(|it| &it.enis).flat_map(|eni| &eni.uses);
    let block = blocks.into_iter().find(|block| block.used.iter().any(|it| it.address == address));
    let block = block.context("the address is in no block")?;
    let (network, _) = block.cidr.split_once('/').context("no CIDR")?;
    let (start, last) = network.rsplit_once('.').context("not an IPv4 address")?;
    let last: u8 = last.parse()?;
    let all = (0..16).map(|offset| format!("{start}.{}", last + offset));
    let mut free = all.filter(|it| block.used.iter().all(|used| used.address != *it));
    free.next().context("the prefix is full")
}

/// Nodes that need prefixes get single addresses.
fn a_fragmented_subnet_is_found(lab: &Lab) -> Result<()> {
    lab.run(&["subnet", "fragment", "a"])?;
    lab.run(&["pod", "add", "node1", "--prefix", "more-", "--count", "40"])?;
    let subnet = lab.subnet("a")?;
    wait_for("the fragmented subnet", PATIENCE, || {
        Ok(findings(&data(lab)?).contains(&("subnet_fragmented".to_owned(), subnet.clone())))
    })?;
    let report = AddressReport::of(&data(lab)?);
    let text = report.findings_text().to_string();
    ensure!(text.contains("EC2 has no whole /28 there"), "{text}");
    ensure!(report.text(Width::Narrow, None).to_string().contains("fragmented"), "no mark");
    Ok(())
}

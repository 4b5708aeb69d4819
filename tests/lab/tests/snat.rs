//! Pods reach destinations outside the VPC with the node's address, through its primary ENI.

use anyhow::{Context as _, Result, ensure};
use std::time::Duration;
use tests_lab::{Lab, programs, wait_for};

const PATIENCE: Duration = Duration::from_secs(60);

/// The lab's one host on the internet. It answers the primary addresses of ENIs only, and the VPC drops packets whose
/// source is not an address of their ENI. An echo therefore shows a translation and the right ENI.
const OUTSIDE: &str = "192.0.2.1";

/// Returns true if the pod gets an echo over TCP from the host outside.
fn gets_echo(lab: &Lab, pod: &str) -> bool {
    let script = format!(
        "exec 3<>/dev/tcp/{OUTSIDE}/7 && echo hello >&3 && read -t 5 line <&3 && [ \"$line\" = hello ]"
    );
    lab.run(&["exec", pod, "--", "timeout", "5", "bash", "-c", &script]).is_ok()
}

fn names(lab: &Lab, node: &str) -> Result<Vec<String>> {
    let name = |pod: &serde_json::Value| Some(pod["name"].as_str()?.to_owned());
    lab.pods(node)?.iter().map(|pod| name(pod).context("a pod without a name")).collect()
}

/// Waits until every pod of the node gets an echo from outside.
fn all_get_echo(lab: &Lab, node: &str) -> Result<()> {
    for pod in names(lab, node)? {
        wait_for(&format!("an echo from outside to {pod}"), PATIENCE, || Ok(gets_echo(lab, &pod)))?;
    }
    Ok(())
}

#[test]
fn pods_of_every_eni_reach_the_internet_by_every_backend() -> Result<()> {
    let name = "pods_of_every_eni_reach_the_internet_by_every_backend";
    reach_the_internet(name, "t-snat", "per-pod")
}

#[test]
fn pods_that_share_rules_reach_the_internet_by_every_backend() -> Result<()> {
    let name = "pods_that_share_rules_reach_the_internet_by_every_backend";
    reach_the_internet(name, "t-shared", "compact")
}

fn reach_the_internet(test: &str, lab: &str, rules: &str) -> Result<()> {
    let Some(bin) = programs(test) else { return Ok(()) };
    let lab = Lab::up(&bin, lab, &["--nodes", "0"])?;
    let rules = format!("FERRULE_RULES={rules}");
    for (node, harm) in [
        ("iptables-legacy", &["iptables-legacy", "-t", "nat", "-F"][..]),
        ("iptables-nft", &["iptables-nft", "-t", "mangle", "-F"][..]),
        ("nftables", &["nft", "delete", "table", "ip", "ferrule"][..]),
    ] {
        let backend = format!("FERRULE_NAT_BACKEND={node}");
        let env = ["--env", &backend, "--env", "WARM_IP_TARGET=2", "--env", &rules];
        lab.run(&[&["node", "add", node][..], &env].concat())?;
        // More pods than the primary ENI has addresses.
        lab.run(&["pod", "add", node, "--count", "18"])?;
        ensure!(lab.enis(node)?.len() > 1, "all pods are on one ENI");
        all_get_echo(&lab, node)?;
        let labels = [format!("backend=\"{node}\"")];
        let labels = labels.each_ref().map(String::as_str);
        ensure!(lab.metric(node, "ferrule_netfilter_backend", &labels)? == Some(1.0), "{node}");
        // Pods still see each other's real addresses.
        lab.run(&["check", "--tcp", "4"])?;
        lab.on_node(node, harm)?;
        all_get_echo(&lab, node)?;
    }
    lab.down()
}

#[test]
fn external_snat_disables_translation() -> Result<()> {
    let name = "external_snat_disables_translation";
    let Some(bin) = programs(name) else { return Ok(()) };
    let lab = Lab::up(&bin, "t-nosnat", &["--nodes", "0"])?;
    let excluded = format!("AWS_VPC_K8S_CNI_EXCLUDE_SNAT_CIDRS={OUTSIDE}/32");
    lab.run(&["node", "add", "usual"])?;
    lab.run(&["node", "add", "excluded", "--env", &excluded])?;
    lab.run(&["node", "add", "external", "--env", "AWS_VPC_K8S_CNI_EXTERNALSNAT=true"])?;
    for node in ["usual", "excluded", "external"] {
        lab.run(&["pod", "add", node, "--count", "1"])?;
    }
    all_get_echo(&lab, "usual")?;
    for node in ["excluded", "external"] {
        let pod = names(&lab, node)?.pop().context("no pod")?;
        let rules = || lab.on_node(node, &["nft", "list", "table", "ip", "ferrule"]);
        wait_for(&format!("the netfilter rules of {node}"), PATIENCE, || Ok(rules().is_ok()))?;
        ensure!(!gets_echo(&lab, &pod), "{node}: the pod's own address was translated");
    }
    let rules = lab.on_node("external", &["nft", "list", "table", "ip", "ferrule"])?;
    ensure!(!rules.contains("snat"), "{rules}");
    lab.down()
}

/// With external SNAT packets keep the pod's address, and the VPC's counters show the ENI that sent them. From the
/// pod's own ENI they have no public address; from the primary ENI they have a foreign source.
#[test]
fn external_services_are_reached_by_the_primary_eni() -> Result<()> {
    let name = "external_services_are_reached_by_the_primary_eni";
    let Some(bin) = programs(name) else { return Ok(()) };
    let lab = Lab::up(&bin, "t-external", &["--nodes", "0"])?;
    let external = format!("AWS_EXTERNAL_SERVICE_CIDRS={OUTSIDE}/32");
    for (node, more) in [("without", &[][..]), ("with", &["--env", &external][..])] {
        let add = [
            "node",
            "add",
            node,
            "--type",
            "t3.small",
            "--env",
            "AWS_VPC_K8S_CNI_EXTERNALSNAT=true",
        ];
        lab.run(&[&add, more].concat())?;
        // More pods than the primary ENI has addresses.
        lab.run(&["pod", "add", node, "--count", "5"])?;
        let pods = lab.pods(node)?;
        let pod = pods.iter().find(|pod| pod["device"] != 0).context("all pods are on one ENI")?;
        let text = |key: &str| pod[key].as_str().with_context(|| format!("no {key} in {pod}"));
        let (pod, address, own) = (text("name")?, text("address")?, text("eni")?);
        let enis = lab.enis(node)?;
        let primary = enis.iter().find(|eni| eni["device"] == 0).context("no primary ENI")?;
        let primary = primary["id"].as_str().context("an ENI without an ID")?;
        let (by, counter) =
            if more.is_empty() { (own, "no_public_address") } else { (primary, "spoofed") };
        wait_for(&format!("{pod} of node {node} to leave by {by}"), PATIENCE, || {
            ensure!(!gets_echo(&lab, pod), "the outside knows {address}");
            let counters = lab.json(&["counters"])?;
            let counted = &counters["enis"];
            let other = &counted[if by == own { primary } else { own }];
            ensure!(other["spoofed"].get(address).is_none(), "{other}");
            ensure!(other["no_public_address"].get(address).is_none(), "{other}");
            Ok(counted[by][counter][address]["packets"].as_u64() > Some(0))
        })?;
    }
    lab.down()
}

#[test]
fn running_nodes_learn_a_new_block_of_the_vpc() -> Result<()> {
    let name = "running_nodes_learn_a_new_block_of_the_vpc";
    let Some(bin) = programs(name) else { return Ok(()) };
    let lab = Lab::up(&bin, "t-block", &["--nodes", "0"])?;
    const BLOCK: &str = "100.64.0.0/20";
    let backends = ["iptables-legacy", "iptables-nft", "nftables"];
    for node in backends {
        let backend = format!("FERRULE_NAT_BACKEND={node}");
        lab.run(&["node", "add", node, "--env", &backend, "--env", "WARM_IP_TARGET=2"])?;
        lab.run(&["pod", "add", node, "--count", "2"])?;
        all_get_echo(&lab, node)?;
    }
    let refused = lab.refused(&["subnet", "add", "10.0.0.0/24"])?;
    ensure!(refused.contains("overlaps another subnet"), "{refused}");
    let added = lab.json(&["subnet", "add", &format!("{BLOCK},zone=a")])?;
    ensure!(added["cidr"] == BLOCK, "{added}");
    lab.run(&["node", "add", "new", "--subnet", "2"])?;
    lab.run(&["pod", "add", "new", "--count", "2"])?;
    // Every pod sees the other's real address: the old nodes no longer translate for the new block.
    let sees = || Ok(lab.run(&["check", "--tcp", "4"]).is_ok());
    wait_for("pods of old and new blocks to see each other", PATIENCE, sees)?;
    for node in backends {
        all_get_echo(&lab, node)?;
    }
    all_get_echo(&lab, "new")?;
    lab.down()
}

//! Packets of pods on several ENIs of two nodes, with agents that serve Services: the fast path between nodes, and node ports.
//! The router drops a packet whose source is no address of the ENI that it comes from.

use crate::{
    enforced::{Connection, Site, connect, serve},
    policed::{
        API_SERVER, Controllers,
        pods::{self, Running},
    },
    proxy::{NetworkNamespace, SERVED, service},
    world::{PATIENCE, World},
};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};
use tests_cluster::ClusterSpec;
use tests_lab::{Lab, bpf_object, programs, wait_for};

const NODES: [&str; 2] = ["node1", "node2"];
/// So many pods use three ENIs, each with up to three prefixes.
const MOST_PODS: usize = 110;
/// Counts the packets that a node's stack forwards.
const COUNT: &str =
    "nft 'table inet count { chain forward { type filter hook forward priority 0; counter; }; }'";

/// The nodes of a lab.
struct Case<'a> {
    lab: &'a str,
    kind: &'a str,
    settings: &'a [&'a str],
    /// The subnets of the lab.
    subnets: &'a [&'a str],
    /// The subnet of the ENIs for pods.
    eni_config: Option<&'a str>,
    /// The ENIs with pods on each node. With custom networking the primary ENI has none.
    enis: usize,
}

const PER_POD: Case<'_> = Case {
    lab: "t-fast",
    kind: "t3.small",
    settings: &[],
    subnets: &[],
    eni_config: None,
    enis: 3,
};

/// A pod of each ENI of a node. The ENIs are sorted by their devices.
fn start<'a>(world: &World, lab: &'a Lab, node: &'a str, enis: usize) -> Result<Vec<Running<'a>>> {
    let mut found = BTreeMap::new();
    for number in 0..MOST_PODS {
        let pod = pods::start(world, lab, node, &format!("{node}-{number}"), "web")?;
        let shown: Value = serde_json::from_str(&lab.get(node, 61679, "/v1/ferrule/pods")?)?;
        let shown = shown.as_array().context("no list of pods")?;
        let shown = shown.iter().find(|shown| shown["name"] == pod.name.as_str());
        let eni = shown.context("the daemon does not know the pod")?["eni"].clone();
        let on_node = lab.enis(node)?;
        let device =
            on_node.iter().find(|of| of["id"] == eni).context("no ENI")?["device"].as_u64();
        if found.len() < enis {
            found.entry(device).or_insert(pod);
        }
        if found.len() == enis {
            break;
        }
    }
    ensure!(found.len() == enis, "the pods of {node} are on {:?}", found.keys());
    found.values().try_for_each(|pod| serve(&pod.netns))?;
    Ok(found.into_values().collect())
}

/// The open connections of a pod to other nodes on the fast path, as `ferrule pod` shows them.
fn fast(lab: &Lab, pod: &Running<'_>) -> Result<u64> {
    let path = format!("/v1/ferrule/paths/{}", pod.uid);
    let paths: Value = serde_json::from_str(&lab.get(pod.node, 61679, &path)?)?;
    paths["nodes"].as_u64().with_context(|| format!("{}: {paths}", pod.name))
}

/// A connection whose packets take the fast path at both nodes. The first one between two addresses shows the way.
fn connect_fast(lab: &Lab, from: &Running<'_>, to: &Running<'_>) -> Result<Connection> {
    let mut found = None;
    wait_for(&format!("the fast path from {} to {}", from.name, to.name), PATIENCE, || {
        let before = [fast(lab, from)?, fast(lab, to)?];
        let mut open = connect(&from.netns, (to.address, SERVED).into())?.context("no answer")?;
        ensure!(open.answers()?, "no answer");
        let after = [fast(lab, from)?, fast(lab, to)?];
        ensure!(after == before.map(|count| count + 1), "{before:?}, then {after:?}");
        found = Some(open);
        Ok(true)
    })?;
    found.context("no connection")
}

/// The packets that a node's stack has forwarded since [`COUNT`].
fn forwarded(lab: &Lab, node: &str) -> Result<u64> {
    let list = lab.on_node(node, &["nft", "list", "table", "inet", "count"])?;
    let mut words = list.split_whitespace().skip_while(|word| *word != "packets");
    words.nth(1).context("no counter")?.parse().context("not a number")
}

/// Fails if the stack of a node forwards packets of these connections.
fn ensure_no_stack(lab: &Lab, connections: &mut [Connection]) -> Result<()> {
    for node in NODES {
        lab.on_node(node, &["sh", "-c", COUNT])?;
    }
    for _ in 0..3 {
        for connection in &mut *connections {
            ensure!(connection.answers()?, "a connection has ended");
        }
    }
    for node in NODES {
        let count = forwarded(lab, node)?;
        ensure!(count == 0, "the stack of {node} has forwarded {count} packets");
    }
    Ok(())
}

/// Fails if a client does not reach the pods of a node by node ports of its primary ENI.
fn ensure_node_ports(world: &World, lab: &Lab, pods: &[Running<'_>]) -> Result<()> {
    let spec = json!({"type": "NodePort", "externalTrafficPolicy": "Local"});
    let text = |value: &Value| value.as_str().map(str::to_owned).context("not a string");
    let other = NetworkNamespace::node(lab, NODES[1])?;
    lab.run(&["group", "add", "outside"])?;
    let primary = text(&lab.enis(NODES[0])?[0]["id"])?;
    lab.run(&["eni", "groups", &primary, "default", "outside"])?;
    let node = lab.node(NODES[0])?;
    let (own, public): (IpAddr, String) =
        (text(&node["address"])?.parse()?, text(&node["public_address"])?);
    for pod in pods {
        let end = json!({"addresses": [pod.address], "nodeName": pod.node});
        let (_, port) = service(world, &format!("by-{}", pod.name), &spec, end, SERVED)?;
        wait_for(&format!("{} by a node port of its node", pod.name), PATIENCE, || {
            let open = connect(&other, SocketAddr::new(own, port))?;
            open.context("no answer")?.answers()
        })?;
        let ask = format!("exec 3<>/dev/tcp/{public}/{port} && printf x >&3 && head -c1 <&3");
        let answer = lab.run(&["client", "exec", "--", "timeout", "10", "bash", "-c", &ask])?;
        ensure!(answer == "x", "{answer:?} is the answer of {} to a client outside", pod.name);
    }
    Ok(())
}

fn packets_leave_by_the_eni_of_their_source(test: &str, case: &Case<'_>) -> Result<()> {
    let (Some(bin), Some(object)) = (programs(test), bpf_object(test)) else { return Ok(()) };
    let world = World::of(&ClusterSpec { also_at: vec![API_SERVER], ..ClusterSpec::default() })?;
    let subnets = case.subnets.iter().flat_map(|subnet| ["--subnet", subnet]);
    let up: Vec<&str> = ["--nodes", "0"].into_iter().chain(subnets).collect();
    let lab = world.lab(&bin, case.lab, &up)?;
    if let Some(subnet) = case.eni_config {
        let spec = json!({"subnet": lab.subnet(subnet)?, "securityGroups": []});
        world.apply(&World::eni_config("default", &spec))?;
    }
    let mut controllers = Controllers::new(&world, &bin)?;
    controllers.services = true;
    let replica = controllers.start()?;
    let mut sites = Vec::new();
    for node in NODES {
        world.make_node(node, &json!({}))?;
        let settings = ["FERRULE_POLICY=true", "NETWORK_POLICY_ENFORCING_MODE=strict"];
        let settings = settings.iter().chain(case.settings).flat_map(|set| ["--env", set]);
        // Both nodes are in the zone of the subnet for pods.
        let add = ["node", "add", node, "--type", case.kind, "--subnet", "0"];
        lab.run(&add.into_iter().chain(settings).collect::<Vec<_>>())?;
        let addresses = json!([{"type": "InternalIP", "address": lab.node(node)?["address"]}]);
        world.patch_node_status(node, &json!({"status": {"addresses": addresses}}))?;
        sites.push(Site::serving(&world, &lab, &bin, &object, node, replica.at)?);
    }
    let [one, two] = [0, 1].map(|number| start(&world, &lab, NODES[number], case.enis));
    let (one, two) = (one?, two?);
    let log = || sites.iter().map(|site| site.site.log()).collect::<String>();
    let mut connections = Vec::new();
    for (here, there) in one.iter().flat_map(|here| two.iter().map(move |there| (here, there))) {
        connections.push(connect_fast(&lab, here, there).with_context(log)?);
        connections.push(connect_fast(&lab, there, here).with_context(log)?);
    }
    ensure_no_stack(&lab, &mut connections)?;
    ensure_node_ports(&world, &lab, &one).with_context(log)?;
    let counters = lab.json(&["counters"])?;
    ensure!(counters["drops"]["source-check"]["packets"] == 0, "{counters:#}");
    lab.down()
}

#[test]
fn packets_leave_by_the_eni_of_their_source_with_rules_of_each_pod() -> Result<()> {
    let test = "packets_leave_by_the_eni_of_their_source_with_rules_of_each_pod";
    packets_leave_by_the_eni_of_their_source(test, &PER_POD)
}

#[test]
fn packets_leave_by_the_eni_of_their_source_with_compact_rules() -> Result<()> {
    let test = "packets_leave_by_the_eni_of_their_source_with_compact_rules";
    let case = Case { lab: "t-fast-rules", settings: &["FERRULE_RULES=compact"], ..PER_POD };
    packets_leave_by_the_eni_of_their_source(test, &case)
}

#[test]
fn packets_leave_by_the_eni_of_their_source_with_prefixes() -> Result<()> {
    let test = "packets_leave_by_the_eni_of_their_source_with_prefixes";
    let case = Case {
        lab: "t-fast-prefix",
        settings: &["ENABLE_PREFIX_DELEGATION=true", "FERRULE_RULES=compact"],
        ..PER_POD
    };
    packets_leave_by_the_eni_of_their_source(test, &case)
}

#[test]
fn packets_leave_by_the_eni_of_their_source_with_custom_networking() -> Result<()> {
    let test = "packets_leave_by_the_eni_of_their_source_with_custom_networking";
    let case = Case {
        lab: "t-fast-custom",
        settings: &["AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG=true"],
        subnets: &["10.0.0.0/24", "10.0.1.0/24", "10.0.64.0/24,zone=a"],
        eni_config: Some("c"),
        enis: 2,
        ..PER_POD
    };
    packets_leave_by_the_eni_of_their_source(test, &case)
}

//! The nodes of a check: their choice, and the state of their probes.

use super::objects::{HOST, PROBE, TARGET};
use crate::{
    cluster::{
        api::{Api, Selector},
        args::{CheckArgs, Sample},
        status,
    },
    progress::{Done, Progress},
};
use anyhow::{Result, bail};
use serde::Deserialize;
use std::time::{Duration, Instant};
use tokio::time::sleep;
use view_cluster::{
    Chosen, Node, Pod, Site, TemplateSpec, excluded, for_nodes, for_probes, of_pod, sample,
    unselected,
};

/// The nodes with probes.
pub(super) struct Nodes {
    pub(super) chosen: Vec<Node>,
    pub(super) counts: Chosen,
    /// Selects the chosen nodes.
    pub(super) template: TemplateSpec,
}

/// Chooses nodes.
///
/// # Errors
/// The API server cannot be read, or a named node does not exist or cannot have probes.
pub(super) async fn choose(api: &Api, args: &CheckArgs, seed: u64) -> Result<Nodes> {
    let mut nodes = status::nodes(api).await?;
    status::all_there(&nodes, &args.node)?;
    let template = for_probes(&status::daemon_sets(api).await?);
    let lacks = |node: &Node| {
        let selects = |what| format!("the DaemonSet selects nodes with {what}");
        excluded(node, &[]).or_else(|| unselected(node, &template).map(selects))
    };
    let named = nodes.iter().filter(|node| args.node.contains(&node.metadata.name));
    if let Some((node, why)) = named.filter_map(|node| Some((node, lacks(node)?))).next() {
        bail!("cannot test from node {}: {why}; name another node", node.metadata.name);
    }
    nodes.retain(|node| lacks(node).is_none());
    let all = nodes.len();
    let count = match args.sample {
        Some(Sample::All) => all,
        Some(Sample::Nodes(count)) => count,
        None if args.node.is_empty() => NODES,
        // A single node has another one to connect to.
        None => args.node.len().max(2),
    };
    let chosen: Vec<Node> = sample(&nodes, &args.node, count, seed).into_iter().cloned().collect();
    let names: Vec<String> = chosen.iter().map(|node| node.metadata.name.clone()).collect();
    let template = if chosen.len() == all { template } else { for_nodes(&names) };
    Ok(Nodes { counts: Chosen { tested: chosen.len(), all }, chosen, template })
}

/// Waits until each node has ready probes, or until the timeout.
pub(super) async fn sites(
    api: &Api,
    wait: Duration,
    namespace: &str,
    nodes: &[Node],
    has_host: bool,
    progress: &mut Progress,
) -> Result<Vec<Site>> {
    let give_up = Instant::now() + wait;
    let path = format!("/apis/apps/v1/namespaces/{namespace}/daemonsets");
    loop {
        let sets: Vec<Rollout> = api.list(&path, Selector::All, "daemonsets").await?;
        let ready = sets.iter().map(|set| set.status.number_ready).min().unwrap_or_default();
        if ready >= nodes.len() || Instant::now() >= give_up {
            break;
        }
        progress.show("waiting for probes", Done::Of(ready, nodes.len()));
        sleep(LOOK_AGAIN).await;
    }
    let path = format!("/api/v1/namespaces/{namespace}/pods");
    let pods: Vec<Pod> = api.list(&path, Selector::All, "pods").await?;
    Ok(nodes.iter().map(|node| site(node, &pods, has_host)).collect())
}

/// Progress of a DaemonSet.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Rollout {
    status: RolloutStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RolloutStatus {
    number_ready: usize,
}

fn site(node: &Node, pods: &[Pod], has_host: bool) -> Site {
    let name = &node.metadata.name;
    let of = |app: &str| {
        pods.iter().find(|pod| {
            pod.spec.node_name.as_ref() == Some(name)
                && pod.metadata.labels.get("app").is_some_and(|it| it == app)
        })
    };
    let (probe, target) = (of(PROBE), of(TARGET));
    let why = |pod: Option<&Pod>| match pod {
        None => Some("the node has no probe pod".to_owned()),
        Some(pod) => why_not(pod),
    };
    let addresses = |pod: &Pod| pod.status.pod_ips.iter().map(|it| it.ip.clone()).collect();
    let host = || {
        let host = of(HOST);
        let name = host.map(|pod| pod.metadata.name.clone()).unwrap_or_default();
        why(host).map_or(Ok(name), Err)
    };
    let ready = |pod: &&Pod| why_not(pod).is_none();
    Site {
        node: name.clone(),
        address: node.internal_address().map(str::to_owned),
        probe: probe.filter(ready).map(|pod| pod.metadata.name.clone()),
        targets: target.filter(ready).map(addresses).unwrap_or_default(),
        why_not: why(probe).or_else(|| why(target)),
        host_probe: has_host.then(host),
    }
}

/// Returns the reason why a pod is not ready.
fn why_not(pod: &Pod) -> Option<String> {
    let ready = pod.status.conditions.iter().find(|it| it.kind == "Ready");
    if ready.is_some_and(|it| it.status == "True") && !pod.status.pod_ips.is_empty() {
        return None;
    }
    let said = of_pod(pod).first().map(|it| format!("{}: {}", it.object, it.cause));
    let phase = &pod.status.phase;
    Some(said.unwrap_or_else(|| format!("its pod {} is {phase}", pod.metadata.name)))
}

/// The size of a sample, if the user names neither a size nor nodes.
const NODES: usize = 16;
const LOOK_AGAIN: Duration = Duration::from_millis(500);

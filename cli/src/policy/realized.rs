//! Comparison of an answer with the policies in force on the nodes concerned, from the controller's data.
//!
//! An answer is computed from the cluster's objects. A node has in force the objects that the controller had read when
//! it sent them. Both identify objects by resource version, so the versions can be compared. A deleted object has no
//! version, and may still be in force for a moment.

use super::objects::Objects;
use crate::target::KubeTarget;
use anyhow::{Context as _, Result};
use policy_core::{Direction, World};
use policy_kube::{Cluster, KubeError};
use policy_objects::{Kind, Pod};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};
use view_policy::{Agent, GROUP, VERSION};
use view_text::counted;

/// Up to this number of nodes there is one GET per node. Above it the list is read.
const FEW: usize = 4;
/// Limit of pages in a list of agents.
const PAGES: usize = 1_000;
/// Limit of nodes that the text names, separately for nodes in force and for others.
const NAMED: usize = 10;

/// The objects that a node must have in force for an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Needs {
    /// The newest resource version by kind.
    versions: BTreeMap<Kind, u64>,
    /// Policies by UID, with their names.
    policies: BTreeMap<String, String>,
}

/// The state of one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct OnNode {
    node: String,
    /// `None` if it is unknown.
    realized: Option<bool>,
    /// Reasons why the objects are not in force or why the state is unknown.
    why: Vec<String>,
}

/// The states of all nodes concerned, or the reason why they are unknown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) enum Realized {
    #[serde(rename = "nodes")]
    Nodes(Vec<OnNode>),
    #[serde(rename = "unknown")]
    Unknown(String),
}

/// Returns the objects that each node must have in force for an answer about these pods.
pub(super) fn needs(world: &World, objects: &Objects, pods: &[&Pod]) -> BTreeMap<String, Needs> {
    let mut all = Needs::default();
    for kind in [Kind::AntreaTier, Kind::AntreaClusterGroup, Kind::AntreaGroup] {
        all.versions.insert(kind, objects.newest(kind));
    }
    let mut add = |kind: Kind, namespace: &str, name: &str| {
        let version = objects.version(kind, namespace, name);
        let newest = all.versions.entry(kind).or_default();
        *newest = version.max(*newest);
    };
    for pod in pods {
        add(Kind::Pod, &pod.meta.namespace, &pod.meta.name);
        add(Kind::Namespace, "", &pod.meta.namespace);
    }
    let mut nodes: BTreeMap<String, Needs> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| is_judged(pod)) {
        let needs = nodes.entry(pod.node.clone()).or_insert_with(|| all.clone());
        for direction in [Direction::Ingress, Direction::Egress] {
            for (policy, _) in world.policies_of(pod, direction) {
                let key = &policy.key;
                let version = objects.version(key.kind, &key.namespace, &key.name);
                let newest = needs.versions.entry(key.kind).or_default();
                *newest = version.max(*newest);
                needs.policies.insert(policy.uid.clone(), key.to_string());
            }
        }
    }
    nodes
}

/// Returns the objects that each node with pods must have in force for an answer about all pods.
pub(super) fn needs_of_all(world: &World, objects: &Objects) -> BTreeMap<String, Needs> {
    let kinds = Kind::ALL.into_iter().filter(|kind| !matches!(kind, Kind::Node | Kind::Service));
    let versions = kinds.map(|kind| (kind, objects.newest(kind)));
    let versions = versions.filter(|(_, version)| *version > 0).collect();
    let policies = world.policies().map(|policy| (policy.uid.clone(), policy.key.to_string()));
    let all = Needs { versions, policies: policies.collect() };
    let nodes = world.pods().filter(|pod| is_judged(pod)).map(|pod| &pod.node);
    nodes.collect::<BTreeSet<_>>().into_iter().map(|node| (node.clone(), all.clone())).collect()
}

/// Returns true if policies are enforced on the pod.
fn is_judged(pod: &Pod) -> bool {
    !pod.node.is_empty() && !pod.host_network
}

/// Reads the states from the controller.
///
/// # Errors
/// The async runtime cannot be started.
pub(super) fn ask(which: &KubeTarget, needs: &BTreeMap<String, Needs>) -> Result<Realized> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start the async runtime")?.block_on(async {
        let asked = async {
            let cluster = which.connect().await?;
            let agents = match needs.len() > FEW {
                true => by_node(agents(&cluster).await?),
                false => {
                    let mut agents = Vec::new();
                    for node in needs.keys() {
                        agents.extend(agent(&cluster, node).await?);
                    }
                    by_node(agents)
                }
            };
            let judged = needs.iter().map(|(node, needs)| judge(node, needs, agents.get(node)));
            Ok::<_, KubeError>(judged.collect())
        };
        Ok(match asked.await {
            Ok(nodes) => Realized::Nodes(nodes),
            Err(KubeError::NotFound { .. }) => Realized::Unknown(
                "the cluster has no aggregated API of ferrule-controller".to_owned(),
            ),
            Err(error) => Realized::Unknown(error.to_string()),
        })
    })
}

/// Lists the controller's data about all agents.
///
/// # Errors
/// The API server cannot be reached, or no controller is registered.
pub(super) async fn agents(cluster: &Cluster) -> Result<Vec<Agent>, KubeError> {
    let (mut agents, mut next) = (Vec::new(), String::new());
    let what = format!("agents.{GROUP}");
    for _ in 0..PAGES {
        let behind = form_urlencoded::byte_serialize(next.as_bytes()).collect::<String>();
        let path = format!("/apis/{GROUP}/{VERSION}/agents?continue={behind}");
        let text = cluster.get(&path, &what).await?;
        let page = serde_json::from_str(&text);
        let page: List = page.map_err(|error| KubeError::odd("read", &what, &error))?;
        agents.extend(page.items);
        next = page.metadata.next;
        if next.is_empty() {
            break;
        }
    }
    Ok(agents)
}

fn by_node(agents: Vec<Agent>) -> BTreeMap<String, Agent> {
    agents.into_iter().map(|agent| (agent.metadata.name.clone(), agent)).collect()
}

#[derive(Deserialize)]
struct List {
    metadata: Page,
    items: Vec<Agent>,
}

#[derive(Deserialize)]
struct Page {
    #[serde(default, rename = "continue")]
    next: String,
}

/// Returns the controller's data about a node; `None` if it has none.
async fn agent(cluster: &Cluster, node: &str) -> Result<Option<Agent>, KubeError> {
    let path = format!("/apis/{GROUP}/{VERSION}/agents/{node}");
    let what = format!("agents.{GROUP}");
    match cluster.get(&path, &what).await {
        Ok(text) => match serde_json::from_str(&text) {
            Ok(agent) => Ok(Some(agent)),
            Err(error) => Err(KubeError::odd("read", &what, &error)),
        },
        // The controller answers 404 for a node without an agent; the API server answers 404 without a controller.
        Err(KubeError::NotFound { said, .. }) if said.contains("at this replica") => Ok(None),
        Err(error) => Err(error),
    }
}

fn judge(node: &str, needs: &Needs, agent: Option<&Agent>) -> OnNode {
    let mut why = Vec::new();
    let on = |realized, why| OnNode { node: node.to_owned(), realized, why };
    let Some(realized) = agent.and_then(|agent| agent.realized.as_ref()) else {
        let follows = agent.and_then(|agent| agent.stream.as_ref()).is_some();
        why.push(match follows {
            true => "the agent follows the controller but has not reported yet".to_owned(),
            false => "no agent has reported; check that ferrule-agent runs there".to_owned(),
        });
        return on(None, why);
    };
    if realized.is_stale() {
        why.push(format!(
            "the agent has not reported for {} s; check that ferrule-agent runs there",
            realized.seconds_ago
        ));
        return on(None, why);
    }
    if realized.unenforced {
        why.push("the agent has no backend, so it enforces nothing".to_owned());
    }
    for failing in &realized.failing {
        if let Some(name) = needs.policies.get(&failing.uid) {
            why.push(format!("{name}: {}", failing.error));
        }
    }
    for (kind, version) in &needs.versions {
        let reached = realized.reached.get(kind.text()).copied().unwrap_or_default();
        if *version > reached {
            let kind = kind.text();
            why.push(format!(
                "the node has {kind} up to {reached}, the result needs {version}; run this again"
            ));
        }
    }
    on(Some(why.is_empty()), why)
}

impl fmt::Display for Realized {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = match self {
            Self::Unknown(why) => return writeln!(f, "in force: unknown: {why}"),
            Self::Nodes(nodes) => nodes,
        };
        let (good, bad): (Vec<&OnNode>, Vec<&OnNode>) =
            nodes.iter().partition(|on| on.realized == Some(true));
        if !good.is_empty() {
            let names: Vec<&str> = good.iter().take(NAMED).map(|on| on.node.as_str()).collect();
            let more = good.len() - names.len();
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            writeln!(f, "in force on {}{more}", names.join(" and "))?;
        }
        for on in bad.iter().take(NAMED) {
            let word = if on.realized.is_none() { "UNKNOWN on" } else { "NOT IN FORCE on" };
            writeln!(f, "{word} {}: {}", on.node, on.why.join("; "))?;
        }
        match bad.len().saturating_sub(NAMED) {
            0 => Ok(()),
            more => writeln!(f, "{}: see -o json", counted(more, "more node", "more nodes")),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;
    use view_policy::{Failing, Meta, Realized as Said, Stream};

    fn needs() -> Needs {
        Needs {
            versions: BTreeMap::from([(Kind::Pod, 12), (Kind::NetworkPolicy, 9)]),
            policies: BTreeMap::from([("u1".to_owned(), "NetworkPolicy a/b".to_owned())]),
        }
    }

    fn agent(pods: u64, failing: &[&str]) -> Agent {
        let failing = failing.iter().map(|uid| Failing {
            uid: (*uid).to_owned(),
            generation: 1,
            error: "no room".to_owned(),
        });
        let reached = BTreeMap::from([("Pod".to_owned(), pods), ("NetworkPolicy".to_owned(), 20)]);
        let realized = Said { reached, failing: failing.collect(), ..Said::default() };
        Agent { metadata: Meta::default(), stream: None, realized: Some(realized) }
    }

    #[test]
    fn a_node_has_what_it_has_reached_and_what_does_not_fail() {
        let judged = |agent: Option<&Agent>| judge("n", &needs(), agent);
        assert_eq!(judged(Some(&agent(12, &["u2"]))).realized, Some(true));
        let behind = judged(Some(&agent(11, &[])));
        assert_eq!((behind.realized, behind.why.len()), (Some(false), 1));
        let mut idle = agent(12, &[]);
        idle.realized.as_mut().unwrap().unenforced = true;
        let idle = judged(Some(&idle));
        assert_eq!((idle.realized, idle.why.len()), (Some(false), 1), "no backend");
        let failing = judged(Some(&agent(12, &["u1"])));
        assert_eq!(failing.why, ["NetworkPolicy a/b: no room"]);
        let mut old = agent(12, &[]);
        old.realized.as_mut().unwrap().seconds_ago = 3_600;
        let old = judged(Some(&old));
        assert!(old.realized.is_none() && old.why[0].contains("3600 s"), "{old:?}");
        assert_eq!(judged(None).realized, None);
        let silent = Agent { stream: Some(Stream::default()), ..Agent::default() };
        assert_eq!(judged(Some(&silent)).realized, None);
    }

    #[test]
    fn text_output_lists_each_node() {
        let on = |node: &str, realized, why: &[&str]| OnNode {
            node: node.to_owned(),
            realized,
            why: why.iter().map(|why| (*why).to_owned()).collect(),
        };
        let nodes =
            [on("n1", Some(true), &[]), on("n2", Some(false), &["x", "y"]), on("n3", None, &["z"])];
        let printed = Realized::Nodes(nodes.to_vec()).to_string();
        assert_eq!(printed, "in force on n1\nNOT IN FORCE on n2: x; y\nUNKNOWN on n3: z\n");
        let many = |realized| (10..25).map(move |n| on(&format!("n{n}"), realized, &["x"]));
        let printed =
            Realized::Nodes(many(Some(true)).chain(many(Some(false))).collect()).to_string();
        assert!(printed.starts_with("in force on n10 and n11 and "), "{printed}");
        assert!(printed.contains("n19 and 5 more\nNOT IN FORCE on n10: x\n"), "{printed}");
        assert!(printed.ends_with("\n5 more nodes: see -o json\n"), "{printed}");
    }
}

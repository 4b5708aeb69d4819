//! The steps from kube-proxy to Ferrule and back.

use super::{
    findings::{Finding, Level, findings},
    observation::{Agent, Cleaner, Node, Observation, Serving},
    request::{Goal, Request},
};
use std::{collections::BTreeSet, fmt};

/// A condition outside the plan. No later step is applied until it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The DaemonSet controller or an operator replaces Ferrule's pod by one with the setting of the DaemonSet.
    PodReplaced { node: String },
    /// The DaemonSet controller has created Ferrule's pods on this number of nodes.
    PodsExist { missing: u64 },
    /// All Services are in force on the node.
    InForce { node: String, reason: String },
    /// kube-proxy's pod has left the node.
    KubeProxyGone { node: String },
    /// A Service answers a process of the node.
    Reached { node: String },
    /// No rule of kube-proxy exists on these nodes.
    RulesGone { nodes: Vec<String> },
    /// An operator has created kube-proxy's DaemonSet.
    KubeProxyExists,
    /// kube-proxy serves the node.
    KubeProxyServes { node: String },
    /// New pods of Ferrule do not serve Services.
    SettingOff,
    /// Ferrule's pod serves no Services and is ready.
    AgentOff { node: String },
}

impl Wait {
    /// Returns true if both are the same condition. The reason why Services are not in force can change meanwhile.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::InForce { node, .. }, Self::InForce { node: other, .. }) => node == other,
            _ => self == other,
        }
    }
}

/// A step is complete or undone after a crash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Waits for a condition.
    Await(Wait),
    /// Saves the manifest of kube-proxy's DaemonSet.
    SaveKubeProxy,
    /// Keeps kube-proxy off labeled nodes.
    KeepOff,
    /// Creates the DaemonSet that removes kube-proxy's rules from labeled nodes.
    CreateCleaner,
    /// Deletes Ferrule's pod, so that the next one has the setting of the DaemonSet.
    ReplacePod {
        node: String,
        pod: String,
        uid: String,
    },
    /// Labels the node.
    Switch {
        node: String,
    },
    DeleteKubeProxy {
        uid: String,
    },
    RemoveCleaner,
    /// Creates kube-proxy's DaemonSet from the saved manifest, kept off labeled nodes.
    RestoreKubeProxy,
    /// Removes the node's label.
    Return {
        node: String,
    },
    /// Lets kube-proxy run on all nodes again.
    Release,
    /// Removes the saved manifest.
    Forget,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The worst first. With a blocker no step is applied.
    pub findings: Vec<Finding>,
    /// In order; empty if the cluster is at its goal.
    pub steps: Vec<Step>,
}

impl Plan {
    pub fn is_blocked(&self) -> bool {
        self.findings.iter().any(|finding| finding.level == Level::Blocker)
    }
}

/// Plans the steps from the observed state to the goal.
pub fn plan(seen: &Observation, request: &Request) -> Plan {
    let steps = match request.goal {
        Goal::Ferrule => to_ferrule(seen, request),
        Goal::KubeProxy => to_kube_proxy(seen, request),
    };
    Plan { findings: findings(seen, request), steps }
}

/// Returns the nodes whose agents decide about the first step, or about all steps if `all` is true. A switched node was
/// asked before its switch, and is asked again before the removal of kube-proxy only.
pub fn nodes_to_ask(seen: &Observation, request: &Request, all: bool) -> BTreeSet<String> {
    if request.goal == Goal::KubeProxy {
        return BTreeSet::new();
    }
    let can_answer = |node: &Node| node.agent.as_ref().is_some_and(|it| it.serves && !it.leaves);
    let names = |wanted: &dyn Fn(&Node) -> bool| -> Vec<String> {
        let nodes = request.of(seen).filter(|(_, node)| can_answer(node) && wanted(node));
        nodes.map(|(name, _)| name.clone()).collect()
    };
    let removes = removes(seen, request);
    if all {
        return names(&|node| !node.is_switched || removes).into_iter().collect();
    }
    let left = request.of(seen).any(|(_, node)| node.agent.is_some() && !node.is_switched);
    match (seen.kube_proxy.is_some(), left) {
        (true, true) => names(&|node| !node.is_switched).into_iter().take(1).collect(),
        (true, false) if !removes => BTreeSet::new(),
        (_, _) => names(&|_| true).into_iter().collect(),
    }
}

/// Returns true if kube-proxy's DaemonSet exists and is to be deleted.
fn removes(seen: &Observation, request: &Request) -> bool {
    request.remove && request.nodes.is_empty() && seen.kube_proxy.is_some()
}

fn to_ferrule(seen: &Observation, request: &Request) -> Vec<Step> {
    let mut steps = Vec::new();
    let replaces = seen.ferrule.as_ref().is_some_and(|set| set.replaces_pods);
    if let Some(set) = &seen.kube_proxy {
        // Before the first change of the DaemonSet.
        steps.extend((!seen.is_saved_current).then_some(Step::SaveKubeProxy));
        steps.extend((!set.is_kept_off).then_some(Step::KeepOff));
        steps.extend((!seen.has_cleaner).then_some(Step::CreateCleaner));
    }
    let has_cleaner = seen.has_cleaner || seen.kube_proxy.is_some();
    // A node without a pod would be skipped.
    steps.extend(await_pods(seen));
    for (name, node) in request.of(seen) {
        let Some(agent) = &node.agent else { continue };
        if !agent.serves || agent.leaves {
            steps.push(replace(name, agent, replaces));
        }
        if !node.is_switched {
            steps.extend(await_force(name, agent));
        }
        if seen.kube_proxy.is_some() && !node.is_switched {
            steps.push(Step::Switch { node: name.clone() });
        }
        if node.kube_proxy.is_some() {
            steps.push(Step::Await(Wait::KubeProxyGone { node: name.clone() }));
        }
        let is_labeled = node.is_switched || seen.kube_proxy.is_some();
        let reached = matches!(node.cleaner, Some(Cleaner::Waiting | Cleaner::Clean));
        if has_cleaner && is_labeled && !reached {
            steps.push(Step::Await(Wait::Reached { node: name.clone() }));
        }
    }
    if !request.remove || !request.nodes.is_empty() {
        return steps;
    }
    if let Some(set) = &seen.kube_proxy {
        let switched = seen.nodes.iter().filter(|(_, node)| node.is_switched);
        let agents = switched.filter_map(|(name, node)| Some((name, node.agent.as_ref()?)));
        steps.extend(agents.filter_map(|(name, agent)| await_force(name, agent)));
        steps.push(Step::DeleteKubeProxy { uid: set.uid.clone() });
    }
    if has_cleaner {
        let has_rules = |(name, node): (&String, &Node)| {
            let is_labeled =
                node.is_switched || (seen.kube_proxy.is_some() && node.agent.is_some());
            (is_labeled && node.cleaner != Some(Cleaner::Clean)).then(|| name.clone())
        };
        let nodes: Vec<String> = seen.nodes.iter().filter_map(has_rules).collect();
        if !nodes.is_empty() {
            steps.push(Step::Await(Wait::RulesGone { nodes }));
        }
        steps.push(Step::RemoveCleaner);
    }
    steps
}

fn to_kube_proxy(seen: &Observation, request: &Request) -> Vec<Step> {
    let mut steps = Vec::new();
    let is_whole = request.nodes.is_empty();
    if is_at_start(seen) {
        return steps;
    }
    if seen.kube_proxy.is_none() {
        steps.push(match seen.is_saved {
            true => Step::RestoreKubeProxy,
            false => Step::Await(Wait::KubeProxyExists),
        });
    }
    // It must not remove the rules that kube-proxy writes.
    steps.extend((is_whole && seen.has_cleaner).then_some(Step::RemoveCleaner));
    steps.extend(await_pods(seen));
    let serving: Vec<(&String, &Agent)> = request
        .of(seen)
        .filter_map(|(name, node)| Some((name, node.agent.as_ref()?)))
        .filter(|(_, agent)| agent.serves || agent.leaves || !agent.is_ready)
        .collect();
    let setting = seen.ferrule.as_ref().is_some_and(|set| set.serves);
    let awaits_setting = is_whole || serving.iter().any(|(_, agent)| agent.serves);
    // With the setting off, the next pod of each other node serves no Services, for whatever reason it is recreated.
    let returns_all = awaits_setting || !setting;
    let returning = seen.nodes.iter().filter(|(name, _)| returns_all || request.names(name));
    for (name, node) in returning {
        if node.is_switched {
            steps.push(Step::Return { node: name.clone() });
        }
        // A node that neither proxy has to leave needs no wait.
        let depends = node.is_switched || node.agent.as_ref().is_some_and(|agent| agent.serves);
        if depends && !node.has_kube_proxy() {
            steps.push(Step::Await(Wait::KubeProxyServes { node: name.clone() }));
        }
    }
    let replaces = seen.ferrule.as_ref().is_some_and(|set| set.replaces_pods);
    if setting && awaits_setting {
        steps.push(Step::Await(Wait::SettingOff));
    }
    for (name, agent) in serving {
        if agent.serves || agent.leaves {
            steps.push(replace(name, agent, replaces));
        }
        steps.push(Step::Await(Wait::AgentOff { node: name.clone() }));
    }
    if is_whole {
        let has_changes = seen.kube_proxy.as_ref().map_or(seen.is_saved, |set| set.has_changes);
        steps.extend(has_changes.then_some(Step::Release));
        steps.extend(seen.is_saved.then_some(Step::Forget));
    }
    steps
}

/// Returns true if the cluster has no trace of a replacement.
fn is_at_start(seen: &Observation) -> bool {
    let is_untouched = |node: &Node| {
        !node.is_switched && node.agent.as_ref().is_none_or(|agent| !agent.serves && !agent.leaves)
    };
    let serves = seen.ferrule.as_ref().is_some_and(|set| set.serves);
    let has_changes = seen.kube_proxy.as_ref().is_some_and(|set| set.has_changes);
    let has_traces = seen.has_cleaner || seen.is_saved || has_changes || serves;
    !has_traces && seen.missing_pods() == 0 && seen.nodes.values().all(is_untouched)
}

/// Returns the step after which the node's pod has the setting of the DaemonSet.
fn replace(node: &str, agent: &Agent, replaces_pods: bool) -> Step {
    let node = node.to_owned();
    match agent.leaves || replaces_pods {
        true => Step::Await(Wait::PodReplaced { node }),
        false => Step::ReplacePod { node, pod: agent.pod.clone(), uid: agent.uid.clone() },
    }
}

/// Returns the step that waits for missing pods; `None` if each node has its pod.
fn await_pods(seen: &Observation) -> Option<Step> {
    let missing = seen.missing_pods();
    (missing > 0).then_some(Step::Await(Wait::PodsExist { missing }))
}

/// Returns the step that waits until the node's Services are in force; `None` if they are.
fn await_force(node: &str, agent: &Agent) -> Option<Step> {
    let wait = || Wait::InForce { node: node.to_owned(), reason: why_not(agent) };
    (!agent.is_in_force()).then(|| Step::Await(wait()))
}

fn why_not(agent: &Agent) -> String {
    match &agent.serving {
        _ if !agent.serves || agent.leaves => "its pod is replaced first".to_owned(),
        _ if !agent.is_ready => format!("pod {} is not ready", agent.pod),
        Serving::NotAsked => "its agent was not asked".to_owned(),
        Serving::Unknown(why) => why.clone(),
        Serving::Known { services: 0, .. } => "its agent has received no Services".to_owned(),
        Serving::Known { failing: 0, lag, .. } => format!("{lag} states are not in force yet"),
        Serving::Known { failing, .. } => format!("{failing} Services are not in force"),
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PodReplaced { node } => {
                write!(f, "Ferrule's pod on {node} has the setting of the DaemonSet")
            }
            Self::PodsExist { missing: 1 } => f.write_str("Ferrule's pod exists on 1 more node"),
            Self::PodsExist { missing } => {
                write!(f, "Ferrule's pods exist on {missing} more nodes")
            }
            Self::InForce { node, reason } => {
                write!(f, "all Services are in force on {node} ({reason})")
            }
            Self::KubeProxyGone { node } => write!(f, "kube-proxy's pod has left {node}"),
            Self::Reached { node } => {
                write!(f, "a process of {node} reaches the Service of the API server")
            }
            Self::RulesGone { nodes } => match nodes.as_slice() {
                [node] => write!(f, "no flow of {node} needs the rules of kube-proxy"),
                [node, more @ ..] => {
                    let more = more.len();
                    let nodes = if more == 1 { "node" } else { "nodes" };
                    write!(f, "no flow of {node} and {more} more {nodes} needs the rules of kube-proxy")
                }
                [] => f.write_str("no flow needs the rules of kube-proxy"),
            },
            Self::KubeProxyExists => f.write_str(
                "kube-proxy's DaemonSet exists (create it; on EKS: aws eks create-addon --addon-name kube-proxy)",
            ),
            Self::KubeProxyServes { node } => write!(f, "kube-proxy is ready on {node}"),
            Self::SettingOff => f.write_str(
                "FERRULE_SERVICES is none in Ferrule's DaemonSet (set env.FERRULE_SERVICES=none in the chart)",
            ),
            Self::AgentOff { node } => {
                write!(f, "Ferrule's pod on {node} is ready and serves no Services")
            }
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Await(wait) => write!(f, "wait until {wait}"),
            Self::SaveKubeProxy => f.write_str("save the manifest of kube-proxy's DaemonSet"),
            Self::KeepOff => f.write_str(
                "patch kube-proxy's DaemonSet: it leaves labeled nodes, and no other pod restarts",
            ),
            Self::CreateCleaner => f.write_str(
                "create the DaemonSet that removes the rules of kube-proxy from labeled nodes",
            ),
            Self::ReplacePod { node, pod, .. } => {
                write!(
                    f,
                    "delete pod {pod}: Ferrule's next pod on {node} has the setting of the DaemonSet"
                )
            }
            Self::Switch { node } => write!(f, "label {node}: kube-proxy leaves it"),
            Self::DeleteKubeProxy { .. } => f.write_str("delete kube-proxy's DaemonSet"),
            Self::RemoveCleaner => {
                f.write_str("delete the DaemonSet that removes the rules of kube-proxy")
            }
            Self::RestoreKubeProxy => {
                f.write_str("create kube-proxy's DaemonSet from the saved manifest")
            }
            Self::Return { node } => write!(f, "remove the label of {node}: kube-proxy returns"),
            Self::Release => f.write_str("undo the patch of kube-proxy's DaemonSet"),
            Self::Forget => f.write_str("delete the saved manifest of kube-proxy's DaemonSet"),
        }
    }
}

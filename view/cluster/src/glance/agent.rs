//! How a node's policy agent is, by what the policy controller knows of it.

use super::{Cluster, problem::trouble};
use crate::objects::Pod;
use serde::Serialize;
use view_node::{Severity, Trouble};

/// What the policy controller knows of a node's agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Agent {
    /// How long ago it reported, if it has.
    pub reported_seconds_ago: Option<u64>,
    /// Whether that is too long ago to count.
    pub stale: bool,
    /// Whether it follows the replica that answers.
    pub follows: bool,
    /// Objects that it has not acknowledged, as far as it follows that replica.
    pub owed: usize,
    /// Policies that it holds.
    pub policies: usize,
    /// Those that it cannot put into force.
    pub failing: usize,
    /// Whether it has a backend, without which none is in force.
    pub enforces: bool,
}

/// A node's agent in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AgentState {
    /// It holds what there is.
    Good,
    /// It has not acknowledged all that it was told.
    Behind,
    /// Some policies are not in force.
    Failing,
    /// It follows the controller, and has not reported yet.
    New,
    /// The controller does not hear of it.
    Silent,
    /// The controller could not be asked.
    Unknown,
}

/// A node's agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentLine {
    /// In one word.
    pub state: AgentState,
    /// What is known of it.
    #[serde(flatten)]
    pub known: Option<Agent>,
}

/// Of the node whose daemon's pod this is, where that has an agent.
pub(super) fn agent(node: &str, pod: &Pod, cluster: &Cluster) -> Option<AgentLine> {
    let has_one = pod.spec.containers.iter().any(|it| it.name == CONTAINER);
    has_one.then(|| match &cluster.agents {
        None => AgentLine { state: AgentState::Unknown, known: None },
        Some(agents) => {
            let known = agents.get(node).cloned();
            AgentLine { state: known.as_ref().map_or(AgentState::Silent, state), known }
        }
    })
}

fn state(agent: &Agent) -> AgentState {
    match agent.reported_seconds_ago {
        None if agent.follows => AgentState::New,
        None => AgentState::Silent,
        Some(_) if agent.stale => AgentState::Silent,
        Some(_) if agent.failing > 0 => AgentState::Failing,
        Some(_) if agent.owed > 0 => AgentState::Behind,
        Some(_) => AgentState::Good,
    }
}

/// What is wrong with it.
pub(super) fn troubles(line: &AgentLine) -> Vec<Trouble> {
    let known = line.known.as_ref();
    let mut found = Vec::new();
    match line.state {
        AgentState::Silent => {
            let ago = known.and_then(|it| it.reported_seconds_ago);
            let cause = ago.map_or_else(
                || "the policy controller has heard nothing of it".to_owned(),
                |ago| format!("the policy controller last heard of it {ago} s ago"),
            );
            found.push(trouble("agent_silent", OBJECT, &cause, SILENT));
        }
        AgentState::Failing => {
            let cause = match known.map_or(0, |it| it.failing) {
                1 => "1 policy is not in force".to_owned(),
                count => format!("{count} policies are not in force"),
            };
            found.push(trouble("policies_failing", OBJECT, &cause, FAILING));
        }
        AgentState::Good | AgentState::Behind | AgentState::New | AgentState::Unknown => {}
    }
    if known.is_some_and(|it| it.reported_seconds_ago.is_some() && !it.enforces) {
        let told = trouble("no_backend", OBJECT, NO_BACKEND, "");
        found.push(Trouble { severity: Severity::Notice, ..told });
    }
    found
}

impl AgentLine {
    /// For the table.
    pub(super) fn cell(&self) -> String {
        let known = self.known.as_ref();
        match self.state {
            AgentState::Good => "good".to_owned(),
            AgentState::Behind => format!("behind {}", known.map_or(0, |it| it.owed)),
            AgentState::Failing => format!("failing {}", known.map_or(0, |it| it.failing)),
            AgentState::New => "new".to_owned(),
            AgentState::Silent => "silent".to_owned(),
            AgentState::Unknown => "unknown".to_owned(),
        }
    }
}

const CONTAINER: &str = "agent";
const OBJECT: &str = "ferrule-agent";
const SILENT: &str =
    "see the log of the container agent of the node's pod, and that it reaches ferrule-controller";
const FAILING: &str = "`ferrule policy status` names them and why";
const NO_BACKEND: &str = "it has no backend: the policies that it holds are not in force";

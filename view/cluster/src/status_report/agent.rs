//! The state of a node's agent, from the controller's data.

use super::{Cluster, problem::trouble};
use crate::objects::Pod;
use serde::Serialize;
use view_node::{Severity, Trouble};
use view_text::counted;

/// The controller's data about a node's agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Agent {
    /// The age of the last report; `None` without a report.
    pub reported_seconds_ago: Option<u64>,
    /// True if the report is too old to count.
    pub stale: bool,
    /// True if the agent follows the replica that answered.
    pub follows: bool,
    /// Objects without an ack, if the agent follows that replica.
    pub owed: usize,
    /// Policies that the agent holds.
    pub policies: usize,
    /// Policies that the agent cannot put into force.
    pub failing: usize,
    /// True if the agent has a backend. Without one no policy is in force.
    pub enforces: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AgentState {
    Good,
    /// The agent has not acknowledged all objects.
    Behind,
    Failing,
    /// The agent follows the controller and has not reported yet.
    New,
    /// The controller has no recent report.
    Silent,
    /// The controller does not answer.
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentLine {
    pub state: AgentState,
    #[serde(flatten)]
    pub known: Option<Agent>,
}

/// Returns the agent of the daemon's pod, if the pod has one.
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

pub(super) fn troubles(line: &AgentLine) -> Vec<Trouble> {
    let known = line.known.as_ref();
    let mut found = Vec::new();
    match line.state {
        AgentState::Silent => {
            let ago = known.and_then(|it| it.reported_seconds_ago);
            let cause = ago.map_or_else(
                || "the controller has no report of it".to_owned(),
                |ago| format!("its last report is {ago} s old"),
            );
            found.push(trouble("agent_silent", OBJECT, &cause, SILENT));
        }
        AgentState::Failing => {
            let count = known.map_or(0, |it| it.failing);
            let cause = format!("{} not in force", counted(count, "policy is", "policies are"));
            found.push(trouble("policies_failing", OBJECT, &cause, FAILING));
        }
        AgentState::Good | AgentState::Behind | AgentState::New | AgentState::Unknown => {}
    }
    if known.is_some_and(|it| it.reported_seconds_ago.is_some() && !it.enforces) {
        let notice = trouble("no_backend", OBJECT, NO_BACKEND, "");
        found.push(Trouble { severity: Severity::Notice, ..notice });
    }
    found
}

impl AgentLine {
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
const SILENT: &str = "read the log of the container agent of the node's pod; check that it reaches ferrule-controller";
const FAILING: &str = "`ferrule policy status` shows them with the reasons";
const NO_BACKEND: &str = "it has no backend, so its policies are not in force";

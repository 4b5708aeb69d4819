//! The state of a node's agent, as far as it serves Services.

use serde::Serialize;
use service_objects::ObjectName;
use std::collections::BTreeMap;

/// The source of the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Serving {
    /// The agent's answer on its socket.
    Agent(AgentServices),
    /// The agent's metrics, which do not name Services.
    Metrics {
        /// The number of Services that the agent has.
        services: u64,
        /// The number of Services that are not in force as they should be.
        failing: u64,
        /// States that are not in force yet.
        lag: u64,
    },
    /// The reason for which the node has no agent.
    Absent(String),
    /// The reason for which the state is unknown.
    Unknown(String),
}

/// The agent's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentServices {
    /// The number of Services that the agent has.
    pub services: u64,
    /// Services that are not in force as they should be, each with the cause.
    pub failing: BTreeMap<ObjectName, String>,
    /// True if the list is cut at the agent's limit.
    pub is_cut: bool,
    /// The reason for which the backend puts no state into force.
    pub fault: Option<String>,
    /// States that are not in force yet.
    pub lag: u64,
    /// The reason for which the agent follows no replica of the controller.
    pub disconnected: Option<String>,
}

/// The state of a Service on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "state", content = "why")]
pub enum InForce {
    /// With the reason for which the agent may have old objects.
    Yes(Option<String>),
    No(String),
    /// The agent serves no Services.
    NotServed(String),
    Unknown(String),
}

impl Serving {
    /// Reads the metrics of an agent; `None` if they are those of another program.
    pub fn of_metrics(page: &str) -> Option<Self> {
        let value = |series: &str| {
            let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
            line.and_then(|value| value.trim().parse().ok())
        };
        Some(Self::Metrics {
            services: value("ferrule_agent_held{kind=\"service\"}")?,
            failing: value("ferrule_agent_failing_services")?,
            lag: value("ferrule_agent_backend_lag")?,
        })
    }

    /// The state of one Service.
    pub fn of(&self, name: &ObjectName) -> InForce {
        match self {
            Self::Unknown(why) => InForce::Unknown(why.clone()),
            Self::Absent(why) => InForce::NotServed(why.clone()),
            Self::Agent(AgentServices { services: 0, .. }) | Self::Metrics { services: 0, .. } => {
                InForce::NotServed(NONE.to_owned())
            }
            Self::Agent(agent) => agent.of(name),
            Self::Metrics { failing: 0, lag: 0, .. } => InForce::Yes(None),
            Self::Metrics { failing: 0, lag, .. } => InForce::Unknown(behind(*lag)),
            Self::Metrics { failing, .. } => InForce::Unknown(format!(
                "{failing} Services of the node are not in force, and metrics do not name them; run the command on the node"
            )),
        }
    }
}

impl AgentServices {
    fn of(&self, name: &ObjectName) -> InForce {
        match (&self.fault, self.failing.get(name)) {
            (Some(why), _) | (None, Some(why)) => InForce::No(why.clone()),
            (None, None) if self.is_cut => InForce::Unknown(format!(
                "the agent names {} Services that are not in force, and more are not; see its log",
                self.failing.len()
            )),
            (None, None) if self.lag > 0 => InForce::Unknown(behind(self.lag)),
            (None, None) => {
                let old = |why| format!("the agent follows no replica of the controller: {why}");
                InForce::Yes(self.disconnected.as_ref().map(old))
            }
        }
    }
}

fn behind(lag: u64) -> String {
    format!("the agent has {lag} states that are not in force yet; run the command again")
}

const NONE: &str = "the agent has no Services: FERRULE_SERVICES is not ebpf, or no source has sent them yet; kube-proxy \
                    serves them";

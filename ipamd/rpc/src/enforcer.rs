//! The component that enforces policy on a node, as the daemon reports it to the plugin.

use config_model::EnforcingMode;
use std::path::PathBuf;

/// The component that enforces policy on a node: its socket, and the mode of a pod whose policies are not in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Enforcer {
    /// aws-network-policy-agent.
    NetworkPolicyAgent {
        /// The socket where it takes calls.
        socket: PathBuf,
        /// Sent with each pod: the default for a pod that no policy selects.
        mode: EnforcingMode,
    },
    /// ferrule-agent.
    FerruleAgent {
        /// The socket where it takes calls.
        socket: PathBuf,
        /// Whether a pod starts if its policies are not in force in time.
        mode: EnforcingMode,
    },
}

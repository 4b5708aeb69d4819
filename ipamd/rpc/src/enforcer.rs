//! The component that enforces policy on a node, as the daemon reports it to the plugin.

use config_model::EnforcingMode;
use std::path::PathBuf;

/// The component that enforces policy on a node: its socket, and the mode of a pod whose policies are not in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Enforcer {
    NetworkPolicyAgent {
        socket: PathBuf,
        /// Sent with each pod: the default for a pod that no policy selects.
        mode: EnforcingMode,
    },
    FerruleAgent {
        socket: PathBuf,
        /// The decision for a pod whose policies are not in force in time: it starts (standard) or fails (strict).
        mode: EnforcingMode,
    },
}

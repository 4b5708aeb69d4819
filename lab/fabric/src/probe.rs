//! Who reaches whom: ICMP with full-MTU packets that must not be fragmented, and TCP, between pods
//! and nodes, driven by one process.

use crate::{EniSpec, Fabric, FabricError};
use serde::{Deserialize, Serialize};
use std::{net::Ipv4Addr, time::Duration};

/// A pod that takes part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbePod {
    /// Its name, for people (`default/web-0`).
    pub name: String,
    /// The node it runs on.
    pub node: String,
    /// Its namespace: the name under the node's `/run/netns`.
    pub netns: String,
    /// Its address.
    pub address: Ipv4Addr,
}

/// What to check.
#[derive(Clone, Debug)]
pub struct ProbePlan {
    /// The pods; every one is checked against every other, and against every node, both ways.
    pub pods: Vec<ProbePod>,
    /// The ENIs, to know every address's ENI and each node's primary address.
    pub enis: Vec<(config_model::EniId, EniSpec)>,
    /// The size of the echo's IP packet; 9001 is an ENI's MTU.
    pub packet_bytes: u16,
    /// How many pod pairs also exchange [`ProbePlan::tcp_bytes`] both ways over TCP.
    pub tcp_pairs: usize,
    /// Bytes of each direction of a TCP exchange.
    pub tcp_bytes: usize,
    /// How long an unanswered echo is waited for, twice (the second try covers neighbours that had
    /// to be resolved).
    pub patience: Duration,
}

impl ProbePlan {
    /// Full-MTU echoes between all, and 1 MB both ways by TCP on 20 pairs.
    pub fn full(pods: Vec<ProbePod>, enis: Vec<(config_model::EniId, EniSpec)>) -> Self {
        Self {
            pods,
            enis,
            packet_bytes: 9001,
            tcp_pairs: 20,
            tcp_bytes: 1_000_000,
            patience: Duration::from_secs(1),
        }
    }
}

/// One end of a probed pair.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct End {
    /// The pod's name, or `node NAME`.
    pub name: String,
    /// The node.
    pub node: String,
    /// The address.
    pub address: Ipv4Addr,
}

/// Why a pair failed, as the sender saw it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Reason {
    /// Neither a reply nor an error came.
    NoReply,
    /// The sender's own interface or path is too small (EMSGSIZE).
    TooBig,
    /// A router said that the packet must be fragmented.
    FragmentationNeeded {
        /// Which router.
        from: Ipv4Addr,
        /// The MTU it named.
        mtu: u16,
    },
    /// A router, or the sender's own kernel, said unreachable.
    Unreachable {
        /// Which router; the sender itself when it is its own address.
        from: Ipv4Addr,
    },
    /// The sender's kernel refused otherwise.
    Refused {
        /// The error's text.
        error: String,
    },
    /// TCP failed or delivered other bytes.
    Tcp {
        /// The error's text.
        error: String,
    },
}

/// A pair that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The sender.
    pub from: End,
    /// The receiver.
    pub to: End,
    /// What the sender saw.
    pub reason: Reason,
    /// What is wrong with either end's rules and routes, and what the fabric dropped meanwhile; empty
    /// when all looked right.
    pub because: Vec<String>,
}

/// Pairs tried and pairs that worked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Tried.
    pub tried: usize,
    /// Worked.
    pub reached: usize,
}

/// The outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeReport {
    /// Pod to pod, by echo.
    pub pods: Tally,
    /// Node to pod, by echo.
    pub node_to_pod: Tally,
    /// Pod to node, by echo.
    pub pod_to_node: Tally,
    /// Pod to pod, by TCP.
    pub tcp: Tally,
    /// Every pair that failed.
    pub failures: Vec<Failure>,
    /// Milliseconds that it took.
    pub took_ms: u64,
}

impl ProbeReport {
    /// Whether every pair worked.
    pub fn passed(&self) -> bool {
        self.failures.is_empty()
    }
}

/// Runs the matrix.
///
/// # Errors
/// When a namespace cannot be entered or a socket not be opened; a pair that fails is no error.
pub fn run(fabric: &Fabric, plan: &ProbePlan) -> Result<ProbeReport, FabricError> {
    todo!()
}

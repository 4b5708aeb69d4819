//! The answers and events of a backend.

use crate::Desired;
use policy_core::{Decision, Direction, Segment};
use service_objects::ObjectName;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::SystemTime,
};

/// The state of a backend as it was read, also of an earlier process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// UIDs of the endpoints that are in force with all their parts.
    pub endpoints: BTreeSet<String>,
    /// Differences between the state that this process applied last and the state that was read, each as one message.
    pub drift: Vec<String>,
}

/// One result for each endpoint of a state, by UID. An endpoint without a result is not in force.
pub type Results = BTreeMap<String, Result<(), String>>;

/// The outcome of an apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// `Ok` if the state is in force except for the failures below. Otherwise the cause: parts of the state may be in
    /// force, and the whole state is applied again.
    pub in_force: Result<(), String>,
    /// A backend that returns the results of the last state again saves the node a look at each.
    pub endpoints: Arc<Results>,
    /// Policies that are not in force on any endpoint, by UID, each with the cause.
    pub policies: BTreeMap<String, String>,
    /// Services that are not in force, each with the cause.
    pub services: BTreeMap<ObjectName, String>,
}

impl Applied {
    /// Returns the outcome if the whole state is in force.
    pub fn complete(desired: &Desired) -> Self {
        Self {
            in_force: Ok(()),
            endpoints: Arc::new(
                desired.endpoints.keys().map(|uid| (uid.clone(), Ok(()))).collect(),
            ),
            policies: BTreeMap::new(),
            services: BTreeMap::new(),
        }
    }

    /// Returns the outcome if the apply failed as a whole.
    pub fn failed(cause: impl Into<String>) -> Self {
        Self {
            in_force: Err(cause.into()),
            endpoints: Arc::default(),
            policies: BTreeMap::new(),
            services: BTreeMap::new(),
        }
    }

    /// The refusal of a state that is older than the last one.
    pub fn older(revision: u64, last: u64) -> Self {
        Self::failed(format!("cannot apply revision {revision}: it is older than {last}"))
    }
}

/// An event of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendEvent {
    /// The state in force was changed by another process. The agent starts a full pass.
    Drift(String),
    /// The addresses of DNS names have changed. The agent applies the same state again.
    Names,
    /// Other Services than before are not in force. The agent applies the same state again.
    Services,
    /// A packet was dropped, or a connection was allowed and its rule or [`Backend::listen`] asks for it.
    ///
    /// [`Backend::listen`]: ../datapath_backend/trait.Backend.html#method.listen
    Flow(Flow),
    /// A packet of a trace was seen.
    Trace(TraceStep),
}

/// A packet that was dropped, or the first one of a connection that was allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    pub at: SystemTime,
    /// The UIDs of the pods of this node at both ends.
    pub source_pod: Option<String>,
    pub destination_pod: Option<String>,
    /// The addresses and ports; `None` for a packet that is not IP.
    pub tuple: Option<Tuple>,
    /// Type and code of an ICMP message.
    pub icmp: Option<(u8, u8)>,
    pub decision: Decision,
    /// The reason for a drop, as in [`Backend::packets`]; `None` for an allowed packet.
    ///
    /// [`Backend::packets`]: ../datapath_backend/trait.Backend.html#method.packets
    pub reason: Option<&'static str>,
    /// The rules that decided: the one that denied, or those of the sender and of the receiver that allowed.
    pub rules: Vec<RuleId>,
    /// One of these rules asks for a log.
    pub is_logged: bool,
    /// The length of the packet in bytes.
    pub length: u32,
    /// The packet takes the fast path, without the host's stack.
    pub is_fast: bool,
}

/// A rule of a policy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleId {
    /// The UID of the policy.
    pub policy: String,
    pub direction: Direction,
    /// The position among the policy's rules of that direction, from 0.
    pub index: usize,
}

/// The open connections of a pod, by the path of their packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Paths {
    /// Through the host's stack.
    pub stack: u64,
    /// On the fast path, to and from pods of the node.
    pub pods: u64,
    /// On the fast path, to and from other nodes.
    pub nodes: u64,
}

impl std::ops::Add for Paths {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            stack: self.stack + other.stack,
            pods: self.pods + other.pods,
            nodes: self.nodes + other.nodes,
        }
    }
}

/// Use of a rule on this node since its last change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleUse {
    pub rule: RuleId,
    /// Connections that it allowed.
    pub flows: u64,
    /// Packets that it denied.
    pub packets: u64,
    /// Bytes of these packets.
    pub bytes: u64,
    pub last: SystemTime,
}

/// A packet whose verdict is looked up in the state in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    pub source: IpAddr,
    /// The final destination, behind any translation.
    pub destination: IpAddr,
    /// The address that was asked for, before translation.
    pub service: Option<IpAddr>,
    pub segment: Segment,
}

/// The steps of a lookup in the state in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Looked {
    /// The UID of the pod whose policies were looked up.
    pub pod: String,
    pub direction: Direction,
    /// The steps in the backend's own terms: a name and a value each.
    pub steps: Vec<(&'static str, String)>,
    /// `None` if the state has no verdict: the packet is dropped.
    pub decision: Option<Decision>,
    /// The rule that decided.
    pub rule: Option<RuleId>,
}

/// The addresses and ports of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuple {
    /// The source address.
    pub source: IpAddr,
    /// The destination address after DNAT.
    pub destination: IpAddr,
    /// The number of the protocol within IP.
    pub protocol: u8,
    /// The source port, if the protocol has ports.
    pub source_port: Option<u16>,
    /// The destination port, if the protocol has ports.
    pub destination_port: Option<u16>,
}

/// A trace: packets that a backend reports at each of its stages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Identifies the trace.
    pub id: u32,
    /// The packets that it follows.
    pub tuple: Tuple,
}

/// A packet of a trace at one stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceStep {
    /// The trace.
    pub id: u32,
    /// The stage, in the backend's own terms.
    pub stage: String,
    /// The verdict, at a stage that judges.
    pub allowed: Option<bool>,
}

/// The state that a backend leaves when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retire {
    /// Everything stays in force: the agent restarts or is upgraded.
    Keep,
    /// Everything is removed: pods are open.
    Remove,
}

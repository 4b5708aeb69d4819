//! The state of policy on a node: the snapshot, the endpoints, the pods that wait, and the outcome of the backend.
//!
//! [`Node`] takes events with the time and returns [`Effect`]s, which the agent carries out. The effects are states for
//! the backend, answers for starting pods, reports and announcements for replicas, and records for the disk.
//! [`Replicas`] chooses the replica that is tried next; [`store`] is the format on the disk.
//!
//! A pod starts when the backend has reported the pod's own endpoint as in force. The state must have the pod's own
//! entry, by UID. An unknown UID never counts as a pod without policies.

mod desired;
mod node;
mod outcome;
mod realized;
mod replicas;
pub mod store;
mod waiting;

pub use desired::{
    Changed, Desired, Endpoint, Endpoints, LocalPod, NodeIdentity, ServiceChanges, Services,
};
pub use node::{Effect, Links, Node, Overview, OwnRead, START_LIMIT};
pub use outcome::{
    Applied, BackendEvent, Flow, Looked, Observed, Paths, Probe, Results, Retire, RuleId, RuleUse,
    Trace, TraceStep, Tuple,
};
pub use realized::{Report, ReportTo};
pub use replicas::{Next, Replicas};
pub use waiting::{Answer, PodId, Ticket, WAIT, WAITING_MAX};

#[cfg(test)]
mod tests;

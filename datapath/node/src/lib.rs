//! The state of policy on a node: the snapshot, the endpoints, the pods that wait, and the outcome of the backend.
//!
//! [`Node`] takes events with the time and returns [`Effect`]s, which the agent carries out: a state for the backend,
//! answers for pods that start, reports and announcements for the controller's replicas, records for the disk.
//! [`Replicas`] chooses the replica that is tried next; [`store`] is the format on the disk.
//!
//! A pod starts when the backend has put into force a state with the pod's own entry, by UID, and has reported the
//! pod's own endpoint as in force. An unknown UID is never taken for a pod without policies.

mod desired;
mod node;
mod outcome;
mod realized;
mod replicas;
pub mod store;
mod waiting;

pub use desired::{Changed, Desired, Endpoint, Endpoints, LocalPod, ServiceName, Services};
pub use node::{Effect, Links, Node, Overview, START_LIMIT};
pub use outcome::{Applied, BackendEvent, Flow, Observed, Retire, Trace, TraceStep, Tuple};
pub use realized::{Report, ReportTo};
pub use replicas::{Next, Replicas};
pub use waiting::{Answer, PodId, Ticket, WAIT, WAITING_MAX};

#[cfg(test)]
mod tests;

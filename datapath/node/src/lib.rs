//! What a node holds of policy, who waits for it, and what becomes of it.
//!
//! [`Node`] is told what happens and when, and answers with [`Effect`]s that somebody else carries out: a
//! state for the backend, answers for pods that start, reports and announcements for the controller's
//! replicas, records for the disk. [`Replicas`] says which replica is tried next; [`store`] is what lies on the disk.
//!
//! A pod is let through when it has an entry of its own, by UID, in what the backend has put into force.
//! A UID that was never heard of is never taken for a pod without policies.

mod desired;
mod node;
mod realized;
mod replicas;
pub mod store;
mod waiting;

pub use desired::{Applied, Desired, LocalPod};
pub use node::{Effect, Node, Overview, START_LIMIT};
pub use realized::{Report, ReportTo};
pub use replicas::{Next, Replicas};
pub use waiting::{Answer, PodId, Ticket, WAIT, WAITING_MAX};

#[cfg(test)]
mod tests;

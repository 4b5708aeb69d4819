//! The state of a controller replica as documents of a Kubernetes API: policies and groups with their spans, and the
//! state of each node.
//!
//! The API is `view.policy.ferrule.io/v1alpha1`, cluster-scoped and read-only. [`answer`] maps a path and a query to a
//! status and a document; its caller authorizes the request. [`Reports`] holds the nodes' reports on the replica that
//! collects them.

mod answer;
mod document;
mod reports;

pub use answer::{Answer, Query, answer};
pub use document::{Agent, Failing, Group, Meta, Peer, Policy, Realized, Stream};
pub use reports::Reports;

pub const GROUP: &str = "view.policy.ferrule.io";
pub const VERSION: &str = "v1alpha1";

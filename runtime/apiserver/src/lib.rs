//! The connection to the API server, which daemon, agent and controller share.
//!
//! [`client`] creates a client from a kubeconfig or a pod's service account. [`Backoff`] yields the pauses between
//! attempts.

mod backoff;
mod connect;

pub use backoff::{Backoff, up_to};
pub use connect::{Unusable, client};

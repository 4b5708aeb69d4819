//! The way to the API server, which daemon, agent and controller go alike: [`client`] makes one, from a kubeconfig or
//! the service account of a pod, and [`Backoff`] says how long to pause between attempts.

mod backoff;
mod connect;

pub use backoff::{Backoff, up_to};
pub use connect::{Unusable, client};

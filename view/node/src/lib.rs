//! What `ferrule-ipamd` says of its node to people, as documents: the daemon writes them, `ferrule` reads them.
//!
//! Data alone. Fields that a reader does not know are passed over and those that a writer lacks are
//! empty, so the two may be of different versions. Start with [`Status`].

mod status;

pub use status::{Budget, Held, Limits, Pool, Severity, Status, Trouble, WaitingAdd};

/// Where introspection has [`Status`].
pub const STATUS: &str = "/v1/ferrule/status";
/// Where it has who holds what, a list of [`Held`].
pub const PODS: &str = "/v1/ferrule/pods";

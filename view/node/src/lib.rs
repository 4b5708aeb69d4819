//! The documents in which `ferrule-ipamd` reports its node: the daemon writes them and `ferrule` reads them.
//!
//! The crate has data types only. A reader ignores unknown fields, and missing fields are empty, so the versions
//! of the two may differ. Start with [`Status`].

mod addresses;
mod paths;
mod status;
mod subnet;

pub use addresses::{Addresses, Eni, PodRef, UsedAddress};
pub use paths::Paths;
pub use status::{
    Budget, Limits, PodAssignment, Pool, PoolSettings, Severity, Status, Trouble, WaitingAdd,
};
pub use subnet::{Sample, Subnet};

/// The introspection path of [`Status`].
pub const STATUS: &str = "/v1/ferrule/status";
/// The introspection path of the reservations, a list of [`PodAssignment`].
pub const PODS: &str = "/v1/ferrule/pods";
/// The introspection path of a pod's [`Paths`], before its UID. The document is null if no `ferrule-agent` runs on the node.
pub const PATHS: &str = "/v1/ferrule/paths";
/// The introspection path of [`Addresses`].
pub const ADDRESSES: &str = "/v1/ferrule/addresses";

//! Reads the objects that policy needs from a cluster, by lists. Programs that follow a cluster use watches instead.
//!
//! [`Cluster::connect`] takes a kubeconfig as kubectl does. [`Cluster::served`] lists the kinds of policy that the API
//! server has, and the network policies of other vendors, which Ferrule does not enforce. [`Cluster::list`] reads all
//! objects of one kind.

mod cluster;
mod error;
mod list;
mod served;

pub use cluster::{Access, Cluster};
pub use error::KubeError;
pub use list::{Item, Listed};
pub use served::{Resource, is_policy};

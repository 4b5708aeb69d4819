//! What policy reads of a cluster, by lists: for people who ask once. Who follows the cluster watches it.
//!
//! [`Cluster::connect`] takes a kubeconfig as kubectl does. [`Cluster::served`] says which of policy's kinds, and
//! which network policies that nobody here enforces, the API server has; [`Cluster::list`] reads all
//! objects of one.

mod cluster;
mod error;
mod list;
mod served;

pub use cluster::Cluster;
pub use error::KubeError;
pub use list::{Item, Listed};
pub use served::{Resource, is_policy};

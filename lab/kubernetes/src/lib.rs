//! A real Kubernetes on this machine.
//!
//! The control plane is etcd, API server, controller manager and scheduler. Nodes of the lab run kubelets, runtimes
//! and proxies, and third-party programs run with them.
//!
//! Everything is built from its Go modules on the first use and kept outside the clone ([`Program`]). [`Cluster`]
//! starts a control plane on loopback and ends it when it is dropped. The kernel ends it if its process is killed.
//!
//! ```no_run
//! # fn main() -> anyhow::Result<()> {
//! let cluster = lab_kubernetes::Cluster::start(&lab_kubernetes::ClusterSpec::default())?;
//! println!("KUBECONFIG={}", cluster.kubeconfig().display());
//! # Ok(())
//! # }
//! ```

mod access;
mod component;
pub mod keep;
mod launch;
pub mod node;
pub mod objects;
mod ports;
mod started;

pub use access::{Access, Identity};
pub use lab_programs::{KUBERNETES_VERSION as VERSION, Program, image};
pub use ports::free_ports;
pub use started::{Cluster, ClusterSpec, InLab, Part, client};

/// Address of the name server's Service, for pods.
pub const CLUSTER_DNS: &str = "172.20.0.10";

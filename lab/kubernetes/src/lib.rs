//! A real Kubernetes on this machine: etcd, API server, controller manager, scheduler; kubelets, runtimes and
//! proxies on nodes of the lab; and the programs of others that run with them.
//!
//! Everything is built from its Go modules the first time and kept outside the clone ([`Program`]). [`Cluster`] starts a control plane on loopback and ends it when it is dropped; should its process be
//! killed, the kernel ends it.
//!
//! ```no_run
//! # fn main() -> anyhow::Result<()> {
//! let cluster = lab_kubernetes::Cluster::start(&lab_kubernetes::Wanted::default())?;
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
pub use started::{Cluster, InLab, Part, Wanted, client};

/// Where pods find the name server: a Service.
pub const CLUSTER_DNS: &str = "172.20.0.10";

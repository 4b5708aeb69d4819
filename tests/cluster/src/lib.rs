//! A real Kubernetes to test against: etcd, API server, controller manager, scheduler.
//!
//! One program of them all is built from Kubernetes' own Go modules (`kubernetes/`) the first time and
//! kept outside the clone ([`Program`]). [`Cluster`] starts what a test needs of it, on free ports of
//! loopback, and ends it when it is dropped; should the test itself be killed, the kernel ends it.
//! `ferrule-cluster`, behind `cargo xtask cluster`, keeps one running for people.
//!
//! ```no_run
//! # fn main() -> anyhow::Result<()> {
//! let cluster = tests_cluster::Cluster::start(&tests_cluster::Wanted::default())?;
//! println!("KUBECONFIG={}", cluster.kubeconfig().display());
//! # Ok(())
//! # }
//! ```

mod access;
mod component;
pub mod keep;
mod program;
mod started;

pub use access::{Access, Identity};
pub use program::{Program, VERSION};
pub use started::{Cluster, Part, Wanted, client};

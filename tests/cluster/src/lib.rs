//! A real Kubernetes for tests: the control plane of [`lab_kubernetes`], without nodes.
//!
//! [`Cluster`] starts the required components on free ports of loopback. `ferrule-cluster`, which `cargo
//! xtask cluster` runs, keeps one running for people.

pub use lab_kubernetes::{
    Access, Cluster, ClusterSpec, Identity, Part, Program, VERSION, client, free_ports, keep,
};

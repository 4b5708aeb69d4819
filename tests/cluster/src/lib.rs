//! A real Kubernetes to test against: the control plane of [`lab_kubernetes`], without nodes.
//!
//! [`Cluster`] starts what a test needs of it, on free ports of loopback. `ferrule-cluster`, behind
//! `cargo xtask cluster`, keeps one running for people.

pub use lab_kubernetes::{
    Access, Cluster, Identity, Part, Program, VERSION, ClusterSpec, client, free_ports, keep,
};

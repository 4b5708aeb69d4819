//! Benchmarks: figures with references of the same run.
//!
//! - `bench-add` (`src/bin/add`) measures ADD and DEL on a lab's node.
//! - `bench-route` (`src/bin/route`) measures the cost of pod rules for a packet.
//! - `bench-pool` (`src/bin/pool.rs`) compares the pool with amazon-vpc-cni's algorithm in
//!   simulated time. Start in [`pool`].
//! - `bench-enforce` (`src/bin/enforce`) measures the backend `ebpf`: verdicts, changes, memory.
//! - `bench-service` (`src/bin/service`) measures Services in the backend `ebpf`, beside kube-proxy.
//! - `bench-policy` (`src/bin/policy.rs`) measures the time from pages of lists to all groups
//!   and spans. Start in [`policy`].

pub mod agent;
pub mod authority;
pub mod cores;
pub mod figures;
pub mod namespace;
pub mod policy;
pub mod pool;
pub mod world;

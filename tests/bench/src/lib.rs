//! Benchmarks: figures beside what they are compared with, taken within one run.
//!
//! - `bench-add` (`src/bin/add`) measures ADD and DEL on a lab's node.
//! - `bench-route` (`src/bin/route`) measures what rules for pods cost a packet.
//! - `bench-pool` (`src/bin/pool.rs`) holds the pool against amazon-vpc-cni's algorithm in
//!   simulated time. Start in [`pool`].
//! - `bench-policy` (`src/bin/policy.rs`) goes from pages of lists to all groups and spans. Start in
//!   [`policy`].

pub mod figures;
pub mod policy;
pub mod pool;

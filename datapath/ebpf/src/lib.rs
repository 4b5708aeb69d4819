//! Loads the eBPF programs and writes their maps.
//!
//! The programs are compiled from `datapath/bpf`. No backend uses this crate yet: the agent does not enforce policy.

mod programs;

pub use programs::{Hook, LoadError, Programs};

//! A real container runtime on a node of the lab, driven over CRI as a kubelet does.
//!
//! Start at [`Node`]: a lab whose first node runs containerd and runc, with `ferrule-cni` as the node's
//! network. All calls of the plugin come from containerd, which also uses the results.
//!
//! All processes run in a process and mount namespace below the node's. So the end of its first process ends
//! all of them, even if the test panics.

mod client;
mod containerd;
mod image;
mod node;
mod program;
mod wire;

pub use client::Cri;
pub use containerd::Containerd;
pub use node::{Node, Sandbox};
pub use program::Program;
pub use wire::{
    PodSandboxConfig, PodSandboxState, PodSandboxStatus, PortMapping, RuntimeCondition,
};

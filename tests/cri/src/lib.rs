//! A real container runtime on a node of the lab, driven over CRI as a kubelet does.
//!
//! [`Node`] is where to start: a lab whose first node runs containerd and runc, with our plugin as the
//! node's network. The lab plays no runtime here: who calls the plugin, how often, with what, and what
//! becomes of its results is containerd's to say.
//!
//! Everything that is started runs in a process and mount namespace of its own below the node's, so it
//! goes with one process, whatever became of the test.

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

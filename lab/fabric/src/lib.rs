//! Network namespaces that behave like a VPC.
//!
//! A [`Fabric`] is one lab's network. It has a namespace for the VPC's router and mapping service, and one for a
//! host on the internet. Each node has a network, mount and UTS namespace.
//!
//! The desired state is a [`DesiredFabric`], derived from the cloud model. [`Fabric::apply`] observes the existing state,
//! plans the difference and applies it. Everything is in the lab's own state directory, so that [`Fabric::remove`]
//! can clean up after a killed process.
//!
//! Each node also has a cgroup in the machine's tree of cgroup v2, if the machine has one. The programs that enter the
//! node are in it, so programs for eBPF at that cgroup act for this node only.
//!
//! The fabric must never touch the machine's own network namespace, its sysctls, `/etc/cni`, `/opt/cni` or
//! `/run/netns`. It must never signal a process outside the lab's namespaces, and it removes only cgroups with the
//! lab's own prefix.
//!
//! Start reading at [`Fabric`], then [`Node`]. Programs run in a node by re-executing the calling binary, so that
//! binary's `main` must first pass its arguments to [`enter::dispatch`].
//!
//! Tested as root against the real kernel in `tests/`.

mod balancer;
mod cgroup;
mod counters;
mod desired;
pub mod enter;
mod error;
mod fabric;
mod internet;
mod namespace;
mod node;
mod pod;
pub mod probe;
pub mod process;
mod remove;
mod router;
mod rules;
mod state;
mod sysctl;
mod table;
mod tool;

pub use balancer::{BALANCER_ADDRESSES, BALANCER_ADDRESSES_V6, Forwarding, Transport};
pub use cgroup::cgroup_prefix;
pub use counters::{Counters, DropReason, EniCounters, Packets};
pub use desired::{
    DesiredFabric, EniSpec, GroupRule, GroupSpec, NicProfile, NodeSpec, Peer, Power, Protocol,
    Subnet, Vpc, public_address_of,
};
pub use error::FabricError;
pub use fabric::{Applied, Fabric};
pub use internet::{
    FURTHER_CLIENTS, INTERNET_ADDRESSES, INTERNET_HOST, INTERNET_HOST_V6, InternetHost,
};
pub use node::{Node, OWN_FOLDERS};
pub use remove::Removed;
pub use tool::tools_are_there;

//! One lab's network, and the loop that makes it what is wanted.

use crate::{Counters, FabricError, InternetHost, Node, Removed, Vpc, Wanted};
use config_model::EniId;
use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket},
    path::{Path, PathBuf},
};

/// One lab's network.
///
/// Its state is the kernel's and the state directory's: a second process may [`Fabric::open`] it.
/// Dropping it takes nothing down; see [`Fabric::remove`].
#[derive(Debug)]
pub struct Fabric {}

/// What one [`Fabric::apply`] changed; all empty when nothing was to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Nodes that came up.
    pub booted: Vec<String>,
    /// Nodes that went down; a rebooted one is in both lists.
    pub halted: Vec<String>,
    /// ENIs that appeared in their node.
    pub attached: Vec<EniId>,
    /// ENIs that vanished.
    pub detached: Vec<EniId>,
    /// Addresses that the router learnt or forgot.
    pub remapped: usize,
}

impl Fabric {
    /// Makes a lab's VPC and internet namespaces; `state_dir` must be absolute, and empty or absent.
    ///
    /// # Errors
    /// A directory that holds a lab already, missing privileges, missing tools.
    pub fn create(state_dir: &Path, vpc: &Vpc) -> Result<Self, FabricError> {
        todo!()
    }

    /// Opens the lab that another process made.
    ///
    /// # Errors
    /// When there is none.
    pub fn open(state_dir: &Path) -> Result<Self, FabricError> {
        todo!()
    }

    /// Takes everything down that the directory knows of, kills what runs in the lab's namespaces,
    /// and deletes the directory. Does nothing when there is none.
    ///
    /// # Errors
    /// What could not be removed; calling it again goes on.
    pub fn remove(state_dir: &Path) -> Result<Removed, FabricError> {
        crate::remove::remove(state_dir)
    }

    /// Names the binary that [`crate::enter::dispatch`]es; by default the one that runs.
    #[must_use]
    pub fn with_enter_binary(mut self, binary: PathBuf) -> Self {
        todo!()
    }

    /// Observes what exists and makes it what is wanted.
    ///
    /// # Errors
    /// The first step that failed; the next call observes anew and goes on.
    pub fn apply(&mut self, wanted: &Wanted) -> Result<Applied, FabricError> {
        todo!()
    }

    /// The state directory.
    pub fn state_dir(&self) -> &Path {
        todo!()
    }

    /// The VPC's facts.
    pub fn vpc(&self) -> &Vpc {
        todo!()
    }

    /// A handle on a node, which may be off.
    ///
    /// # Errors
    /// When the lab has no node of that name.
    pub fn node(&self, name: &str) -> Result<Node, FabricError> {
        todo!()
    }

    /// All nodes, by name.
    ///
    /// # Errors
    /// When the state directory cannot be read.
    pub fn nodes(&self) -> Result<Vec<Node>, FabricError> {
        todo!()
    }

    /// What the router counted since the lab was made.
    ///
    /// # Errors
    /// When the ruleset cannot be read.
    pub fn counters(&self) -> Result<Counters, FabricError> {
        todo!()
    }

    /// A TCP listener inside the VPC namespace, where 169.254.169.254 and the EC2 endpoint are.
    ///
    /// # Errors
    /// When the address is taken or is not the VPC's.
    pub fn listen_in_vpc(&self, at: SocketAddr) -> Result<TcpListener, FabricError> {
        todo!()
    }

    /// Starts the internet's host: TCP and UDP echo on port 7 of [`crate::INTERNET_HOST`]. ICMP echo
    /// answers without it.
    ///
    /// # Errors
    /// When the ports are taken.
    pub fn serve_internet(&self) -> Result<InternetHost, FabricError> {
        todo!()
    }
}

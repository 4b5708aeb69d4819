//! A node: network, mount and UTS namespaces without a process of their own.

use crate::FabricError;
use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Command,
};

/// The folders that are a node's own and lie on the machine under the node's state.
///
/// All but `/run` are its disk and survive a reboot. The rest of its `/etc`, `/opt` and `/var` shows
/// the machine's, and what is written there goes with the boot.
pub const OWN_FOLDERS: [&str; 6] =
    ["/run", "/etc/cni/net.d", "/opt/cni/bin", "/var/lib/cni", "/var/lib/ferrule", "/var/log"];

/// A handle on a node; cheap to clone, holds nothing open.
#[derive(Clone, Debug)]
pub struct Node {}

impl Node {
    /// The lab's name for it.
    pub fn name(&self) -> &str {
        todo!()
    }

    /// Its host name.
    pub fn hostname(&self) -> &str {
        todo!()
    }

    /// Whether its namespaces exist.
    pub fn is_up(&self) -> bool {
        todo!()
    }

    /// The id of its present boot.
    ///
    /// # Errors
    /// When it is off.
    pub fn boot_id(&self) -> Result<String, FabricError> {
        todo!()
    }

    /// Where a path in one of the node's [`OWN_FOLDERS`] lies on the machine, so that others can
    /// read its logs or put a binary into it; `None` for any other path.
    pub fn on_machine(&self, inside: &Path) -> Option<PathBuf> {
        todo!()
    }

    /// A command that runs in the node as root, as on its console.
    ///
    /// Like `Command::new`: arguments, environment and streams are the caller's to set.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        todo!()
    }

    /// A command that runs as the daemon's container will: the node's network, exactly
    /// `CAP_NET_ADMIN` and `CAP_NET_RAW`, `/proc/sys` read-only with `/proc/sys/net` writable at
    /// [`crate::enter::HOST_PROC_SYS_NET`], and an environment of `PATH` and `env` alone.
    pub fn contained_command<K, V>(
        &self,
        program: impl AsRef<OsStr>,
        env: impl IntoIterator<Item = (K, V)>,
    ) -> Command
    where
        K: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        todo!()
    }

    /// A command that runs in the network namespace `/run/netns/<pod>` of the node.
    pub fn pod_command(&self, pod: &str, program: impl AsRef<OsStr>) -> Command {
        todo!()
    }

    /// Makes the network namespace of a pod, with `lo` up, as a runtime does; returns its path as
    /// the node sees it, `/run/netns/<pod>`.
    ///
    /// # Errors
    /// When the node is off or has one of that name.
    pub fn add_pod(&self, pod: &str) -> Result<PathBuf, FabricError> {
        todo!()
    }

    /// Kills what runs in the pod's namespace and removes it; absence is success.
    ///
    /// # Errors
    /// When the node is off or a process cannot be ended.
    pub fn remove_pod(&self, pod: &str) -> Result<(), FabricError> {
        todo!()
    }

    /// The pods' namespaces, by name.
    ///
    /// # Errors
    /// When the node is off.
    pub fn pods(&self) -> Result<Vec<String>, FabricError> {
        todo!()
    }

    /// Runs `task` on a thread that is inside the node's namespaces and returns what it returned.
    ///
    /// Files and sockets it opens are the node's and may be handed out; children it starts are in
    /// the node.
    ///
    /// # Errors
    /// When the node is off.
    pub fn inside<T: Send>(&self, task: impl FnOnce() -> T + Send) -> Result<T, FabricError> {
        todo!()
    }

    /// As [`Node::inside`], in the network namespace of a pod.
    ///
    /// # Errors
    /// When the node is off or has no such pod.
    pub fn inside_pod<T: Send>(
        &self,
        pod: &str,
        task: impl FnOnce() -> T + Send,
    ) -> Result<T, FabricError> {
        todo!()
    }
}

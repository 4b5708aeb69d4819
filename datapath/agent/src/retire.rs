//! The end of enforcement on purpose: `ferrule-agent retire`.

use crate::reserved_ports::NodePorts;
use anyhow::{Context as _, Result, bail};
use config_settings::Agent;
use datapath_ebpf::Attachments;
use runtime_journal::{DiskFolder, OpenError};
use std::{os::unix::net::UnixStream, path::Path};

/// Removes all programs of the backend `ebpf` from this node: its pods are open. Releases the source ports of Services.
/// `proc_sys_net` is the writable path of the host's `/proc/sys/net`. Returns the number of removed objects.
///
/// # Errors
/// An agent runs, or the kernel refuses a removal.
pub fn retire(agent: &Agent, proc_sys_net: &Path) -> Result<Attachments> {
    if UnixStream::connect(&agent.socket).is_ok() {
        let socket = agent.socket.display();
        bail!("cannot open the pods: a ferrule-agent serves {socket}; stop it and run this again");
    }
    // Until the end no agent starts. An agent that never ran has no folder.
    let lock = agent.state_dir.is_dir().then(|| DiskFolder::open(&agent.state_dir));
    let _lock = match lock.transpose() {
        Err(error @ OpenError::InUse { .. }) => {
            bail!("cannot open the pods: {error}; stop ferrule-agent and run this again")
        }
        lock => lock.context("cannot open the pods: run as root")?,
    };
    let removed = Attachments::remove(&agent.bpf_pins)?;
    if !removed.is_empty() {
        let Attachments { filters, tcx_links, folders } = removed;
        tracing::warn!(
            filters,
            tcx_links,
            folders,
            "enforcement is removed on request: the pods of this node are open"
        );
    }
    NodePorts::of(proc_sys_net, &agent.state_dir).release_and_log();
    Ok(removed)
}

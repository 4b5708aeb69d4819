//! What people ask of a whole cluster, with a kubeconfig and its rights alone.
//!
//! Each node's daemon tells of itself on its loopback; it is reached as kubectl does it, by a port that the
//! API server and the node's kubelet forward ([`forward`]). [`cli_cluster`] judges what comes.

mod api;
mod args;
mod forward;
mod pod;
mod progress;
mod status;

pub(crate) use args::{POD_CODES, PodArgs, STATUS_CODES, StatusArgs};

use anyhow::{Context as _, Result};

/// The exit code when something is wrong.
const TROUBLE: u8 = 1;

/// Tells how each node's pool is; the exit code.
///
/// # Errors
/// The cluster is not reached.
pub(crate) fn status(args: &StatusArgs) -> Result<u8> {
    run(status::run(args))
}

/// Tells where a pod's network is, and why it waits; the exit code.
///
/// # Errors
/// The cluster is not reached, or there is no such pod.
pub(crate) fn pod(args: &PodArgs) -> Result<u8> {
    run(pod::run(args))
}

fn run<T>(asked: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.context("start what speaks to the cluster")?.block_on(asked)
}

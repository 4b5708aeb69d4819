//! What people ask of a whole cluster, with a kubeconfig and its rights alone.
//!
//! Each node's daemon tells of itself on its loopback; it is reached as kubectl does it, by a port that the
//! API server and the node's kubelet forward ([`forward`]). [`view_cluster`] judges what comes.

mod api;
mod args;
mod bundle;
mod check;
mod forward;
mod interrupts;
mod pod;
mod progress;
mod status;

pub(crate) use args::{
    BUNDLE, BundleArgs, CHECK_CODES, CheckArgs, POD_CODES, PodArgs, STATUS_CODES, StatusArgs,
};

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

/// Writes a support archive; the exit code.
///
/// # Errors
/// The cluster is not reached, or the archive cannot be written.
pub(crate) fn bundle(args: &BundleArgs) -> Result<u8> {
    run(bundle::run(args))
}

/// Tries what pods must reach from every node; the exit code.
///
/// # Errors
/// The cluster is not reached, probes cannot be made, or it was interrupted.
pub(crate) fn check(args: &CheckArgs) -> Result<u8> {
    run(check::run(args))
}

fn run<T>(asked: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.context("start what speaks to the cluster")?.block_on(asked)
}

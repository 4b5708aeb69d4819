//! Commands about a whole cluster. They use only a kubeconfig and its rights.
//!
//! Each daemon's introspection listens on its node's loopback. The command reaches it through the API server's
//! port-forward ([`forward`]), as kubectl does. [`view_cluster`] judges the answers.

mod api;
mod args;
mod bundle;
mod check;
mod forward;
mod interrupts;
mod ip;
mod parallel;
mod pod;
mod proxy;
mod service;
mod status;
mod version;

pub(crate) use args::{
    BUNDLE, BundleArgs, CHECK_CODES, CheckArgs, POD_CODES, PodArgs, SERVICE, STATUS_CODES,
    ServiceArgs, StatusArgs, VERSION_CODES, VersionArgs,
};
pub(crate) use ip::{IP, IpArgs};
pub(crate) use proxy::{SERVICES_CODES, ServicesApplyArgs, ServicesPlanArgs, ServicesRollbackArgs};

use anyhow::{Context as _, Result};

/// The exit code if there is a problem.
const TROUBLE: u8 = 1;
/// The exit code without a problem, if something could not be read.
const INCOMPLETE: u8 = 2;

fn exit_code(is_good: bool, is_complete: bool) -> u8 {
    match (is_good, is_complete) {
        (false, _) => TROUBLE,
        (true, false) => INCOMPLETE,
        (true, true) => 0,
    }
}

/// Prints the overview of all nodes and returns the exit code.
///
/// # Errors
/// The API server cannot be reached.
pub(crate) fn status(args: &StatusArgs) -> Result<u8> {
    run(status::run(args))
}

/// Prints a pod's network and the reason why it waits. Returns the exit code.
///
/// # Errors
/// The API server cannot be reached, or the pod does not exist.
pub(crate) fn pod(args: &PodArgs) -> Result<u8> {
    run(pod::run(args))
}

/// Prints a Service with the reasons for its backends, or a list of Services. Returns the exit code.
///
/// # Errors
/// The API server cannot be reached, or the Service or the node does not exist.
pub(crate) fn service(args: &ServiceArgs) -> Result<u8> {
    run(service::run(args))
}

/// Prints the use of addresses, or the faults in it, and returns the exit code.
///
/// # Errors
/// The API server cannot be reached.
pub(crate) fn ip(args: &IpArgs) -> Result<u8> {
    run(ip::run(args))
}

/// Writes a support archive and returns the exit code.
///
/// # Errors
/// The API server cannot be reached, or the archive cannot be written.
pub(crate) fn bundle(args: &BundleArgs) -> Result<u8> {
    run(bundle::run(args))
}

/// Tests connections from every node and returns the exit code.
///
/// # Errors
/// The API server cannot be reached, the probes cannot be created, or the command was interrupted.
pub(crate) fn check(args: &CheckArgs) -> Result<u8> {
    run(check::run(args))
}

/// Prints the steps that replace kube-proxy and the reasons against them, and returns the exit code.
///
/// # Errors
/// The API server cannot be reached.
pub(crate) fn plan_services(args: &ServicesPlanArgs) -> Result<u8> {
    run(proxy::plan(args))
}

/// Replaces kube-proxy and returns the exit code.
///
/// # Errors
/// The API server cannot be reached, or refuses a step.
pub(crate) fn apply_services(args: &ServicesApplyArgs) -> Result<u8> {
    run(proxy::apply(args))
}

/// Brings kube-proxy back and returns the exit code.
///
/// # Errors
/// The API server cannot be reached, or refuses a step.
pub(crate) fn roll_back_services(args: &ServicesRollbackArgs) -> Result<u8> {
    run(proxy::roll_back(args))
}

/// Prints the versions of the tool and the cluster. Returns the exit code.
///
/// # Errors
/// The API server cannot be reached.
pub(crate) fn version(args: &VersionArgs) -> Result<u8> {
    run(version::run(args))
}

fn run<T>(asked: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.context("cannot start the async runtime")?.block_on(asked)
}

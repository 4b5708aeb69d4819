//! `exec`: this process becomes the command, in the namespaces of a node, a pod, or the client outside the VPC.

use crate::{control::PodView, serve::Layout};
use anyhow::{Context as _, Result, bail};
use lab_fabric::Fabric;
use std::{
    ffi::OsString,
    os::unix::process::CommandExt as _,
    process::{Command, ExitCode},
};

pub(super) fn node(layout: &Layout, node: &str, command: &[String]) -> Result<ExitCode> {
    let name = node;
    let node = open(layout)?.node(name)?;
    if !node.is_up() {
        bail!("node {name} is down; start it: ferrule-lab node start {name}");
    }
    let (program, args) = command.split_first().context("no command was given")?;
    become_it(node.command(program), args)
}

/// Outside the VPC.
pub(super) fn client(layout: &Layout, command: &[String]) -> Result<ExitCode> {
    let (program, args) = command.split_first().context("no command was given")?;
    become_it(open(layout)?.client_command(program), args)
}

pub(super) fn pod(layout: &Layout, pod: &PodView, command: &[String]) -> Result<ExitCode> {
    if !pod.has_namespace {
        bail!(
            "pod {0}/{1} lost its namespace when node {2} went down; delete it: \
             ferrule-lab pod delete {0}/{1}",
            pod.namespace,
            pod.name,
            pod.node
        );
    }
    let node = open(layout)?.node(&pod.node)?;
    let (program, args) = command.split_first().context("no command was given")?;
    become_it(node.pod_command(&pod.netns, program), args)
}

fn open(layout: &Layout) -> Result<Fabric> {
    Ok(Fabric::open(&layout.fabric())?)
}

fn become_it(mut command: Command, args: &[String]) -> Result<ExitCode> {
    command.args(args);
    if let Some(path) = path_with_ours() {
        command.env("PATH", path);
    }
    Err(command.exec()).context("enter the namespaces")
}

/// The programs beside this one come first, so that `ferrule-ipamd` is found by name.
fn path_with_ours() -> Option<OsString> {
    let ours = std::env::current_exe().ok()?.parent()?.to_owned();
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(std::iter::once(ours).chain(std::env::split_paths(&path))).ok()
}

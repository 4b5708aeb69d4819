//! `ferrule migrate services`: observes the cluster, plans, applies the first step and observes again.
//!
//! [`cli_migrate::services`] decides. [`read`] reads the objects, [`steps`] applies a step, and [`cleaner`] has the
//! DaemonSet that removes kube-proxy's rules.

mod args;
mod cleaner;
mod print;
mod read;
mod steps;

pub(crate) use args::{SERVICES_CODES, ServicesApplyArgs, ServicesPlanArgs, ServicesRollbackArgs};

use super::api::Api;
use crate::{awaited::Awaited, output, progress::Progress};
use anyhow::{Context as _, Result};
use args::{ServicesCluster, To};
use cli_migrate::services::{self, Goal, Observation, Plan, Request, Step, Wait, nodes_to_ask};
use policy_kube::KubeError;
use read::Reader;
use std::{collections::BTreeSet, time::Duration};
use tokio::time::sleep;

/// The exit code if the plan has a blocker.
const BLOCKED: u8 = 1;
/// The exit code after a timeout.
const NOT_YET: u8 = 2;
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// The number of conflicts in a row after which a step fails.
const CONFLICTS: u32 = 5;

/// Prints the checks and the steps, and returns the exit code.
pub(super) async fn plan(args: &ServicesPlanArgs) -> Result<u8> {
    let goal = match args.to {
        To::Ferrule => Goal::Ferrule,
        To::KubeProxy => Goal::KubeProxy,
    };
    let request = request(goal, args.remove_kube_proxy, &args.node);
    let api = Api::connect(&args.cluster.target).await?;
    let mut reader = Reader::new(&api, &args.cluster);
    let mut progress = Progress::new();
    let (seen, plan) = observe(&mut reader, &request, true, &mut progress).await?;
    drop(progress);
    match args.output.is_text() {
        true => output::write_text(&print::text(&seen, &plan, &request))?,
        false => args.output.write(&print::document(&seen, &plan, &request))?,
    }
    Ok(if plan.is_blocked() { BLOCKED } else { 0 })
}

/// Replaces kube-proxy and returns the exit code.
pub(super) async fn apply(args: &ServicesApplyArgs) -> Result<u8> {
    let request = request(Goal::Ferrule, args.remove_kube_proxy, &args.node);
    go(&args.cluster, &request, args.wait).await
}

/// Brings kube-proxy back and returns the exit code.
pub(super) async fn roll_back(args: &ServicesRollbackArgs) -> Result<u8> {
    let request = request(Goal::KubeProxy, false, &args.node);
    go(&args.cluster, &request, args.wait).await
}

fn request(goal: Goal, remove: bool, nodes: &[String]) -> Request {
    Request { goal, remove, nodes: nodes.iter().cloned().collect() }
}

/// Applies the first step of the plan and plans again, until no step remains.
async fn go(cluster: &ServicesCluster, request: &Request, wait: u64) -> Result<u8> {
    let api = Api::connect(&cluster.target).await?;
    let mut reader = Reader::new(&api, cluster);
    let (mut awaited, mut conflicts) = (Awaited::new(wait), 0);
    loop {
        let (seen, plan) = observe(&mut reader, request, false, &mut Progress::hidden()).await?;
        if plan.is_blocked() {
            output::write_text(&print::text(&seen, &plan, request))?;
            return Ok(BLOCKED);
        }
        let Some(step) = plan.steps.first() else {
            output::write_text(&print::text(&seen, &plan, request))?;
            return Ok(0);
        };
        let Step::Await(what) = step else {
            output::write_text(&format!("{step}\n"))?;
            match steps::take(&api, cluster, reader.objects(), step).await {
                // Controllers write the status of a DaemonSet at any time, so the step is planned again.
                Err(error) if conflicts < CONFLICTS && is_conflict(&error) => conflicts += 1,
                taken => {
                    taken.with_context(|| step.to_string())?;
                    conflicts = 0;
                }
            }
            awaited.end();
            reader.forget();
            continue;
        };
        if awaited.is_new(what, Wait::is_same) {
            output::write_text(&format!("{step}\n"))?;
        }
        if awaited.has_expired() {
            let next = match request.goal {
                Goal::Ferrule => "run the command again, or bring kube-proxy back with rollback",
                Goal::KubeProxy => "run the command again",
            };
            output::write_text(&format!("timeout after {wait} s: {what}; {next}\n"))?;
            return Ok(NOT_YET);
        }
        sleep(LOOK_AGAIN).await;
    }
}

/// Returns true if another client has changed the object since it was read.
fn is_conflict(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(KubeError::Conflict { .. }))
}

/// Observes and plans. With `all`, all agents that the plan depends on are asked.
async fn observe(
    reader: &mut Reader<'_>,
    request: &Request,
    all: bool,
    progress: &mut Progress,
) -> Result<(Observation, Plan)> {
    reader.read().await?;
    let mut seen = reader.objects().observation();
    let nodes: BTreeSet<String> = nodes_to_ask(&seen, request, all);
    for (node, serving) in reader.ask(&seen, &nodes, progress).await? {
        if let Some(agent) = seen.nodes.get_mut(&node).and_then(|node| node.agent.as_mut()) {
            agent.serving = serving;
        }
    }
    let plan = services::plan(&seen, request);
    Ok((seen, plan))
}

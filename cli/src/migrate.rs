//! `ferrule migrate`: observes, plans, applies the first step and observes again.

mod apply;
mod cluster;
mod observe;
mod root;
mod rules;
mod run_lock;
mod settings;

use crate::{
    args::{MigrateArgs, MigrateVerb, OwnPolicy, Places, Policy, ServicesVerb, Side},
    awaited::Awaited,
    cluster::{apply_services, plan_services, roll_back_services},
    output::{self, Output},
};
use anyhow::{Context as _, Result};
use apply::Applier;
use cli_migrate::{Check, Cluster, Observation, Observed, Plan, PolicyChoice, Refusal, Step, plan};
use config_model::Owner;
use run_lock::RunLock;
use serde_json::json;
use std::{path::Path, thread, time::Duration};
use view_text::counted;

/// The exit code if the plan has refusals.
const REFUSED: u8 = 1;
/// The exit code after a timeout.
const NOT_YET: u8 = 2;
const LOOK_AGAIN: Duration = Duration::from_millis(300);

/// Runs the subcommand and returns the exit code.
///
/// # Errors
/// A step fails, or nothing can be printed.
pub(crate) fn run(args: &MigrateArgs) -> Result<u8> {
    // The cluster's credentials are files of the container, so the cluster is read before the change of root.
    let root = args.root.as_path();
    let unread = || Err("this command does not read the cluster".to_owned());
    match &args.verb {
        MigrateVerb::Services(verb) => services(verb, root),
        MigrateVerb::Check { cluster, output } => {
            let cluster = cluster::observe(cluster);
            root::enter(root)?;
            check(&cluster, *output)
        }
        MigrateVerb::Plan { to, output, policy, places, cluster } => {
            let cluster = match to {
                Side::Ferrule => cluster::observe_named(cluster),
                Side::AmazonVpcCni => unread(),
            };
            root::enter(root)?;
            let seen = observe::observe(places, &cluster, false);
            let plan = plan(&seen, owner(*to), choice(*policy));
            output::write_raw(&match output {
                Output::Text => text(&plan),
                Output::Json | Output::Yaml => output.document(&document(&plan))?,
            })?;
            Ok(if plan.refusals.is_empty() { 0 } else { REFUSED })
        }
        MigrateVerb::Apply { policy, wait, places, cluster } => {
            let cluster = cluster::observe_named(cluster);
            root::enter(root)?;
            go(places, &cluster, Owner::Ferrule, choice(*policy), *wait)
        }
        MigrateVerb::Rollback { policy, wait, places } => {
            let policy = match policy {
                OwnPolicy::Keep => PolicyChoice::Keep,
                OwnPolicy::Drop => PolicyChoice::Drop,
            };
            root::enter(root)?;
            go(places, &unread(), Owner::AmazonVpcCni, policy, *wait)
        }
        MigrateVerb::Status { output, places } => {
            root::enter(root)?;
            output::write_raw(&status(&observe::observe(places, &unread(), false), *output)?)?;
            Ok(0)
        }
    }
}

fn services(verb: &ServicesVerb, root: &Path) -> Result<u8> {
    match verb {
        ServicesVerb::Plan(args) => plan_services(args),
        ServicesVerb::Apply(args) => apply_services(args),
        ServicesVerb::Rollback(args) => roll_back_services(args),
        ServicesVerb::Rules(args) => {
            root::enter(root)?;
            rules::run(args)
        }
    }
}

/// Checks role and settings of the cluster and returns the exit code.
fn check(cluster: &Observed<Cluster>, output: Output) -> Result<u8> {
    let found = cli_migrate::check(cluster, &settings::defaults());
    output::write_raw(&match output {
        Output::Text => check_text(&found),
        Output::Json | Output::Yaml => output.document(&json!(found))?,
    })?;
    Ok(if found.refusals.is_empty() { 0 } else { REFUSED })
}

fn check_text(check: &Check) -> String {
    let mut lines = findings(&check.facts, &check.refusals);
    lines.push(match check.refusals.len() {
        0 => "no refusals".to_owned(),
        1 => "1 refusal; label no node before it is fixed".to_owned(),
        refusals => format!("{refusals} refusals; label no node before they are fixed"),
    });
    lines.join("\n") + "\n"
}

fn owner(side: Side) -> Owner {
    match side {
        Side::Ferrule => Owner::Ferrule,
        Side::AmazonVpcCni => Owner::AmazonVpcCni,
    }
}

fn choice(policy: Policy) -> PolicyChoice {
    match policy {
        Policy::Refuse => PolicyChoice::Refuse,
        Policy::Drop => PolicyChoice::Drop,
        Policy::Keep => PolicyChoice::Keep,
        Policy::Enforce => PolicyChoice::Enforce,
    }
}

/// Applies the first step of the plan and plans again, until no step remains. From the first step on it holds the lock
/// against other runs.
fn go(
    places: &Places,
    cluster: &Observed<Cluster>,
    owner: Owner,
    policy: PolicyChoice,
    wait: u64,
) -> Result<u8> {
    let mut applier = Applier::new(places);
    let mut awaited = Awaited::new(wait);
    let mut lock = None;
    loop {
        let seen = observe::observe(places, cluster, applier.has_daemon_lock());
        let plan = plan(&seen, owner, policy);
        if !plan.refusals.is_empty() {
            output::write_raw(&text(&Plan { steps: Vec::new(), ..plan }))?;
            return Ok(REFUSED);
        }
        let Some(step) = plan.steps.first() else {
            output::write_raw(&text(&plan))?;
            return Ok(0);
        };
        if lock.is_none() {
            // Another run may have changed the node before the lock was taken.
            lock = Some(RunLock::take(&places.state_dir, verb(owner))?);
            continue;
        }
        if let Step::Await(what) = step {
            if awaited.is_new(what, PartialEq::eq) {
                output::write_raw(&format!("{step}\n"))?;
            }
            if awaited.has_expired() {
                output::write_raw(&format!("timeout after {wait} s: {what}; run this again\n"))?;
                return Ok(NOT_YET);
            }
            thread::sleep(LOOK_AGAIN);
            continue;
        }
        if owner == Owner::AmazonVpcCni && !matches!(step, Step::Note(_)) {
            // From here on the lock keeps ferrule-ipamd from starting.
            applier.take_daemon_lock()?;
        }
        output::write_raw(&format!("{step}\n"))?;
        applier.take(step).with_context(|| step.to_string())?;
    }
}

fn findings(facts: &[String], refusals: &[Refusal]) -> Vec<String> {
    let mut lines: Vec<String> = facts.iter().map(|fact| format!("seen    {fact}")).collect();
    for refusal in refusals {
        lines.push(format!("REFUSED {}: {}", refusal.object, refusal.cause));
        lines.push(format!("        next: {}", refusal.next));
    }
    lines
}

fn text(plan: &Plan) -> String {
    let mut lines = findings(&plan.facts, &plan.refusals);
    lines.extend((1..).zip(&plan.steps).map(|(number, step)| format!("{number:6}. {step}")));
    lines.push(match (plan.refusals.len(), plan.steps.len()) {
        (0, 0) => "no steps remain".to_owned(),
        (0, steps) => format!("{}, no refusals", counted(steps, "step", "steps")),
        (refusals, _) => {
            format!("{}; the node was not changed", counted(refusals, "refusal", "refusals"))
        }
    });
    lines.join("\n") + "\n"
}

fn document(plan: &Plan) -> serde_json::Value {
    let steps: Vec<String> = plan.steps.iter().map(Step::to_string).collect();
    json!({
        "to": plan.owner,
        "facts": plan.facts,
        "refusals": plan.refusals,
        "steps": steps,
    })
}

/// Formats the node's owner as observed, and the remaining steps of a started migration.
fn status(seen: &Observation, output: Output) -> Result<String> {
    let journal = seen.journal.clone().map_err(anyhow::Error::msg)?;
    let owner = journal.map(|journal| journal.owner);
    let left = owner.map(|owner| plan(seen, owner, PolicyChoice::Refuse));
    let leads = leading(seen);
    if !output.is_text() {
        let left = left.as_ref().map(|plan| {
            let steps: Vec<String> = plan.steps.iter().map(Step::to_string).collect();
            json!({ "steps": steps, "refusals": plan.refusals })
        });
        return output.document(&json!({
            "configuration": leads,
            "amazonVpcCniServes": seen.vpc_cni.serves,
            "ferruleServes": seen.ferrule.ready,
            "goesTo": owner,
            "left": left,
        }));
    }
    let yes = |so: bool| if so { "yes" } else { "no" };
    let mut text = format!(
        "the runtime's configuration: {}\namazon-vpc-cni's agent serves: {}\nferrule-ipamd serves: \
         {}\n",
        leads.as_deref().unwrap_or("none"),
        yes(seen.vpc_cni.serves),
        yes(seen.ferrule.ready),
    );
    match (&owner, &left) {
        (Some(owner), Some(left)) => {
            text += &format!("migration to: {}\n", name(*owner));
            text += &self::text(left);
        }
        (None, _) | (_, None) => text += "migration to: none started\n",
    }
    Ok(text)
}

fn name(owner: Owner) -> &'static str {
    match owner {
        Owner::Ferrule => "ferrule",
        Owner::AmazonVpcCni => "amazon-vpc-cni",
    }
}

fn verb(owner: Owner) -> &'static str {
    match owner {
        Owner::Ferrule => "apply",
        Owner::AmazonVpcCni => "rollback",
    }
}

/// Returns the configuration that a runtime uses.
fn leading(seen: &Observation) -> Option<String> {
    let files = seen.conflists.as_ref().ok()?.iter().map(|file| file.name.clone());
    files.filter(|name| cli_migrate::is_read(name)).min()
}

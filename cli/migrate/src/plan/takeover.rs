//! From amazon-vpc-cni to Ferrule.
//!
//! ferrule-ipamd imports the checkpoint when it starts, and it starts only without the agent, so no address has two
//! owners. Until the configuration is switched, the runtime calls aws-cni, whose ADD fails without its agent and is
//! repeated.

use super::{Draft, PolicyChoice, Step, Wait, counted, policy as agent, preconditions};
use crate::{
    Observation,
    conflist::{self, ASIDE, OURS},
    fit::{self, Fit},
    vpc_cni,
};
use config_model::{Migration, Owner, PodKey};
use std::{collections::BTreeSet, net::IpAddr};

pub(super) fn draft(seen: &Observation, policy: PolicyChoice, draft: &mut Draft) {
    let journal = draft.seen("the journal of migrations", &seen.journal).copied().flatten();
    let Some(files) = draft.seen("the runtime's network configurations", &seen.conflists) else {
        return;
    };
    let written = files.iter().find(|file| file.name == OURS);
    let config = match conflist::vpc_cni(files) {
        Ok(config) => config,
        Err(refusals) => {
            draft.refusals.extend(refusals);
            return;
        }
    };
    let text = written.and_then(|file| file.bytes.as_deref().ok());
    let current = text.is_some_and(|bytes| conflist::serves(bytes, &config.ferrule));
    let mine = journal.filter(|journal| journal.owner == Owner::Ferrule);
    let switched = current && config.aside && mine.is_some();
    if switched && mine.is_some_and(|journal| journal.done) {
        draft.facts.push("the node is taken over".to_owned());
        agent::describe(&seen.vpc_cni.policy, draft);
        fit_policy(seen, policy, draft);
        // The daemon's setting is known once it serves.
        let asked = policy != PolicyChoice::Refuse;
        draft.step_if(asked && !seen.ferrule.ready, Step::Await(Wait::FerruleDaemonServes));
        match policy {
            PolicyChoice::Refuse => {}
            PolicyChoice::Keep => agent::await_start(&seen.vpc_cni.policy, draft),
            PolicyChoice::Drop => {
                agent::await_stop(&seen.vpc_cni.policy, draft);
                agent::drop(&seen.vpc_cni.policy, draft);
            }
            PolicyChoice::Enforce => {
                agent::await_stop(&seen.vpc_cni.policy, draft);
                agent::replace(seen, draft);
            }
        }
        return;
    }
    preconditions::describe(seen, !switched, draft);
    agent::describe(&seen.vpc_cni.policy, draft);
    agent::refuse(&seen.vpc_cni.policy, policy, draft);
    fit_policy(seen, policy, draft);
    let mut listed = None;
    if switched {
        // The checkpoint was readable before and still exists.
        listed =
            seen.vpc_cni.checkpoints.as_ref().ok().and_then(|it| vpc_cni::allocations(it).ok());
    } else {
        let checkpoints = draft.seen("amazon-vpc-cni's checkpoint", &seen.vpc_cni.checkpoints);
        match checkpoints.map(|files| vpc_cni::allocations(files)) {
            Some(Ok(allocations)) => listed = Some(allocations),
            Some(Err(refusals)) => draft.refusals.extend(refusals),
            None => {}
        }
    }
    let kernel = draft.seen("the kernel's links, rules and routes", &seen.kernel);
    let enis = draft.seen("the metadata service", &seen.enis);
    let (Some(allocations), Some(kernel), Some(enis)) = (listed, kernel, enis) else { return };
    let mut fit = fit::fit(&allocations, kernel, enis, &config.ferrule.veth_prefix);
    if !switched {
        describe(&fit, draft);
        refuse_misfits(seen, &mut fit, draft);
    }
    let calls = draft.seen("the list of processes", &seen.calls).copied().unwrap_or_default();

    let begun = Migration::to(Owner::Ferrule);
    draft.step_if(mine.is_none(), Step::Note(begun));
    draft.step_if(seen.vpc_cni.serves, Step::Await(Wait::VpcCniAgentStopped));
    if matches!(policy, PolicyChoice::Drop | PolicyChoice::Enforce) {
        agent::await_stop(&seen.vpc_cni.policy, draft);
    }
    draft.step_if(!switched && calls.vpc_cni > 0, Step::Await(Wait::VpcCniCallsFinished));
    draft.step_if(!seen.ferrule.ready, Step::Await(Wait::FerruleDaemonServes));
    if policy == PolicyChoice::Keep {
        agent::await_start(&seen.vpc_cni.policy, draft);
    }
    draft.step_if(!current, Step::WriteConflist(config.ferrule));
    draft.step_if(!config.aside, Step::PutAside { name: config.name });
    draft.step_if(switched && calls.vpc_cni > 0, Step::Await(Wait::VpcCniCallsFinished));
    if seen.ferrule.ready {
        add_tombstones(seen, &fit, draft);
    }
    // Last: after an earlier stop the pods' permissions are unchanged.
    match policy {
        PolicyChoice::Refuse | PolicyChoice::Keep => {}
        PolicyChoice::Drop => agent::drop(&seen.vpc_cni.policy, draft),
        PolicyChoice::Enforce => agent::replace(seen, draft),
    }
    draft.step(Step::Note(Migration { handed_over: true, done: true, ..begun }));
}

/// Checks that ferrule-ipamd's setting matches the treatment of the policy agent.
fn fit_policy(seen: &Observation, policy: PolicyChoice, draft: &mut Draft) {
    match policy {
        PolicyChoice::Refuse => {}
        PolicyChoice::Keep => agent::refuse_alone(&seen.ferrule, draft),
        PolicyChoice::Drop | PolicyChoice::Enforce => agent::refuse_served(&seen.ferrule, draft),
    }
}

fn describe(fit: &Fit, draft: &mut Draft) {
    let addresses: usize = fit.running.values().map(Vec::len).sum();
    draft.facts.push(format!(
        "{}, with {}",
        counted(fit.running.len(), "pod runs", "pods run"),
        counted(addresses, "address", "addresses")
    ));
    let first_gone = fit.gone.first().map(ToString::to_string).unwrap_or_default();
    let counts = [
        (
            ("entry belongs to a deleted pod", "entries belong to deleted pods"),
            fit.gone.len(),
            first_gone.as_str(),
        ),
        (
            ("rule is a duplicate and will be deleted", "rules are duplicates and will be deleted"),
            fit.twins.len(),
            fit.twins.first().map_or("", String::as_str),
        ),
        (
            ("rule is missing and will be added", "rules are missing and will be added"),
            fit.missing.len(),
            fit.missing.first().map_or("", String::as_str),
        ),
    ];
    for ((one, many), count, first) in counts {
        match count {
            0 => {}
            1 => draft.facts.push(format!("1 {one}: {first}")),
            _ => draft.facts.push(format!("{count} {many}, such as {first}")),
        }
    }
}

/// Refuses pods that do not match, unless ferrule-ipamd has them: then they have Ferrule's layout.
fn refuse_misfits(seen: &Observation, fit: &mut Fit, draft: &mut Draft) {
    if !seen.ferrule.ready {
        draft.refusals.append(&mut fit.refusals);
        return;
    }
    let Some(held) = draft.seen("ferrule-ipamd's checkpoint", &seen.ferrule.assignments) else {
        return;
    };
    let held: BTreeSet<(&PodKey, IpAddr)> = held
        .iter()
        .flatten()
        .flat_map(|one| one.addresses.iter().map(move |(address, ..)| (&one.key, *address)))
        .collect();
    for (key, addresses) in &fit.running {
        for address in addresses.iter().filter(|address| !held.contains(&(key, **address))) {
            draft.refuse(
                &key.to_string(),
                &format!("it runs with {address}, which ferrule-ipamd has not imported"),
                "read the daemon's log; delete the pod, or stop the daemon and remove its \
                 checkpoint, so that it imports amazon-vpc-cni's again",
            );
        }
    }
}

/// Adds tombstones for pods that aws-cni deleted after the import.
fn add_tombstones(seen: &Observation, fit: &Fit, draft: &mut Draft) {
    let (Ok(Some(held)), Ok(tombstones)) = (&seen.ferrule.assignments, &seen.ferrule.tombstones)
    else {
        return;
    };
    let ended = held.iter().filter(|one| fit.ended.contains(&one.key));
    for one in ended.filter(|one| !tombstones.contains(&one.key)) {
        draft.step(Step::AddTombstone { key: one.key.clone() });
    }
}

/// Returns the name of a disabled file.
pub(super) fn aside(name: &str) -> String {
    format!("{name}{ASIDE}")
}

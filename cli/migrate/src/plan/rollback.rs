//! From Ferrule back to amazon-vpc-cni.
//!
//! The files that its DEL and its agent read are written before the runtime calls aws-cni. The agent starts only when
//! all of them exist. Ferrule's nftables tables are deleted last, because it translates addresses until the agent
//! has its own rules.

use super::{Draft, PolicyChoice, Step, Wait, counted, takeover::aside};
use crate::{
    Assignment, Kernel, Observation, RuleView,
    conflist::{self, OURS},
    refusal::UNSEEN,
    result, vpc_cni,
};
use config_model::{Migration, Owner, TableId, registry};
use ipnet::IpNet;
use std::net::IpAddr;

pub(super) fn draft(seen: &Observation, policy: PolicyChoice, draft: &mut Draft) {
    let journal = draft.seen("the journal of migrations", &seen.journal).copied().flatten();
    let Some(files) = draft.seen("the runtime's network configurations", &seen.conflists) else {
        return;
    };
    let back = journal.filter(|journal| journal.owner == Owner::AmazonVpcCni);
    if back.is_some_and(|journal| journal.done) || (journal.is_none() && is_untouched(seen)) {
        draft.facts.push("the node is amazon-vpc-cni's".to_owned());
        retire(seen, policy, draft);
        return;
    }
    let begun = Migration::to(Owner::AmazonVpcCni);
    if !back.is_some_and(|journal| journal.handed_over) {
        let config = match conflist::vpc_cni(files) {
            Ok(config) => config,
            Err(refusals) => {
                draft.refusals.extend(refusals);
                return;
            }
        };
        let kernel = draft.seen("the kernel's links, rules and routes", &seen.kernel);
        let held = draft.seen("ferrule-ipamd's checkpoint", &seen.ferrule.assignments);
        let calls = draft.seen("the list of processes", &seen.calls).copied();
        let tombstones = draft.seen("the tombstones", &seen.ferrule.tombstones);
        let (Some(kernel), Some(held), Some(calls), Some(tombstones)) =
            (kernel, held, calls, tombstones)
        else {
            return;
        };
        // Without a checkpoint ferrule-ipamd never ran, so amazon-vpc-cni's checkpoint is still valid.
        let handed = held.is_some();
        if !handed && has_unlisted(seen, kernel) {
            draft.refuse(
                "ferrule-ipamd's checkpoint",
                "it does not exist, and pods of Ferrule run: their addresses are unknown",
                "name the daemon's folder by --state-dir, or start ferrule-ipamd, which finds the \
                 pods in the kernel, and run this again",
            );
        }
        if handed && seen.vpc_cni.serves {
            draft.refuse(
                "amazon-vpc-cni's agent",
                "it runs before the pods were handed over to it, and knows nothing of them",
                "end it (take the node out of the DaemonSet aws-node) and run this again",
            );
        }
        let held = held.as_deref().unwrap_or_default();
        let alive = |held: &&Assignment| {
            let led = |(address, ..): &(IpAddr, _, _)| !kernel.leading_to(*address).is_empty();
            held.confirmed && !tombstones.contains(&held.key) && held.addresses.iter().all(led)
        };
        let running: Vec<Assignment> = held.iter().filter(alive).cloned().collect();
        if handed {
            draft.facts.push(counted(running.len(), "pod runs", "pods run"));
        }
        refuse_other_layouts(held, &running, kernel, draft);

        draft.step_if(back.is_none(), Step::Note(begun));
        draft.step_if(seen.ferrule.runs, Step::Await(Wait::FerruleDaemonStopped));
        draft.step_if(calls.ferrule > 0, Step::Await(Wait::FerruleCallsFinished));
        if handed {
            write_checkpoints(seen, &running, draft);
            write_results(seen, &running, &config.ferrule.veth_prefix, draft);
        }
        draft.step_if(config.aside, Step::Restore { name: config.name });
        let ours = files.iter().any(|file| file.name == OURS);
        draft.step_if(ours, Step::RemoveConflist { name: OURS.to_owned() });
        // Before the agent starts: Ferrule's checkpoint would miss the agent's changes.
        draft.step_if(handed, Step::DropFerruleCheckpoint);
        draft.step(Step::Note(Migration { handed_over: true, ..begun }));
    } else {
        // Its container writes the configuration itself. A disabled file is useless then, and a remaining Ferrule file
        // would come first.
        let ours = files.iter().any(|file| file.name == OURS);
        draft.step_if(ours, Step::RemoveConflist { name: OURS.to_owned() });
    }
    draft.step_if(!seen.vpc_cni.serves, Step::Await(Wait::VpcCniAgentServes));
    if seen.vpc_cni.serves
        && let Some(kernel) = draft.seen("the kernel's links, rules and routes", &seen.kernel)
    {
        drop_twins(kernel, draft);
    }
    match &seen.ferrule.tables {
        Ok(tables) => {
            tables.iter().for_each(|table| draft.step(Step::RemoveTable { table: *table }));
        }
        Err(why) => {
            draft.refuse("nftables", why, "fix the cause and run this again as root");
        }
    }
    retire(seen, policy, draft);
    draft.step(Step::Note(Migration { handed_over: true, done: true, ..begun }));
}

/// Removes Ferrule's programs on request only: pods that no other agent guards are open then.
fn retire(seen: &Observation, policy: PolicyChoice, draft: &mut Draft) {
    let is_requested = policy == PolicyChoice::Drop;
    match &seen.ferrule.attachments {
        Ok(0) => {}
        Ok(count) if !is_requested => draft.facts.push(format!(
            "{}; --policy drop removes them",
            counted(
                *count,
                "filter, TCX link or folder of pins of Ferrule stays and enforces its last policies",
                "filters, TCX links and folders of pins of Ferrule stay and enforce its last policies"
            )
        )),
        Ok(_) => {
            draft.step_if(seen.ferrule.agent_runs, Step::Await(Wait::FerruleAgentStopped));
            draft.step(Step::Retire);
        }
        Err(why) if is_requested => draft.refuse("Ferrule's eBPF programs", why, UNSEEN),
        Err(_) => {}
    }
}

/// Returns true if Ferrule never managed this node.
fn is_untouched(seen: &Observation) -> bool {
    let ours = |name: &str| name == OURS || name.ends_with(&aside(""));
    let files = seen.conflists.iter().flatten();
    matches!(&seen.ferrule.assignments, Ok(None)) && !files.into_iter().any(|file| ours(&file.name))
}

/// Returns true if a running Ferrule pod is missing in amazon-vpc-cni's checkpoint.
fn has_unlisted(seen: &Observation, kernel: &Kernel) -> bool {
    let files = seen.vpc_cni.checkpoints.as_deref().unwrap_or_default();
    let listed = vpc_cni::allocations(files).unwrap_or_default();
    let ours = kernel.links.iter().filter_map(|link| link.key.as_ref());
    ours.into_iter().any(|key| !listed.iter().any(|entry| entry.key.covers(key)))
}

/// Deletes duplicates: the agent creates the ENIs' rules at each start, and the kernel accepts a second copy.
fn drop_twins(kernel: &Kernel, draft: &mut Draft) {
    let ours = |rule: &&RuleView| rule.protocol == registry::ROUTE_PROTOCOL;
    for rule in kernel.rules.iter().filter(ours) {
        let twin = |other: &RuleView| other.text == rule.text && other.protocol != rule.protocol;
        draft.step_if(kernel.rules.iter().any(twin), Step::DropTwin { rule: rule.text.clone() });
    }
}

fn refuse_other_layouts(
    held: &[Assignment],
    running: &[Assignment],
    kernel: &Kernel,
    draft: &mut Draft,
) {
    for one in held.iter().filter(|one| one.confirmed && one.addresses.is_empty()) {
        draft.refuse(
            &one.key.to_string(),
            "the pod has a branch ENI, which is not handed over",
            "move the pods with security groups to other nodes first",
        );
    }
    for one in running {
        for (address, card, device) in &one.addresses {
            let host = IpNet::from(*address);
            let has = |pref, table, src, dst| {
                kernel.rules.iter().any(|rule| {
                    (rule.pref, rule.table, rule.src, rule.dst) == (pref, table, src, dst)
                })
            };
            let table = TableId::of_eni(*card, *device);
            let to = has(registry::PREF_TO_POD, TableId::MAIN, None, Some(host));
            let from =
                table == TableId::MAIN || has(registry::PREF_FROM_POD, table, Some(host), None);
            if !to || !from {
                draft.refuse(
                    &one.key.to_string(),
                    &format!("{address} has no rules of its own, as amazon-vpc-cni expects them"),
                    "start ferrule-ipamd with FERRULE_RULES=per-pod, and wait until it is ready",
                );
            }
        }
    }
}

fn write_checkpoints(seen: &Observation, running: &[Assignment], draft: &mut Draft) {
    let present = seen.vpc_cni.checkpoints.as_deref().unwrap_or_default();
    let mut wanted = vpc_cni::written(running, seen.unix_nanos);
    // Also for a card without pods, because its old file has entries.
    for file in present {
        wanted.entry(file.name.clone()).or_insert_with(vpc_cni::empty);
    }
    for (name, bytes) in wanted {
        let same = |file: &crate::File| {
            file.name == name
                && file.bytes.as_deref().is_ok_and(|old| vpc_cni::same_allocations(old, &bytes))
        };
        draft.step_if(!present.iter().any(same), Step::WriteCheckpoint { name, bytes });
    }
}

fn write_results(seen: &Observation, running: &[Assignment], prefix: &str, draft: &mut Draft) {
    let Some(results) = draft.seen("the runtime's cached results", &seen.results) else { return };
    for held in running {
        let name = result::file_name(held);
        let Some(file) = results.iter().find(|file| file.name == name) else { continue };
        match file.bytes.clone().and_then(|kept| result::vpc_cni(&kept, held, prefix)) {
            Ok(Some(bytes)) => draft.step(Step::WriteResult { name, bytes }),
            Ok(None) => {}
            Err(why) => draft.refuse(
                &name,
                &format!("cannot read the runtime's cached result of the ADD: {why}"),
                "delete the pod; its owner recreates it",
            ),
        }
    }
}

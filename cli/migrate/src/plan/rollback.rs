//! From Ferrule back to amazon-vpc-cni.
//!
//! The files that its DEL and its agent read are written before the runtime calls aws-cni, and the agent starts only
//! when all of them exist. Ferrule's nftables table is deleted last, because it translates addresses until the agent
//! has its own rules.

use super::{Draft, Step, Wait, takeover::aside};
use crate::{
    Held, Kernel, Observation, RuleView,
    conflist::{self, OURS},
    result, vpc_cni,
};
use config_model::{Migration, Owner, TableId, registry};
use ipnet::IpNet;
use std::net::IpAddr;

pub(super) fn draft(seen: &Observation, draft: &mut Draft) {
    let journal = draft.seen("the journal of migrations", &seen.journal).copied().flatten();
    let Some(files) = draft.seen("the runtime's network configurations", &seen.conflists) else {
        return;
    };
    let back = journal.filter(|journal| journal.owner == Owner::AmazonVpcCni);
    if back.is_some_and(|journal| journal.done) || (journal.is_none() && is_untouched(seen)) {
        draft.facts.push("the node is amazon-vpc-cni's".to_owned());
        return;
    }
    let begun = Migration::to(Owner::AmazonVpcCni);
    if !back.is_some_and(|journal| journal.handed_over) {
        let theirs = match conflist::theirs(files) {
            Ok(theirs) => theirs,
            Err(refusals) => {
                draft.refusals.extend(refusals);
                return;
            }
        };
        let kernel = draft.seen("the kernel's links, rules and routes", &seen.kernel);
        let held = draft.seen("ferrule-ipamd's checkpoint", &seen.ours.held);
        let calls = draft.seen("the list of processes", &seen.calls).copied();
        let buried = draft.seen("the tombstones", &seen.ours.buried);
        let (Some(kernel), Some(held), Some(calls), Some(buried)) = (kernel, held, calls, buried)
        else {
            return;
        };
        // Without a checkpoint ferrule-ipamd never ran, so amazon-vpc-cni's checkpoint is still valid.
        let handed = held.is_some();
        if !handed && has_unlisted(seen, kernel) {
            draft.refuse(
                "ferrule-ipamd's checkpoint",
                "there is none, and pods of Ferrule run: nothing tells all of their addresses",
                "name the daemon's folder by --state-dir, or start ferrule-ipamd, which finds the \
                 pods in the kernel, and run this again",
            );
        }
        if handed && seen.theirs.serves {
            draft.refuse(
                "amazon-vpc-cni's agent",
                "it runs before the pods were handed over to it, and knows nothing of them",
                "end it (take the node out of the DaemonSet aws-node) and run this again",
            );
        }
        let held = held.as_deref().unwrap_or_default();
        let alive = |held: &&Held| {
            let led = |(address, ..): &(IpAddr, _, _)| !kernel.leading_to(*address).is_empty();
            held.confirmed && !buried.contains(&held.key) && held.addresses.iter().all(led)
        };
        let running: Vec<Held> = held.iter().filter(alive).cloned().collect();
        if handed {
            draft.facts.push(format!("{} pods run", running.len()));
        }
        refuse_strangers(held, &running, kernel, draft);

        draft.step_if(back.is_none(), Step::Note(begun));
        draft.step_if(seen.ours.runs, Step::Await(Wait::OurDaemonEnds));
        draft.step_if(calls.ours > 0, Step::Await(Wait::OurCallsEnd));
        if handed {
            write_checkpoints(seen, &running, draft);
            write_results(seen, &running, &theirs.ours.veth_prefix, draft);
        }
        draft.step_if(theirs.aside, Step::Restore { name: theirs.name });
        let ours = files.iter().any(|file| file.name == OURS);
        draft.step_if(ours, Step::RemoveConflist { name: OURS.to_owned() });
        // Before the agent starts: Ferrule's checkpoint would miss the agent's changes.
        draft.step_if(handed, Step::ForgetOurs);
        draft.step(Step::Note(Migration { handed_over: true, ..begun }));
    } else {
        // Its container writes the configuration itself. A disabled file is useless then, and a remaining Ferrule file
        // would come first.
        let ours = files.iter().any(|file| file.name == OURS);
        draft.step_if(ours, Step::RemoveConflist { name: OURS.to_owned() });
    }
    draft.step_if(!seen.theirs.serves, Step::Await(Wait::TheirAgentServes));
    if seen.theirs.serves
        && let Some(kernel) = draft.seen("the kernel's links, rules and routes", &seen.kernel)
    {
        drop_twins(kernel, draft);
    }
    match &seen.ours.table {
        Ok(there) => draft.step_if(*there, Step::RemoveTable),
        Err(why) => {
            draft.refuse("nftables", why, "mend that, and run this as root");
        }
    }
    draft.step(Step::Note(Migration { handed_over: true, done: true, ..begun }));
}

/// Returns true if Ferrule never managed this node.
fn is_untouched(seen: &Observation) -> bool {
    let ours = |name: &str| name == OURS || name.ends_with(&aside(""));
    let files = seen.conflists.iter().flatten();
    matches!(&seen.ours.held, Ok(None)) && !files.into_iter().any(|file| ours(&file.name))
}

/// Returns true if a running Ferrule pod is missing in amazon-vpc-cni's checkpoint.
fn has_unlisted(seen: &Observation, kernel: &Kernel) -> bool {
    let files = seen.theirs.checkpoints.as_deref().unwrap_or_default();
    let listed = vpc_cni::allocations(files).unwrap_or_default();
    let ours = kernel.links.iter().filter_map(|link| link.key.as_ref());
    ours.into_iter().any(|key| !listed.iter().any(|entry| entry.key.covers(key)))
}

/// Deletes duplicates: the agent creates the ENIs' rules at each start, and the kernel accepts copies of Ferrule's.
fn drop_twins(kernel: &Kernel, draft: &mut Draft) {
    let ours = |rule: &&RuleView| rule.protocol == registry::ROUTE_PROTOCOL;
    for rule in kernel.rules.iter().filter(ours) {
        let twin = |other: &RuleView| other.text == rule.text && other.protocol != rule.protocol;
        draft.step_if(kernel.rules.iter().any(twin), Step::DropTwin { rule: rule.text.clone() });
    }
}

fn refuse_strangers(held: &[Held], running: &[Held], kernel: &Kernel, draft: &mut Draft) {
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

fn write_checkpoints(seen: &Observation, running: &[Held], draft: &mut Draft) {
    let present = seen.theirs.checkpoints.as_deref().unwrap_or_default();
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

fn write_results(seen: &Observation, running: &[Held], prefix: &str, draft: &mut Draft) {
    let Some(results) = draft.seen("what the runtime keeps of ADDs", &seen.results) else { return };
    for held in running {
        let name = result::file_name(held);
        let Some(file) = results.iter().find(|file| file.name == name) else { continue };
        match file.bytes.clone().and_then(|kept| result::theirs(&kept, held, prefix)) {
            Ok(Some(bytes)) => draft.step(Step::WriteResult { name, bytes }),
            Ok(None) => {}
            Err(why) => draft.refuse(
                &name,
                &format!("what the runtime keeps of the pod's ADD cannot be read: {why}"),
                "delete the pod, which its owner makes anew",
            ),
        }
    }
}

//! aws-network-policy-agent, which attaches its own programs to the pods' host veths.
//!
//! Its programs are identified by name and position: `handle_ingress` for traffic to a pod and `handle_egress` for
//! traffic from it. Each is the only filter of handle and priority 1, on a veth with one of two prefixes. Its pins
//! are identified by name. Everything else stays.

use super::{Draft, PolicyChoice, Step, Wait};
use crate::{Ferrule, Observation, Policy, Program};
use std::collections::BTreeMap;

/// Adds facts about its programs and pins.
pub(super) fn describe(policy: &Policy, draft: &mut Draft) {
    if policy.serves {
        draft.facts.push(format!("a policy agent answers at {}", policy.socket));
    }
    let mut by_link: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for program in policy.programs.iter().flatten() {
        if is_ferrules(program) {
            continue;
        }
        if is_agents(program) {
            by_link.entry(&program.link).or_default().push(&program.name);
        } else if program.is_tcx {
            let Program { link, name, .. } = program;
            draft
                .facts
                .push(format!("{link} has a TCX program {name:?} of another owner, which stays"));
        } else {
            let Program { link, name, priority, handle, .. } = program;
            draft.facts.push(format!(
                "{link} has a program {name:?} of another owner, with priority {priority} and \
                 handle {handle}, which stays"
            ));
        }
    }
    for (link, mut names) in by_link {
        names.sort_unstable();
        draft.facts.push(format!("{link} has the policy agent's {}", names.join(" and ")));
    }
    let pins = agents_pins(policy.pins.as_deref().unwrap_or_default());
    if !pins.is_empty() {
        draft.facts.push(format!(
            "pinned below {} by the policy agent: {}",
            policy.folder,
            pins.join(", ")
        ));
    }
}

/// Refuses the takeover if the agent is present and the user made no choice.
pub(super) fn refuse(policy: &Policy, choice: PolicyChoice, draft: &mut Draft) {
    let programs = draft.seen("the programs on host veths", &policy.programs);
    let pins = draft.seen(&policy.folder, &policy.pins);
    let (Some(programs), Some(pins)) = (programs, pins) else { return };
    let programs: Vec<&Program> = programs.iter().filter(|program| is_agents(program)).collect();
    let pins = agents_pins(pins);
    let (object, sign) = if policy.serves {
        (&policy.socket, "it answers at its socket".to_owned())
    } else if let Some(program) = programs.first() {
        (&program.link, format!("{} of its programs are on host veths", programs.len()))
    } else if !pins.is_empty() {
        (&policy.folder, format!("{} of its programs and maps are pinned there", pins.len()))
    } else {
        return;
    };
    let cause = format!("a policy agent runs here: {sign}");
    match choice {
        PolicyChoice::Drop | PolicyChoice::Keep | PolicyChoice::Enforce => {}
        PolicyChoice::Refuse => draft.refuse(
            object,
            &cause,
            "run this with --policy enforce, which detaches its programs once Ferrule enforces the policies, with \
             --policy keep, which continues to call the agent, or with --policy drop, which detaches its programs",
        ),
    }
}

/// Refuses if ferrule-ipamd would not call the agent that stays.
pub(super) fn refuse_alone(ferrule: &Ferrule, draft: &mut Draft) {
    if ferrule.ready && !ferrule.policy_agent {
        draft.refuse(
            "ferrule-ipamd",
            "it is not configured to call a policy agent, so new pods would have no policies",
            "set FERRULE_POLICY_AGENT=true on it, and NETWORK_POLICY_ENFORCING_MODE as aws-node has \
             it, and run this again",
        );
    }
}

/// Refuses if ferrule-ipamd would call an agent that is gone.
pub(super) fn refuse_served(ferrule: &Ferrule, draft: &mut Draft) {
    if ferrule.ready && ferrule.policy_agent {
        draft.refuse(
            "ferrule-ipamd",
            "it is configured to call a policy agent, and no new pod would start without the agent",
            "remove FERRULE_POLICY_AGENT from it, or run this with --policy keep",
        );
    }
}

pub(super) fn await_start(policy: &Policy, draft: &mut Draft) {
    draft.step_if(!policy.serves, Step::Await(Wait::PolicyAgentServes));
}

/// Waits for the agent to stop, because it would attach its programs again.
pub(super) fn await_stop(policy: &Policy, draft: &mut Draft) {
    draft.step_if(policy.serves, Step::Await(Wait::PolicyAgentStopped));
}

/// Removes its programs first, then its pins.
pub(super) fn drop(policy: &Policy, draft: &mut Draft) {
    let programs = draft.seen("the programs on host veths", &policy.programs);
    let programs = programs.into_iter().flatten().filter(|program| is_agents(program));
    let programs: Vec<Program> = programs.cloned().collect();
    let pins = draft.seen(&policy.folder, &policy.pins).map(|pins| agents_pins(pins));
    let names = pins.unwrap_or_default();
    draft.step_if(!programs.is_empty(), Step::Detach { programs, enforced: false });
    draft.step_if(!names.is_empty(), Step::Unpin { names });
}

/// Removes its programs once two witnesses agree that Ferrule enforces: the kernel, which runs Ferrule's program first on
/// each link and side, and ferrule-agent. Its pins stay.
pub(super) fn replace(seen: &Observation, draft: &mut Draft) {
    let Some(all) = draft.seen("the programs on host veths", &seen.vpc_cni.policy.programs) else {
        return;
    };
    let programs: Vec<Program> = all.iter().filter(|program| is_agents(program)).cloned().collect();
    if programs.is_empty() {
        return;
    }
    let open = programs.iter().find(|program| !is_guarded(program, all));
    if let Some(Program { link, name, .. }) = open {
        draft.facts.push(format!("{link} has no program of Ferrule before {name}"));
    }
    if let Err(why) = &seen.ferrule.enforces {
        draft.facts.push(format!("Ferrule's policies are not in force: {why}"));
    }
    let in_force = open.is_none() && seen.ferrule.enforces.is_ok();
    draft.step_if(!in_force, Step::Await(Wait::PoliciesInForce));
    draft.step(Step::Detach { programs, enforced: true });
}

/// True if the kernel runs a program of Ferrule first on the link and side of this program. `all` are the programs of the
/// node in the kernel's order.
pub fn is_guarded(program: &Program, all: &[Program]) -> bool {
    let mut of_side = all.iter().filter(|of| {
        (&of.link, of.ingress, of.chain) == (&program.link, program.ingress, program.chain)
    });
    of_side.next().is_some_and(is_ferrules)
}

fn is_ferrules(program: &Program) -> bool {
    program.name == if program.ingress { "from_pod" } else { "to_pod" }
}

fn is_agents(program: &Program) -> bool {
    let name = if program.ingress { FROM_POD } else { TO_POD };
    let veth = PREFIXES.iter().any(|prefix| program.link.starts_with(prefix));
    let Program { chain, priority, handle, protocol, is_tcx, .. } = program;
    veth && !is_tcx
        && program.name == name
        && (*chain, *priority, *handle, *protocol) == (0, 1, 1, ALL)
}

/// Returns the pins with its names.
fn agents_pins(pins: &[String]) -> Vec<String> {
    let is_agents = |pin: &&String| {
        let suffix = |names: &[&str], name: &str| {
            names.iter().any(|end| name.strip_suffix(end).is_some_and(|head| head.ends_with('_')))
        };
        match pin.split_once('/') {
            Some(("programs", name)) => suffix(&[TO_POD, FROM_POD], name),
            Some(("maps", name)) => suffix(&MAPS, name),
            Some(_) | None => false,
        }
    };
    pins.iter().filter(is_agents).cloned().collect()
}

/// The names of its programs, by their direction as seen from the pod.
const TO_POD: &str = "handle_ingress";
const FROM_POD: &str = "handle_egress";
/// `ETH_P_ALL` of linux/if_ether.h.
const ALL: u16 = 3;
/// The agent's fixed prefixes of host veths; it ignores the configured prefix.
const PREFIXES: [&str; 2] = ["eni", "vlan"];
/// Preceded by the workload's name or `global`, and `_`.
const MAPS: [&str; 8] = [
    "ingress_map",
    "egress_map",
    "cp_ingress_map",
    "cp_egress_map",
    "ingress_pod_state_map",
    "egress_pod_state_map",
    "aws_conntrack_map",
    "policy_events",
];

//! The plans of takeover and rollback.

mod policy;
mod preconditions;
mod rollback;
mod takeover;

pub use policy::is_guarded;
pub use preconditions::{Check, check};

use crate::{
    Network, NftTable, OUR_CONFLIST, Observation, Observed, Program,
    refusal::{Refusal, UNSEEN},
};
use config_model::{Migration, Owner, PodKey};
use std::{collections::BTreeSet, fmt};

/// The treatment of the programs that enforce policies. They are those of amazon-vpc-cni's policy agent, and in a rollback
/// those of Ferrule, which stay without a choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PolicyChoice {
    #[default]
    Refuse,
    /// They are detached from the pods.
    Drop,
    /// They stay. In a takeover Ferrule calls the agent for each pod.
    Keep,
    /// They are detached once Ferrule enforces the policies itself. Their pins stay.
    Enforce,
}

/// A condition outside the plan. The node does not change until it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// amazon-vpc-cni's agent has stopped.
    VpcCniAgentStopped,
    /// No process of its plugin runs.
    VpcCniCallsFinished,
    /// ferrule-ipamd serves.
    FerruleDaemonServes,
    /// ferrule-ipamd has stopped.
    FerruleDaemonStopped,
    /// ferrule-agent has stopped. While it runs, it attaches its programs again.
    FerruleAgentStopped,
    /// No process of ferrule-cni runs.
    FerruleCallsFinished,
    /// amazon-vpc-cni's agent serves.
    VpcCniAgentServes,
    /// The policy agent has stopped. While it runs, it attaches its programs again.
    PolicyAgentStopped,
    /// The policy agent serves. Ferrule's ADD fails without it.
    PolicyAgentServes,
    /// Ferrule's programs are before those of the policy agent, and ferrule-agent reports its policies as in force.
    PoliciesInForce,
}

/// A step is complete or undone after a crash. After a partial removal of programs or pins the next plan has the rest.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Note(Migration),
    /// Waits for a condition.
    Await(Wait),
    /// Writes Ferrule's configuration.
    WriteConflist(Network),
    /// Disables a configuration file by a rename.
    PutAside {
        name: String,
    },
    /// Enables a disabled configuration file.
    Restore {
        name: String,
    },
    /// Removes Ferrule's configuration file.
    RemoveConflist {
        name: String,
    },
    /// Writes a tombstone for an interface that aws-cni deleted.
    AddTombstone {
        key: PodKey,
    },
    /// Replaces a checkpoint of amazon-vpc-cni.
    WriteCheckpoint {
        name: String,
        bytes: Vec<u8>,
    },
    /// Replaces a cached ADD result.
    WriteResult {
        name: String,
        bytes: Vec<u8>,
    },
    /// Deletes Ferrule's copy of a duplicate rule.
    DropTwin {
        /// In the syntax of `ip rule`.
        rule: String,
    },
    /// Deletes a table of nftables.
    RemoveTable {
        table: NftTable,
    },
    /// Removes ferrule-agent's programs and pins.
    Retire,
    /// Detaches programs of the policy agent.
    Detach {
        programs: Vec<Program>,
        /// True if each is detached only behind a program of Ferrule.
        enforced: bool,
    },
    /// Removes pins of the policy agent.
    Unpin {
        /// Relative to its folder.
        names: Vec<String>,
    },
    /// Disables Ferrule's checkpoint and removes its tombstones.
    DropFerruleCheckpoint,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub owner: Owner,
    /// Reasons against the change. With a refusal no step is applied.
    pub refusals: Vec<Refusal>,
    /// In order; empty if the node is at its goal.
    pub steps: Vec<Step>,
    pub facts: Vec<String>,
}

/// Plans the steps from the observed state to the owner.
pub fn plan(seen: &Observation, owner: Owner, policy: PolicyChoice) -> Plan {
    let mut draft = Draft::default();
    match owner {
        Owner::Ferrule => takeover::draft(seen, policy, &mut draft),
        Owner::AmazonVpcCni => rollback::draft(seen, policy, &mut draft),
    }
    let Draft { mut refusals, steps, facts } = draft;
    refusals.sort();
    refusals.dedup();
    Plan { owner, refusals, steps, facts }
}

#[derive(Debug, Default)]
struct Draft {
    refusals: Vec<Refusal>,
    steps: Vec<Step>,
    facts: Vec<String>,
}

impl Draft {
    /// Returns an observed value; an unreadable value is a refusal.
    fn seen<'a, T>(&mut self, object: &str, looked: &'a Observed<T>) -> Option<&'a T> {
        match looked {
            Ok(seen) => Some(seen),
            Err(why) => {
                self.refuse(object, why, UNSEEN);
                None
            }
        }
    }

    fn refuse(&mut self, object: &str, cause: &str, next: &str) {
        let (object, cause, next) = (object.to_owned(), cause.to_owned(), next.to_owned());
        self.refusals.push(Refusal { object, cause, next });
    }

    fn step(&mut self, step: Step) {
        self.steps.push(step);
    }

    fn step_if(&mut self, needed: bool, step: Step) {
        self.steps.extend(needed.then_some(step));
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::VpcCniAgentStopped => {
                "amazon-vpc-cni's agent has stopped on this node (take the node out of the DaemonSet \
                 aws-node, by its node affinity for one)"
            }
            Self::VpcCniCallsFinished => "no call of the plugin aws-cni is in progress",
            Self::FerruleDaemonServes => {
                "ferrule-ipamd serves on this node (put the node into Ferrule's DaemonSet)"
            }
            Self::FerruleDaemonStopped => {
                "ferrule-ipamd has stopped on this node (take the node out of Ferrule's DaemonSet)"
            }
            Self::FerruleAgentStopped => {
                "ferrule-agent has stopped on this node (take the node out of Ferrule's DaemonSet)"
            }
            Self::FerruleCallsFinished => "no call of the plugin ferrule-cni is in progress",
            Self::VpcCniAgentServes => {
                "amazon-vpc-cni's agent serves on this node (put the node into the DaemonSet \
                 aws-node)"
            }
            Self::PolicyAgentStopped => {
                "the policy agent has stopped on this node (it is a container of the DaemonSet \
                 aws-node, unless it was given one of its own)"
            }
            Self::PoliciesInForce => {
                "Ferrule enforces the policies of all pods on this node (ferrule-agent with the \
                 backend ebpf)"
            }
            Self::PolicyAgentServes => {
                "the policy agent serves on this node (give it a DaemonSet of its own, with the \
                 host's /var/run/aws-node and /sys/fs/bpf)"
            }
        })
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Note(Migration { done: true, .. }) => {
                f.write_str("record the end of the migration")
            }
            Self::Note(Migration { handed_over: true, .. }) => {
                f.write_str("record that amazon-vpc-cni may start")
            }
            Self::Note(_) => f.write_str("record the start of the migration"),
            Self::Await(wait) => write!(f, "wait until {wait}"),
            Self::WriteConflist(_) => {
                write!(f, "write {OUR_CONFLIST}: the runtime calls ferrule-cni from here on")
            }
            Self::PutAside { name } => write!(f, "put {name} aside"),
            Self::Restore { name } => write!(f, "put {name} back"),
            Self::RemoveConflist { name } => {
                write!(f, "remove {name}: the runtime calls aws-cni from here on")
            }
            Self::AddTombstone { key } => {
                write!(f, "report to ferrule-ipamd that aws-cni deleted {key}")
            }
            Self::WriteCheckpoint { name, .. } => {
                write!(f, "write amazon-vpc-cni's checkpoint {name} with the pods that run")
            }
            Self::WriteResult { name, .. } => {
                write!(f, "rewrite the runtime's cached result {name} for aws-cni's DEL")
            }
            Self::DropTwin { rule } => {
                write!(
                    f,
                    "delete Ferrule's rule `{rule}`: amazon-vpc-cni's agent created the same rule"
                )
            }
            Self::RemoveTable { table } => write!(f, "delete the nftables table {table}"),
            Self::Retire => f.write_str(
                "remove Ferrule's eBPF programs: these pods have no policies of Ferrule from here on",
            ),
            Self::Detach { programs, enforced } => {
                let links: BTreeSet<&str> = programs.iter().map(|it| it.link.as_str()).collect();
                let programs = counted(programs.len(), "program", "programs");
                let links = counted(links.len(), "host veth", "host veths");
                let after = match enforced {
                    true => "Ferrule alone enforces the policies from here on",
                    false => "these pods have no policies of that agent from here on",
                };
                write!(
                    f,
                    "detach {programs} of the policy agent from {links}: {after}"
                )
            }
            Self::Unpin { names } => {
                let pins =
                    counted(names.len(), "pinned program or map", "pinned programs and maps");
                write!(f, "remove {pins} of the policy agent")
            }
            Self::DropFerruleCheckpoint => f.write_str("put ferrule-ipamd's checkpoint aside"),
        }
    }
}

/// Formats a number with its noun: `1 pod runs`, `2 pods run`.
fn counted(count: usize, one: &str, many: &str) -> String {
    let noun = if count == 1 { one } else { many };
    format!("{count} {noun}")
}

//! The plans of takeover and rollback.

mod policy;
mod rollback;
mod takeover;

use crate::{
    Looked, Network, OUR_CONFLIST, Observation, Program,
    refusal::{Refusal, UNSEEN},
};
use config_model::{Migration, Owner, PodKey};
use std::{collections::BTreeSet, fmt};

/// The requested owner of the node.
pub type Way = Owner;

/// The treatment of a policy agent that runs beside amazon-vpc-cni.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PolicyChoice {
    #[default]
    Refuse,
    /// Its programs are detached from the pods.
    Drop,
    /// Ferrule calls it for each pod.
    Keep,
}

/// A condition outside the plan. Nothing changes on the node until it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// amazon-vpc-cni's agent has stopped.
    TheirAgentEnds,
    /// No process of its plugin runs.
    TheirCallsEnd,
    /// ferrule-ipamd serves.
    OurDaemonServes,
    /// ferrule-ipamd has stopped.
    OurDaemonEnds,
    /// No process of ferrule-cni runs.
    OurCallsEnd,
    /// amazon-vpc-cni's agent serves.
    TheirAgentServes,
    /// The policy agent has stopped. While it runs, it attaches its programs again.
    PolicyAgentEnds,
    /// The policy agent serves. Ferrule's ADD fails without it.
    PolicyAgentServes,
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
    Bury {
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
    /// Deletes Ferrule's nftables table.
    RemoveTable,
    /// Detaches programs of the policy agent.
    Detach {
        programs: Vec<Program>,
    },
    /// Removes pins of the policy agent.
    Unpin {
        /// Relative to its folder.
        names: Vec<String>,
    },
    /// Disables Ferrule's checkpoint and removes its tombstones.
    ForgetOurs,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub way: Way,
    /// Reasons against the change. With a refusal no step is applied.
    pub refusals: Vec<Refusal>,
    /// In order; empty if the node is at its goal.
    pub steps: Vec<Step>,
    pub facts: Vec<String>,
}

/// Plans the way from the observed state to the owner.
pub fn plan(seen: &Observation, way: Way, policy: PolicyChoice) -> Plan {
    let mut draft = Draft::default();
    match way {
        Owner::Ferrule => takeover::draft(seen, policy, &mut draft),
        Owner::AmazonVpcCni => rollback::draft(seen, &mut draft),
    }
    let Draft { mut refusals, steps, facts } = draft;
    refusals.sort();
    refusals.dedup();
    Plan { way, refusals, steps, facts }
}

#[derive(Debug, Default)]
struct Draft {
    refusals: Vec<Refusal>,
    steps: Vec<Step>,
    facts: Vec<String>,
}

impl Draft {
    /// Returns an observed value; an unreadable value is a refusal.
    fn seen<'a, T>(&mut self, object: &str, looked: &'a Looked<T>) -> Option<&'a T> {
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
            Self::TheirAgentEnds => {
                "amazon-vpc-cni's agent has ended on this node (take the node out of the DaemonSet \
                 aws-node, by its node affinity for one)"
            }
            Self::TheirCallsEnd => "no call of the plugin aws-cni is under way",
            Self::OurDaemonServes => {
                "ferrule-ipamd serves on this node (put the node into Ferrule's DaemonSet)"
            }
            Self::OurDaemonEnds => {
                "ferrule-ipamd has ended on this node (take the node out of Ferrule's DaemonSet)"
            }
            Self::OurCallsEnd => "no call of the plugin ferrule-cni is under way",
            Self::TheirAgentServes => {
                "amazon-vpc-cni's agent serves on this node (put the node into the DaemonSet \
                 aws-node)"
            }
            Self::PolicyAgentEnds => {
                "the policy agent has ended on this node (it is a container of the DaemonSet \
                 aws-node, unless it was given one of its own)"
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
            Self::Note(Migration { done: true, .. }) => f.write_str("note that it is done"),
            Self::Note(Migration { handed_over: true, .. }) => {
                f.write_str("note that amazon-vpc-cni may start")
            }
            Self::Note(_) => f.write_str("note that it has begun"),
            Self::Await(wait) => write!(f, "wait until {wait}"),
            Self::WriteConflist(_) => {
                write!(f, "write {OUR_CONFLIST}, by which the runtime calls ferrule-cni")
            }
            Self::PutAside { name } => write!(f, "put {name} aside"),
            Self::Restore { name } => write!(f, "put {name} back"),
            Self::RemoveConflist { name } => {
                write!(f, "remove {name}: the runtime calls aws-cni from here on")
            }
            Self::Bury { key } => {
                write!(f, "tell ferrule-ipamd that {key} was deleted by aws-cni meanwhile")
            }
            Self::WriteCheckpoint { name, .. } => {
                write!(f, "write amazon-vpc-cni's checkpoint {name} with the pods that run")
            }
            Self::WriteResult { name, .. } => {
                write!(f, "write the runtime's kept result {name} as aws-cni's DEL reads it")
            }
            Self::DropTwin { rule } => {
                write!(f, "delete our rule `{rule}`, which amazon-vpc-cni's agent has made as well")
            }
            Self::RemoveTable => f.write_str("delete the nftables table ip ferrule"),
            Self::Detach { programs } => {
                let links: BTreeSet<&str> = programs.iter().map(|it| it.link.as_str()).collect();
                let (programs, links) = (programs.len(), links.len());
                write!(
                    f,
                    "take {programs} programs of the policy agent off {links} host veths: from \
                     here on those pods have no policies"
                )
            }
            Self::Unpin { names } => {
                write!(f, "remove {} pinned programs and maps of the policy agent", names.len())
            }
            Self::ForgetOurs => f.write_str("put ferrule-ipamd's checkpoint aside"),
        }
    }
}

//! From an observation to what is to be done, either way.

mod policy;
mod rollback;
mod takeover;

use crate::{
    Looked, Network, OUR_CONFLIST, Observation, Program,
    refusal::{Refusal, UNSEEN},
};
use config_model::{Migration, Owner, PodKey};
use serde::Serialize;
use std::{collections::BTreeSet, fmt};

/// Which way a node is to go.
pub type Way = Owner;

/// What becomes of a policy agent that runs beside amazon-vpc-cni.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PolicyChoice {
    /// The takeover is refused.
    #[default]
    Refuse,
    /// Its programs are taken off the pods.
    Drop,
    /// It is told of pods as before.
    Keep,
}

/// What is waited for; nothing on the node is changed meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// amazon-vpc-cni's agent is to end.
    TheirAgentEnds,
    /// No call of its plugin is to be under way.
    TheirCallsEnd,
    /// Our daemon is to serve.
    OurDaemonServes,
    /// Our daemon is to end.
    OurDaemonEnds,
    /// No call of our plugin is to be under way.
    OurCallsEnd,
    /// amazon-vpc-cni's agent is to serve.
    TheirAgentServes,
    /// The policy agent is to end: as long as it runs it attaches its programs again.
    PolicyAgentEnds,
    /// The policy agent is to answer: an ADD of ours fails without it.
    PolicyAgentServes,
}

/// One thing to do. Each is done as a whole or not at all; of several programs or pins, what was left
/// is the next plan's.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// The journal says this.
    Note(Migration),
    /// Nothing is done until this is so.
    Await(Wait),
    /// The runtime's folder of configurations gets ours.
    WriteConflist(Network),
    /// The runtime reads this file no more; it is kept beside.
    PutAside {
        /// Its name.
        name: String,
    },
    /// The runtime reads this file again.
    Restore {
        /// Its name.
        name: String,
    },
    /// The file, which is ours, goes.
    RemoveConflist {
        /// Its name.
        name: String,
    },
    /// The daemon is told that this interface's DEL went past it.
    Bury {
        /// The interface.
        key: PodKey,
    },
    /// amazon-vpc-cni's checkpoint becomes this.
    WriteCheckpoint {
        /// Its name.
        name: String,
        /// All that it holds.
        bytes: Vec<u8>,
    },
    /// What the runtime keeps of an ADD becomes this.
    WriteResult {
        /// Its name.
        name: String,
        /// All that it holds.
        bytes: Vec<u8>,
    },
    /// Of a rule that is there twice, ours goes.
    DropTwin {
        /// The rule, as `ip rule` takes it.
        rule: String,
    },
    /// Our table of netfilter goes.
    RemoveTable,
    /// These programs of the policy agent leave their links.
    Detach {
        /// Which.
        programs: Vec<Program>,
    },
    /// These pins of the policy agent go.
    Unpin {
        /// Their names below its folder.
        names: Vec<String>,
    },
    /// Our checkpoint is put aside, and the tombstones go with it.
    ForgetOurs,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Which way.
    pub way: Way,
    /// What stands in the way: as long as there is any, nothing is done.
    pub refusals: Vec<Refusal>,
    /// In this order; none if the node is there.
    pub steps: Vec<Step>,
    /// What else was seen.
    pub facts: Vec<String>,
}

/// What takes the node that way from where it is.
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
    /// What was looked at; what could not be seen stands in the way.
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

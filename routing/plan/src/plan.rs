//! The node's plan: the order of its parts, and the findings that are not operations.

mod branches;
mod eni;
mod links;
mod node;
mod orphans;
mod pods;
mod reap;
mod shared;

use crate::{
    Action, IfIndex, Link, NodeDesired, Observed, Op, Route, Rule, Subject, desired::FORWARDING_V6,
};
use config_model::{EniId, Mac, Mark, PodKey};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::{IpAddr, Ipv4Addr},
};

/// Ordered operations, and findings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The operations in their order.
    pub ops: Vec<Op>,
    /// Obstacles, and objects that were left unchanged.
    pub notes: Vec<Note>,
    /// The name of the primary ENI's link; `None` unless there is exactly one.
    pub primary_link: Option<String>,
    /// The mark of each address, for [`crate::nat::sources`]. The whole map, not the difference.
    pub marks: BTreeMap<Ipv4Addr, Mark>,
    found: BTreeSet<Subject>,
}

impl Plan {
    /// True if the observation showed this ENI fully as desired.
    pub fn ready(&self, eni: &EniId) -> bool {
        self.settled(&Subject::Eni(eni.clone()))
    }

    /// True if the observation showed the primary ENI and the node's own rules as desired.
    pub fn node_ready(&self) -> bool {
        self.settled(&Subject::Node)
    }

    fn push(&mut self, subject: Subject, action: Action) {
        self.ops.push(Op::new(subject, action));
    }

    fn settled(&self, subject: &Subject) -> bool {
        self.found.contains(subject) && self.ops.iter().all(|op| op.subject != *subject)
    }
}

/// A finding for which there is no operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// An ENI's link has not come up yet, or is gone.
    LinkMissing {
        subject: Subject,
        /// The address by which the link is searched.
        mac: Mac,
    },
    /// Several links have an ENI's Ethernet address, so none of them is changed.
    LinkAmbiguous { subject: Subject, mac: Mac, links: Vec<IfIndex> },
    /// A confirmed pod has no host veth, so the host cannot reach it.
    VethMissing {
        key: PodKey,
        /// The expected name.
        veth: String,
        address: IpAddr,
    },
    /// The gateway port of bridged pods is missing, down or without Ethernet address: the host cannot reach them.
    GatewayPortMissing {
        /// Name of the port's link.
        port: String,
        /// Number of confirmed pods that need it.
        pods: usize,
    },
    /// Another pod uses the VLAN of a confirmed pod.
    VlanHeld {
        key: PodKey,
        vlan: u16,
        /// The key of the other pod.
        by: PodKey,
    },
    /// A foreign link is in the reap group, so the group is not deleted as a whole.
    ForeignInReapGroup { link: IfIndex },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LinkMissing { subject, mac } => {
                write!(f, "{subject}: waiting for link with MAC {mac}")
            }
            Self::LinkAmbiguous { subject, mac, links } => {
                let links: Vec<String> = links.iter().map(|link| format!("#{link}")).collect();
                write!(f, "{subject}: links {} all have MAC {mac}", links.join(", "))
            }
            Self::VethMissing { key, veth, address } => {
                write!(f, "{address}: no host veth {veth} of {key}")
            }
            Self::GatewayPortMissing { port, pods } => {
                write!(f, "waiting for gateway port {port}, which {pods} pods need")
            }
            Self::VlanHeld { key, vlan, by } => {
                write!(f, "VLAN {vlan} of {key} is in use by {by}")
            }
            Self::ForeignInReapGroup { link } => {
                write!(f, "link #{link} is not ours but in the group of links to be deleted")
            }
        }
    }
}

/// Compares the two states and orders the operations.
///
/// Within a subject, the replacement comes before the removal. Subjects do not depend on each other.
pub fn plan(desired: &NodeDesired, observed: &Observed) -> Plan {
    let mut plan = Plan::default();
    node::plan(&mut plan, desired, observed);
    sysctls(&mut plan, desired, observed);
    shared::add(&mut plan, desired, observed);
    pods::gateway_ports(&mut plan, desired, observed);
    // Pods come before ENIs: a stale rule to an empty table is harmless until the table has routes.
    for pod in desired.pods.iter().filter(|pod| pod.confirmed) {
        pods::plan(&mut plan, pod, desired, observed);
    }
    shared::remove(&mut plan, desired, observed);
    for eni in &desired.enis {
        eni::plan(&mut plan, eni, desired, observed);
    }
    for pod in desired.branches.iter().filter(|pod| pod.confirmed) {
        branches::plan(&mut plan, pod, desired, observed);
    }
    plan.marks = shared::marks(desired, observed);
    orphans::plan(&mut plan, desired, observed);
    reap::plan(&mut plan, desired, observed);
    plan
}

fn sysctls(plan: &mut Plan, desired: &NodeDesired, observed: &Observed) {
    for (name, value) in &desired.sysctls {
        // A sysctl that was not observed does not exist in this kernel.
        if observed.sysctls.get(name).is_some_and(|there| there != value) {
            // A node that starts to forward IPv6 drops the routes of router advertisements, its default route
            // included. The primary link must have accept_ra = 2 before.
            let subject = match name.as_str() {
                FORWARDING_V6 => Subject::Node,
                _ => Subject::Sysctl(name.clone()),
            };
            plan.push(subject, Action::WriteSysctl(name.clone(), value.clone()));
        }
    }
}

fn link_of_eni<'a>(
    plan: &mut Plan,
    subject: &Subject,
    mac: Mac,
    observed: &'a Observed,
) -> Option<&'a Link> {
    let links = observed.enis_with(mac);
    let subject = subject.clone();
    match links[..] {
        [link] => {
            plan.found.insert(subject);
            return Some(link);
        }
        [] => plan.notes.push(Note::LinkMissing { subject, mac }),
        _ => {
            let links = links.iter().map(|link| link.index).collect();
            plan.notes.push(Note::LinkAmbiguous { subject, mac, links });
        }
    }
    None
}

/// Makes `route` the effective one for its table, destination and metric.
fn place(plan: &mut Plan, subject: &Subject, route: Route, observed: &Observed) {
    let rivals =
        |other: &&Route| other.plain && (other.table, other.dst) == (route.table, route.dst);
    let rivals = || observed.routes.iter().filter(rivals);
    let same_key: Vec<&Route> = rivals().filter(|other| other.metric == route.metric).collect();
    // The kernel uses the first route of a key, and the lowest metric. IPv4 routes of ours have the lowest metric;
    // for IPv6 the kernel accepts none that low.
    let better = rivals().filter(|other| other.metric < route.metric);
    let hiding: Vec<Route> = match same_key.iter().position(|other| other.leads_as(&route)) {
        None => {
            plan.push(subject.clone(), Action::ReplaceRoute(route.clone()));
            better.cloned().collect()
        }
        Some(place) => same_key[..place].iter().copied().chain(better).cloned().collect(),
    };
    for hiding in hiding {
        plan.push(subject.clone(), Action::DeleteRoute(hiding));
    }
}

/// Adds the rule unless it or an equal rule with another protocol exists.
fn ensure(plan: &mut Plan, subject: &Subject, rule: Rule, observed: &Observed) {
    if !observed.rules.iter().any(|other| other.is_twin_of(&rule)) {
        plan.push(subject.clone(), Action::AddRule(rule));
    }
}

/// Removes every rule for which `stale` is true. The last one goes first, so that the rule in effect is removed only
/// when no other stale rule can replace it.
fn remove_rules(
    plan: &mut Plan,
    subject: &Subject,
    observed: &Observed,
    stale: impl Fn(&Rule) -> bool,
) {
    for rule in observed.rules.iter().rev().filter(|rule| stale(rule)) {
        plan.push(subject.clone(), Action::DeleteRule(rule.clone()));
    }
}

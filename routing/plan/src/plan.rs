//! The node's plan: the order of the questions, and the answers that are not operations.

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

/// Ordered operations, and why some things must wait.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// What to do, in this order.
    pub ops: Vec<Op>,
    /// What cannot be done now, and what was left alone.
    pub notes: Vec<Note>,
    /// The name of the primary ENI's link, if there is just one.
    pub primary_link: Option<String>,
    /// How netfilter should mark what comes from these addresses: see [`crate::nat::sources`]. All of it,
    /// not what differs.
    pub marks: BTreeMap<Ipv4Addr, Mark>,
    found: BTreeSet<Subject>,
}

impl Plan {
    /// Whether the observation showed this ENI fully as desired.
    pub fn ready(&self, eni: &EniId) -> bool {
        self.settled(&Subject::Eni(eni.clone()))
    }

    /// Whether the observation showed the primary ENI and the node's own rules as desired.
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

/// Why a plan does not do something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// An ENI's link has not come up yet, or has gone.
    LinkMissing {
        /// Whose.
        subject: Subject,
        /// By which it is looked for.
        mac: Mac,
    },
    /// Several links carry an ENI's address, so none is touched.
    LinkAmbiguous {
        /// Whose.
        subject: Subject,
        /// The address.
        mac: Mac,
        /// The links.
        links: Vec<IfIndex>,
    },
    /// A confirmed pod has no host veth: nothing can lead to it.
    VethMissing {
        /// Whose.
        key: PodKey,
        /// The name that it should have.
        veth: String,
        /// The address that leads nowhere.
        address: IpAddr,
    },
    /// A confirmed pod's VLAN is carried for another pod.
    VlanHeld {
        /// Whose.
        key: PodKey,
        /// Which.
        vlan: u16,
        /// The other.
        by: PodKey,
    },
    /// A link in the group of those to be deleted is not ours, so the group is not deleted as one.
    ForeignInReapGroup {
        /// Which link.
        link: IfIndex,
    },
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
            Self::VlanHeld { key, vlan, by } => {
                write!(f, "VLAN {vlan} of {key} is in use by {by}")
            }
            Self::ForeignInReapGroup { link } => {
                write!(f, "link #{link} is not ours but in the group of links to be deleted")
            }
        }
    }
}

/// Compares and orders.
///
/// Within a subject what is new is made before what it replaces is removed. No subject needs another
/// to have been carried out.
pub fn plan(desired: &NodeDesired, observed: &Observed) -> Plan {
    let mut plan = Plan::default();
    node::plan(&mut plan, desired, observed);
    sysctls(&mut plan, desired, observed);
    shared::add(&mut plan, desired, observed);
    // Pods first: a stale rule that leads to an empty table does no harm until the table is filled.
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
        // One that is not seen this kernel does not have.
        if observed.sysctls.get(name).is_some_and(|there| there != value) {
            // A node that begins to forward forgets what routers told it, its default route among
            // it, unless the primary link has been set to listen on by then.
            let subject = match name.as_str() {
                FORWARDING_V6 => Subject::Node,
                _ => Subject::Sysctl(name.clone()),
            };
            plan.push(subject, Action::WriteSysctl(name.clone(), value.clone()));
        }
    }
}

/// The link of an ENI.
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

/// Sees to it that `route` is the one that counts for its table, destination and metric.
fn place(plan: &mut Plan, subject: &Subject, route: Route, observed: &Observed) {
    let rivals =
        |other: &&Route| other.plain && (other.table, other.dst) == (route.table, route.dst);
    let rivals = || observed.routes.iter().filter(rivals);
    let same_key: Vec<&Route> = rivals().filter(|other| other.metric == route.metric).collect();
    // The kernel takes the first of a key, and the lowest metric: what stands before ours hides it.
    // Ours of IPv4 have the lowest there is; of IPv6 the kernel takes none that low.
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

/// Adds the rule unless it, or its twin by another maker, is there.
fn ensure(plan: &mut Plan, subject: &Subject, rule: Rule, observed: &Observed) {
    if !observed.rules.iter().any(|other| other.is_twin_of(&rule)) {
        plan.push(subject.clone(), Action::AddRule(rule));
    }
}

/// Removes every rule that is `stale`, each twin by itself. The last goes first: the one that the
/// kernel follows now goes when nothing stale is left to take its place.
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

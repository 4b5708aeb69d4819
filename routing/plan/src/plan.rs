//! The node's plan: the order of the questions, and the answers that are not operations.

use crate::{IfIndex, NodeDesired, Observed, Op, Subject};
use config_model::{EniId, Mac, PodKey};
use std::{collections::BTreeSet, fmt, net::Ipv4Addr};

/// Ordered operations, and why some things must wait.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// What to do, in this order.
    pub ops: Vec<Op>,
    /// What cannot be done now, and what was left alone.
    pub notes: Vec<Note>,
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
        address: Ipv4Addr,
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
            Self::ForeignInReapGroup { link } => {
                write!(f, "link #{link} is not ours but in the group of links to be deleted")
            }
        }
    }
}

/// Compares and orders.
pub fn plan(desired: &NodeDesired, observed: &Observed) -> Plan {
    let _ = (desired, observed);
    Plan::default()
}

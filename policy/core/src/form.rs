//! Every kind of policy in one form.

use policy_objects::{
    Block, DomainName, FqdnPattern, Kind, Named, PortRange, Protocol, Selector, TargetPort,
};
use serde::{Serialize, Serializer};
use std::{cmp::Ordering, fmt};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct PolicyKey {
    #[serde(serialize_with = "text")]
    pub kind: Kind,
    /// Its namespace; empty for kinds of the cluster.
    pub namespace: String,
    pub name: String,
}

/// A policy of any kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    pub key: PolicyKey,
    /// Its UID; empty for one that was read from a file.
    pub uid: String,
    /// Where in the one order it stands.
    pub place: Place,
    /// Which directions of its subject are closed but for what such policies allow; NetworkPolicies alone.
    pub isolation: Option<Isolation>,
    /// In the order in which they are tried: each direction has its own.
    pub rules: Vec<Rule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Isolation {
    /// For these pods; where its selector is not understood, more than were meant.
    pub subject: Vec<Pods>,
    /// Why these are more than were meant.
    pub doubt: Option<String>,
    pub ingress: bool,
    pub egress: bool,
}

/// Where a policy stands among all. The number of an Antrea tier is known only with the Tiers that exist.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    pub tier: Tier,
    /// Within the tier, lower first.
    pub priority: Priority,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// Upstream's and AWS's ClusterNetworkPolicies before NetworkPolicies: 220.
    Admin,
    /// Antrea's, by name.
    Antrea(String),
    /// NetworkPolicies and ApplicationNetworkPolicies: a union without order.
    NetworkPolicy,
    /// Upstream's and AWS's ClusterNetworkPolicies after them: 254.
    Baseline,
}

/// Whose a tier is: a Pass ends its own family's walk alone. Of two tiers of one number the earlier
/// family's is before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Family {
    /// Upstream's and AWS's.
    Cluster,
    /// Antrea's.
    Antrea,
    /// NetworkPolicies.
    NetworkPolicy,
}

/// A policy's priority, which for Antrea's is no whole number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Priority(f64);

/// Which way a packet goes, seen from the pod that a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    Ingress,
    Egress,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Action {
    /// It goes on, in this direction.
    Allow,
    Drop,
    /// It is gone and the sender is told.
    Reject,
    /// The rest of this family's rules before NetworkPolicy are not asked.
    Pass,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    pub direction: Direction,
    /// Its number among the policy's of that direction, from 0, as it is written.
    pub index: usize,
    /// As people or Antrea named it.
    pub name: Option<String>,
    /// What becomes of what matches. Of a rule that is not understood: Drop, if it fails closed by
    /// denying all; Allow, if by matching nothing.
    pub action: Action,
    /// The pods that it is about.
    pub subject: Vec<Pods>,
    /// Why these are more than were meant; such a rule denies.
    pub doubt: Option<String>,
    pub peers: Peers,
    /// What of it; one of these.
    pub traffic: Traffic,
    /// What the log is to say.
    pub log: Option<Log>,
    pub standing: Standing,
}

/// How far a rule is understood, and so what it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Wholly.
    Understood,
    /// It would have allowed something not understood, and matches nothing.
    MatchesNothing { why: String },
    /// It would have denied something not understood, and denies all of its direction to its subject.
    DeniesAll { why: String },
}

/// Pods, and where they come from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pods {
    Labelled {
        scope: Scope,
        /// These.
        pods: Selector,
    },
    /// The members of a ClusterGroup (no namespace) or a Group. As the subject of a policy of a
    /// namespace only those of that namespace.
    Group(Named),
    /// Those behind a Service; subjects alone.
    Service(Named),
    ServiceAccount(Named),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    Namespace(String),
    /// Those with such labels; without requirement all.
    Namespaces(Selector),
    /// The subject's own, whichever it is.
    SameNamespace,
    /// Those with the same values of these labels as the subject's, which has all of them.
    SameLabels(Vec<String>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peers {
    /// Everybody: every address of both families.
    Any,
    /// One of these; none: nobody.
    Of(Vec<Peer>),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Peer {
    /// Pods. Groups may hold ranges and nodes as well.
    Pods(Pods),
    /// Addresses, whoever has them.
    Block(Block),
    /// Addresses of nodes.
    Nodes(Selector),
    Name(NameMatch),
    /// The address of a Service, before it is translated.
    Service(Named),
}

/// A name, or several.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NameMatch {
    /// Upstream's and AWS's.
    Domain(DomainName),
    /// Antrea's.
    Pattern(FqdnPattern),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Anything, of any protocol.
    Any,
    Of(Vec<Transport>),
}

/// A protocol, and what of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Transport {
    /// TCP, UDP or SCTP.
    Ports {
        protocol: Protocol,
        /// `None`: every port.
        port: Option<TargetPort>,
        /// The sender's; `None`: any.
        source: Option<PortRange>,
    },
    /// A port of the destination pod by its name, with the protocol that it has there.
    Named(String),
    /// ICMP for IPv4, ICMPv6 for IPv6, by numbers of the packet's own family.
    Icmp {
        /// `None`: every type.
        kind: Option<u8>,
        /// `None`: every code.
        code: Option<u8>,
    },
}

/// What the log is to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// A word of the author's; empty if there is none.
    pub label: String,
}

impl Priority {
    /// One that is a number; anything else is the first of all.
    pub fn new(value: f64) -> Self {
        // -0.0 and 0.0 are one.
        Self(if value.is_finite() { value + 0.0 } else { f64::MIN })
    }

    pub fn value(self) -> f64 {
        self.0
    }
}

impl Eq for Priority {}

impl PartialOrd for Priority {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Priority {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// With its group: two kinds have one name.
fn text<S: Serializer>(kind: &Kind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(kind.text())
}

impl fmt::Display for PolicyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Names in files are whatever these say, lines and all.
        let (kind, name) = (self.kind.text(), self.name.escape_debug());
        match self.namespace.as_str() {
            "" => write!(f, "{kind} {name}"),
            namespace => write!(f, "{kind} {}/{name}", namespace.escape_debug()),
        }
    }
}

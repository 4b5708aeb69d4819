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
    pub place: Precedence,
    /// Directions of its subject that are closed except for traffic that NetworkPolicies allow; NetworkPolicies only.
    pub isolation: Option<Isolation>,
    /// In the order in which they are tried: each direction has its own.
    pub rules: Vec<Rule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Isolation {
    /// For these pods; where its selector is not understood, more than were meant.
    pub subject: Vec<Pods>,
    /// Reason why these are more pods than intended.
    pub doubt: Option<String>,
    pub ingress: bool,
    pub egress: bool,
}

/// Tier and priority of a policy. The number of an Antrea tier, and so the [`Rank`](crate::Rank), needs the existing Tiers.
#[derive(Clone, Debug, PartialEq)]
pub struct Precedence {
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

/// Owner of a tier: a Pass ends only the walk of its own family. Of two tiers with the same number, the tier of
/// the earlier family is first.
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

/// Direction of a packet, from the view of the pod that a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    Ingress,
    Egress,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Action {
    /// The packet continues, in this direction.
    Allow,
    Drop,
    /// The packet is dropped and the sender is informed.
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
    /// Action for packets that match. If the rule is not understood: Drop, if it fails closed by
    /// denying all; Allow, if by matching nothing.
    pub action: Action,
    /// The pods that it is about.
    pub subject: Vec<Pods>,
    /// Reason why these are more pods than intended; such a rule denies.
    pub doubt: Option<String>,
    pub peers: Peers,
    /// Traffic of the peers that the rule matches; one of these.
    pub traffic: Traffic,
    /// `None` if the rule does not log.
    pub log: Option<Log>,
    pub standing: Standing,
}

/// Degree to which a rule is understood, and its effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Wholly.
    Understood,
    /// The rule would have allowed a part that is not understood, and matches nothing.
    MatchesNothing { why: String },
    /// The rule would have denied a part that is not understood. It denies all of its direction to its subject.
    DeniesAll { why: String },
}

/// Pods, and where they come from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pods {
    Labeled {
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
    /// Namespaces with such labels; a selector without requirements selects all.
    Namespaces(Selector),
    /// The subject's own, whichever it is.
    SameNamespace,
    /// Namespaces with the subject's values of these labels. The subject has all of them.
    SameLabels(Vec<String>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peers {
    /// Everybody: every address of both families.
    Any,
    /// One of these; an empty list matches no peer.
    Of(Vec<Peer>),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Peer {
    /// Pods. Groups may hold ranges and nodes as well.
    Pods(Pods),
    /// Addresses, independent of their owner.
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

impl Rule {
    /// True if an Antrea rule judges a packet that a Service leads back to its sender. Its peers are Services, or it is
    /// not understood and might have such peers.
    pub(crate) fn judges_hairpins(&self) -> bool {
        let names_services = match &self.peers {
            Peers::Any => false,
            Peers::Of(peers) => peers.iter().any(|peer| matches!(peer, Peer::Service(_))),
        };
        let denies_all = matches!(self.standing, Standing::DeniesAll { .. });
        self.direction == Direction::Egress && (names_services || denies_all)
    }
}

/// Settings of a rule's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// Label that the author chose; empty if absent.
    pub label: String,
}

impl Priority {
    /// Keeps a finite number. NaN and infinities sort before all others.
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
        // Names in files contain any characters, line breaks too.
        let (kind, name) = (self.kind.text(), self.name.escape_debug());
        match self.namespace.as_str() {
            "" => write!(f, "{kind} {name}"),
            namespace => write!(f, "{kind} {}/{name}", namespace.escape_debug()),
        }
    }
}

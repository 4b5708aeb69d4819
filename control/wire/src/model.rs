//! Policies in the form that a node receives: groups are named, and no other lookup is needed.

use crate::SharedMap;
use policy_core::{
    Action, Direction, Family, Log, NameMatch, PolicyKey, Priority, Stage, Standing, Traffic,
    index::{GroupId, Holds, MemberKey},
};
use policy_objects::{Block, ContainerPort};
use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

/// A policy with the identifiers of its groups.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Its UID: what it is known by.
    pub uid: String,
    /// Its name, for people.
    pub key: PolicyKey,
    /// Of its spec, as reports name it.
    pub generation: i64,
    /// Position in the single order of all policies.
    pub place: Position,
    /// Directions that a NetworkPolicy isolates; `None` for other kinds.
    pub isolation: Option<Isolation>,
    /// In the order in which they are tried.
    pub rules: Vec<Rule>,
}

/// Where a policy stands; after this, its namespace, kind and name decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Before, among or after NetworkPolicies.
    pub stage: Stage,
    /// The tier's number.
    pub number: u8,
    /// Family of kinds that owns the tier.
    pub family: Family,
    /// Within the tier.
    pub priority: Priority,
}

/// Pods and directions that a NetworkPolicy isolates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Isolation {
    /// For the pods in one of these.
    pub applied: Vec<GroupId>,
    /// Reason why these groups may contain more pods than intended.
    pub doubt: Option<String>,
    /// Traffic to the pods is isolated.
    pub ingress: bool,
    /// Traffic from the pods is isolated.
    pub egress: bool,
}

/// One rule of a policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    pub direction: Direction,
    /// Its number among the policy's of that direction, as it is written.
    pub index: usize,
    /// As people or Antrea named it.
    pub name: Option<String>,
    /// Verdict for matching traffic.
    pub action: Action,
    /// Groups of the pods to which the rule applies; a pod in one of them is enough.
    pub applied: Vec<GroupId>,
    /// Reason why these groups may contain more pods than intended.
    pub doubt: Option<String>,
    /// With whom.
    pub peers: Peers,
    /// Traffic that the rule matches.
    pub traffic: Traffic,
    /// Content of the log.
    pub log: Option<Log>,
    /// Degree to which the rule is understood.
    pub standing: Standing,
    /// Group whose named ports apply if the far end is not a member of a peer's group.
    pub names: Option<GroupId>,
    /// The match features beyond the first version that the rule uses ([`Features`](crate::Features)).
    pub requires: Vec<u32>,
}

/// With whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peers {
    /// Everybody.
    Any,
    /// Members of one of these; if all are empty, the rule matches no peer.
    Of(PeerSet),
}

/// The far end of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerSet {
    /// Address groups.
    pub groups: Vec<GroupId>,
    /// Address ranges, whatever uses the addresses.
    pub blocks: Vec<Block>,
    /// Domain names, which match the addresses that they resolve to.
    pub names: Vec<NameMatch>,
    /// Groups of the addresses of Services, which the packet has before it is translated.
    pub services: Vec<GroupId>,
    /// Peers that depend on the subject's namespace.
    pub alike: Vec<NamespacePeers>,
}

/// For the pods of some applied-to groups, an address group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespacePeers {
    /// If the rule's pod is in one of these,
    pub applied: Vec<GroupId>,
    /// these are peers.
    pub address: GroupId,
}

/// A pod of the node, also one that no policy is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// Its UID: what it is known by.
    pub uid: String,
    pub namespace: String,
    pub name: String,
    /// Its addresses, as far as they are known.
    pub addresses: Vec<IpAddr>,
    /// Its named ports, in the order in which a name is looked for.
    pub ports: Vec<ContainerPort>,
    /// Of a static pod the UID by which its kubelet and its runtime know it; of others empty. Any user may have put it
    /// there: it names a pod of this namespace and name alone, and is no key.
    pub runtime_uid: String,
}

/// With whom, by address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressGroup {
    /// Pods and nodes.
    pub members: SharedMap<MemberKey, Member>,
    /// Everything else: ranges, a Service's addresses, or why it cannot be used.
    pub holds: Arc<Holds>,
}

/// A pod or a node of an address group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    pub addresses: Vec<IpAddr>,
    /// Its named ports, in the order in which a name is looked for.
    pub ports: Vec<ContainerPort>,
}

/// The pods of this node in an applied-to group, by UID.
pub type AppliedGroup = BTreeSet<String>;

//! Policies as a node is told of them: groups are named, and nothing is left to be looked up elsewhere.

use crate::SharedMap;
use policy_core::{
    Action, Direction, Family, Log, NameMatch, PolicyKey, Priority, Stage, Standing, Traffic,
    index::{GroupId, Holds, MemberKey},
};
use policy_objects::{Block, ContainerPort};
use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

/// A policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Its UID: what it is known by.
    pub uid: String,
    /// Its name, for people.
    pub key: PolicyKey,
    /// Of its spec, as reports name it.
    pub generation: i64,
    /// Where it stands in the one order.
    pub place: Position,
    /// What it closes; NetworkPolicies alone.
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
    /// Whose the tier is.
    pub family: Family,
    /// Within the tier.
    pub priority: Priority,
}

/// What a NetworkPolicy closes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Isolation {
    /// For the pods in one of these.
    pub applied: Vec<GroupId>,
    /// Why these are more than were meant.
    pub doubt: Option<String>,
    /// What comes to them.
    pub ingress: bool,
    /// What goes from them.
    pub egress: bool,
}

/// A rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Which way.
    pub direction: Direction,
    /// Its number among the policy's of that direction, as it is written.
    pub index: usize,
    /// As people or Antrea named it.
    pub name: Option<String>,
    /// What becomes of what matches.
    pub action: Action,
    /// Whom it is about: the pods in one of these.
    pub applied: Vec<GroupId>,
    /// Why these are more than were meant.
    pub doubt: Option<String>,
    /// With whom.
    pub peers: Peers,
    /// What of it.
    pub traffic: Traffic,
    /// What the log is to say.
    pub log: Option<Log>,
    /// How far it is understood.
    pub standing: Standing,
    /// Whose named ports are meant where the far end is no member of a peer's group.
    pub names: Option<GroupId>,
    /// The match features beyond the first version that the rule uses ([`Features`](crate::Features)).
    pub requires: Vec<u32>,
}

/// With whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peers {
    /// Everybody.
    Any,
    /// Who is in one of these; if all are empty, nobody.
    Of(PeerSet),
}

/// The far end of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerSet {
    /// Address groups.
    pub groups: Vec<GroupId>,
    /// Ranges, whoever has them.
    pub blocks: Vec<Block>,
    /// What names lead to.
    pub names: Vec<NameMatch>,
    /// Groups of the addresses of Services, which the packet has before it is translated.
    pub services: Vec<GroupId>,
    /// What depends on the subject's namespace.
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
    /// Its namespace.
    pub namespace: String,
    /// Its name.
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
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// Its named ports, in the order in which a name is looked for.
    pub ports: Vec<ContainerPort>,
}

/// The pods of this node in an applied-to group, by UID.
pub type AppliedGroup = BTreeSet<String>;

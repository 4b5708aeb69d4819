//! Output of the index: ids, members, deltas, and the state that they add up to.

use crate::PolicyKey;
use policy_objects::{
    Block, ContainerPort,
    page::{RequirementView, SelectorView},
};
use sha2::{Digest as _, Sha256};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
    sync::Arc,
};

/// Use of a group. One selector may have both roles, and the two have the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// The pods that policies are about, also before they have an address. It holds the span.
    Applied,
    /// The pods and nodes with whom; those that have an address.
    Address,
}

/// A group, by what it selects: the same on every replica.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub [u8; 16]);

/// A policy: the same on every replica.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyId {
    Uid(String),
    /// One without UID, by its name.
    Named(PolicyKey),
}

/// A pod, or a node, in a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// The pod's namespace; empty for a node.
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// The node that it is bound to; empty as long as there is none.
    pub node: String,
    /// The addresses that it owns. An address of its status that a later pod owns is not included.
    pub addresses: Vec<IpAddr>,
    /// Its named ports, in the order in which a name is looked for.
    pub ports: Vec<ContainerPort>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberKey {
    /// The pod's namespace; empty for a node.
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

/// The changes of one event, each list in the order of its ids. A caller applies all of it or nothing: a part
/// can let traffic pass that passes neither before nor after.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deltas {
    pub groups: Vec<GroupDelta>,
    pub policies: Vec<PolicyDelta>,
    pub nodes: Vec<NodeDelta>,
}

/// State of the object relative to the time before the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// The object is new, and the delta has all of it.
    Added,
    Changed,
    Removed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDelta {
    pub role: Role,
    pub id: GroupId,
    pub change: Change,
    /// Members that are new or have changed, whole.
    pub added: Vec<Arc<Member>>,
    /// Members that are gone.
    pub removed: Vec<MemberKey>,
    /// Content besides members; `None` if it has not changed.
    pub holds: Option<Holds>,
    /// Nodes that need it now and did not before.
    pub entered: Vec<String>,
    /// Nodes that needed it before and do not now.
    pub left: Vec<String>,
}

/// Content of a group besides members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holds {
    /// Addresses; of peers alone.
    pub blocks: Vec<Block>,
    /// Of a Service's group its own addresses, which are asked for, sorted: it has neither members nor
    /// blocks. None for one that does not exist or is headless.
    pub vips: Vec<IpAddr>,
    /// As peers: why it cannot be used, and rules with it fail closed. As those that rules are about: why
    /// its members are more than were meant; rules about them allow nothing, a Pass denies all.
    pub unusable: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyDelta {
    pub id: PolicyId,
    /// Its name: another of it may have another id.
    pub key: PolicyKey,
    pub change: Change,
    /// The number of its tier, if that has changed.
    pub tier: Option<u8>,
    /// The groups that it uses, if they have changed.
    pub uses: Option<Uses>,
    /// Nodes that need it now and did not before.
    pub entered: Vec<String>,
    /// Nodes that needed it before and do not now.
    pub left: Vec<String>,
}

/// The groups that a policy uses, in the order of their ids.
///
/// Together with the form ([`Policy`](crate::Policy)) and the number of the tier they are the whole policy. The form
/// has blocks, ports and the names of FQDN rules in it, and no part of another object. Each node resolves
/// those names itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    pub applied: Vec<GroupId>,
    /// With whom, and the Services that are asked for.
    pub address: Vec<GroupId>,
    /// The groups that stand for rules whose peers depend on the subject's namespace; they are among the
    /// others.
    pub expanded: Vec<Expanded>,
    /// Subjects that are more pods than intended, with the reason. Allow rules about them match nothing, and a Pass
    /// denies all. The list is here because a node does not have a group without pods of its own.
    pub doubted: Vec<(GroupId, String)>,
}

/// A pair of groups that stands for a rule, for the pods of some namespaces.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Expanded {
    /// The rule, as an index into the policy's rules.
    pub rule: usize,
    pub applied: Vec<GroupId>,
    /// With whom, among other peers.
    pub address: GroupId,
}

/// Changes of one node's own objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeDelta {
    pub node: String,
    /// Its addresses, if they have changed.
    pub addresses: Option<Vec<IpAddr>>,
    /// Pods bound to it that are new or have changed, whole.
    pub added: Vec<Arc<Member>>,
    /// Pods that are gone.
    pub removed: Vec<MemberKey>,
}

/// All groups, policies and nodes' own objects at one time, or the part of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The groups that policies use.
    pub groups: BTreeMap<(Role, GroupId), GroupState>,
    pub policies: BTreeMap<PolicyId, PolicyState>,
    pub nodes: BTreeMap<String, NodeState>,
}

/// One node's own objects at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeState {
    /// Its addresses, sorted: what its pods send there is no NetworkPolicy's.
    pub addresses: Vec<IpAddr>,
    /// Its pods that policy knows, also those that no policy is about.
    pub pods: BTreeMap<MemberKey, Arc<Member>>,
}

/// Ids and names of the objects that one node needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    pub own: NodeState,
    /// The groups that its pods are in and policies are about, with these pods.
    pub applied: BTreeMap<GroupId, Vec<Arc<Member>>>,
    /// The groups that those policies have as peers, and the Services that they ask for.
    pub address: BTreeSet<GroupId>,
    pub policies: Vec<(PolicyId, PolicyKey)>,
}

/// A group at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupState {
    pub members: BTreeMap<MemberKey, Arc<Member>>,
    pub holds: Holds,
    pub span: BTreeSet<String>,
}

/// A policy at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyState {
    /// The number of its tier: with the form it determines the place of the policy ([`Rank`](crate::Rank)).
    pub tier: u8,
    /// The groups that it uses.
    pub uses: Uses,
    pub span: BTreeSet<String>,
}

impl Member {
    pub fn key(&self) -> MemberKey {
        let (namespace, name) = (self.namespace.clone(), self.name.clone());
        MemberKey { namespace, name, uid: self.uid.clone() }
    }

    /// True if a group for a role has this content.
    pub(super) fn counts(&self, role: Role) -> bool {
        match role {
            Role::Applied => !self.namespace.is_empty(),
            Role::Address => !self.addresses.is_empty(),
        }
    }
}

impl Deltas {
    /// True if nothing changed.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.policies.is_empty() && self.nodes.is_empty()
    }
}

impl GroupDelta {
    pub(super) fn new(role: Role, id: GroupId, change: Change) -> Self {
        let (added, removed) = (Vec::new(), Vec::new());
        let (entered, left) = (Vec::new(), Vec::new());
        Self { role, id, change, added, removed, holds: None, entered, left }
    }
}

impl PolicyDelta {
    pub(super) fn new(id: PolicyId, key: PolicyKey, change: Change) -> Self {
        let (entered, left) = (Vec::new(), Vec::new());
        Self { id, key, change, tier: None, uses: None, entered, left }
    }
}

impl Snapshot {
    /// The state after an event.
    pub fn fold(&mut self, deltas: &Deltas) {
        for delta in &deltas.groups {
            let key = (delta.role, delta.id);
            if delta.change == Change::Removed {
                self.groups.remove(&key);
                continue;
            }
            let group = self.groups.entry(key).or_default();
            for member in &delta.removed {
                group.members.remove(member);
            }
            group.members.extend(delta.added.iter().map(|member| (member.key(), member.clone())));
            if let Some(holds) = &delta.holds {
                group.holds.clone_from(holds);
            }
            move_span(&mut group.span, &delta.entered, &delta.left);
        }
        for delta in &deltas.policies {
            if delta.change == Change::Removed {
                self.policies.remove(&delta.id);
                continue;
            }
            let policy = self.policies.entry(delta.id.clone()).or_default();
            policy.tier = delta.tier.unwrap_or(policy.tier);
            if let Some(uses) = &delta.uses {
                policy.uses.clone_from(uses);
            }
            move_span(&mut policy.span, &delta.entered, &delta.left);
        }
        for delta in &deltas.nodes {
            let node = self.nodes.entry(delta.node.clone()).or_default();
            node.addresses = delta.addresses.clone().unwrap_or(std::mem::take(&mut node.addresses));
            for pod in &delta.removed {
                node.pods.remove(pod);
            }
            node.pods.extend(delta.added.iter().map(|pod| (pod.key(), pod.clone())));
            if *node == NodeState::default() {
                self.nodes.remove(&delta.node);
            }
        }
    }
}

fn move_span(span: &mut BTreeSet<String>, entered: &[String], left: &[String]) {
    for node in left {
        span.remove(node);
    }
    span.extend(entered.iter().cloned());
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Texts one after another, each with its length before it, so that no two lists are the same bytes.
pub(super) struct Canonical(Vec<u8>);

impl Canonical {
    pub(super) fn new(kind: &str) -> Self {
        let mut canonical = Self(Vec::with_capacity(256));
        canonical.text(kind);
        canonical
    }

    pub(super) fn text(&mut self, text: &str) {
        self.number(text.len());
        self.0.extend_from_slice(text.as_bytes());
    }

    pub(super) fn number(&mut self, number: usize) {
        self.0.extend_from_slice(&(number as u64).to_be_bytes());
    }

    pub(super) fn maybe(&mut self, text: Option<&str>) {
        self.number(usize::from(text.is_some()));
        text.into_iter().for_each(|text| self.text(text));
    }

    pub(super) fn selector(&mut self, selector: &SelectorView<'_>) {
        use policy_objects::page::OperatorView::{DoesNotExist, Exists, In, NotIn};
        self.number(selector.requirements().len());
        for RequirementView { key, operator } in selector.requirements() {
            self.text(key);
            let (word, values) = match operator {
                In(values) => ("In", values.as_slice()),
                NotIn(values) => ("NotIn", values.as_slice()),
                Exists => ("Exists", &[][..]),
                DoesNotExist => ("DoesNotExist", &[][..]),
            };
            self.text(word);
            self.number(values.len());
            values.iter().for_each(|value| self.text(value));
        }
    }

    pub(super) fn id(self) -> GroupId {
        let mut id = [0; 16];
        id.copy_from_slice(&Sha256::digest(&self.0)[..16]);
        GroupId(id)
    }
}

//! The index of the pods that each selector selects, and of the nodes that need each policy.
//!
//! An entity (a pod, a node) ↔ its label set ↔ selections ↔ groups ↔ policies. Identical selectors of one
//! scope share a group, also across policies. Each event returns its changes. Its cost is in
//! proportion to the groups, members and spans that it changes: the index never scans all objects. Ids are the same
//! on every replica, and deltas are in the order of their ids. Start at [`Index::apply`].
//!
//! Each value is stored once and referred to by number; the index must hold a hundred thousand pods in little memory.
//! The tests contain its specification: a full evaluation of all objects.

mod addresses;
mod by_id;
mod delta;
mod entities;
mod expand;
mod groups;
mod ids;
mod interner;
mod links;
mod matching;
mod named;
mod policies;
mod queries;
mod settle;
mod source;
mod table;
#[cfg(test)]
mod tests;
mod tiers;
mod uid;

pub use addresses::{Holders, KnownPod};
pub use delta::{
    Change, Deltas, Expanded, GroupDelta, GroupId, GroupState, Holds, Member, MemberKey, Needs,
    NodeDelta, NodeState, PolicyDelta, PolicyId, PolicyState, Role, Snapshot, Uses,
};

use crate::{Policy, PolicyKey, world::number_of};
use by_id::ById;
use entities::{Entities, EntityContent, EntityLabels};
use groups::Group;
use ids::Ids;
use matching::Matching;
use named::NamedObjects;
use policies::Used;
use policy_objects::{
    self as objects, ContainerPort, Kind, Meta, Named, Namespace, Node, Phase, Pod, Service,
    page::{MetaView, NamespaceView, PodView, PolicyView, PortView},
};
use settle::{Changes, Seen};
use source::Dependency;
use std::{borrow::Cow, collections::BTreeSet, net::IpAddr};
use table::Table;
use tiers::Tiers;

/// A change of an object.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// A pod is new or has changed.
    Pod(&'a Pod),
    /// The same, borrowed by a page of a list.
    PodView(&'a PodView<'a>),
    /// A namespace is new or has changed.
    Namespace(&'a Namespace),
    /// The same, borrowed by a page of a list.
    NamespaceView(&'a NamespaceView<'a>),
    /// A node is new or has changed.
    Node(&'a Node),
    /// A Service is new or has changed.
    Service(&'a Service),
    /// A Tier is new or has changed.
    Tier(&'a objects::Tier),
    /// A ClusterGroup or a Group is new or has changed.
    Group(&'a objects::Group),
    /// A policy is new or has changed. Its form is the caller's to send: what this changes is the groups that
    /// it uses, its place in the one order and its span.
    Policy(&'a Policy),
    /// A NetworkPolicy is, borrowed by a page of a list.
    PolicyView(&'a PolicyView<'a>),
    /// The object was deleted. The event has no effect if the index does not have the object.
    Gone {
        kind: Kind,
        /// Its namespace; empty for kinds of the cluster.
        namespace: &'a str,
        name: &'a str,
        /// UID of the deleted object. Another object of the same name stays, if it was created before this event
        /// arrived. Empty: any UID.
        uid: &'a str,
    },
}

/// Every policy's groups, their members and the nodes that need them.
#[derive(Debug)]
pub struct Index {
    matching: Matching,
    entities: Entities,
    groups: Table<Group>,
    by_id: ById,
    policies: Table<Used>,
    named: NamedObjects,
    dependents: BTreeSet<(Dependency, u32)>,
    tiers: Tiers,
    /// The policies that compare namespaces.
    expanding: BTreeSet<u32>,
    changes: Changes,
    loading: bool,
}

impl Index {
    /// One without objects, to [`load`](Self::load) them into. The seed decides nothing but how hard it is to
    /// choose names that make it slow: any random number will do.
    pub fn new(seed: u64) -> Self {
        Self {
            matching: Matching::new(seed),
            entities: Entities::new(seed),
            groups: Table::new(seed),
            by_id: ById::new(seed),
            policies: Table::new(seed),
            named: NamedObjects::default(),
            dependents: BTreeSet::new(),
            tiers: Tiers::default(),
            expanding: BTreeSet::new(),
            changes: Changes::default(),
            loading: true,
        }
    }

    /// Adds an object of the first lists. Matching starts when all of them are
    /// [`loaded`](Self::loaded); from then on this is [`apply`](Self::apply).
    pub fn load(&mut self, event: Event<'_>) {
        if self.loading {
            self.take(event);
            // Most events of a load free nothing, and their changes are not reported.
            if !self.changes.unused.is_empty() {
                self.drop_unused();
                self.changes = Changes::default();
            }
            self.entities.forget();
        } else {
            self.apply(event);
        }
    }

    /// All lists are read: matches everything with everything.
    pub fn loaded(&mut self) {
        if !self.loading {
            return;
        }
        for policy in self.expanding.clone() {
            self.expand(policy);
            self.regroup(policy);
        }
        self.matching.loaded();
        self.entities.loaded();
        self.by_id.loaded(&self.groups);
        let mut groups = Vec::new();
        for set in self.matching.sets.ids() {
            self.groups_into(&self.matching.sets[set].selections, &mut groups);
            let entities = &self.matching.sets[set].entities;
            for group in &groups {
                let Some(applied) = &mut self.groups[*group].applied else { continue };
                let nodes = entities.iter().filter_map(|id| self.entities.entities[id].node);
                nodes.for_each(|node| {
                    applied.pods.add(node, 1);
                });
            }
        }
        for policy in self.policies.ids() {
            self.link_spans(policy);
        }
        self.loading = false;
        self.changes = Changes::default();
    }

    /// Takes in an event: what it changed. Before everything is loaded it changes nothing.
    pub fn apply(&mut self, event: Event<'_>) -> Deltas {
        if self.loading {
            self.load(event);
            return Deltas::default();
        }
        self.take(event);
        self.settle()
    }

    /// Everything, as it is now.
    pub fn snapshot(&self) -> Snapshot {
        let mut deltas = Deltas::default();
        for group in self.groups.ids() {
            for role in [Role::Applied, Role::Address] {
                if self.groups[group].has(role) {
                    deltas.groups.push(self.whole(group, role));
                }
            }
        }
        deltas.policies = self.policies.ids().map(|id| self.whole_policy(id)).collect();
        let entities = self.entities.entities.ids();
        let all: Vec<_> =
            entities.map(|id| (1, self.entities.member(&self.matching, id))).collect();
        deltas.nodes = settle::own(&all);
        let mut snapshot = Snapshot::default();
        snapshot.fold(&deltas);
        snapshot
    }

    /// True if the index has the namespace's object. Without it, only the name is known, and no labels.
    pub fn knows_namespace(&self, name: &str) -> bool {
        let found = self.matching.spaces.find(name);
        found.is_some_and(|space| self.matching.spaces[space].known)
    }

    /// The policies that are about a pod, in the order of their names; none for a pod that policy does not know.
    pub fn policies_of(&self, namespace: &str, name: &str) -> Vec<PolicyKey> {
        let Some(id) = self.entities.find(&self.matching, namespace, name) else {
            return Vec::new();
        };
        let set = self.entities.entities[id].set;
        let groups = self.groups_of(&self.matching.sets[set].selections);
        let policies =
            groups.into_iter().flat_map(|group| self.groups[group].policies(Role::Applied));
        let found: BTreeSet<PolicyKey> = policies.map(|policy| self.policy_key(*policy)).collect();
        found.into_iter().collect()
    }

    /// Number of groups, of both roles together.
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// True if no policy uses a group.
    pub fn is_empty(&self) -> bool {
        self.groups.len() == 0
    }

    /// Number of stored values of all kinds; tests compare it to find leaks.
    #[cfg(test)]
    fn held(&self) -> usize {
        let expands = self.expanding.len() + self.dependents.len();
        self.matching.held()
            + self.entities.held()
            + self.groups.len()
            + self.by_id.len()
            + self.policies.len()
            + self.tiers.held()
            + self.named.held()
            + expands
    }

    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Pod(pod) => {
                let Meta { namespace, .. } = &pod.meta;
                let content = EntityContent {
                    namespace,
                    node: &pod.node,
                    account: Some(&pod.service_account),
                    ports: Cow::Borrowed(&pod.ports),
                    ..content(&pod.meta, &pod.addresses)
                };
                self.pod(&content, pod.host_network, pod.phase);
            }
            Event::PodView(pod) => {
                let MetaView { namespace, name, uid, labels, created, .. } = &pod.meta;
                let content = EntityContent {
                    namespace,
                    name,
                    uid,
                    created,
                    labels: EntityLabels::Borrowed(labels),
                    node: &pod.node,
                    account: Some(&pod.service_account),
                    addresses: &pod.addresses,
                    ports: pod.ports.iter().map(port).collect(),
                };
                self.pod(&content, pod.host_network, pod.phase);
            }
            Event::Node(node) => self.entity(&content(&node.meta, &node.addresses)),
            Event::Namespace(Namespace { meta }) => {
                let labels = meta.labels.iter().map(|(key, value)| (&**key, &**value)).collect();
                self.namespace(&meta.name, Some(labels));
            }
            Event::NamespaceView(NamespaceView { meta, .. }) => {
                let labels = meta.labels.iter().map(|(key, value)| (&**key, &**value)).collect();
                self.namespace(&meta.name, Some(labels));
            }
            Event::Service(service) => {
                let name = named(&service.meta.namespace, &service.meta.name);
                self.change(&Dependency::Service(name.clone()), |named| {
                    named.serve(name, Some(service));
                });
            }
            Event::Group(group) => {
                let name = named(&group.meta.namespace, &group.meta.name);
                self.change(&Dependency::Group(name.clone()), |named| {
                    named.groups.insert(name, group.spec.clone());
                });
            }
            Event::Tier(tier) => self.tier(&tier.meta.name, Some(number_of(&tier.priority))),
            Event::Policy(policy) => self.policy(policy),
            Event::PolicyView(policy) => self.borrowed_policy(policy),
            Event::Gone { kind, namespace, name, uid } => self.gone(kind, namespace, name, uid),
        }
    }

    fn gone(&mut self, kind: Kind, namespace: &str, name: &str, uid: &str) {
        let of = named(namespace, name);
        match kind {
            Kind::Pod => self.entity_gone(namespace, name, uid),
            Kind::Node => self.entity_gone("", name, uid),
            Kind::Namespace => self.namespace(name, None),
            Kind::Service => self.change(&Dependency::Service(of.clone()), |named| {
                named.serve(of, None);
            }),
            Kind::AntreaClusterGroup | Kind::AntreaGroup => {
                self.change(&Dependency::Group(of.clone()), |named| {
                    named.groups.remove(&of);
                });
            }
            Kind::NetworkPolicy
            | Kind::ClusterNetworkPolicy
            | Kind::AwsClusterNetworkPolicy
            | Kind::AwsApplicationNetworkPolicy
            | Kind::AntreaClusterNetworkPolicy
            | Kind::AntreaNetworkPolicy => self.policy_gone(kind, namespace, name, uid),
            Kind::AntreaTier => self.tier(name, None),
        }
    }

    /// Treats a pod that has ended, or that uses its node's network, as deleted.
    fn pod(&mut self, content: &EntityContent<'_>, host_network: bool, phase: Phase) {
        if host_network || phase == Phase::Ended {
            self.entity_gone(content.namespace, content.name, "");
        } else {
            self.entity(content);
        }
    }

    fn entity(&mut self, content: &EntityContent<'_>) {
        let EntityContent { namespace, name, .. } = *content;
        if self.loading {
            self.entities.put(&mut self.matching, content);
            return;
        }
        let spot = self.spot(namespace);
        let old = self.entities.find(&self.matching, namespace, name);
        let mut others = self.rivals(old, content.addresses);
        let had = old.map(|id| self.entities.addresses(id).to_vec()).unwrap_or_default();
        self.rivals(old, &had).iter().for_each(|id| others.insert(id));
        let before: Vec<Seen> = others.iter().map(|id| self.see(id)).collect();
        let was = old.map(|id| self.see(id));
        let id = self.entities.put(&mut self.matching, content);
        let is = self.see(id);
        self.compare(was.as_ref(), Some(&is));
        self.others_changed(&others, &before);
        self.settle_counts();
        self.turn_spot(namespace, &spot);
    }

    fn entity_gone(&mut self, namespace: &str, name: &str, uid: &str) {
        let Some(id) = self.entities.find(&self.matching, namespace, name) else { return };
        if !self.entities.is(id, uid) {
            return;
        }
        if self.loading {
            self.entities.remove(&mut self.matching, id);
            return;
        }
        let spot = self.spot(namespace);
        let had = self.entities.addresses(id).to_vec();
        let others = self.rivals(Some(id), &had);
        let before: Vec<Seen> = others.iter().map(|id| self.see(id)).collect();
        let was = self.see(id);
        self.entities.remove(&mut self.matching, id);
        self.compare(Some(&was), None);
        self.others_changed(&others, &before);
        self.settle_counts();
        self.turn_spot(namespace, &spot);
    }

    /// Pods whose status also has one of these addresses.
    fn rivals(&self, id: Option<u32>, addresses: &[IpAddr]) -> Ids {
        self.entities.rivals(id, addresses)
    }

    fn others_changed(&mut self, others: &Ids, before: &[Seen]) {
        for (id, was) in others.iter().zip(before) {
            let is = self.see(id);
            self.compare(Some(was), Some(&is));
        }
    }

    fn namespace(&mut self, name: &str, labels: Option<Vec<(&str, &str)>>) {
        let spot = self.spot(name);
        let space = self.matching.space(name);
        let known = self.matching.spaces[space].known;
        let is_known = labels.is_some();
        let mut before = self.matching.label_space(space, labels);
        self.matching.spaces[space].known = is_known;
        let sets: Vec<(u32, Ids)> = std::mem::take(&mut before).into_iter().collect();
        for (set, selections) in sets {
            let (was, is) =
                (self.groups_of(&selections), self.groups_of(&self.matching.sets[set].selections));
            for id in self.matching.sets[set].entities.clone().iter() {
                let left = was.iter().filter(|group| is.binary_search(group).is_err());
                left.for_each(|group| self.shift(*group, id, -1));
                let entered = is.iter().filter(|group| was.binary_search(group).is_err());
                entered.for_each(|group| self.shift(*group, id, 1));
            }
        }
        self.settle_counts();
        self.turn_spot(name, &spot);
        // An object of it is one user; this event was another.
        if known {
            self.matching.release_space(space);
        }
        if !is_known {
            self.matching.release_space(space);
        }
    }
}

fn content<'a>(meta: &'a Meta, addresses: &'a [IpAddr]) -> EntityContent<'a> {
    EntityContent {
        namespace: "",
        name: &meta.name,
        uid: &meta.uid,
        created: &meta.created,
        labels: EntityLabels::Owned(&meta.labels),
        node: "",
        account: None,
        addresses,
        ports: Cow::Borrowed(&[]),
    }
}

fn port(view: &PortView<'_>) -> ContainerPort {
    let PortView { name, protocol, port } = view;
    ContainerPort { name: name.to_string(), protocol: *protocol, port: *port }
}

fn named(namespace: &str, name: &str) -> Named {
    Named { namespace: namespace.to_owned(), name: name.to_owned() }
}

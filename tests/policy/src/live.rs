//! A world that changes by events, with the index that follows it.

use crate::{
    indexed::Indexed,
    naive::{Naive, Packet},
    scenario::{Id, Scenario, id},
};
use policy_core::{
    Policy, World, compile,
    index::{
        Deltas, Event, GroupState, Index, Needs, NodeState, PolicyId, PolicyState, Role, Snapshot,
    },
};
use policy_objects::Object;
use std::collections::{BTreeMap, BTreeSet};

/// A world, and the model and the index that receive each change of it.
pub struct LiveWorld {
    pub scenario: Scenario,
    /// The model's world.
    pub world: World,
    pub index: Index,
    /// The sum of the index's deltas.
    pub snapshot: Snapshot,
    /// The objects that the index returns for each node, by node name.
    pub nodes: BTreeMap<&'static str, Snapshot>,
    /// The compiled policies.
    pub policies: BTreeMap<PolicyId, Policy>,
}

impl LiveWorld {
    /// Starts with all objects loaded.
    pub fn new(scenario: Scenario) -> Self {
        let mut index = Index::new(1);
        let mut policies = BTreeMap::new();
        for object in &scenario.objects {
            let policy = compile(object);
            index.load(event(object, policy.as_ref()));
            policies.extend(policy.map(|policy| (policy_id(&policy), policy)));
        }
        index.loaded();
        let snapshot = index.snapshot();
        let nodes = NODES.iter().map(|node| (*node, node_snapshot(&index, node))).collect();
        let world = crate::compare::world(&scenario);
        Self { scenario, world, index, snapshot, nodes, policies }
    }

    /// Adds or replaces an object. Returns the changes of the index.
    pub fn insert(&mut self, object: Object) -> Deltas {
        self.scenario.objects.retain(|other| id(other) != id(&object));
        self.scenario.objects.push(object.clone());
        let policy = compile(&object);
        let deltas = self.index.apply(event(&object, policy.as_ref()));
        self.fold(&deltas);
        if let Some(policy) = policy {
            self.policies.retain(|_, other| other.key != policy.key);
            self.policies.insert(policy_id(&policy), policy);
        }
        self.world.insert(object);
        deltas
    }

    /// Removes an object.
    pub fn remove(&mut self, gone: &Id) {
        let (kind, namespace, name) = gone;
        self.scenario.objects.retain(|other| id(other) != *gone);
        let uid = "";
        let deltas = self.index.apply(Event::Gone { kind: *kind, namespace, name, uid });
        self.fold(&deltas);
        self.world.remove(*kind, namespace, name);
        let is = |policy: &Policy| {
            (policy.key.kind, &policy.key.namespace, &policy.key.name) == (*kind, namespace, name)
        };
        self.policies.retain(|_, policy| !is(policy));
    }

    fn fold(&mut self, deltas: &Deltas) {
        self.snapshot.fold(deltas);
        for (node, state) in &mut self.nodes {
            *state = node_snapshot(&self.index, node);
        }
    }

    /// The evaluator that reads all objects.
    pub fn naive(&self) -> Naive<'_> {
        Naive { objects: &self.scenario.objects, names: &self.scenario.names }
    }

    /// The evaluator that reads the snapshot of all nodes, and no object.
    pub fn everywhere(&self) -> Indexed<'_> {
        self.evaluator(&self.snapshot)
    }

    /// The evaluator that reads the snapshot of one node.
    pub fn at(&self, node: &str) -> Indexed<'_> {
        self.evaluator(&self.nodes[node])
    }

    /// The evaluator that reads this snapshot.
    pub fn evaluator<'a>(&'a self, snapshot: &'a Snapshot) -> Indexed<'a> {
        Indexed { snapshot, policies: &self.policies, names: &self.scenario.names }
    }

    /// Replaces the sender by its node if it is a pod with host networking: a node cannot distinguish the
    /// two.
    pub fn with_host_origin(&self, packet: &Packet) -> Packet {
        self.naive().with_host_origin(packet)
    }
}

/// Names of the nodes of generated worlds.
pub const NODES: [&str; 2] = ["n1", "n2"];

/// The objects that a node needs, by the queries that the hub uses. Spans have this node only, and applied-to groups
/// its pods only.
fn node_snapshot(index: &Index, node: &str) -> Snapshot {
    let span = || BTreeSet::from([node.to_owned()]);
    let Needs { own, applied, address, policies } = index.needs_of(node);
    let mut snapshot = Snapshot::default();
    for (id, members) in applied {
        let state = index.group_state(Role::Applied, id).expect("a needed group");
        let members = members.into_iter().map(|member| (member.key(), member)).collect();
        let state = GroupState { members, span: span(), ..state };
        snapshot.groups.insert((Role::Applied, id), state);
    }
    for id in address {
        let state = index.group_state(Role::Address, id).expect("a needed group");
        snapshot.groups.insert((Role::Address, id), GroupState { span: span(), ..state });
    }
    for (id, key) in policies {
        let state = index.policy_state(&key).expect("a needed policy");
        snapshot.policies.insert(id, PolicyState { span: span(), ..state });
    }
    if own != NodeState::default() {
        snapshot.nodes.insert(node.to_owned(), own);
    }
    snapshot
}

/// The part of a snapshot for one node, by the spans in it.
pub fn part_of(all: &Snapshot, node: &str) -> Snapshot {
    let mut part = all.clone();
    let here = BTreeSet::from([node.to_owned()]);
    part.nodes.retain(|name, _| name == node);
    part.policies.retain(|_, policy| policy.span.contains(node));
    part.policies.values_mut().for_each(|policy| policy.span.clone_from(&here));
    part.groups.retain(|_, group| group.span.contains(node));
    for ((role, _), group) in &mut part.groups {
        group.span.clone_from(&here);
        if *role == Role::Applied {
            group.members.retain(|_, member| member.node == node);
        }
    }
    part
}

fn policy_id(policy: &Policy) -> PolicyId {
    match policy.uid.as_str() {
        "" => PolicyId::Named(policy.key.clone()),
        uid => PolicyId::Uid(uid.to_owned()),
    }
}

/// The index's event for an object.
fn event<'a>(object: &'a Object, policy: Option<&'a Policy>) -> Event<'a> {
    match object {
        Object::Pod(pod) => Event::Pod(pod),
        Object::Namespace(namespace) => Event::Namespace(namespace),
        Object::Node(node) => Event::Node(node),
        Object::Service(service) => Event::Service(service),
        Object::Tier(tier) => Event::Tier(tier),
        Object::Group(group) => Event::Group(group),
        Object::NetworkPolicy(_) | Object::ClusterPolicy(_) | Object::AntreaPolicy(_) => {
            Event::Policy(policy.expect("a policy is compiled"))
        }
    }
}

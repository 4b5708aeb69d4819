//! A world that lives: objects, and the index beside them.

use crate::{
    indexed::Indexed,
    made::{Id, Made, id},
    naive::{Naive, Packet},
};
use policy_core::{
    Policy, World, compile,
    index::{Deltas, Event, Index, PolicyId, Snapshot},
};
use policy_objects::Object;
use std::collections::BTreeMap;

/// Objects, and the index that hears of each change of them.
pub struct Lived {
    /// What there is.
    pub made: Made,
    /// The model, which hears of each change as well.
    pub world: World,
    /// The index.
    pub index: Index,
    /// What its deltas have added up to.
    pub snapshot: Snapshot,
    /// What each node has been told has added up to, by the node's name.
    pub nodes: BTreeMap<&'static str, Snapshot>,
    /// The policies in their form.
    pub policies: BTreeMap<PolicyId, Policy>,
}

impl Lived {
    /// All objects are there at first.
    pub fn new(made: Made) -> Self {
        let mut index = Index::new(1);
        let mut policies = BTreeMap::new();
        for object in &made.objects {
            let policy = compile(object);
            index.load(event(object, policy.as_ref()));
            policies.extend(policy.map(|policy| (policy_id(&policy), policy)));
        }
        index.loaded();
        let snapshot = index.snapshot();
        let nodes = NODES.iter().map(|node| (*node, index.snapshot_for(node))).collect();
        let world = crate::beside::world(&made);
        Self { made, world, index, snapshot, nodes, policies }
    }

    /// An object is new or has changed: what that changed in the index.
    pub fn insert(&mut self, object: Object) -> Deltas {
        self.made.objects.retain(|other| id(other) != id(&object));
        self.made.objects.push(object.clone());
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

    /// An object is gone.
    pub fn remove(&mut self, gone: &Id) {
        let (kind, namespace, name) = gone;
        self.made.objects.retain(|other| id(other) != *gone);
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
            state.fold(&self.index.deltas_for(node, deltas));
        }
    }

    /// The evaluator that sees all objects.
    pub fn naive(&self) -> Naive<'_> {
        Naive { objects: &self.made.objects, names: &self.made.names }
    }

    /// The evaluator that knows what is told to all nodes, and no object.
    pub fn everywhere(&self) -> Indexed<'_> {
        self.told(&self.snapshot)
    }

    /// The one that knows what one node has been told.
    pub fn at(&self, node: &str) -> Indexed<'_> {
        self.told(&self.nodes[node])
    }

    /// The one that knows this.
    pub fn told<'a>(&'a self, snapshot: &'a Snapshot) -> Indexed<'a> {
        Indexed { snapshot, policies: &self.policies, names: &self.made.names }
    }

    /// A packet as the node of its sender sees it: one from a pod with its node's network is the node's.
    pub fn seen(&self, packet: &Packet) -> Packet {
        self.naive().seen(packet)
    }
}

/// The nodes of worlds that are made up.
pub const NODES: [&str; 2] = ["n1", "n2"];

fn policy_id(policy: &Policy) -> PolicyId {
    match policy.uid.as_str() {
        "" => PolicyId::Named(policy.key.clone()),
        uid => PolicyId::Uid(uid.to_owned()),
    }
}

/// What the index hears of an object.
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

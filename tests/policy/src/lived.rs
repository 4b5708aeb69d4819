//! A world that lives: objects, and the index beside them.

use crate::{
    indexed::Indexed,
    made::{Id, Made, id},
    naive::Naive,
};
use policy_core::{
    Policy, PolicyKey, World, compile,
    index::{Deltas, Event, Expanded, Index, Snapshot},
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
    policies: BTreeMap<PolicyKey, Policy>,
}

impl Lived {
    /// All objects are there at first.
    pub fn new(made: Made) -> Self {
        let mut index = Index::new(1);
        let mut policies = BTreeMap::new();
        for object in &made.objects {
            let policy = compile(object);
            index.load(event(object, policy.as_ref()));
            policies.extend(policy.map(|policy| (policy.key.clone(), policy)));
        }
        index.loaded();
        let snapshot = index.snapshot();
        let world = crate::beside::world(&made);
        Self { made, world, index, snapshot, policies }
    }

    /// An object is new or has changed: what that changed in the index.
    pub fn insert(&mut self, object: Object) -> Deltas {
        self.made.objects.retain(|other| id(other) != id(&object));
        self.made.objects.push(object.clone());
        let policy = compile(&object);
        let deltas = self.index.apply(event(&object, policy.as_ref()));
        self.snapshot.fold(&deltas);
        self.policies.extend(policy.map(|policy| (policy.key.clone(), policy)));
        self.world.insert(object);
        deltas
    }

    /// An object is gone.
    pub fn remove(&mut self, gone: &Id) {
        let (kind, namespace, name) = gone;
        self.made.objects.retain(|other| id(other) != *gone);
        let uid = "";
        let deltas = self.index.apply(Event::Gone { kind: *kind, namespace, name, uid });
        self.snapshot.fold(&deltas);
        let (namespace, name) = (namespace.clone(), name.clone());
        self.world.remove(*kind, &namespace, &name);
        self.policies.remove(&PolicyKey { kind: *kind, namespace, name });
    }

    /// The evaluator that sees all objects.
    pub fn naive(&self) -> Naive<'_> {
        Naive { objects: &self.made.objects, names: &self.made.names }
    }

    /// The rules whose groups depend on the subject's namespace, now.
    pub fn expanded(&self) -> BTreeMap<PolicyKey, Vec<Expanded>> {
        let expanded = |key: &PolicyKey| (key.clone(), self.index.expanded(key));
        self.policies.keys().map(expanded).collect()
    }

    /// The evaluator that asks the index who is who.
    pub fn indexed<'a>(
        &'a self,
        expanded: &'a BTreeMap<PolicyKey, Vec<Expanded>>,
        spanned: bool,
    ) -> Indexed<'a> {
        let Self { snapshot, policies, .. } = self;
        Indexed { snapshot, policies, expanded, naive: self.naive(), spanned }
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

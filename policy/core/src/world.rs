//! All objects at one time.

mod groups;
mod membership;
mod order;

use crate::{Direction, Isolation, Policy, PolicyKey, Rule, compile};
use policy_objects::{
    Group, Kind, Labels, Named, Namespace, Node, Object, Phase, Pod, Service, Tier,
};
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

pub use groups::{GroupScope, Members, Subjects};
pub(crate) use groups::{Lookup, Walk as GroupWalk, odd_service, title as group_title};
pub(crate) use order::{APPLICATION, antrea_number, lookup, number_of, tier_number};
pub use order::{Rank, Stage, Walk};

/// All objects at one time, and the answers of DNS.
#[derive(Clone, Debug, Default)]
pub struct World {
    pods: BTreeMap<Named, Pod>,
    namespaces: BTreeMap<String, Namespace>,
    nodes: BTreeMap<String, Node>,
    services: BTreeMap<Named, Service>,
    tiers: BTreeMap<String, Tier>,
    groups: BTreeMap<Named, Group>,
    /// The policies' places in the one order.
    policies: BTreeMap<PolicyKey, Rank>,
    order: BTreeMap<Rank, Policy>,
    /// Live pods by address; the last has it.
    owners: BTreeMap<IpAddr, BTreeSet<Claim>>,
    names: BTreeMap<IpAddr, BTreeSet<String>>,
}

/// A pod whose status has an address. The greatest claim is valid: the pod that was created last, then the
/// greater UID.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Claim {
    created: String,
    uid: String,
    pod: Named,
}

impl World {
    pub fn new(objects: impl IntoIterator<Item = Object>) -> Self {
        let mut world = Self::default();
        objects.into_iter().for_each(|object| world.insert(object));
        world
    }

    /// An object that is new or has changed.
    pub fn insert(&mut self, object: Object) {
        if let Some(policy) = compile(&object) {
            self.remove_policy(&policy.key);
            return self.put(policy);
        }
        match object {
            Object::Pod(pod) => self.insert_pod(pod),
            Object::Namespace(mut namespace) => {
                let Named { name, .. } = named(&namespace.meta);
                namespace.meta.labels.entry(NAME_LABEL.to_owned()).or_insert(name.clone());
                self.namespaces.insert(name, namespace);
            }
            Object::Node(node) => drop(self.nodes.insert(node.meta.name.clone(), node)),
            Object::Service(service) => drop(self.services.insert(named(&service.meta), service)),
            Object::Group(group) => drop(self.groups.insert(named(&group.meta), group)),
            Object::Tier(tier) => {
                self.tiers.insert(tier.meta.name.clone(), tier);
                self.sort();
            }
            Object::NetworkPolicy(_) | Object::ClusterPolicy(_) | Object::AntreaPolicy(_) => {}
        }
    }

    /// An object that is gone; one that never was is no matter.
    pub fn remove(&mut self, kind: Kind, namespace: &str, name: &str) {
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        match kind {
            Kind::Pod => self.remove_pod(&Named { namespace, name }),
            Kind::Namespace => drop(self.namespaces.remove(&name)),
            Kind::Node => drop(self.nodes.remove(&name)),
            Kind::Service => drop(self.services.remove(&Named { namespace, name })),
            Kind::AntreaClusterGroup | Kind::AntreaGroup => {
                self.groups.remove(&Named { namespace, name });
            }
            Kind::AntreaTier => {
                self.tiers.remove(&name);
                self.sort();
            }
            Kind::NetworkPolicy
            | Kind::ClusterNetworkPolicy
            | Kind::AwsClusterNetworkPolicy
            | Kind::AwsApplicationNetworkPolicy
            | Kind::AntreaClusterNetworkPolicy
            | Kind::AntreaNetworkPolicy => self.remove_policy(&PolicyKey { kind, namespace, name }),
        }
    }

    /// Adds an address from DNS to a name.
    pub fn name(&mut self, address: IpAddr, name: &str) {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        self.names.entry(address.to_canonical()).or_default().insert(name);
    }

    /// The names that lead to an address.
    pub fn names(&self, address: IpAddr) -> impl Iterator<Item = &str> {
        self.names.get(&address.to_canonical()).into_iter().flatten().map(String::as_str)
    }

    pub(crate) fn ranked(&self, stage: Stage) -> impl Iterator<Item = (Walk, &Policy)> {
        let there = self.order.iter().filter(move |(rank, _)| rank.stage() == stage);
        there.map(|(rank, policy)| (rank.walk(), policy))
    }

    /// All policies in the one order: number and family of the tier, priority, those of the cluster
    /// before those of a namespace, namespace, kind, name.
    pub fn policies(&self) -> impl DoubleEndedIterator<Item = &Policy> {
        self.order.values()
    }

    /// The policy of a name.
    pub fn policy(&self, key: &PolicyKey) -> Option<&Policy> {
        self.order.get(self.policies.get(key)?)
    }

    /// Every pod, also those without policy: with their node's network, or ended.
    pub fn pods(&self) -> impl Iterator<Item = &Pod> {
        self.pods.values()
    }

    /// Every pod of a namespace.
    pub fn pods_of<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a Pod> {
        let first = Named { namespace: namespace.to_owned(), name: String::new() };
        let from = self.pods.range(first..).map(|(_, pod)| pod);
        from.take_while(move |pod| pod.meta.namespace == namespace)
    }

    /// The pod of a name.
    pub fn pod(&self, name: &Named) -> Option<&Pod> {
        self.pods.get(name)
    }

    /// The live pod that has an address now.
    pub fn owner(&self, address: IpAddr) -> Option<&Pod> {
        let claim = self.owners.get(&address.to_canonical())?.last()?;
        self.pods.get(&claim.pod)
    }

    /// Live pods with an address that another has now, and that other.
    pub fn passed_over(&self) -> impl Iterator<Item = (IpAddr, &Pod, &Pod)> {
        self.owners.iter().flat_map(|(address, claims)| {
            let owner = claims.last().and_then(|claim| self.pods.get(&claim.pod));
            let others = claims.iter().rev().skip(1).filter_map(|claim| self.pods.get(&claim.pod));
            others.filter_map(move |pod| Some((*address, pod, owner?)))
        })
    }

    /// Every Antrea tier.
    pub fn tiers(&self) -> impl Iterator<Item = &Tier> {
        self.tiers.values()
    }

    /// Every node.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }

    /// The node of a name.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.get(name)
    }

    /// Every Service.
    pub fn services(&self) -> impl Iterator<Item = &Service> {
        self.services.values()
    }

    /// The Service of a name.
    pub fn service(&self, name: &Named) -> Option<&Service> {
        self.services.get(name)
    }

    /// A namespace's labels. Of one that is not known only its name is: the control plane labels every
    /// namespace with it.
    pub fn namespace_labels(&self, name: &str) -> Cow<'_, Labels> {
        match self.namespaces.get(name) {
            Some(namespace) => Cow::Borrowed(&namespace.meta.labels),
            None => Cow::Owned(Labels::from([(NAME_LABEL.to_owned(), name.to_owned())])),
        }
    }

    /// The policies that a pod is subject to in a direction, in order, with their rules about it.
    pub fn policies_of<'a>(
        &'a self,
        pod: &'a Pod,
        direction: Direction,
    ) -> impl Iterator<Item = (&'a Policy, Vec<&'a Rule>)> {
        let about = move |policy: &'a Policy| {
            let mine = |rule: &&Rule| {
                rule.direction == direction && self.is_subject(pod, policy, &rule.subject)
            };
            let rules: Vec<&Rule> = policy.rules.iter().filter(mine).collect();
            let isolated = self.isolates(policy, pod, direction);
            (isolated || !rules.is_empty()).then_some((policy, rules))
        };
        self.policies().filter_map(about)
    }

    /// True if a policy isolates a pod in a direction.
    pub fn isolates(&self, policy: &Policy, pod: &Pod, direction: Direction) -> bool {
        let closed = |isolation: &Isolation| match direction {
            Direction::Ingress => isolation.ingress,
            Direction::Egress => isolation.egress,
        };
        policy.isolation.as_ref().is_some_and(|isolation| {
            closed(isolation) && self.is_subject(pod, policy, &isolation.subject)
        })
    }

    fn insert_pod(&mut self, pod: Pod) {
        let name = named(&pod.meta);
        self.remove_pod(&name);
        if is_known(&pod) {
            let claim = Claim {
                created: pod.meta.created.clone(),
                uid: pod.meta.uid.clone(),
                pod: name.clone(),
            };
            for address in &pod.addresses {
                self.owners.entry(address.to_canonical()).or_default().insert(claim.clone());
            }
        }
        self.pods.insert(name, pod);
    }

    fn remove_pod(&mut self, name: &Named) {
        let Some(pod) = self.pods.remove(name) else { return };
        for address in pod.addresses.iter().map(IpAddr::to_canonical) {
            let Some(claims) = self.owners.get_mut(&address) else { continue };
            claims.retain(|claim| claim.pod != *name);
            if claims.is_empty() {
                self.owners.remove(&address);
            }
        }
    }

    fn remove_policy(&mut self, key: &PolicyKey) {
        if let Some(rank) = self.policies.remove(key) {
            self.order.remove(&rank);
        }
    }

    fn put(&mut self, policy: Policy) {
        let rank = Rank::of(&policy, self.number(&policy));
        self.policies.insert(policy.key.clone(), rank.clone());
        self.order.insert(rank, policy);
    }

    fn sort(&mut self) {
        let policies = std::mem::take(&mut self.order);
        policies.into_values().for_each(|policy| self.put(policy));
    }
}

/// True if a pod can be subject or peer. A pod with its node's network, or one that has ended, is
/// neither.
pub(crate) fn is_known(pod: &Pod) -> bool {
    !pod.host_network && pod.phase == Phase::Live
}

pub(crate) fn named(meta: &policy_objects::Meta) -> Named {
    Named { namespace: meta.namespace.clone(), name: meta.name.clone() }
}

const NAME_LABEL: &str = "kubernetes.io/metadata.name";

//! Computes all groups and spans from the existing objects: every selector against every pod, as text.

use crate::{
    Direction, Peer, Peers, Pods, Policy, PolicyKey, Scope, Traffic, Transport, World, compile,
    index::{
        Event, Expanded, GroupId, GroupState, Holds, Member, NodeState, PolicyId, PolicyState,
        Role, Snapshot, Uses,
        entities::ACCOUNT,
        source::Dependency,
        source::{MembersOf, Source, only},
    },
};
use policy_objects::{
    Group, Kind, Labels, Named, Namespace, NetworkPolicy, Node, Object, Phase, Pod, Selector,
    Service, TargetPort, Tier,
    page::{NamespaceView, PodView, PolicyView},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

/// The groups of a policy, and those that stand for rules that compare namespaces, by the peer of the rule.
struct Sources<'a> {
    applied: Vec<Source<'a>>,
    address: Vec<Source<'a>>,
    expanded: BTreeSet<(usize, Expanded)>,
}

/// The objects that there are.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    world: World,
    namespaces: BTreeMap<String, Namespace>,
    policies: BTreeMap<PolicyKey, Policy>,
}

impl Model {
    pub(super) fn apply(&mut self, event: Event<'_>) {
        match event {
            Event::Pod(pod) => self.world.insert(Object::Pod(pod.clone())),
            Event::PodView(pod) => self.apply(Event::Pod(&pod.clone().into())),
            Event::NamespaceView(namespace) => {
                self.apply(Event::Namespace(&namespace.clone().into()));
            }
            Event::Namespace(namespace) => {
                let name = namespace.meta.name.clone();
                self.namespaces.insert(name, namespace.clone());
                self.world.insert(Object::Namespace(namespace.clone()));
            }
            Event::Node(node) => self.world.insert(Object::Node(node.clone())),
            Event::Service(service) => self.world.insert(Object::Service(service.clone())),
            Event::Tier(tier) => self.world.insert(Object::Tier(tier.clone())),
            Event::Group(group) => self.world.insert(Object::Group(group.clone())),
            Event::PolicyView(policy) => {
                let object = Object::NetworkPolicy(policy.clone().into());
                self.apply(Event::Policy(&compile(&object).expect("a policy")));
            }
            Event::Policy(policy) => {
                self.policies.insert(policy.key.clone(), policy.clone());
            }
            Event::Gone { kind, namespace, name, uid } => {
                let other = |found: &str| !uid.is_empty() && found != uid;
                let key = Named { namespace: namespace.to_owned(), name: name.to_owned() };
                if kind == Kind::Pod && self.world.pod(&key).is_some_and(|p| other(&p.meta.uid)) {
                    return;
                }
                if kind == Kind::Node && self.world.node(name).is_some_and(|n| other(&n.meta.uid)) {
                    return;
                }
                if kind == Kind::Namespace {
                    self.namespaces.remove(name);
                }
                let Named { namespace, name } = key.clone();
                let policy = PolicyKey { kind, namespace, name };
                if self.policies.get(&policy).is_some_and(|policy| !other(&policy.uid)) {
                    self.policies.remove(&policy);
                }
                self.world.remove(kind, &key.namespace, &key.name);
            }
        }
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::default();
        for policy in self.policies.values() {
            let Sources { applied, address, expanded } = self.sources(policy);
            let ids = |sources: &[Source<'_>]| -> Vec<GroupId> {
                sources.iter().map(Source::id).collect::<BTreeSet<_>>().into_iter().collect()
            };
            let mut expanded: Vec<_> = expanded.into_iter().map(|(_, expanded)| expanded).collect();
            expanded.sort();
            let doubt = |source: &Source<'_>| {
                let doubt = self.state(source, Role::Applied).holds.unusable?;
                Some((source.id(), doubt))
            };
            let doubted: BTreeSet<_> = applied.iter().filter_map(doubt).collect();
            let doubted = doubted.into_iter().collect();
            let uses = Uses { applied: ids(&applied), address: ids(&address), expanded, doubted };
            let mut span = BTreeSet::new();
            for source in &applied {
                let mut state = self.state(source, Role::Applied);
                let members = state.members.values();
                state.span = members.map(|m| m.node.clone()).filter(|n| !n.is_empty()).collect();
                span.extend(state.span.iter().cloned());
                snapshot.groups.insert((Role::Applied, source.id()), state);
            }
            for source in &address {
                let key = (Role::Address, source.id());
                let state = snapshot.groups.entry(key);
                let state = state.or_insert_with(|| self.state(source, Role::Address));
                state.span.extend(span.iter().cloned());
            }
            let id = id_of(policy);
            let tier = self.world.number(policy);
            snapshot.policies.insert(id, PolicyState { tier, uses, span });
        }
        for node in self.world.nodes() {
            let addresses = node_member(node).addresses;
            snapshot.nodes.entry(node.meta.name.clone()).or_default().addresses = addresses;
        }
        for pod in self.world.pods().filter(|pod| is_known(pod) && !pod.node.is_empty()) {
            let (member, node) = (self.member(pod), snapshot.nodes.entry(pod.node.clone()));
            node.or_default().pods.insert(member.key(), Arc::new(member));
        }
        snapshot.nodes.retain(|_, node| *node != NodeState::default());
        snapshot
    }

    fn sources<'a>(&self, policy: &'a Policy) -> Sources<'a> {
        let own = &policy.key.namespace;
        let within = |source: Source<'a>| match own.as_str() {
            "" => Some(source),
            own => source.within_space(own),
        };
        let (mut applied, mut address) = (Vec::new(), Vec::new());
        let mut expanded = BTreeSet::new();
        for pods in policy.isolation.iter().flat_map(|isolation| &isolation.subject) {
            applied.extend(Source::of(pods).and_then(within));
        }
        for (at, rule) in policy.rules.iter().enumerate() {
            let subject: Vec<_> =
                rule.subject.iter().filter_map(Source::of).filter_map(within).collect();
            applied.extend(subject.clone());
            let named = |t: &Transport| match t {
                Transport::Named(_) => true,
                Transport::Ports { port, .. } => matches!(port, Some(TargetPort::Named(_))),
                Transport::Icmp { .. } => false,
            };
            let named = matches!(&rule.traffic, Traffic::Of(of) if of.iter().any(named));
            let open = |peer: &Peer| {
                !matches!(peer, Peer::Pods(Pods::Labeled { .. } | Pods::ServiceAccount(_)))
            };
            let open = match &rule.peers {
                Peers::Any => true,
                Peers::Of(peers) => peers.iter().any(open),
            };
            if named && rule.direction == Direction::Egress && open {
                address.push(Source::all_pods());
            }
            let Peers::Of(peers) = &rule.peers else { continue };
            for (which, peer) in peers.iter().enumerate() {
                match peer {
                    Peer::Nodes(selector) => address.push(Source::nodes(selector)),
                    Peer::Pods(Pods::Labeled {
                        scope: scope @ (Scope::SameNamespace | Scope::SameLabels(_)),
                        pods,
                    }) => {
                        for namespace in self.spaces() {
                            let labels = self.world.namespace_labels(&namespace);
                            let within =
                                |source: Source<'a>| narrow(source, scope, &namespace, &labels);
                            if !own.is_empty() && *own != namespace
                                || !rule.subject.iter().any(|s| in_space(s, &namespace, &labels))
                            {
                                continue;
                            }
                            let all = Source::Pods(crate::index::matching::PodSelection {
                                space: None,
                                spaces: None,
                                selector: std::borrow::Cow::Borrowed(pods),
                            });
                            let Some(peer) = within(all) else { continue };
                            let pair: Vec<_> = subject.iter().cloned().filter_map(within).collect();
                            let about: BTreeSet<_> = pair.iter().map(Source::id).collect();
                            let about = about.into_iter().collect();
                            let pairs = Expanded { rule: at, applied: about, address: peer.id() };
                            expanded.insert((which, pairs));
                            applied.extend(pair);
                            address.push(peer);
                        }
                    }
                    Peer::Pods(pods) => address.extend(Source::of(pods)),
                    Peer::Service(name) => {
                        address.push(Source::Service(std::borrow::Cow::Borrowed(name)));
                    }
                    Peer::Block(_) | Peer::Name(_) => {}
                }
            }
        }
        Sources { applied, address, expanded }
    }

    /// Namespaces with an object, or with pods.
    fn spaces(&self) -> BTreeSet<String> {
        let known = self.world.pods().filter(|pod| is_known(pod));
        let with_pods = known.map(|pod| pod.meta.namespace.clone());
        with_pods.chain(self.namespaces.keys().cloned()).collect()
    }

    fn state(&self, source: &Source<'_>, role: Role) -> GroupState {
        let mut state = GroupState::default();
        let pods = self.world.pods().filter(|pod| is_known(pod) && self.has(source, pod, role));
        let pods = pods.map(|pod| self.member(pod));
        let nodes = self.world.nodes().filter(|node| self.has_node(source, node)).map(node_member);
        for member in pods.chain(nodes) {
            let counts = match role {
                Role::Applied => !member.namespace.is_empty(),
                Role::Address => !member.addresses.is_empty(),
            };
            if counts {
                state.members.insert(member.key(), Arc::new(member));
            }
        }
        if let Source::Members(MembersOf { thing: Dependency::Group(group), .. }) = source {
            state.holds = match (role, self.world.members(group)) {
                (Role::Applied, _) => {
                    Holds { unusable: self.world.subjects(group).doubt, ..Holds::default() }
                }
                (Role::Address, Ok(members)) => {
                    Holds { blocks: members.blocks, ..Holds::default() }
                }
                (Role::Address, Err(why)) => Holds { unusable: Some(why), ..Holds::default() },
            };
        }
        if let Source::Members(MembersOf { thing: Dependency::Service(service), .. }) = source {
            state.holds.unusable = self.world.behind(service).doubt;
        }
        if let Source::Service(name) = source {
            let peers = Peers::Of(vec![Peer::Service(name.clone().into_owned())]);
            state.holds.unusable = self.world.peer_doubt(&peers);
            let vips = self.world.service(name).and_then(|service| service.cluster_ips.known());
            let vips: BTreeSet<_> = vips.into_iter().flatten().map(|a| a.to_canonical()).collect();
            state.holds.vips = vips.into_iter().collect();
        }
        state
    }

    fn has(&self, source: &Source<'_>, pod: &Pod, role: Role) -> bool {
        let mut labels = pod.meta.labels.clone();
        labels.insert(ACCOUNT.to_owned(), pod.service_account.clone());
        let own = &pod.meta.namespace;
        let (space, spaces, meant) = match source {
            Source::Pods(wanted) => {
                let space = wanted.space.as_deref();
                (space, wanted.spaces.as_deref(), wanted.selector.matches(&labels))
            }
            Source::Members(of) => {
                let pods = match &of.thing {
                    Dependency::Group(group) => Pods::Group(group.clone()),
                    Dependency::Service(service) => Pods::Service(service.clone()),
                };
                let meant = match role {
                    Role::Applied => self.world.is_named(pod, &pods),
                    Role::Address => self.world.is_meant(pod, &pods, pod),
                };
                (of.space.as_deref(), of.spaces.as_ref(), meant)
            }
            Source::Service(_) => return false,
        };
        let of_space = |spaces: &Selector| spaces.matches(&self.world.namespace_labels(own));
        meant && space.is_none_or(|space| space == own) && spaces.is_none_or(of_space)
    }

    fn has_node(&self, source: &Source<'_>, node: &Node) -> bool {
        match source {
            Source::Pods(wanted) => {
                wanted.space.as_deref() == Some("") && wanted.selector.matches(&node.meta.labels)
            }
            Source::Members(MembersOf {
                thing: Dependency::Group(group),
                space: None,
                spaces: None,
            }) => {
                let members = self.world.members(group).unwrap_or_default();
                members.nodes.iter().any(|selector| selector.matches(&node.meta.labels))
            }
            Source::Members(_) | Source::Service(_) => false,
        }
    }

    fn member(&self, pod: &Pod) -> Member {
        let mine = |address: &&IpAddr| {
            self.world.owner(**address).is_some_and(|owner| {
                owner.meta.uid == pod.meta.uid
                    && owner.meta.name == pod.meta.name
                    && owner.meta.namespace == pod.meta.namespace
            })
        };
        let addresses: BTreeSet<_> = pod.addresses.iter().filter(mine).copied().collect();
        Member {
            namespace: pod.meta.namespace.clone(),
            name: pod.meta.name.clone(),
            uid: pod.meta.uid.clone(),
            node: pod.node.clone(),
            addresses: addresses.into_iter().collect(),
            ports: pod.ports.clone(),
        }
    }

    /// Sets a pod's addresses to these.
    pub(super) fn readdress(&mut self, pod: &Named, uid: &str, addresses: &[IpAddr]) {
        let found = self.world.pod(pod).filter(|found| is_known(found)).cloned();
        if let Some(mut pod) = found.filter(|found| uid.is_empty() || found.meta.uid == uid) {
            pod.addresses = addresses.to_vec();
            self.world.insert(Object::Pod(pod));
        }
    }

    /// The pods whose status has an address; whether a node's does, and a Service's.
    pub(super) fn holders(&self, address: IpAddr) -> (Vec<Named>, bool, bool) {
        let has_address = |pod: &&Pod| is_known(pod) && pod.addresses.contains(&address);
        let name = |pod: &Pod| Named {
            namespace: pod.meta.namespace.clone(),
            name: pod.meta.name.clone(),
        };
        let pods: BTreeSet<Named> = self.world.pods().filter(has_address).map(name).collect();
        let node = self.world.nodes().any(|node| node.addresses.contains(&address));
        let mut vips = self.world.services().filter_map(|service| service.cluster_ips.known());
        (pods.into_iter().collect(), node, vips.any(|vips| vips.contains(&address)))
    }

    /// True if policy reads the pod.
    pub(super) fn knows(&self, pod: &Pod) -> bool {
        is_known(pod)
    }

    /// The policies that are about a pod.
    pub(super) fn policies_of(&self, pod: &Pod) -> Vec<PolicyKey> {
        let about = |policy: &&Policy| {
            is_known(pod)
                && self
                    .sources(policy)
                    .applied
                    .iter()
                    .any(|source| self.has(source, pod, Role::Applied))
        };
        self.policies.values().filter(about).map(|policy| policy.key.clone()).collect()
    }

    pub(super) fn policies(&self) -> impl Iterator<Item = (&PolicyKey, PolicyState)> {
        let all = self.snapshot().policies;
        self.policies.values().map(move |policy| (&policy.key, all[&id_of(policy)].clone()))
    }

    pub(super) fn pods(&self) -> impl Iterator<Item = &Pod> {
        self.world.pods()
    }
}

fn id_of(policy: &Policy) -> PolicyId {
    match policy.uid.as_str() {
        "" => PolicyId::Named(policy.key.clone()),
        uid => PolicyId::Uid(uid.to_owned()),
    }
}

fn narrow<'a>(
    source: Source<'a>,
    scope: &Scope,
    namespace: &str,
    labels: &Labels,
) -> Option<Source<'a>> {
    let Scope::SameLabels(keys) = scope else { return source.within_space(namespace) };
    let mut like = Selector::default();
    for key in keys {
        like.requirements.extend(only(key, labels.get(key)?).requirements);
    }
    (!keys.is_empty()).then(|| source.within_spaces(&like))
}

fn in_space(pods: &Pods, namespace: &str, labels: &Labels) -> bool {
    match pods {
        Pods::Labeled { scope: Scope::Namespace(own), .. } => own == namespace,
        Pods::Labeled { scope: Scope::Namespaces(selector), .. } => selector.matches(labels),
        Pods::Labeled { .. } => false,
        Pods::Group(_) => true,
        Pods::Service(of) | Pods::ServiceAccount(of) => of.namespace == namespace,
    }
}

fn is_known(pod: &Pod) -> bool {
    !pod.host_network && pod.phase == Phase::Live
}

fn node_member(node: &Node) -> Member {
    let addresses: BTreeSet<_> = node.addresses.iter().copied().collect();
    Member {
        namespace: String::new(),
        name: node.meta.name.clone(),
        uid: node.meta.uid.clone(),
        node: String::new(),
        addresses: addresses.into_iter().collect(),
        ports: Vec::new(),
    }
}

/// A change of an object, by value.
#[derive(Clone, Debug)]
pub(super) enum Happening {
    Pod(Pod),
    Namespace(Namespace),
    Node(Node),
    Service(Service),
    Tier(Tier),
    Group(Group),
    Policy(Policy),
    /// An object, and its form.
    NetworkPolicy(Box<(NetworkPolicy, Policy)>),
    Gone(Kind, String, String, String),
}

impl Happening {
    pub(super) fn event(&self) -> Event<'_> {
        match self {
            Self::Pod(pod) => Event::Pod(pod),
            Self::Namespace(namespace) => Event::Namespace(namespace),
            Self::Node(node) => Event::Node(node),
            Self::Service(service) => Event::Service(service),
            Self::Tier(tier) => Event::Tier(tier),
            Self::Group(group) => Event::Group(group),
            Self::Policy(policy) => Event::Policy(policy),
            Self::NetworkPolicy(policy) => Event::Policy(&policy.1),
            Self::Gone(kind, namespace, name, uid) => {
                Event::Gone { kind: *kind, namespace, name, uid }
            }
        }
    }

    /// As a page lends it, if pages with_view such objects.
    pub(super) fn with_view<T>(&self, to: impl FnOnce(Event<'_>) -> T) -> T {
        if let Self::Pod(pod) = self {
            to(Event::PodView(&PodView::from(pod)))
        } else if let Self::Namespace(namespace) = self {
            to(Event::NamespaceView(&NamespaceView::from(namespace)))
        } else if let Self::NetworkPolicy(policy) = self {
            to(Event::PolicyView(&PolicyView::of(&policy.0).expect("nothing is odd")))
        } else {
            to(self.event())
        }
    }
}

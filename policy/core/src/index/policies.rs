//! Policies: which groups each uses.

use super::Expanded;
use super::{
    Index,
    delta::{Change, GroupId, PolicyDelta, PolicyId, Role, Uses},
    expand::{Expanding, within},
    ids::Ids,
    matching::Borrowed,
    source::Source,
    table::Keyed,
    uid::Uid,
};
use crate::{Direction, Peer, Peers, Pods, Policy, PolicyKey, Rule, Tier, Traffic, Transport};
use policy_objects::{
    Kind, NetworkPort, TargetPort,
    page::{MetaView, PeerView, PolicyView, SelectorView},
};

#[derive(Debug)]
pub(super) struct Used {
    kind: Kind,
    space: u32,
    name: Box<str>,
    uid: Uid,
    pub(super) applied: Ids,
    pub(super) address: Ids,
    pub(super) expanding: Option<Box<Expanding>>,
    /// The number of its tier.
    pub(super) tier: u8,
}

impl Keyed for Used {
    type Key<'a> = (Kind, u32, &'a str);

    fn key(&self) -> (Kind, u32, &str) {
        (self.kind, self.space, &self.name)
    }
}

impl Index {
    pub(super) fn policy(&mut self, policy: &Policy) {
        let (mut applied, mut address) = self.groups_for(policy);
        let expanding = Expanding::of(policy);
        let PolicyKey { kind, namespace, name } = &policy.key;
        let id = self.place((*kind, namespace, name), &policy.uid, &policy.place.tier);
        let expands = expanding.is_some();
        let before = self.expanded_of(id);
        self.policies[id].expanding = expanding.map(|mut expanding| {
            expanding.fixed = (applied.clone(), address.clone());
            expanding
        });
        if !expands {
            self.expanding.remove(&id);
        } else {
            self.expanding.insert(id);
            if !self.loading {
                self.expand(id);
                self.regroup(id);
                self.pairs_changed(id, &before);
                return;
            }
        }
        self.reuse(id, std::mem::take(&mut applied), std::mem::take(&mut address));
        self.pairs_changed(id, &before);
    }

    /// The same of one that a page lends.
    pub(super) fn borrowed_policy(&mut self, policy: &PolicyView<'_>) {
        let MetaView { namespace: own, name, uid, .. } = &policy.meta;
        let subject = Borrowed { own, spaces: None, selector: &policy.subject };
        let applied = Ids::from_iter([self.acquire_borrowed(subject, Role::Applied)]);
        let (mut address, everything) = (Ids::default(), SelectorView::default());
        let ingress = policy.ingress.iter().flatten().map(|rule| (Direction::Ingress, rule));
        let egress = policy.egress.iter().flatten().map(|rule| (Direction::Egress, rule));
        for (direction, rule) in ingress.chain(egress) {
            for peer in &rule.peers {
                let PeerView::Pods { namespaces, pods } = peer else { continue };
                let selector = pods.as_ref().unwrap_or(&everything);
                let peer = Borrowed { own, spaces: namespaces.as_ref(), selector };
                address.insert(self.acquire_borrowed(peer, Role::Address));
            }
            let holds_others = |peer: &PeerView<'_>| matches!(peer, PeerView::Block(_));
            let may_be_others = rule.peers.is_empty() || rule.peers.iter().any(holds_others);
            let named = |port: &NetworkPort| matches!(port.port, Some(TargetPort::Named(_)));
            if may_be_others && direction == Direction::Egress && rule.ports.iter().any(named) {
                address.insert(self.acquire(&Source::all_pods(), Role::Address));
            }
        }
        let id = self.place((Kind::NetworkPolicy, own, name), uid, &Tier::NetworkPolicy);
        let before = self.expanded_of(id);
        self.policies[id].expanding = None;
        self.expanding.remove(&id);
        self.reuse(id, applied, address);
        self.pairs_changed(id, &before);
    }

    /// A policy may use the same groups, and others of them for its rules.
    pub(super) fn pairs_changed(&mut self, id: u32, before: &[Expanded]) {
        if !self.loading && self.expanded_of(id) != before {
            self.changes.policies.entry(id).or_insert(Change::Changed);
        }
    }

    /// The record of a policy, with the UID and the tier that it has now.
    fn place(&mut self, key: (Kind, &str, &str), uid: &str, tier: &Tier) -> u32 {
        let id = self.record(key, uid);
        let number = self.tiers.enter(id, tier);
        self.put_in_tier(id, number);
        id
    }

    fn record(&mut self, (kind, namespace, name): (Kind, &str, &str), uid: &str) -> u32 {
        let uid = Uid::of(uid);
        let space = self.matching.space(namespace);
        let mark = match self.policies.seek((kind, space, name)) {
            Ok(id) => {
                self.matching.release_space(space);
                if self.policies[id].uid != uid {
                    self.goes(id);
                    self.policies[id].uid = uid;
                    self.changes.policies.insert(id, Change::Added);
                }
                return id;
            }
            Err(mark) => mark,
        };
        let (applied, address) = (Ids::default(), Ids::default());
        let (name, expanding) = (name.into(), None);
        let used = Used { kind, space, name, uid, applied, address, expanding, tier: 0 };
        let id = self.policies.insert_marked(mark, used);
        if !self.loading {
            self.changes.policies.insert(id, Change::Added);
        }
        id
    }

    /// A policy uses these groups from now on, and no others.
    pub(super) fn reuse(&mut self, id: u32, applied: Ids, address: Ids) {
        let used = &self.policies[id];
        let same = used.applied.as_slice() == applied.as_slice()
            && used.address.as_slice() == address.as_slice();
        if same {
            return;
        }
        if !used.applied.is_empty() || !used.address.is_empty() {
            self.unlink(id);
        }
        let used = &mut self.policies[id];
        (used.applied, used.address) = (applied, address);
        self.link(id);
        if !self.loading {
            self.changes.policies.entry(id).or_insert(Change::Changed);
        }
    }

    pub(super) fn policy_gone(&mut self, kind: Kind, namespace: &str, name: &str, uid: &str) {
        let Some(space) = self.matching.spaces.find(namespace) else { return };
        let Some(id) = self.policies.find((kind, space, name)) else { return };
        if !uid.is_empty() && self.policies[id].uid != Uid::of(uid) {
            return;
        }
        self.goes(id);
        self.unlink(id);
        self.expanding.remove(&id);
        self.tiers.leave(id);
        self.policies.remove(id);
        self.matching.release_space(space);
    }

    /// Reports that a policy is gone.
    fn goes(&mut self, id: u32) {
        let left = self.names(self.union(&self.policies[id].applied).into_iter());
        let gone = PolicyDelta { left, ..self.policy_delta(id, Change::Removed) };
        self.changes.gone_policies.push(gone);
    }

    pub(super) fn policy_delta(&self, id: u32, change: Change) -> PolicyDelta {
        PolicyDelta::new(self.policy_id(id), self.policy_key(id), change)
    }

    fn groups_for(&mut self, policy: &Policy) -> (Ids, Ids) {
        let own = &policy.key.namespace;
        let isolated = policy.isolation.iter().flat_map(|isolation| &isolation.subject);
        let subjects = isolated.chain(policy.rules.iter().flat_map(|rule| &rule.subject));
        let mut applied = Ids::default();
        let mut last: Option<&Pods> = None;
        for pods in subjects {
            if last == Some(pods) {
                continue;
            }
            last = Some(pods);
            if let Some(source) = Source::of(pods).and_then(|source| within(source, own)) {
                applied.insert(self.acquire(&source, Role::Applied));
            }
        }
        let mut address = Ids::default();
        for rule in &policy.rules {
            match &rule.peers {
                Peers::Of(peers) => {
                    for source in peers.iter().filter_map(Source::of_peer) {
                        address.insert(self.acquire(&source, Role::Address));
                    }
                }
                Peers::Any => {}
            }
            if needs_all_names(rule) {
                address.insert(self.acquire(&Source::all_pods(), Role::Address));
            }
        }
        (applied, address)
    }

    pub(super) fn find_policy(&self, key: &PolicyKey) -> Option<u32> {
        let space = self.matching.spaces.find(&key.namespace)?;
        self.policies.find((key.kind, space, &key.name))
    }

    pub(super) fn policy_key(&self, id: u32) -> PolicyKey {
        let Used { kind, space, name, .. } = &self.policies[id];
        let namespace = self.matching.spaces[*space].name.to_string();
        PolicyKey { kind: *kind, namespace, name: name.to_string() }
    }

    pub(super) fn policy_id(&self, id: u32) -> PolicyId {
        let uid = self.policies[id].uid.text();
        if uid.is_empty() {
            PolicyId::Named(self.policy_key(id))
        } else {
            PolicyId::Uid(uid.into_owned())
        }
    }

    pub(super) fn uses_of(&self, id: u32) -> Uses {
        let ids = |groups: &Ids| {
            let mut ids: Vec<_> = groups.iter().map(|group| self.groups[group].id).collect();
            ids.sort_unstable();
            ids
        };
        let Used { applied, address, .. } = &self.policies[id];
        let doubt = |group: u32| {
            let doubt = self.groups[group].holds(Role::Applied).unusable?;
            Some((self.groups[group].id, doubt))
        };
        let mut doubted: Vec<_> = applied.iter().filter_map(doubt).collect();
        doubted.sort_unstable();
        let expanded = self.expanded_of(id);
        Uses { applied: ids(applied), address: ids(address), expanded, doubted }
    }

    pub(super) fn whole_policy(&self, id: u32) -> PolicyDelta {
        let entered = self.names(self.union(&self.policies[id].applied).into_iter());
        let (tier, uses) = (Some(self.policies[id].tier), Some(self.uses_of(id)));
        PolicyDelta { tier, uses, entered, ..self.policy_delta(id, Change::Added) }
    }
}

impl GroupId {
    /// The group in which a rule's named ports are looked up where the far end is no member of its peers'
    /// groups: all pods. `None` if it needs none.
    pub fn of_names(rule: &Rule) -> Option<Self> {
        needs_all_names(rule).then(Self::of_all_pods)
    }
}

fn needs_all_names(rule: &Rule) -> bool {
    let beyond = match &rule.peers {
        Peers::Any => true,
        Peers::Of(peers) => peers.iter().any(may_hold_others_pods),
    };
    beyond && asks_for_names(rule)
}

/// True if addresses of a peer can belong to pods that are not members of its group: port names
/// are known only from pods. The status of a pod may contain a node's address.
fn may_hold_others_pods(peer: &Peer) -> bool {
    match peer {
        Peer::Block(_)
        | Peer::Name(_)
        | Peer::Nodes(_)
        | Peer::Service(_)
        | Peer::Pods(Pods::Group(_)) => true,
        Peer::Pods(Pods::Labeled { .. } | Pods::Service(_) | Pods::ServiceAccount(_)) => false,
    }
}

/// A port's name is looked up at the destination, which for egress to anybody is any pod.
fn asks_for_names(rule: &Rule) -> bool {
    let Traffic::Of(transports) = &rule.traffic else { return false };
    let named = |transport: &Transport| match transport {
        Transport::Ports { port, .. } => matches!(port, Some(TargetPort::Named(_))),
        Transport::Named(_) => true,
        Transport::Icmp { .. } => false,
    };
    rule.direction == Direction::Egress && transports.iter().any(named)
}

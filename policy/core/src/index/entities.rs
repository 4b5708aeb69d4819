//! Pods that policy knows, and nodes: who they are, where, and which addresses are theirs.

use super::{
    ids::Ids,
    matching::Matching,
    table::{Keyed, Mark, Seed, Table, number},
    uid::Uid,
};
use crate::index::Member;
use hashbrown::HashTable;
use policy_objects::{ContainerPort, Labels};
use std::{borrow::Cow, collections::BTreeMap, net::IpAddr, sync::Arc};

/// A pod, or, without namespace, a node.
#[derive(Debug)]
pub(super) struct Entity {
    pub(super) space: u32,
    pub(super) set: u32,
    /// The node that it is bound to.
    pub(super) node: Option<u32>,
    ports: u32,
    pub(super) name: Box<str>,
    pub(super) uid: Uid,
    /// When it was made: `2026-01-31T10:00:00Z`, which sorts as text.
    created: [u8; 20],
    pub(super) addresses: Box<[IpAddr]>,
}

impl Keyed for Entity {
    type Key<'a> = (u32, &'a str);

    fn key(&self) -> (u32, &str) {
        (self.space, &self.name)
    }
}

#[derive(Debug)]
struct Ports(Box<[ContainerPort]>);

impl Keyed for Ports {
    type Key<'a> = &'a [ContainerPort];

    fn key(&self) -> &[ContainerPort] {
        &self.0
    }
}

/// Content of an entity's object.
pub(super) struct EntityContent<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) uid: &'a str,
    pub(super) created: &'a str,
    pub(super) labels: EntityLabels<'a>,
    pub(super) node: &'a str,
    pub(super) account: Option<&'a str>,
    pub(super) addresses: &'a [IpAddr],
    pub(super) ports: Cow<'a, [ContainerPort]>,
}

/// Labels, owned or borrowed.
#[derive(Clone, Copy)]
pub(super) enum EntityLabels<'a> {
    Owned(&'a Labels),
    Borrowed(&'a [(Cow<'a, str>, Cow<'a, str>)]),
}

impl<'a> EntityLabels<'a> {
    pub(super) fn iter(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let (owned, borrowed) = match self {
            Self::Owned(labels) => (Some(labels), &[][..]),
            Self::Borrowed(labels) => (None, labels),
        };
        let owned = owned.into_iter().flatten().map(|(key, value)| (&**key, &**value));
        owned.chain(borrowed.iter().map(|(key, value)| (&**key, &**value)))
    }
}

#[derive(Debug)]
pub(super) struct Entities {
    pub(super) entities: Table<Entity>,
    pub(super) nodes: Table<Box<str>>,
    ports: Table<Ports>,
    /// Pods by address: which pod, and which of its addresses.
    claims: HashTable<(Mark, u32, u32)>,
    /// Addresses of nodes, and of how many.
    of_nodes: BTreeMap<IpAddr, u32>,
    /// Nodes that lost an entity in this event, whose names its deltas may still need.
    parted: Vec<u32>,
    /// The pods of each node; none as long as objects are loaded.
    residents: Option<Vec<Ids>>,
    seed: Seed,
}

impl Entities {
    pub(super) fn new(seed: u64) -> Self {
        let (entities, nodes, ports) = (Table::new(seed), Table::new(seed), Table::new(seed));
        Self {
            entities,
            nodes,
            ports,
            claims: HashTable::new(),
            of_nodes: BTreeMap::new(),
            parted: Vec::new(),
            residents: None,
            seed: Seed::new(seed),
        }
    }

    pub(super) fn find(&self, matching: &Matching, namespace: &str, name: &str) -> Option<u32> {
        self.entities.find((matching.spaces.find(namespace)?, name))
    }

    pub(super) fn is(&self, id: u32, uid: &str) -> bool {
        uid.is_empty() || self.entities[id].uid == Uid::of(uid)
    }

    /// Adds or replaces an entity.
    pub(super) fn put(&mut self, matching: &mut Matching, content: &EntityContent<'_>) -> u32 {
        let EntityContent { namespace, name, uid, .. } = *content;
        let space = matching.space(namespace);
        let is_node = namespace.is_empty();
        let node = (!content.node.is_empty()).then(|| self.node(content.node));
        let mut entity = Entity {
            space,
            set: 0,
            node,
            ports: self.ports_of(&content.ports),
            name: name.into(),
            uid: Uid::of(uid),
            created: fixed(content.created),
            addresses: canonical(content.addresses),
        };
        let labels = content.labels.iter().chain(content.account.map(|account| (ACCOUNT, account)));
        match self.entities.seek((space, name)) {
            Ok(id) => {
                self.disclaim(id, is_node);
                let old = &self.entities[id];
                let (set, node, ports) = (old.set, old.node, old.ports);
                self.house(id, node, entity.node);
                entity.set = matching.join(id, space, labels);
                if entity.set != set {
                    matching.leave(id, set);
                }
                matching.release_space(space);
                self.entities[id] = entity;
                self.release(node, ports);
                self.claim(id, is_node);
                id
            }
            Err(mark) => {
                let id = self.entities.insert_marked(mark, entity);
                self.house(id, None, node);
                self.entities[id].set = matching.join(id, space, labels);
                self.claim(id, is_node);
                id
            }
        }
    }

    pub(super) fn remove(&mut self, matching: &mut Matching, id: u32) {
        self.disclaim(id, self.is_node(matching, id));
        let Some(entity) = self.entities.remove(id) else { return };
        matching.leave(id, entity.set);
        matching.release_space(entity.space);
        self.house(id, entity.node, None);
        self.release(entity.node, entity.ports);
    }

    pub(super) fn loaded(&mut self) {
        let mut pods = Vec::new();
        for id in self.entities.ids() {
            let Some(node) = self.entities[id].node else { continue };
            let node = node as usize;
            if pods.len() <= node {
                pods.resize_with(node + 1, Vec::new);
            }
            pods[node].push(id);
        }
        self.residents = Some(pods.into_iter().map(Ids::from_iter).collect());
    }

    /// A pod is on another node than before.
    fn house(&mut self, id: u32, from: Option<u32>, to: Option<u32>) {
        let Some(residents) = self.residents.as_mut().filter(|_| from != to) else { return };
        if let Some(from) = from.and_then(|node| residents.get_mut(node as usize)) {
            from.remove(id);
        }
        if let Some(to) = to.map(|node| node as usize) {
            if residents.len() <= to {
                residents.resize_with(to + 1, Ids::default);
            }
            residents[to].insert(id);
        }
    }

    /// The pods of a node.
    pub(super) fn residents(&self, node: u32) -> &[u32] {
        let residents = self.residents.as_ref().and_then(|all| all.get(node as usize));
        residents.map_or(&[], Ids::as_slice)
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        let residents = self.residents.iter().flatten().map(|ids| ids.as_slice().len());
        let things = self.entities.len() + self.nodes.len() + self.ports.len();
        things + self.claims.len() + self.of_nodes.len() + residents.sum::<usize>()
    }

    fn node(&mut self, name: &str) -> u32 {
        let id = match self.nodes.seek(name) {
            Ok(id) => id,
            Err(mark) => self.nodes.insert_marked(mark, name.into()),
        };
        self.nodes.hold(id)
    }

    fn ports_of(&mut self, ports: &[ContainerPort]) -> u32 {
        let id = match self.ports.seek(ports) {
            Ok(id) => id,
            Err(mark) => self.ports.insert_marked(mark, Ports(ports.into())),
        };
        self.ports.hold(id)
    }

    fn release(&mut self, node: Option<u32>, ports: u32) {
        self.parted.extend(node);
        self.ports.release(ports);
    }

    pub(super) fn forget(&mut self) {
        for node in std::mem::take(&mut self.parted) {
            self.nodes.release(node);
        }
    }

    /// A pod's addresses are others.
    pub(super) fn readdress(&mut self, id: u32, addresses: &[IpAddr]) {
        self.disclaim(id, false);
        self.entities[id].addresses = canonical(addresses);
        self.claim(id, false);
    }

    fn claim(&mut self, id: u32, is_node: bool) {
        let (claims, entities, seed) = (&mut self.claims, &self.entities, &self.seed);
        for (at, address) in entities[id].addresses.iter().enumerate() {
            // Nodes keep all their addresses, and have no claims to compare.
            if is_node {
                *self.of_nodes.entry(*address).or_default() += 1;
                continue;
            }
            let mark = seed.hash(address);
            let again = |(mark, ..): &(Mark, u32, u32)| mark.spread();
            claims.insert_unique(mark.spread(), (mark, id, number(at)), again);
        }
    }

    fn disclaim(&mut self, id: u32, is_node: bool) {
        for (at, address) in self.entities[id].addresses.iter().enumerate() {
            if is_node {
                one_less(&mut self.of_nodes, *address);
                continue;
            }
            let mark = self.seed.hash(address);
            let claim = (mark, id, number(at));
            if let Ok(found) = self.claims.find_entry(mark.spread(), |other| *other == claim) {
                found.remove();
            }
        }
    }

    /// True if a node's status has an address.
    pub(super) fn is_of_node(&self, address: IpAddr) -> bool {
        self.of_nodes.contains_key(&address)
    }

    /// The pods whose status has an address.
    pub(super) fn claimants(&self, address: IpAddr) -> impl Iterator<Item = u32> {
        let mark = self.seed.hash(address);
        let same = move |(other, id, at): &&(Mark, u32, u32)| {
            *other == mark && self.entities[*id].addresses.get(*at as usize) == Some(&address)
        };
        self.claims.iter_hash(mark.spread()).filter(same).map(|(_, id, _)| *id)
    }

    /// Other pods whose status has any of these addresses.
    pub(super) fn rivals(&self, id: Option<u32>, addresses: &[IpAddr]) -> Ids {
        let canonical = addresses.iter().map(IpAddr::to_canonical);
        let found = canonical.flat_map(|address| self.claimants(address));
        found.filter(|found| Some(*found) != id).collect()
    }

    pub(super) fn addresses(&self, id: u32) -> &[IpAddr] {
        &self.entities[id].addresses
    }

    /// True if a pod owns an address. Of two live pods with the same address, the later one owns it, then the
    /// pod with the greater UID.
    fn has(&self, matching: &Matching, id: u32, address: IpAddr) -> bool {
        let rank = |id: u32| {
            let Entity { space, name, uid, created, .. } = &self.entities[id];
            (created, uid.text(), &matching.spaces[*space].name, name)
        };
        self.claimants(address).filter(|other| *other != id).all(|other| rank(other) < rank(id))
    }

    pub(super) fn is_node(&self, matching: &Matching, id: u32) -> bool {
        matching.spaces[self.entities[id].space].name.is_empty()
    }

    pub(super) fn member(&self, matching: &Matching, id: u32) -> Arc<Member> {
        let entity = &self.entities[id];
        let is_node = self.is_node(matching, id);
        let has = |address: &&IpAddr| is_node || self.has(matching, id, **address);
        Arc::new(Member {
            namespace: matching.spaces[entity.space].name.to_string(),
            name: entity.name.to_string(),
            uid: entity.uid.text().into_owned(),
            node: entity.node.map(|node| self.nodes[node].to_string()).unwrap_or_default(),
            addresses: entity.addresses.iter().filter(has).copied().collect(),
            ports: self.ports[entity.ports].0.to_vec(),
        })
    }
}

/// Each once, in order, and those of IPv4 as such.
fn canonical(addresses: &[IpAddr]) -> Box<[IpAddr]> {
    let mut addresses: Vec<IpAddr> = addresses.iter().map(IpAddr::to_canonical).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses.into_boxed_slice()
}

/// One user of an address less.
pub(super) fn one_less(users: &mut BTreeMap<IpAddr, u32>, address: IpAddr) {
    if let Some(count) = users.get_mut(&address) {
        *count -= 1;
        if *count == 0 {
            users.remove(&address);
        }
    }
}

/// Texts that are longer are of no time that an API server writes.
fn fixed(text: &str) -> [u8; 20] {
    let mut fixed = [0; 20];
    let length = text.len().min(fixed.len());
    fixed[..length].copy_from_slice(&text.as_bytes()[..length]);
    fixed
}

/// The label of a pod's service account: no label of people's has this key.
pub(super) const ACCOUNT: &str = "\0";

//! Classes of addresses.

use crate::{
    cut::{Address, Prefix},
    delta::Delta,
    digest::{Used, digest},
    peers::{AllPeers, Peer, PeerId},
    tables::{ClassId, Tables},
};
use policy_objects::Block;
use std::{
    collections::{BTreeMap, BTreeSet},
    mem::take,
    sync::Arc,
};

/// The classes of all addresses.
#[derive(Debug, Default)]
pub(crate) struct Classes {
    numbers: BTreeMap<Arc<[PeerId]>, ClassId>,
    used: Used,
    classes: BTreeMap<ClassId, Class>,
    /// The classes whose addresses each peer matches.
    of_peer: BTreeMap<PeerId, BTreeSet<ClassId>>,
    /// The peers that match single addresses: members of groups, the node itself, names. Sorted; a peer that matches an
    /// address by several members is listed once for each.
    own: BTreeMap<Address, Vec<PeerId>>,
    /// The blocks that contain the addresses of each prefix.
    pieces: BTreeMap<Prefix, Vec<PeerId>>,
    lengths: BTreeSet<u8>,
    /// Addresses whose class may have changed.
    open: BTreeSet<Address>,
    /// Classes that are new since the last [`Self::settle`].
    new: BTreeSet<ClassId>,
    /// Classes that may have lost their last row.
    idle: BTreeSet<ClassId>,
}

#[derive(Debug)]
struct Class {
    /// The peers that match its addresses, sorted.
    peers: Arc<[PeerId]>,
    /// The number of its rows.
    rows: usize,
}

/// The classes that a change has added and removed, each with its peers.
#[derive(Debug, Default)]
pub(crate) struct ClassChanges {
    pub(crate) added: Vec<(ClassId, Arc<[PeerId]>)>,
    pub(crate) removed: Vec<(ClassId, Arc<[PeerId]>)>,
}

impl Classes {
    /// Adds a peer that matches an address.
    pub(crate) fn add(&mut self, address: Address, peer: PeerId) {
        let own = self.own.entry(address).or_default();
        own.insert(own.partition_point(|of| *of < peer), peer);
        self.open.insert(address);
    }

    /// Removes a peer that matches an address.
    pub(crate) fn remove(&mut self, address: Address, peer: PeerId) {
        let Some(own) = self.own.get_mut(&address) else { return };
        if let Ok(at) = own.binary_search(&peer) {
            own.remove(at);
        }
        if own.is_empty() {
            self.own.remove(&address);
        }
        self.open.insert(address);
    }

    /// Replaces the ranges that rules and groups name.
    pub(crate) fn set_blocks<'a>(
        &mut self,
        blocks: impl Iterator<Item = &'a Block>,
        all: &mut AllPeers,
        tables: &mut Tables,
        delta: &mut Delta,
    ) {
        let pieces = cut(&blocks.collect(), all);
        let earlier = std::mem::replace(&mut self.pieces, pieces.clone());
        self.lengths = pieces.keys().map(|prefix| prefix.length).collect();
        let all_prefixes: BTreeSet<&Prefix> = earlier.keys().chain(pieces.keys()).collect();
        for prefix in all_prefixes {
            let is = pieces.get(prefix);
            if earlier.get(prefix) == is {
                continue;
            }
            let class = is.map(|peers| self.number(peers, all));
            self.add_row(class);
            self.remove_row(tables.prefixes.get(prefix).copied());
            match class {
                Some(class) => drop(tables.prefixes.insert(*prefix, class)),
                None => drop(tables.prefixes.remove(prefix)),
            }
            delta.prefixes.insert(*prefix);
            let within = self.own.range(prefix.first..=prefix.last());
            self.open.extend(within.map(|(address, _)| *address));
        }
    }

    /// Gives each address whose peers have changed its class.
    pub(crate) fn settle(
        &mut self,
        all: &AllPeers,
        tables: &mut Tables,
        delta: &mut Delta,
    ) -> ClassChanges {
        for address in take(&mut self.open) {
            let was = tables.addresses.get(&address).copied();
            let is = self.peers_of(address).map(|peers| self.number(&peers, all));
            if was == is {
                continue;
            }
            self.add_row(is);
            self.remove_row(was);
            match is {
                Some(class) => drop(tables.addresses.insert(address, class)),
                None => drop(tables.addresses.remove(&address)),
            }
            delta.addresses.insert(address);
        }
        let mut changes = ClassChanges::default();
        for number in take(&mut self.idle) {
            if self.classes.get(&number).is_none_or(|class| class.rows > 0) {
                continue;
            }
            let Some(class) = self.classes.remove(&number) else { continue };
            self.numbers.remove(&class.peers);
            self.used.release(number.0);
            for peer in class.peers.iter() {
                if let Some(classes) = self.of_peer.get_mut(peer) {
                    classes.remove(&number);
                    if classes.is_empty() {
                        self.of_peer.remove(peer);
                    }
                }
            }
            if !self.new.remove(&number) {
                changes.removed.push((number, class.peers));
            }
        }
        for number in take(&mut self.new) {
            changes.added.extend(self.peers(number).map(|peers| (number, peers)));
        }
        changes
    }

    /// The peers that match the addresses of a class.
    pub(crate) fn peers(&self, class: ClassId) -> Option<Arc<[PeerId]>> {
        self.classes.get(&class).map(|class| Arc::clone(&class.peers))
    }

    /// The classes whose addresses at least one of these peers matches.
    pub(crate) fn of_peers(&self, peers: &[PeerId]) -> BTreeSet<ClassId> {
        peers.iter().filter_map(|peer| self.of_peer.get(peer)).flatten().copied().collect()
    }

    /// The peers of an address, if they are not those of its longest prefix.
    fn peers_of(&self, address: Address) -> Option<Vec<PeerId>> {
        let mut peers = self.own.get(&address)?.clone();
        let within = longest(&self.pieces, &self.lengths, address);
        let within = within.map_or(&[] as &[PeerId], Vec::as_slice);
        peers.extend(within);
        peers.sort_unstable();
        peers.dedup();
        (peers.as_slice() != within).then_some(peers)
    }

    fn number(&mut self, peers: &[PeerId], all: &AllPeers) -> ClassId {
        if peers.is_empty() {
            return ClassId(0);
        }
        if let Some(class) = self.numbers.get(peers) {
            return *class;
        }
        let mut digests: Vec<u64> = peers.iter().map(|peer| all.digest(*peer)).collect();
        digests.sort_unstable();
        let class = ClassId(self.used.number(digest(&digests), None));
        let peers: Arc<[PeerId]> = peers.into();
        for peer in peers.iter() {
            self.of_peer.entry(*peer).or_default().insert(class);
        }
        self.numbers.insert(Arc::clone(&peers), class);
        self.classes.insert(class, Class { peers, rows: 0 });
        self.new.insert(class);
        self.idle.insert(class);
        class
    }

    fn add_row(&mut self, class: Option<ClassId>) {
        if let Some(class) = class.and_then(|class| self.classes.get_mut(&class)) {
            class.rows += 1;
        }
    }

    fn remove_row(&mut self, class: Option<ClassId>) {
        let Some(number) = class else { return };
        if let Some(class) = self.classes.get_mut(&number) {
            class.rows = class.rows.saturating_sub(1);
            if class.rows == 0 {
                self.idle.insert(number);
            }
        }
    }
}

/// Cuts ranges into disjoint pieces: each prefix stands for its addresses that are in no longer prefix. Returns the
/// blocks that contain each piece.
pub(crate) fn cut(blocks: &BTreeSet<&Block>, all: &mut AllPeers) -> BTreeMap<Prefix, Vec<PeerId>> {
    // The blocks that start and that end at a prefix.
    let mut changes: BTreeMap<Prefix, (Vec<PeerId>, Vec<PeerId>)> = BTreeMap::new();
    for block in blocks {
        let number = all.number(Peer::Block((*block).clone()));
        let range = Prefix::from(&block.cidr);
        let is_v4 = block.cidr.addr().is_ipv4();
        let holes = block.except.iter().filter(|hole| hole.addr().is_ipv4() == is_v4);
        let holes: Vec<Prefix> = holes.map(Prefix::from).collect();
        if !holes.iter().any(|hole| hole.covers(&range)) {
            changes.entry(range).or_default().0.push(number);
            for hole in holes.into_iter().filter(|hole| range.covers(hole)) {
                changes.entry(hole).or_default().1.push(number);
            }
        }
    }
    // A range of IPv6 such as ::/0 must not match mapped addresses.
    if changes.keys().any(|prefix| prefix.covers(&Prefix::all_v4()) && *prefix != Prefix::all_v4())
    {
        changes.entry(Prefix::all_v4()).or_default();
    }
    let mut pieces = BTreeMap::new();
    let mut enclosing: Vec<(Prefix, Vec<PeerId>)> = Vec::new();
    // In this order a prefix comes after those that cover it.
    for (prefix, (starts, ends)) in changes {
        while enclosing.last().is_some_and(|(outer, _)| !outer.covers(&prefix)) {
            enclosing.pop();
        }
        let outer = enclosing.last().filter(|_| prefix != Prefix::all_v4());
        let mut peers = outer.map(|(_, peers)| peers.clone()).unwrap_or_default();
        peers.retain(|number| !ends.contains(number));
        peers.extend(starts);
        peers.sort_unstable();
        peers.dedup();
        enclosing.push((prefix, peers.clone()));
        pieces.insert(prefix, peers);
    }
    pieces
}

/// The value of the longest prefix that contains an address.
pub(crate) fn longest<'a, V>(
    pieces: &'a BTreeMap<Prefix, V>,
    lengths: &BTreeSet<u8>,
    address: Address,
) -> Option<&'a V> {
    lengths.iter().rev().find_map(|length| pieces.get(&Prefix::around(address, *length)))
}

/// The class of an address: that of its own row, or of the longest prefix.
pub(crate) fn lookup(
    addresses: &BTreeMap<Address, ClassId>,
    prefixes: &BTreeMap<Prefix, ClassId>,
    address: Address,
) -> ClassId {
    let lengths: BTreeSet<u8> = prefixes.keys().map(|prefix| prefix.length).collect();
    let own = addresses.get(&address).copied();
    own.or_else(|| longest(prefixes, &lengths, address).copied()).unwrap_or_default()
}

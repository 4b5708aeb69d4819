//! Classes of addresses.

use crate::{
    cut::{Address, Prefix},
    digest::{Used, digest},
    names::Names,
    peers::{self, AllPeers, Peer, PeerId},
};
use control_wire::NodeSnapshot;
use policy_core::index::GroupId;
use policy_objects::Block;
use std::collections::{BTreeMap, BTreeSet};

/// The class of an address. Class 0 is that of all addresses without a row: no peer of a rule matches them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(pub u64);

/// The classes of all addresses.
#[derive(Debug)]
pub(crate) struct Classes {
    numbers: BTreeMap<Vec<PeerId>, ClassId>,
    used: Used,
    /// The peers that match the addresses of each class, sorted.
    pub(crate) peers: BTreeMap<ClassId, Vec<PeerId>>,
    /// The classes whose addresses each peer matches.
    pub(crate) of_peer: BTreeMap<PeerId, Vec<ClassId>>,
    /// Addresses whose class is not that of their longest prefix.
    pub(crate) addresses: BTreeMap<Address, ClassId>,
    /// The longest prefix that contains an address decides.
    pub(crate) prefixes: BTreeMap<Prefix, ClassId>,
    /// The Services' addresses: the groups of Services that have each.
    pub(crate) services: BTreeMap<Address, Vec<GroupId>>,
}

impl Classes {
    pub(crate) fn of(snapshot: &NodeSnapshot, names: &Names, all: &mut AllPeers) -> Self {
        let numbers = BTreeMap::from([(Vec::new(), ClassId(0))]);
        let mut classes = Self {
            numbers,
            used: Used::default(),
            peers: BTreeMap::from([(ClassId(0), Vec::new())]),
            of_peer: BTreeMap::new(),
            addresses: BTreeMap::new(),
            prefixes: BTreeMap::new(),
            services: services(snapshot),
        };
        let pieces = cut(&peers::blocks(snapshot), all);
        let mut addresses = own_peers(snapshot, names, all);
        for (prefix, peers) in &pieces {
            let class = classes.number(peers.clone(), all);
            classes.prefixes.insert(*prefix, class);
        }
        let lengths: BTreeSet<u8> = pieces.keys().map(|prefix| prefix.length).collect();
        for (address, peers) in &mut addresses {
            let within =
                longest(&pieces, &lengths, *address).map_or(&[] as &[PeerId], Vec::as_slice);
            peers.extend(within);
            peers.sort_unstable();
            peers.dedup();
            if peers.as_slice() != within {
                let class = classes.number(std::mem::take(peers), all);
                classes.addresses.insert(*address, class);
            }
        }
        classes
    }

    fn number(&mut self, peers: Vec<PeerId>, all: &AllPeers) -> ClassId {
        *self.numbers.entry(peers).or_insert_with_key(|peers| {
            let mut digests: Vec<u64> = peers.iter().map(|peer| all.digest(*peer)).collect();
            digests.sort_unstable();
            let class = ClassId(self.used.number(digest(&digests), None));
            self.peers.insert(class, peers.clone());
            for peer in peers {
                self.of_peer.entry(*peer).or_default().push(class);
            }
            class
        })
    }
}

/// The peers that match single addresses: members of groups, the node itself, names.
fn own_peers(
    snapshot: &NodeSnapshot,
    resolved: &Names,
    all: &mut AllPeers,
) -> BTreeMap<Address, Vec<PeerId>> {
    let mut addresses: BTreeMap<Address, Vec<PeerId>> = BTreeMap::new();
    let wanted = peers::port_names(snapshot);
    for (id, group) in &snapshot.addresses {
        for (key, member) in &group.members {
            let ports = peers::ports_of(key, member, &wanted);
            let number = all.number(Peer::Member(*id, ports));
            for address in &member.addresses {
                addresses.entry((*address).into()).or_default().push(number);
            }
        }
    }
    for address in snapshot.node.as_deref().unwrap_or_default() {
        addresses.entry((*address).into()).or_default().push(AllPeers::OWN_NODE);
    }
    for (uid, policy) in &snapshot.policies {
        for name in peers::names(policy) {
            let number = all.number(Peer::Name(uid.clone(), name.clone()));
            for address in resolved.addresses(uid, name) {
                addresses.entry(address.into()).or_default().push(number);
            }
        }
    }
    addresses
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

/// The groups of Services by the Services' addresses.
fn services(snapshot: &NodeSnapshot) -> BTreeMap<Address, Vec<GroupId>> {
    let mut services: BTreeMap<Address, Vec<GroupId>> = BTreeMap::new();
    for (id, group) in &snapshot.addresses {
        for vip in &group.holds.vips {
            services.entry((*vip).into()).or_default().push(*id);
        }
    }
    services
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

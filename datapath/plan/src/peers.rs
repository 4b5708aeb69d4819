//! The properties of addresses that rules ask for.

use crate::digest::digest;
use control_wire::model::{Member, Peers, Policy, Rule};
use policy_core::{
    Direction, NameMatch, Traffic, Transport,
    index::{GroupId, MemberKey},
};
use policy_objects::{Block, ContainerPort, TargetPort};
use std::{
    borrow::Borrow,
    collections::{BTreeMap, BTreeSet},
};

/// A property of an address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Peer {
    /// An address of the node itself.
    OwnNode,
    /// An address of a member of the group: a pod with these named ports, or a node. Only ports that an egress rule
    /// names are listed, in the order in which a name is looked for.
    Member(GroupId, Vec<ContainerPort>),
    /// An address in the block.
    Block(Block),
    /// An address to which a matching name resolves, by an answer that counts for the policy with this UID.
    Name(String, NameMatch),
}

/// The number of a [`Peer`].
pub(crate) type PeerId = u32;

/// The peers of all rules of a node, numbered.
#[derive(Debug)]
pub(crate) struct AllPeers {
    numbers: BTreeMap<Peer, PeerId>,
    peers: Vec<Peer>,
    digests: Vec<u64>,
    members: BTreeMap<GroupId, Vec<PeerId>>,
}

impl Default for AllPeers {
    fn default() -> Self {
        Self::new()
    }
}

impl AllPeers {
    pub(crate) const OWN_NODE: PeerId = 0;

    pub(crate) fn new() -> Self {
        let mut all = Self {
            numbers: BTreeMap::new(),
            peers: Vec::new(),
            digests: Vec::new(),
            members: BTreeMap::new(),
        };
        all.number(Peer::OwnNode);
        all
    }

    /// Returns the number of a peer, a new one if there is none.
    pub(crate) fn number(&mut self, peer: Peer) -> PeerId {
        if let Some(number) = self.numbers.get(&peer) {
            return *number;
        }
        // Peers are objects in memory, so their number fits.
        let number = PeerId::try_from(self.peers.len()).unwrap_or(PeerId::MAX);
        if let Peer::Member(group, _) = &peer {
            self.members.entry(*group).or_default().push(number);
        }
        self.digests.push(digest(&peer));
        self.numbers.insert(peer.clone(), number);
        self.peers.push(peer);
        number
    }

    /// The number of peers, also of those that no rule asks for any longer.
    pub(crate) fn len(&self) -> usize {
        self.peers.len()
    }

    /// The numbers of the members of a group, one for each list of named ports.
    pub(crate) fn members(&self, group: GroupId) -> &[PeerId] {
        self.members.get(&group).map_or(&[], Vec::as_slice)
    }

    /// The digest of a peer.
    pub(crate) fn digest(&self, number: PeerId) -> u64 {
        self.digests.get(number as usize).copied().unwrap_or_default()
    }

    /// True if the peer is a member of a group.
    pub(crate) fn is_member(&self, number: PeerId) -> bool {
        matches!(self.peers.get(number as usize), Some(Peer::Member(..)))
    }

    /// The named ports of a pod; empty for other peers.
    pub(crate) fn ports(&self, number: PeerId) -> &[ContainerPort] {
        match self.peers.get(number as usize) {
            Some(Peer::Member(_, ports)) => ports,
            Some(Peer::OwnNode | Peer::Block(_) | Peer::Name(..)) | None => &[],
        }
    }
}

/// The port names that the egress rules of a policy use.
pub(crate) fn port_names(policy: &Policy) -> impl Iterator<Item = &str> {
    let egress = policy.rules.iter().filter(|rule| rule.direction == Direction::Egress);
    egress.flat_map(port_names_of)
}

fn port_names_of(rule: &Rule) -> impl Iterator<Item = &str> {
    let transports = match &rule.traffic {
        Traffic::Any => [].as_slice(),
        Traffic::Of(transports) => transports,
    };
    transports.iter().filter_map(|transport| match transport {
        Transport::Named(name) | Transport::Ports { port: Some(TargetPort::Named(name)), .. } => {
            Some(name.as_str())
        }
        Transport::Ports { .. } | Transport::Icmp { .. } => None,
    })
}

/// The groups whose members are peers of the rule, also those that depend on the pod's namespace.
pub(crate) fn groups_of(rule: &Rule) -> impl Iterator<Item = GroupId> {
    let of = match &rule.peers {
        Peers::Any => None,
        Peers::Of(of) => Some(of),
    };
    let direct = of.into_iter().flat_map(|of| of.groups.iter().copied());
    let alike = of.into_iter().flat_map(|of| of.alike.iter().map(|alike| alike.address));
    direct.chain(alike).chain(rule.names)
}

/// All groups that the peers of the rule name.
pub(crate) fn peer_groups(rule: &Rule) -> impl Iterator<Item = GroupId> {
    let services = match &rule.peers {
        Peers::Any => [].as_slice(),
        Peers::Of(of) => &of.services,
    };
    groups_of(rule).chain(services.iter().copied())
}

/// The ranges that the rules of a policy name.
pub(crate) fn blocks(policy: &Policy) -> impl Iterator<Item = &Block> {
    let of_rules = policy.rules.iter().filter_map(|rule| match &rule.peers {
        Peers::Of(of) => Some(&of.blocks),
        Peers::Any => None,
    });
    of_rules.flatten()
}

/// The names that the egress rules of a policy name.
pub(crate) fn names(policy: &Policy) -> BTreeSet<&NameMatch> {
    let egress = policy.rules.iter().filter(|rule| rule.direction == Direction::Egress);
    let names = egress.filter_map(|rule| match &rule.peers {
        Peers::Of(of) => Some(&of.names),
        Peers::Any => None,
    });
    names.flatten().collect()
}

/// The named ports of a member that rules may ask for. A node has none.
pub(crate) fn ports_of(
    key: &MemberKey,
    member: &Member,
    is_wanted: impl Fn(&str) -> bool,
) -> Vec<ContainerPort> {
    let is_wanted =
        |port: &&ContainerPort| !key.namespace.is_empty() && is_wanted(port.name.as_str());
    member.ports.iter().filter(is_wanted).cloned().collect()
}

/// Values with the number of their users.
#[derive(Clone, Debug)]
pub(crate) struct Counted<T>(BTreeMap<T, usize>);

impl<T> Default for Counted<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Ord + Clone> Counted<T> {
    /// Adds a user. Returns true if it is the first one.
    pub(crate) fn add(&mut self, value: &T) -> bool {
        match self.0.get_mut(value) {
            Some(users) => {
                *users += 1;
                false
            }
            None => self.0.insert(value.clone(), 1).is_none(),
        }
    }

    /// Removes a user. Returns true if it was the last one.
    pub(crate) fn remove(&mut self, value: &T) -> bool {
        match self.0.get_mut(value) {
            Some(users) if *users > 1 => {
                *users -= 1;
                false
            }
            Some(_) => self.0.remove(value).is_some(),
            None => false,
        }
    }

    /// True if the value has users.
    pub(crate) fn contains<Q: Ord + ?Sized>(&self, value: &Q) -> bool
    where
        T: Borrow<Q>,
    {
        self.0.contains_key(value)
    }

    /// The values, sorted.
    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.0.keys()
    }
}

//! The objects of a node.

use config_model::{HostEnd, HostLink};
use control_wire::{
    encode,
    model::{AddressGroup, Isolation, Member, PeerSet, Peers, Pod, Policy, Position, Rule},
    proto::{self, Change, change},
};
use datapath_node::{LocalPod, PodId};
use policy_core::{
    Action, Direction, Family, NameMatch, PolicyKey, Priority, Stage, Standing, Traffic, Transport,
    index::{GroupId, MemberKey},
};
use policy_objects::{DomainName, Kind, PortRange, Protocol, TargetPort};
use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr},
};

/// The size of a node's world.
#[derive(Clone, Copy, Debug)]
pub struct World {
    /// Pods of other nodes, in equal groups.
    pub peers: u32,
    pub groups: u32,
    /// Pods of this node.
    pub pods: u32,
    /// Each is about one part of the pods; the last one is about all of them.
    pub policies: u32,
    pub parts: u32,
    /// The first policy about the first pod allows all groups.
    pub is_open: bool,
    /// The first policy allows DNS to the first group, and port 8080 of the names below `corp.test`.
    pub has_names: bool,
}

impl World {
    pub fn objects(&self) -> Vec<Change> {
        self.objects_with(&[])
    }

    /// All objects. The first group, which the first policy allows, has these members too.
    pub fn objects_with(&self, joined: &[(&str, Ipv4Addr)]) -> Vec<Change> {
        let mut changes = Vec::new();
        for group in 0..self.groups {
            let peers = (0..self.peers).filter(|peer| peer % self.groups == group);
            let members =
                peers.map(|peer| (key(&format!("peer-{peer}")), member(address(peer, false))));
            let mut of = AddressGroup { members: members.collect(), ..AddressGroup::default() };
            if group == 0 {
                let joined = joined.iter().map(|(name, address)| (key(name), member(*address)));
                of.members.extend(joined);
            }
            changes.push(encode::address_group(id(1, group), &of));
        }
        for part in 0..self.parts {
            let pods = (0..self.pods).filter(|pod| pod % self.parts == part);
            changes.push(encode::applied_group(id(2, part), &pods.map(uid).collect()));
        }
        changes.push(encode::applied_group(id(2, self.parts), &(0..self.pods).map(uid).collect()));
        for pod in 0..self.pods {
            let LocalPod { pod: PodId { uid, namespace, name }, addresses, .. } = local(pod);
            let addresses = addresses.into_iter().collect();
            changes.push((&Pod { uid, namespace, name, addresses, ..Pod::default() }).into());
        }
        for policy in 0..self.policies {
            changes.push((&self.policy(policy, 80)).into());
        }
        changes
    }

    /// The address groups of a policy.
    fn groups_of(&self, policy: u32) -> BTreeSet<u32> {
        match self.is_open && policy == 0 {
            true => (0..self.groups).collect(),
            false => [policy, policy / 7].map(|of| of % self.groups).into(),
        }
    }

    /// The number of peers that the policies of a pod name.
    pub fn peers_of(&self, pod: u32) -> u32 {
        let policies = (0..self.policies).filter(|policy| {
            policy % self.parts == pod % self.parts || policy + 1 == self.policies
        });
        let groups: BTreeSet<_> = policies.flat_map(|policy| self.groups_of(policy)).collect();
        let count = groups.len().try_into().unwrap_or(u32::MAX);
        count * (self.peers / self.groups)
    }

    /// The policy that is about all pods, with this port.
    pub fn last_policy(&self, port: u16) -> Change {
        (&self.policy(self.policies - 1, port)).into()
    }

    fn policy(&self, number: u32, port: u16) -> Policy {
        let is_last = number + 1 == self.policies;
        let applied = vec![id(2, if is_last { self.parts } else { number % self.parts })];
        let place = Position {
            stage: Stage::NetworkPolicies,
            number: 0,
            family: Family::NetworkPolicy,
            priority: Priority::new(0.0),
        };
        let groups = self.groups_of(number).into_iter().map(|of| id(1, of)).collect();
        // The policies about one part have all traffic of one of its groups.
        let traffic = match number < self.parts {
            true => Traffic::Any,
            false => Traffic::Of(vec![Transport::Ports {
                protocol: Protocol::Tcp,
                port: Some(TargetPort::Numbers(PortRange { first: port, last: port })),
                source: None,
            }]),
        };
        let rule = Rule {
            direction: Direction::Ingress,
            index: 0,
            name: None,
            action: Action::Allow,
            applied: applied.clone(),
            doubt: None,
            peers: Peers::Of(PeerSet { groups, ..PeerSet::default() }),
            traffic,
            log: None,
            standing: Standing::Understood,
            names: None,
            requires: Vec::new(),
        };
        let egress = |index, peers, protocol, port| Rule {
            direction: Direction::Egress,
            index,
            peers: Peers::Of(peers),
            traffic: Traffic::Of(vec![Transport::Ports {
                protocol,
                port: Some(TargetPort::Numbers(PortRange { first: port, last: port })),
                source: None,
            }]),
            ..rule.clone()
        };
        let mut rules = vec![rule.clone()];
        let has_names = self.has_names && number == 0;
        if has_names {
            let server = PeerSet { groups: vec![id(1, 0)], ..PeerSet::default() };
            let names = vec![NameMatch::Domain(DomainName::Below("corp.test".to_owned()))];
            let named = PeerSet { names, ..PeerSet::default() };
            rules.push(egress(0, server, Protocol::Udp, 53));
            rules.push(egress(1, named, Protocol::Tcp, 8080));
        }
        Policy {
            uid: format!("policy-{number}"),
            key: PolicyKey {
                kind: Kind::NetworkPolicy,
                namespace: "shop".to_owned(),
                name: format!("p-{number}"),
            },
            generation: i64::from(port),
            place,
            isolation: Some(Isolation { applied, doubt: None, ingress: true, egress: has_names }),
            rules,
        }
    }

    /// Gives a peer another address, or its own one again.
    pub fn address(&self, peer: u32, is_other: bool) -> Change {
        let of = proto::AddressChange {
            id: id(1, peer % self.groups).0.to_vec(),
            added: vec![encode::member(
                &key(&format!("peer-{peer}")),
                &member(address(peer, is_other)),
            )],
            removed: Vec::new(),
            holds: None,
        };
        Change { of: Some(change::Of::AddressChange(of)) }
    }
}

/// The address of a peer.
pub fn address(peer: u32, is_other: bool) -> Ipv4Addr {
    let base = if is_other { 0x0b00_0000 } else { 0x0a00_0000 };
    Ipv4Addr::from_bits(base + peer + 1)
}

fn member(address: Ipv4Addr) -> Member {
    Member { addresses: vec![IpAddr::V4(address)], ports: Vec::new() }
}

fn key(name: &str) -> MemberKey {
    MemberKey { namespace: "shop".to_owned(), name: name.to_owned(), uid: name.to_owned() }
}

fn id(kind: u8, number: u32) -> GroupId {
    let mut bytes = [kind; 16];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    GroupId(bytes)
}

fn uid(pod: u32) -> String {
    format!("00000000-0000-0000-0000-{pod:012}")
}

/// The address of a pod of the node.
pub fn pod_address(pod: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0ac8_0000 + pod + 1)
}

/// A pod of the node.
pub fn local(pod: u32) -> LocalPod {
    let id = PodId { uid: uid(pod), namespace: "shop".to_owned(), name: format!("web-{pod}") };
    LocalPod { pod: id, container: format!("c-{pod}"), addresses: [pod_address(pod).into()].into() }
}

/// The host link of a pod.
pub fn link(pod: u32) -> HostLink {
    HostLink {
        name: format!("eni{pod}"),
        ifindex: FIRST_LINK + pod,
        mac: None,
        addresses: local(pod).addresses,
        number: 0,
        table: None,
        mark: None,
        eni: None,
        host_end: HostEnd::Routed,
    }
}

/// The link by which packets of other nodes enter.
pub const WIRE: u32 = 900;
/// The number of the first pod's link.
const FIRST_LINK: u32 = 1000;

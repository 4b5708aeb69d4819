//! An answer for one packet, from the objects as they are, by looking at all of them.
//!
//! Nothing is kept, sorted out beforehand or shared with what is tested. Start at [`Naive::answer`]; who is
//! who stands in `who`, who belongs to groups in `group`, the order of policies in `order`, and what a
//! rule says of a packet in a module for each kind.

mod about;
mod antrea;
mod cluster;
mod group;
mod network;
mod order;
mod port;
mod who;

pub(crate) use antrea::is_like;
pub(crate) use cluster::is_domain;
pub(crate) use group::in_block;
pub(crate) use port::holds;

use order::Family;
use policy_objects::{Kind, Object, Pod};
use std::{collections::BTreeSet, net::IpAddr};

/// A packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Who sent it.
    pub origin: Origin,
    /// From.
    pub source: IpAddr,
    /// To, after the Service's address was translated.
    pub destination: IpAddr,
    /// The Service's address that was asked for.
    pub service: Option<IpAddr>,
    /// What it is.
    pub segment: Segment,
    /// Where in its flow it stands.
    pub state: State,
}

/// Who sent a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A process of this pod: namespace and name.
    Pod(String, String),
    /// A process of this node.
    Node(String),
    /// Somebody else; it came by.
    Forwarded,
}

/// What a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment {
    /// Protocol, source port, destination port.
    Ports(policy_objects::Protocol, u16, u16),
    /// Type and code.
    Icmp(u8, u8),
    /// Another protocol.
    Other(u8),
}

/// Where in its flow a packet stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// It begins one.
    New,
    /// It goes on in the direction of the first.
    Established,
    /// It goes the other way.
    Reply,
    /// It tells of one, as ICMP errors do.
    Related,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Decision {
    /// It goes on.
    Allow,
    /// It is gone.
    Drop,
    /// It is gone and the sender is told.
    Reject,
}

/// Which way, seen from the pod whose policies are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// To it.
    In,
    /// From it.
    Out,
}

/// A rule's place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleId {
    /// The policy's kind.
    pub kind: Kind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The rule among those of its direction.
    pub index: usize,
}

/// What decided one direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum By {
    /// Any of these rules: more than one only in the union of NetworkPolicies.
    Rules(BTreeSet<RuleId>),
    /// A NetworkPolicy isolates, and none allows it.
    Isolation,
    /// No policy was asked.
    Exemption,
    /// Nothing spoke.
    Default,
}

/// One direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Half {
    /// What becomes of it.
    pub decision: Decision,
    /// Why.
    pub by: By,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What becomes of the packet.
    pub decision: Decision,
    /// Out of the sender, if that is a pod with policies and the packet is not exempt as a whole.
    pub out: Option<Half>,
    /// Into the receiver, likewise.
    pub into: Option<Half>,
}

/// What a rule says of a packet that it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Says {
    Allow,
    Drop,
    Reject,
    Pass,
}

/// One pod's view of a packet.
#[derive(Clone, Copy)]
pub(crate) struct Side<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) way: Way,
    /// The other end.
    pub(crate) far: IpAddr,
    pub(crate) packet: &'a Packet,
}

/// All there is to know.
#[derive(Clone, Copy, Debug)]
pub struct Naive<'a> {
    /// The objects, each once.
    pub objects: &'a [Object],
    /// Which names led to which addresses.
    pub names: &'a [(IpAddr, String)],
}

impl Half {
    pub(crate) fn allowed(by: By) -> Self {
        Self { decision: Decision::Allow, by }
    }
}

impl<'a> Naive<'a> {
    /// What becomes of a packet, and why.
    pub fn answer(&self, packet: &Packet) -> Answer {
        let exempt = Answer { decision: Decision::Allow, out: None, into: None };
        if matches!(packet.state, State::Reply | State::Related) {
            return exempt;
        }
        let sender = self.sender(packet);
        let loopback = packet.destination.is_loopback();
        let receiver = match (sender, loopback) {
            (Some(sender), true) => Some(sender),
            _ => self.owner(packet.destination),
        };
        let itself = sender.is_some() && sender == receiver;
        if itself && (packet.service.is_none() || loopback) {
            return exempt;
        }
        let out = sender.map(|pod| {
            let far = packet.destination;
            self.half(Side { pod, way: Way::Out, far, packet }, itself)
        });
        let into = receiver.map(|pod| {
            let far = packet.source;
            self.half(Side { pod, way: Way::In, far, packet }, itself)
        });
        let halves = [&out, &into];
        let bad = halves.into_iter().flatten().find(|half| half.decision != Decision::Allow);
        Answer { decision: bad.map_or(Decision::Allow, |half| half.decision), out, into }
    }

    /// The pods that policies are about at its two ends: who sends it and who gets it.
    pub fn ends(&self, packet: &Packet) -> (Option<&'a Pod>, Option<&'a Pod>) {
        (self.sender(packet), self.owner(packet.destination))
    }

    /// A packet as the node of its sender sees it: one from a pod with its node's network is the node's.
    pub fn seen(&self, packet: &Packet) -> Packet {
        let node = self.sending_node(packet).map(str::to_owned);
        let origin = node.map_or(packet.origin.clone(), Origin::Node);
        Packet { origin, ..packet.clone() }
    }

    fn half(&self, side: Side<'_>, hairpin: bool) -> Half {
        if side.way == Way::In && self.sending_node(side.packet) == Some(side.pod.node.as_str()) {
            return Half::allowed(By::Exemption);
        }
        let mut passed: Vec<(bool, u16, Family)> = Vec::new();
        let mut asked_network = false;
        let exempt_from_network = hairpin || (side.way == Way::Out && self.is_own_node(side));
        for (place, policy) in self.in_order() {
            if place.after_network && !asked_network {
                asked_network = true;
                if let Some(half) = self.networks(side).filter(|_| !exempt_from_network) {
                    return half;
                }
            }
            // Before NetworkPolicy a Pass ends the family; after it, the tier.
            let tier = if place.after_network { place.number } else { 0 };
            let walk = (place.after_network, tier, place.family);
            if hairpin && place.family == Family::Antrea {
                continue;
            }
            for (index, says) in self.says(policy, side) {
                if passed.contains(&walk) {
                    break;
                }
                let decision = match says {
                    None => continue,
                    Some(Says::Pass) => {
                        passed.push(walk);
                        continue;
                    }
                    Some(Says::Allow) => Decision::Allow,
                    Some(Says::Drop) => Decision::Drop,
                    Some(Says::Reject) => Decision::Reject,
                };
                let rule = self.rule_id(policy, index);
                return Half { decision, by: By::Rules(BTreeSet::from([rule])) };
            }
        }
        if !asked_network && let Some(half) = self.networks(side).filter(|_| !exempt_from_network) {
            return half;
        }
        Half::allowed(By::Default)
    }

    /// What each rule of one of Antrea's policies, or of a ClusterNetworkPolicy, says.
    fn says(&self, policy: &Object, side: Side<'_>) -> Vec<(usize, Option<Says>)> {
        if let Object::AntreaPolicy(policy) = policy {
            self.antrea(policy, side)
        } else if let Object::ClusterPolicy(policy) = policy {
            self.cluster(policy, side)
        } else {
            Vec::new()
        }
    }
}

//! The naive evaluator: decides one packet by a scan of all objects.
//!
//! It keeps no state and no index, and shares no code with the model. Start at [`Naive::answer`]. Module
//! `who` finds pods, nodes and owners of addresses, `group` the members of groups, `order` the order of
//! policies. Each kind of policy has a module that evaluates its rules.

mod antrea;
mod cluster;
mod group;
mod lookup;
mod network;
mod order;
mod port;
mod subject;

pub(crate) use antrea::matches_pattern;
pub(crate) use cluster::is_in_domain;
pub(crate) use group::in_block;
pub(crate) use port::contains_port;

use order::Family;
use policy_objects::{Kind, Object, Pod};
use std::{collections::BTreeSet, net::IpAddr};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    pub origin: Origin,
    pub source: IpAddr,
    /// After the translation of the Service's address.
    pub destination: IpAddr,
    /// The Service address that the sender used. `None` if the packet did not go through a Service.
    pub service: Option<IpAddr>,
    pub segment: Segment,
    pub state: State,
}

/// Sender of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A process of this pod: namespace and name.
    Pod(String, String),
    /// A process of this node.
    Node(String),
    /// Another sender; the node only forwards the packet.
    Forwarded,
}

/// Protocol and ports, or ICMP type and code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment {
    /// Protocol, source port, destination port.
    Ports(policy_objects::Protocol, u16, u16),
    /// Type and code.
    Icmp(u8, u8),
    /// Number of a protocol without ports.
    Other(u8),
}

/// Position of a packet in its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// First packet of a flow.
    New,
    /// Later packet in the direction of the first.
    Established,
    /// Packet in the opposite direction.
    Reply,
    /// Packet about another flow, such as an ICMP error.
    Related,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Decision {
    Allow,
    Drop,
    /// Dropped, and the sender receives a reset or an ICMP error.
    Reject,
}

/// Direction from the view of the pod whose policies are evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FlowDirection {
    In,
    Out,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleId {
    pub kind: Kind,
    pub namespace: String,
    pub name: String,
    /// Index among the rules of the same direction.
    pub index: usize,
}

/// Reason for the decision in one direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum By {
    /// Any of these rules. Only the union of NetworkPolicies has more than one.
    Rules(BTreeSet<RuleId>),
    /// A NetworkPolicy isolates the pod, and no rule allows the packet.
    Isolation,
    /// The packet is exempt from policies.
    Exemption,
    /// No policy decided.
    Default,
}

/// Decision for one direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Half {
    pub decision: Decision,
    pub by: By,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub decision: Decision,
    /// Egress of the sender. `None` if the sender is no pod with policies, or if the whole packet is exempt.
    pub out: Option<Half>,
    /// Ingress of the receiver, likewise.
    pub into: Option<Half>,
}

/// Effect of a rule on a packet that it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Allow,
    Drop,
    Reject,
    Pass,
}

/// A packet from the view of one pod.
#[derive(Clone, Copy)]
pub(crate) struct Side<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) direction: FlowDirection,
    /// Address of the other end.
    pub(crate) far: IpAddr,
    pub(crate) packet: &'a Packet,
}

/// All inputs of an evaluation.
#[derive(Clone, Copy, Debug)]
pub struct Naive<'a> {
    /// Unique objects.
    pub objects: &'a [Object],
    /// Addresses of DNS names.
    pub names: &'a [(IpAddr, String)],
}

impl Half {
    pub(crate) fn allowed(by: By) -> Self {
        Self { decision: Decision::Allow, by }
    }
}

impl<'a> Naive<'a> {
    /// Decides a packet, with the reason.
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
            self.half(Side { pod, direction: FlowDirection::Out, far, packet }, itself)
        });
        let into = receiver.map(|pod| {
            let far = packet.source;
            self.half(Side { pod, direction: FlowDirection::In, far, packet }, itself)
        });
        let halves = [&out, &into];
        let bad = halves.into_iter().flatten().find(|half| half.decision != Decision::Allow);
        Answer { decision: bad.map_or(Decision::Allow, |half| half.decision), out, into }
    }

    /// The sending and the receiving pod, if policies apply to them.
    pub fn ends(&self, packet: &Packet) -> (Option<&'a Pod>, Option<&'a Pod>) {
        (self.sender(packet), self.owner(packet.destination))
    }

    /// Replaces the sender by its node if it is a pod with host networking: a node cannot distinguish the
    /// two.
    pub fn with_host_origin(&self, packet: &Packet) -> Packet {
        let node = self.sending_node(packet).map(str::to_owned);
        let origin = node.map_or(packet.origin.clone(), Origin::Node);
        Packet { origin, ..packet.clone() }
    }

    fn half(&self, side: Side<'_>, hairpin: bool) -> Half {
        if side.direction == FlowDirection::In
            && self.sending_node(side.packet) == Some(side.pod.node.as_str())
        {
            return Half::allowed(By::Exemption);
        }
        let mut passed: Vec<(bool, u16, Family)> = Vec::new();
        let mut asked_network = false;
        let exempt_from_network =
            hairpin || (side.direction == FlowDirection::Out && self.is_own_node(side));
        for (position, policies) in self.in_order() {
            if position.after_network && !asked_network {
                asked_network = true;
                if let Some(half) = self.network_policies(side).filter(|_| !exempt_from_network) {
                    return half;
                }
            }
            // A Pass ends the family before NetworkPolicies, and the tier after them.
            let tier = if position.after_network { position.number } else { 0 };
            let walk = (position.after_network, tier, position.family);
            let mut rules: Vec<(&Object, usize, Option<Effect>)> = Vec::new();
            for policy in policies {
                let effects = self.effects(policy, side, hairpin).into_iter();
                rules.extend(effects.map(|(index, effect)| (policy, index, effect)));
            }
            // Of several policies at one position, which are Antrea's, the first rules come first.
            rules.sort_by_key(|(_, index, _)| *index);
            for (policy, index, effect) in rules {
                if passed.contains(&walk) {
                    break;
                }
                let decision = match effect {
                    None => continue,
                    Some(Effect::Pass) => {
                        passed.push(walk);
                        continue;
                    }
                    Some(Effect::Allow) => Decision::Allow,
                    Some(Effect::Drop) => Decision::Drop,
                    Some(Effect::Reject) => Decision::Reject,
                };
                let rule = self.rule_id(policy, index);
                return Half { decision, by: By::Rules(BTreeSet::from([rule])) };
            }
        }
        if !asked_network
            && let Some(half) = self.network_policies(side).filter(|_| !exempt_from_network)
        {
            return half;
        }
        Half::allowed(By::Default)
    }

    /// The effect of each rule of an Antrea policy or a ClusterNetworkPolicy. `None` for a rule that does not
    /// match.
    fn effects(
        &self,
        policy: &Object,
        side: Side<'_>,
        hairpin: bool,
    ) -> Vec<(usize, Option<Effect>)> {
        if let Object::AntreaPolicy(policy) = policy {
            self.antrea(policy, side, hairpin)
        } else if let Object::ClusterPolicy(policy) = policy {
            self.cluster(policy, side)
        } else {
            Vec::new()
        }
    }
}

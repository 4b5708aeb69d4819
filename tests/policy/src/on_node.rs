//! An evaluator that reads only a node's snapshot, as a datapath would.

use crate::naive::{
    Answer, By, Decision, Effect, FlowDirection, Half, Origin, Packet, RuleId, Segment, State,
    contains_port, in_block, is_in_domain, matches_pattern,
};
use control_wire::{
    NodeSnapshot,
    model::{AddressGroup, PeerSet, Peers, Pod, Policy, Position, Rule},
};
use policy_core::{
    Action, Direction, Family, NameMatch, PolicyKey, Stage, Standing, Traffic, Transport,
    index::GroupId,
};
use policy_objects::{ContainerPort, Protocol, TargetPort};
use std::{collections::BTreeSet, net::IpAddr};

/// A node with its snapshot and the DNS results that it observed.
#[derive(Clone, Copy)]
pub struct Node<'a> {
    pub name: &'a str,
    pub snapshot: &'a NodeSnapshot,
    /// Addresses of DNS names.
    pub names: &'a [(IpAddr, String)],
}

/// A packet from the view of one pod.
#[derive(Clone, Copy)]
struct Side<'a> {
    pod: &'a Pod,
    direction: FlowDirection,
    far: IpAddr,
    packet: &'a Packet,
    /// True if a Service translated the packet back to its sender.
    hairpin: bool,
}

/// The rules that a Pass skips: those of a family before NetworkPolicies, those of a tier after them.
type Walk = (Stage, Family, u8);

/// The pods of this node at the ends of a packet.
pub(crate) struct Ends<'a> {
    pub(crate) sender: Option<&'a Pod>,
    pub(crate) receiver: Option<&'a Pod>,
    /// True if a Service translated the packet back to its sender.
    pub(crate) hairpin: bool,
}

impl<'a> Ends<'a> {
    /// `None` if the whole packet is exempt.
    pub(crate) fn of(snapshot: &'a NodeSnapshot, packet: &Packet) -> Option<Self> {
        if matches!(packet.state, State::Reply | State::Related) {
            return None;
        }
        let pods = || snapshot.pods.values().map(|pod| &**pod);
        let sender = match &packet.origin {
            Origin::Pod(namespace, name) => {
                pods().find(|pod| pod.namespace == *namespace && pod.name == *name)
            }
            Origin::Node(_) | Origin::Forwarded => None,
        };
        let loopback = packet.destination.is_loopback();
        let receiver = match (sender, loopback) {
            (Some(sender), true) => Some(sender),
            _ => pods().find(|pod| pod.addresses.contains(&packet.destination)),
        };
        let hairpin = sender.is_some() && sender == receiver;
        let is_exempt = hairpin && (packet.service.is_none() || loopback);
        (!is_exempt).then_some(Self { sender, receiver, hairpin })
    }
}

impl<'a> Node<'a> {
    /// Decides a packet at this node's pods, with the reason.
    pub fn answer(&self, packet: &Packet) -> Answer {
        let exempt = Answer { decision: Decision::Allow, out: None, into: None };
        let Some(Ends { sender, receiver, hairpin }) = Ends::of(self.snapshot, packet) else {
            return exempt;
        };
        let side = |pod: &'a Pod, direction, far| Side { pod, direction, far, packet, hairpin };
        let out = sender.map(|pod| self.half(side(pod, FlowDirection::Out, packet.destination)));
        let into = receiver.map(|pod| self.half(side(pod, FlowDirection::In, packet.source)));
        let bad = [&out, &into].into_iter().flatten().find(|half| half.decision != Decision::Allow);
        Answer { decision: bad.map_or(Decision::Allow, |half| half.decision), out, into }
    }

    fn half(&self, side: Side<'_>) -> Half {
        let from_here = matches!(&side.packet.origin, Origin::Node(node) if node == self.name);
        if side.direction == FlowDirection::In && from_here {
            return Half::allowed(By::Exemption);
        }
        let mut policies: Vec<&Policy> = self.snapshot.policies.values().map(|of| &**of).collect();
        policies.sort_by_key(|policy| {
            let PolicyKey { kind, namespace, name } = &policy.key;
            (policy.place, namespace, kind, name)
        });
        let mut passed: Vec<Walk> = Vec::new();
        let before = self.ordered(&policies, Stage::Before, side, &mut passed);
        before
            .or_else(|| self.union(&policies, side))
            .or_else(|| self.ordered(&policies, Stage::Baseline, side, &mut passed))
            .unwrap_or(Half::allowed(By::Default))
    }

    fn ordered(
        &self,
        policies: &[&Policy],
        stage: Stage,
        side: Side<'_>,
        passed: &mut Vec<Walk>,
    ) -> Option<Half> {
        let here = policies.iter().filter(|policy| policy.place.stage == stage);
        let mut all: Vec<(&Policy, &Rule)> =
            here.flat_map(|policy| rules(policy, side).map(|rule| (*policy, rule))).collect();
        all.sort_by_key(|(policy, rule)| {
            let is_antrea = policy.place.family == Family::Antrea;
            (policy.place, if is_antrea { rule.index } else { 0 })
        });
        for (policy, rule) in all {
            let Position { number, family, .. } = policy.place;
            let walk = (stage, family, if stage == Stage::Before { 0 } else { number });
            let names_services = matches!(&rule.peers, Peers::Of(far) if !far.services.is_empty());
            let denies_all = matches!(rule.standing, Standing::DeniesAll { .. });
            let may_name_services =
                side.direction == FlowDirection::Out && (names_services || denies_all);
            let exempt = side.hairpin && family == Family::Antrea && !may_name_services;
            if exempt || passed.contains(&walk) {
                continue;
            }
            let decision = match self.rule(rule, side) {
                None => continue,
                Some(Effect::Pass) => {
                    passed.push(walk);
                    continue;
                }
                Some(Effect::Allow) => Decision::Allow,
                Some(Effect::Drop) => Decision::Drop,
                Some(Effect::Reject) => Decision::Reject,
            };
            return Some(Half { decision, by: By::Rules(BTreeSet::from([rule_id(policy, rule)])) });
        }
        None
    }

    fn union(&self, policies: &[&Policy], side: Side<'_>) -> Option<Half> {
        let mut isolated = false;
        let mut allowing = BTreeSet::new();
        for policy in policies.iter().filter(|it| it.place.stage == Stage::NetworkPolicies) {
            if let Some(isolation) = &policy.isolation {
                let closed = match side.direction {
                    FlowDirection::In => isolation.ingress,
                    FlowDirection::Out => isolation.egress,
                };
                isolated |= closed && self.applies_to(&isolation.applied, side);
            }
            let allows =
                rules(policy, side).filter(|rule| self.rule(rule, side) == Some(Effect::Allow));
            allowing.extend(allows.map(|rule| rule_id(policy, rule)));
        }
        let own = self.snapshot.node.as_deref().unwrap_or_default();
        let to_own_node = side.direction == FlowDirection::Out && own.contains(&side.far);
        if !isolated || side.hairpin || to_own_node {
            return None;
        }
        Some(match allowing.is_empty() {
            true => Half { decision: Decision::Drop, by: By::Isolation },
            false => Half::allowed(By::Rules(allowing)),
        })
    }

    fn applies_to(&self, applied: &[GroupId], side: Side<'_>) -> bool {
        let of = |id: &GroupId| self.snapshot.applied.get(id);
        applied.iter().filter_map(of).any(|group| group.contains(&side.pod.uid))
    }

    fn rule(&self, rule: &Rule, side: Side<'_>) -> Option<Effect> {
        if !self.applies_to(&rule.applied, side) {
            return None;
        }
        match rule.standing {
            Standing::Understood => {}
            Standing::MatchesNothing { .. } => return None,
            Standing::DeniesAll { .. } => return Some(Effect::Drop),
        }
        if let Peers::Of(far) = &rule.peers {
            let mut used = far.groups.iter().chain(&far.services);
            if used.any(|id| self.group(*id).holds.unusable.is_some()) {
                return (rule.action != Action::Allow).then_some(Effect::Drop);
            }
        }
        let matches = self.is_peer(rule, side) && self.is_traffic(rule, side);
        matches.then_some(match rule.action {
            Action::Allow => Effect::Allow,
            Action::Drop => Effect::Drop,
            Action::Reject => Effect::Reject,
            Action::Pass => Effect::Pass,
        })
    }

    /// The address group of a rule. Each node that has a policy has all of its address groups.
    fn group(&self, id: GroupId) -> &'a AddressGroup {
        self.snapshot
            .addresses
            .get(&id)
            .unwrap_or_else(|| panic!("the snapshot lacks {id}, which a rule uses"))
    }

    fn is_peer(&self, rule: &Rule, side: Side<'_>) -> bool {
        let Peers::Of(far) = &rule.peers else { return true };
        let PeerSet { groups, blocks, names, services, alike } = far;
        let named = |wanted: &NameMatch| {
            let mut names = self.names.iter().filter(|(of, _)| *of == side.far);
            names.any(|(_, name)| match wanted {
                NameMatch::Domain(domain) => is_in_domain(domain, name),
                NameMatch::Pattern(pattern) => matches_pattern(&pattern.0, name),
            })
        };
        let vip = side.packet.service;
        groups.iter().any(|id| has(self.group(*id), side.far))
            || blocks.iter().any(|block| in_block(block, side.far))
            || side.direction == FlowDirection::Out && names.iter().any(named)
            || services
                .iter()
                .any(|id| vip.is_some_and(|vip| self.group(*id).holds.vips.contains(&vip)))
            || alike.iter().any(|alike| {
                self.applies_to(&alike.applied, side) && has(self.group(alike.address), side.far)
            })
    }

    fn is_traffic(&self, rule: &Rule, side: Side<'_>) -> bool {
        let Traffic::Of(transports) = &rule.traffic else { return true };
        transports.iter().any(|transport| match (transport, side.packet.segment) {
            (Transport::Ports { protocol, port, source }, Segment::Ports(its, from, to)) => {
                *protocol == its
                    && source.is_none_or(|range| contains_port(range, from))
                    && port.as_ref().is_none_or(|port| self.is_port(rule, side, port, its, to))
            }
            (Transport::Named(name), Segment::Ports(its, _, to)) => {
                self.any_receiver(rule, side, |ports| {
                    let first = ports.iter().find(|port| port.name == *name);
                    first.is_some_and(|port| port.protocol == its && port.port == to)
                })
            }
            (Transport::Icmp { kind, code }, Segment::Icmp(its, of)) => {
                kind.is_none_or(|kind| kind == its) && code.is_none_or(|code| code == of)
            }
            (Transport::Ports { .. } | Transport::Named(_) | Transport::Icmp { .. }, _) => false,
        })
    }

    fn is_port(
        &self,
        rule: &Rule,
        side: Side<'_>,
        port: &TargetPort,
        protocol: Protocol,
        to: u16,
    ) -> bool {
        match port {
            TargetPort::Numbers(range) => contains_port(*range, to),
            TargetPort::Named(name) => self.any_receiver(rule, side, |ports| {
                let mut named = ports.iter().filter(|p| p.name == *name && p.protocol == protocol);
                named.next().is_some_and(|port| port.port == to)
            }),
        }
    }

    fn any_receiver(
        &self,
        rule: &Rule,
        side: Side<'_>,
        is: impl Fn(&[ContainerPort]) -> bool,
    ) -> bool {
        if side.direction == FlowDirection::In {
            return is(&side.pod.ports);
        }
        let of_peers = match &rule.peers {
            Peers::Any => Vec::new(),
            Peers::Of(far) => {
                far.groups.iter().copied().chain(far.alike.iter().map(|it| it.address)).collect()
            }
        };
        let groups = of_peers.into_iter().chain(rule.names).map(|id| self.group(id));
        let mut members = groups.flat_map(|group| &group.members);
        let to = side.packet.destination;
        members.any(|(key, member)| {
            !key.namespace.is_empty() && member.addresses.contains(&to) && is(&member.ports)
        })
    }
}

fn rules<'a>(policy: &'a Policy, side: Side<'_>) -> impl Iterator<Item = &'a Rule> {
    let direction = match side.direction {
        FlowDirection::In => Direction::Ingress,
        FlowDirection::Out => Direction::Egress,
    };
    policy.rules.iter().filter(move |rule| rule.direction == direction)
}

fn rule_id(policy: &Policy, rule: &Rule) -> RuleId {
    let PolicyKey { kind, namespace, name } = policy.key.clone();
    RuleId { kind, namespace, name, index: rule.index }
}

fn has(group: &AddressGroup, address: IpAddr) -> bool {
    group.members.values().any(|member| member.addresses.contains(&address))
        || group.holds.blocks.iter().any(|block| in_block(block, address))
}

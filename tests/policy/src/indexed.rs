//! An evaluator that reads only the index's snapshot.
//!
//! It answers as a node would that has the compiled policies, a [`Snapshot`] and no object. The snapshot is
//! that of all nodes or that of one node. With the latter it judges only the pods of that node. DNS results
//! are an input of their own, because a node observes them itself.

use crate::naive::{
    Answer, By, Decision, Effect, FlowDirection, Half, Origin, Packet, RuleId, Segment, State,
    contains_port, in_block, is_in_domain, matches_pattern,
};
use policy_core::{
    Action, Direction, Family, Isolation, NameMatch, Peer, Peers, Pods, Policy, PolicyKey, Rank,
    Rule, Stage, Standing, Traffic, Transport, Walk,
    index::{GroupId, GroupState, Member, PolicyId, PolicyState, Role, Snapshot},
};
use policy_objects::{ContainerPort, Protocol, TargetPort};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

#[derive(Clone, Copy)]
pub struct Indexed<'a> {
    /// Groups, the positions of policies and the groups that they use, and the objects of each node.
    pub snapshot: &'a Snapshot,
    /// The compiled policies.
    pub policies: &'a BTreeMap<PolicyId, Policy>,
    /// Addresses of DNS names.
    pub names: &'a [(IpAddr, String)],
}

/// A packet from the view of one pod.
#[derive(Clone, Copy)]
struct Side<'a> {
    pod: &'a Member,
    direction: FlowDirection,
    far: IpAddr,
    packet: &'a Packet,
    /// True if a Service translated the packet back to its sender.
    hairpin: bool,
}

/// A policy with its state in the index.
#[derive(Clone, Copy)]
struct StoredPolicy<'a> {
    policy: &'a Policy,
    state: &'a PolicyState,
}

/// A rule, and the pod and packet that it is evaluated for.
#[derive(Clone, Copy)]
struct Candidate<'a> {
    stored: StoredPolicy<'a>,
    at: usize,
    rule: &'a Rule,
    side: Side<'a>,
}

impl<'a> Indexed<'a> {
    /// Decides a packet at the pods of the snapshot. A pod with host networking counts as a process of its
    /// node, because a node sees only itself as the sender.
    pub fn answer(&self, packet: &Packet) -> Answer {
        let exempt = Answer { decision: Decision::Allow, out: None, into: None };
        if matches!(packet.state, State::Reply | State::Related) {
            return exempt;
        }
        let sender = self.sender(packet);
        let loopback = packet.destination.is_loopback();
        let receiver = match (sender, loopback) {
            (Some(sender), true) => Some(sender),
            _ => self.pods().find(|pod| pod.addresses.contains(&packet.destination)),
        };
        let hairpin = sender.is_some() && sender == receiver;
        if hairpin && (packet.service.is_none() || loopback) {
            return exempt;
        }
        let side =
            |pod: &'a Arc<Member>, direction, far| Side { pod, direction, far, packet, hairpin };
        let out = sender.map(|pod| self.half(side(pod, FlowDirection::Out, packet.destination)));
        let into = receiver.map(|pod| self.half(side(pod, FlowDirection::In, packet.source)));
        let bad = [&out, &into].into_iter().flatten().find(|half| half.decision != Decision::Allow);
        Answer { decision: bad.map_or(Decision::Allow, |half| half.decision), out, into }
    }

    /// The pods of the snapshot: those of nodes, and those in applied-to groups that are not scheduled yet.
    fn pods(&self) -> impl Iterator<Item = &'a Arc<Member>> {
        let own = self.snapshot.nodes.values().flat_map(|node| node.pods.values());
        let applied = self.snapshot.groups.iter().filter(|((role, _), _)| *role == Role::Applied);
        own.chain(applied.flat_map(|(_, group)| group.members.values()))
    }

    fn sender(&self, packet: &Packet) -> Option<&'a Arc<Member>> {
        let Origin::Pod(namespace, name) = &packet.origin else { return None };
        self.pods().find(|pod| pod.namespace == *namespace && pod.name == *name)
    }

    fn half(&self, side: Side<'_>) -> Half {
        let from_own_node =
            matches!(&side.packet.origin, Origin::Node(node) if *node == side.pod.node);
        if side.direction == FlowDirection::In && from_own_node {
            return Half::allowed(By::Exemption);
        }
        let policies = self.in_order();
        let mut passed: Vec<Walk> = Vec::new();
        let of = |stage| policies.iter().filter(move |(rank, _)| rank.stage() == stage);
        if let Some(half) = self.ordered(of(Stage::Before), side, &mut passed) {
            return half;
        }
        let networks = of(Stage::NetworkPolicies).map(|(_, stored)| *stored);
        if let Some(half) = self.union(networks, side) {
            return half;
        }
        let baseline = self.ordered(of(Stage::Baseline), side, &mut passed);
        baseline.unwrap_or(Half::allowed(By::Default))
    }

    /// The policies of the snapshot in evaluation order.
    fn in_order(&self) -> Vec<(Rank, StoredPolicy<'a>)> {
        let stored = |(id, state): (&PolicyId, &'a PolicyState)| {
            let policy = self.policies.get(id).expect("the form of each policy");
            (Rank::of(policy, state.tier), StoredPolicy { policy, state })
        };
        let mut all: Vec<_> = self.snapshot.policies.iter().map(stored).collect();
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        all
    }

    fn ordered<'b>(
        &self,
        policies: impl Iterator<Item = &'b (Rank, StoredPolicy<'b>)>,
        side: Side<'_>,
        passed: &mut Vec<Walk>,
    ) -> Option<Half> {
        let mut all: Vec<(&Rank, Candidate<'_>)> = policies
            .flat_map(|(rank, stored)| rules(*stored, side).map(move |rule| (rank, rule)))
            .collect();
        all.sort_by_key(|(rank, Candidate { stored, rule, .. })| {
            let family = rank.walk().family;
            let position = if family == Family::Antrea { rule.index } else { 0 };
            (stored.state.tier, family, stored.policy.place.priority, position)
        });
        for (rank, candidate) in all {
            let Candidate { stored, rule, .. } = candidate;
            let names_services = matches!(&rule.peers, Peers::Of(peers)
                if peers.iter().any(|peer| matches!(peer, Peer::Service(_))));
            let denies_all = matches!(rule.standing, Standing::DeniesAll { .. });
            let may_name_services =
                rule.direction == Direction::Egress && (names_services || denies_all);
            let exempt = side.hairpin && rank.walk().family == Family::Antrea && !may_name_services;
            if exempt || passed.contains(&rank.walk()) {
                continue;
            }
            let decision = match self.rule(candidate) {
                None => continue,
                Some(Effect::Pass) => {
                    passed.push(rank.walk());
                    continue;
                }
                Some(Effect::Allow) => Decision::Allow,
                Some(Effect::Drop) => Decision::Drop,
                Some(Effect::Reject) => Decision::Reject,
            };
            let by = By::Rules(BTreeSet::from([rule_id(stored.policy, rule)]));
            return Some(Half { decision, by });
        }
        None
    }

    /// The result of all NetworkPolicies together. `None` if no NetworkPolicy isolates the pod.
    fn union<'b>(
        &self,
        policies: impl Iterator<Item = StoredPolicy<'b>>,
        side: Side<'_>,
    ) -> Option<Half> {
        let mut isolated = false;
        let mut allowing = BTreeSet::new();
        for stored in policies {
            let closed = |isolation: &&Isolation| match side.direction {
                FlowDirection::In => isolation.ingress,
                FlowDirection::Out => isolation.egress,
            };
            let isolation = stored.policy.isolation.as_ref().filter(closed);
            isolated |=
                isolation.is_some_and(|of| self.applies_to(&of.subject, stored.policy, side));
            let allows = rules(stored, side).filter(|it| self.rule(*it) == Some(Effect::Allow));
            allowing.extend(allows.map(|candidate| rule_id(stored.policy, candidate.rule)));
        }
        let own_node = self.snapshot.nodes.get(&side.pod.node);
        let to_own_node = own_node.is_some_and(|node| node.addresses.contains(&side.far));
        if !isolated || side.hairpin || side.direction == FlowDirection::Out && to_own_node {
            return None;
        }
        Some(match allowing.is_empty() {
            true => Half { decision: Decision::Drop, by: By::Isolation },
            false => Half::allowed(By::Rules(allowing)),
        })
    }

    fn rule(&self, candidate: Candidate<'_>) -> Option<Effect> {
        let Candidate { stored, rule, side, .. } = candidate;
        if !self.applies_to(&rule.subject, stored.policy, side) {
            return None;
        }
        match rule.standing {
            Standing::Understood => {}
            Standing::MatchesNothing { .. } => return None,
            Standing::DeniesAll { .. } => return Some(Effect::Drop),
        }
        match (rule.action, self.is_doubtful(candidate), self.is_unusable(candidate)) {
            (Action::Allow, true, _) | (Action::Allow, _, true) => return None,
            (Action::Pass, true, _) | (_, _, true) => return Some(Effect::Drop),
            (Action::Allow | Action::Pass, false, false)
            | (Action::Drop | Action::Reject, _, false) => {}
        }
        let matches = self.is_peer(candidate) && self.is_traffic(candidate);
        matches.then_some(match rule.action {
            Action::Allow => Effect::Allow,
            Action::Drop => Effect::Drop,
            Action::Reject => Effect::Reject,
            Action::Pass => Effect::Pass,
        })
    }

    /// True if a group of the policy contains the pod.
    fn applies_to(&self, pods: &[Pods], policy: &Policy, side: Side<'_>) -> bool {
        let ids = pods.iter().filter_map(|pods| GroupId::of_subject(pods, &policy.key.namespace));
        ids.into_iter().any(|id| self.applies(id, side))
    }

    /// True if a subject of the rule may contain more pods than its author meant.
    fn is_doubtful(&self, candidate: Candidate<'_>) -> bool {
        let own = &candidate.stored.policy.key.namespace;
        let mut ids =
            candidate.rule.subject.iter().filter_map(|pods| GroupId::of_subject(pods, own));
        let doubted = &candidate.stored.state.uses.doubted;
        ids.any(|id| doubted.iter().any(|(group, _)| *group == id))
    }

    /// True if the applied-to group has the pod. A node does not receive a group without a pod of its own.
    fn applies(&self, id: GroupId, side: Side<'_>) -> bool {
        let group = self.snapshot.groups.get(&(Role::Applied, id));
        group.is_some_and(|group| group.members.contains_key(&side.pod.key()))
    }

    /// The address group of a rule. Each node that has a policy has all of its address groups.
    fn address(&self, stored: StoredPolicy<'_>, id: GroupId) -> &'a GroupState {
        assert!(
            stored.state.uses.address.contains(&id),
            "the index does not list {id} as used by {}",
            stored.policy.key
        );
        let group = self.snapshot.groups.get(&(Role::Address, id));
        group.unwrap_or_else(|| panic!("the snapshot lacks {id}, which {} uses", stored.policy.key))
    }

    fn is_unusable(&self, candidate: Candidate<'_>) -> bool {
        let Peers::Of(peers) = &candidate.rule.peers else { return false };
        let mut ids = peers.iter().filter_map(GroupId::of_peer);
        ids.any(|id| self.address(candidate.stored, id).holds.unusable.is_some())
    }

    fn is_peer(&self, candidate: Candidate<'_>) -> bool {
        let Peers::Of(peers) = &candidate.rule.peers else { return true };
        let Candidate { stored, side, .. } = candidate;
        let depends = expanded(candidate).any(|(applied, address)| {
            applied.iter().any(|id| self.applies(*id, side))
                && has(self.address(stored, address), side.far)
        });
        let group = |peer: &Peer| GroupId::of_peer(peer).map(|id| self.address(stored, id));
        depends
            || peers.iter().any(|peer| match peer {
                Peer::Pods(_) | Peer::Nodes(_) => {
                    group(peer).is_some_and(|group| has(group, side.far))
                }
                Peer::Service(_) => group(peer)
                    .zip(side.packet.service)
                    .is_some_and(|(group, vip)| group.holds.vips.contains(&vip)),
                Peer::Block(block) => in_block(block, side.far),
                Peer::Name(wanted) => {
                    let mut names = self.names.iter().filter(|(of, _)| *of == side.far);
                    side.direction == FlowDirection::Out
                        && names.any(|(_, name)| is_name(wanted, name))
                }
            })
    }

    fn is_traffic(&self, candidate: Candidate<'_>) -> bool {
        let Traffic::Of(transports) = &candidate.rule.traffic else { return true };
        transports.iter().any(|transport| match (transport, candidate.side.packet.segment) {
            (Transport::Ports { protocol, port, source }, Segment::Ports(its, from, to)) => {
                *protocol == its
                    && source.is_none_or(|range| contains_port(range, from))
                    && port.as_ref().is_none_or(|port| self.is_port(candidate, port, its, to))
            }
            (Transport::Named(name), Segment::Ports(its, _, to)) => {
                let first = |ports: &[ContainerPort]| {
                    let first = ports.iter().find(|port| port.name == *name);
                    first.is_some_and(|port| port.protocol == its && port.port == to)
                };
                self.any_receiver(candidate, first)
            }
            (Transport::Icmp { kind, code }, Segment::Icmp(its, of)) => {
                kind.is_none_or(|kind| kind == its) && code.is_none_or(|code| code == of)
            }
            (Transport::Ports { .. } | Transport::Named(_) | Transport::Icmp { .. }, _) => false,
        })
    }

    fn is_port(
        &self,
        candidate: Candidate<'_>,
        port: &TargetPort,
        protocol: Protocol,
        to: u16,
    ) -> bool {
        match port {
            TargetPort::Numbers(range) => contains_port(*range, to),
            TargetPort::Named(name) => self.any_receiver(candidate, |ports| {
                let mut named = ports.iter().filter(|p| p.name == *name && p.protocol == protocol);
                named.next().is_some_and(|port| port.port == to)
            }),
        }
    }

    /// True if `is` holds for the ports of the receiving pod. For egress that is a pod of an address group
    /// that the policy uses.
    fn any_receiver(
        &self,
        candidate: Candidate<'_>,
        is: impl Fn(&[ContainerPort]) -> bool,
    ) -> bool {
        let Candidate { stored, side, .. } = candidate;
        if side.direction == FlowDirection::In {
            return is(&side.pod.ports);
        }
        let groups = stored.state.uses.address.iter().map(|id| self.address(stored, *id));
        let mut receivers = groups.flat_map(|group| group.members.values());
        let to = side.packet.destination;
        receivers.any(|member| {
            !member.namespace.is_empty() && member.addresses.contains(&to) && is(&member.ports)
        })
    }
}

fn rules<'a>(stored: StoredPolicy<'a>, side: Side<'a>) -> impl Iterator<Item = Candidate<'a>> {
    let direction = match side.direction {
        FlowDirection::In => Direction::Ingress,
        FlowDirection::Out => Direction::Egress,
    };
    let all = stored.policy.rules.iter().enumerate();
    let mine = all.filter(move |(_, rule)| rule.direction == direction);
    mine.map(move |(at, rule)| Candidate { stored, at, rule, side })
}

/// The groups that replace the peers of a rule if these depend on the subject's namespace.
fn expanded(candidate: Candidate<'_>) -> impl Iterator<Item = (&[GroupId], GroupId)> {
    let mine =
        candidate.stored.state.uses.expanded.iter().filter(move |pair| pair.rule == candidate.at);
    mine.map(|pair| (pair.applied.as_slice(), pair.address))
}

fn has(group: &GroupState, address: IpAddr) -> bool {
    group.members.values().any(|member| member.addresses.contains(&address))
        || group.holds.blocks.iter().any(|block| in_block(block, address))
}

fn is_name(wanted: &NameMatch, name: &str) -> bool {
    match wanted {
        NameMatch::Domain(domain) => is_in_domain(domain, name),
        NameMatch::Pattern(pattern) => matches_pattern(&pattern.0, name),
    }
}

fn rule_id(policy: &Policy, rule: &Rule) -> RuleId {
    let PolicyKey { kind, namespace, name } = policy.key.clone();
    RuleId { kind, namespace, name, index: rule.index }
}

//! An answer from what the index tells, and from nothing else.
//!
//! It is what a node would say that has the policies in their form, a [`Snapshot`] and no object: the snapshot
//! of everything, or the one that is told to one node, whose pods are then the only ones that it judges. What
//! names led to it knows of itself, as a node does.

use crate::naive::{
    Answer, By, Decision, Half, Origin, Packet, RuleId, Says, Segment, State, Way, holds, in_block,
    is_domain, is_like,
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

/// What is told.
#[derive(Clone, Copy)]
pub struct Indexed<'a> {
    /// Groups, where policies stand and what they use, and what is each node's own.
    pub snapshot: &'a Snapshot,
    /// The policies in their form.
    pub policies: &'a BTreeMap<PolicyId, Policy>,
    /// Which names led to which addresses.
    pub names: &'a [(IpAddr, String)],
}

/// One pod's view of a packet.
#[derive(Clone, Copy)]
struct Side<'a> {
    pod: &'a Member,
    way: Way,
    far: IpAddr,
    packet: &'a Packet,
    /// It was led back to itself.
    hairpin: bool,
}

/// A policy and what is told of it.
#[derive(Clone, Copy)]
struct Told<'a> {
    policy: &'a Policy,
    state: &'a PolicyState,
}

/// A rule and what it is seen from.
#[derive(Clone, Copy)]
struct Asked<'a> {
    told: Told<'a>,
    at: usize,
    rule: &'a Rule,
    side: Side<'a>,
}

impl<'a> Indexed<'a> {
    /// What becomes of a packet at the pods that are told of, and why. A pod with its node's network counts
    /// as a process of that node: who sends a packet the node sees.
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
        let side = |pod: &'a Arc<Member>, way, far| Side { pod, way, far, packet, hairpin };
        let out = sender.map(|pod| self.half(side(pod, Way::Out, packet.destination)));
        let into = receiver.map(|pod| self.half(side(pod, Way::In, packet.source)));
        let bad = [&out, &into].into_iter().flatten().find(|half| half.decision != Decision::Allow);
        Answer { decision: bad.map_or(Decision::Allow, |half| half.decision), out, into }
    }

    /// The pods that are told of: those of nodes, and, of all, those that are on none yet.
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
        if side.way == Way::In && from_own_node {
            return Half::allowed(By::Exemption);
        }
        let policies = self.in_order();
        let mut passed: Vec<Walk> = Vec::new();
        let of = |stage| policies.iter().filter(move |(rank, _)| rank.stage() == stage);
        if let Some(half) = self.ordered(of(Stage::Before), side, &mut passed) {
            return half;
        }
        let networks = of(Stage::NetworkPolicies).map(|(_, told)| *told);
        if let Some(half) = self.union(networks, side) {
            return half;
        }
        let baseline = self.ordered(of(Stage::Baseline), side, &mut passed);
        baseline.unwrap_or(Half::allowed(By::Default))
    }

    /// The policies that are told of, first to last.
    fn in_order(&self) -> Vec<(Rank, Told<'a>)> {
        let told = |(id, state): (&PolicyId, &'a PolicyState)| {
            let policy = self.policies.get(id).expect("the form of each policy");
            (Rank::of(policy, state.tier), Told { policy, state })
        };
        let mut all: Vec<_> = self.snapshot.policies.iter().map(told).collect();
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        all
    }

    fn ordered<'b>(
        &self,
        policies: impl Iterator<Item = &'b (Rank, Told<'b>)>,
        side: Side<'_>,
        passed: &mut Vec<Walk>,
    ) -> Option<Half> {
        for (rank, told) in policies {
            if side.hairpin && rank.walk().family == Family::Antrea {
                continue;
            }
            for asked in rules(*told, side) {
                if passed.contains(&rank.walk()) {
                    break;
                }
                let decision = match self.rule(asked) {
                    None => continue,
                    Some(Says::Pass) => {
                        passed.push(rank.walk());
                        continue;
                    }
                    Some(Says::Allow) => Decision::Allow,
                    Some(Says::Drop) => Decision::Drop,
                    Some(Says::Reject) => Decision::Reject,
                };
                let by = By::Rules(BTreeSet::from([rule_id(told.policy, asked.rule)]));
                return Some(Half { decision, by });
            }
        }
        None
    }

    /// What NetworkPolicies say all at once, if any isolates.
    fn union<'b>(&self, policies: impl Iterator<Item = Told<'b>>, side: Side<'_>) -> Option<Half> {
        let mut isolated = false;
        let mut allowing = BTreeSet::new();
        for told in policies {
            let closed = |isolation: &&Isolation| match side.way {
                Way::In => isolation.ingress,
                Way::Out => isolation.egress,
            };
            let isolation = told.policy.isolation.as_ref().filter(closed);
            isolated |= isolation.is_some_and(|of| self.is_about(&of.subject, told.policy, side));
            let allows = rules(told, side).filter(|it| self.rule(*it) == Some(Says::Allow));
            allowing.extend(allows.map(|asked| rule_id(told.policy, asked.rule)));
        }
        let own_node = self.snapshot.nodes.get(&side.pod.node);
        let to_own_node = own_node.is_some_and(|node| node.addresses.contains(&side.far));
        if !isolated || side.hairpin || side.way == Way::Out && to_own_node {
            return None;
        }
        Some(match allowing.is_empty() {
            true => Half { decision: Decision::Drop, by: By::Isolation },
            false => Half::allowed(By::Rules(allowing)),
        })
    }

    fn rule(&self, asked: Asked<'_>) -> Option<Says> {
        let Asked { told, rule, side, .. } = asked;
        if !self.is_about(&rule.subject, told.policy, side) {
            return None;
        }
        match rule.standing {
            Standing::Understood => {}
            Standing::MatchesNothing { .. } => return None,
            Standing::DeniesAll { .. } => return Some(Says::Drop),
        }
        match (rule.action, self.is_doubtful(asked), self.is_unusable(asked)) {
            (Action::Allow, true, _) | (Action::Allow, _, true) => return None,
            (Action::Pass, true, _) | (_, _, true) => return Some(Says::Drop),
            (Action::Allow | Action::Pass, false, false)
            | (Action::Drop | Action::Reject, _, false) => {}
        }
        let matches = self.is_peer(asked) && self.is_traffic(asked);
        matches.then_some(match rule.action {
            Action::Allow => Says::Allow,
            Action::Drop => Says::Drop,
            Action::Reject => Says::Reject,
            Action::Pass => Says::Pass,
        })
    }

    /// Whether a pod is one of these, as the groups know them.
    fn is_about(&self, pods: &[Pods], policy: &Policy, side: Side<'_>) -> bool {
        let ids = pods.iter().filter_map(|pods| GroupId::of_subject(pods, &policy.key.namespace));
        ids.into_iter().any(|id| self.applies(id, side))
    }

    /// Whether one that the rule is about is more pods than were meant.
    fn is_doubtful(&self, asked: Asked<'_>) -> bool {
        let own = &asked.told.policy.key.namespace;
        let mut ids = asked.rule.subject.iter().filter_map(|pods| GroupId::of_subject(pods, own));
        let doubted = &asked.told.state.uses.doubted;
        ids.any(|id| doubted.iter().any(|(group, _)| *group == id))
    }

    /// A group without a pod of a node is not told to it.
    fn applies(&self, id: GroupId, side: Side<'_>) -> bool {
        let group = self.snapshot.groups.get(&(Role::Applied, id));
        group.is_some_and(|group| group.members.contains_key(&side.pod.key()))
    }

    /// Who is told of a policy is told of all with whom.
    fn address(&self, told: Told<'_>, id: GroupId) -> &'a GroupState {
        assert!(
            told.state.uses.address.contains(&id),
            "{} does not say that it uses {id}",
            told.policy.key
        );
        let group = self.snapshot.groups.get(&(Role::Address, id));
        group.unwrap_or_else(|| panic!("{id}, which {} uses, is not told", told.policy.key))
    }

    fn is_unusable(&self, asked: Asked<'_>) -> bool {
        let Peers::Of(peers) = &asked.rule.peers else { return false };
        let mut ids = peers.iter().filter_map(GroupId::of_peer);
        ids.any(|id| self.address(asked.told, id).holds.unusable.is_some())
    }

    fn is_peer(&self, asked: Asked<'_>) -> bool {
        let Peers::Of(peers) = &asked.rule.peers else { return true };
        let Asked { told, side, .. } = asked;
        let depends = expanded(asked).any(|(applied, address)| {
            applied.iter().any(|id| self.applies(*id, side))
                && has(self.address(told, address), side.far)
        });
        let group = |peer: &Peer| GroupId::of_peer(peer).map(|id| self.address(told, id));
        depends
            || peers.iter().any(|peer| match peer {
                Peer::Pods(_) | Peer::Nodes(_) => {
                    group(peer).is_some_and(|group| has(group, side.far))
                }
                Peer::Service(_) => group(peer)
                    .zip(side.packet.service)
                    .is_some_and(|(group, asked)| group.holds.vips.contains(&asked)),
                Peer::Block(block) => in_block(block, side.far),
                Peer::Name(wanted) => {
                    let mut names = self.names.iter().filter(|(of, _)| *of == side.far);
                    side.way == Way::Out && names.any(|(_, name)| is_name(wanted, name))
                }
            })
    }

    fn is_traffic(&self, asked: Asked<'_>) -> bool {
        let Traffic::Of(transports) = &asked.rule.traffic else { return true };
        transports.iter().any(|transport| match (transport, asked.side.packet.segment) {
            (Transport::Ports { protocol, port, source }, Segment::Ports(its, from, to)) => {
                *protocol == its
                    && source.is_none_or(|range| holds(range, from))
                    && port.as_ref().is_none_or(|port| self.is_port(asked, port, its, to))
            }
            (Transport::Named(name), Segment::Ports(its, _, to)) => {
                let first = |ports: &[ContainerPort]| {
                    let first = ports.iter().find(|port| port.name == *name);
                    first.is_some_and(|port| port.protocol == its && port.port == to)
                };
                self.any_receiver(asked, first)
            }
            (Transport::Icmp { kind, code }, Segment::Icmp(its, of)) => {
                kind.is_none_or(|kind| kind == its) && code.is_none_or(|code| code == of)
            }
            (Transport::Ports { .. } | Transport::Named(_) | Transport::Icmp { .. }, _) => false,
        })
    }

    fn is_port(&self, asked: Asked<'_>, port: &TargetPort, protocol: Protocol, to: u16) -> bool {
        match port {
            TargetPort::Numbers(range) => holds(*range, to),
            TargetPort::Named(name) => self.any_receiver(asked, |ports| {
                let mut named = ports.iter().filter(|p| p.name == *name && p.protocol == protocol);
                named.next().is_some_and(|port| port.port == to)
            }),
        }
    }

    /// Whether it holds of the ports of the pod that gets the packet: the pod itself, or who is in the groups
    /// that the policy uses.
    fn any_receiver(&self, asked: Asked<'_>, is: impl Fn(&[ContainerPort]) -> bool) -> bool {
        let Asked { told, side, .. } = asked;
        if side.way == Way::In {
            return is(&side.pod.ports);
        }
        let groups = told.state.uses.address.iter().map(|id| self.address(told, *id));
        let mut receivers = groups.flat_map(|group| group.members.values());
        let to = side.packet.destination;
        receivers.any(|member| {
            !member.namespace.is_empty() && member.addresses.contains(&to) && is(&member.ports)
        })
    }
}

fn rules<'a>(told: Told<'a>, side: Side<'a>) -> impl Iterator<Item = Asked<'a>> {
    let direction = match side.way {
        Way::In => Direction::Ingress,
        Way::Out => Direction::Egress,
    };
    let all = told.policy.rules.iter().enumerate();
    let mine = all.filter(move |(_, rule)| rule.direction == direction);
    mine.map(move |(at, rule)| Asked { told, at, rule, side })
}

/// The groups that stand for a rule whose peers depend on the subject's namespace.
fn expanded(asked: Asked<'_>) -> impl Iterator<Item = (&[GroupId], GroupId)> {
    let mine = asked.told.state.uses.expanded.iter().filter(move |pair| pair.rule == asked.at);
    mine.map(|pair| (pair.applied.as_slice(), pair.address))
}

fn has(group: &GroupState, address: IpAddr) -> bool {
    group.members.values().any(|member| member.addresses.contains(&address))
        || group.holds.blocks.iter().any(|block| in_block(block, address))
}

fn is_name(wanted: &NameMatch, name: &str) -> bool {
    match wanted {
        NameMatch::Domain(domain) => is_domain(domain, name),
        NameMatch::Pattern(pattern) => is_like(&pattern.0, name),
    }
}

fn rule_id(policy: &Policy, rule: &Rule) -> RuleId {
    let PolicyKey { kind, namespace, name } = policy.key.clone();
    RuleId { kind, namespace, name, index: rule.index }
}

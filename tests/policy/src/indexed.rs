//! An answer from what the index knows: groups, their members and spans, beside policies in their one form.
//!
//! Who is in a group is asked of the index alone, as an agent would that has no objects. The order of
//! policies, what is exempt, what names led where and which addresses a Service has is the naive evaluator's.

use crate::naive::{
    By, Decision, Half, Naive, RuleId, Says, Segment, Side, Speaks, Way, holds, in_block,
    is_domain, is_like,
};
use policy_core::{
    Action, Direction, NameMatch, Peer, Peers, Pods, Policy, PolicyKey, Rule, Standing, Traffic,
    Transport,
    index::{Expanded, GroupId, GroupState, Member, PolicyId, Role, Snapshot},
};
use policy_objects::{ContainerPort, Object, Protocol, TargetPort};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

/// What the index knows, beside policies.
pub struct Indexed<'a> {
    /// The groups and policies at one time.
    pub snapshot: &'a Snapshot,
    /// The policies in their form.
    pub policies: &'a BTreeMap<PolicyKey, Policy>,
    /// The groups of rules whose peers depend on the subject's namespace.
    pub expanded: &'a BTreeMap<PolicyKey, Vec<Expanded>>,
    /// Everything else, and nothing of groups.
    pub naive: Naive<'a>,
    /// Only what the node of the pod is told: what has it in its span.
    pub spanned: bool,
}

/// A rule and what it is seen from.
struct Asked<'a> {
    policy: &'a Policy,
    rule: &'a Rule,
    expanded: Vec<&'a Expanded>,
    side: Side<'a>,
}

impl Indexed<'_> {
    /// What becomes of a packet, and why.
    pub fn answer(&self, packet: &crate::naive::Packet) -> crate::naive::Answer {
        self.naive.answer_by(self, packet)
    }

    fn group(&self, role: Role, id: GroupId, side: Side<'_>) -> Option<&GroupState> {
        let group = self.snapshot.groups.get(&(role, id))?;
        self.is_told(&group.span, side).then_some(group)
    }

    /// Whether the node of the pod is told of what spans these; a pod on no node is nobody's yet.
    fn is_told(&self, span: &BTreeSet<String>, side: Side<'_>) -> bool {
        !self.spanned || side.pod.node.is_empty() || span.contains(&side.pod.node)
    }

    /// The policy, if the pod's node is told of it.
    fn policy(&self, key: &PolicyKey, side: Side<'_>) -> Option<&Policy> {
        let policy = self.policies.get(key)?;
        let id = match policy.uid.as_str() {
            "" => PolicyId::Named(key.clone()),
            uid => PolicyId::Uid(uid.to_owned()),
        };
        self.is_told(&self.snapshot.policies.get(&id)?.span, side).then_some(policy)
    }

    /// Whether a pod is one of these, as the index knows them.
    fn is_about(&self, pods: &[Pods], own: &str, side: Side<'_>) -> bool {
        pods.iter()
            .any(|pods| GroupId::of_subject(pods, own).is_some_and(|id| self.applies(id, side)))
    }

    fn applies(&self, id: GroupId, side: Side<'_>) -> bool {
        let meta = &side.pod.meta;
        self.group(Role::Applied, id, side).is_some_and(|group| {
            group.members.values().any(|member| {
                (&member.namespace, &member.name, &member.uid)
                    == (&meta.namespace, &meta.name, &meta.uid)
            })
        })
    }

    fn has(&self, id: GroupId, side: Side<'_>) -> bool {
        self.group(Role::Address, id, side).is_some_and(|group| {
            has(group, side.far) || group.holds.blocks.iter().any(|block| in_block(block, side.far))
        })
    }

    fn rule(&self, asked: &Asked<'_>) -> Option<Says> {
        let Asked { policy, rule, side, .. } = asked;
        if !self.is_about(&rule.subject, &policy.key.namespace, *side) {
            return None;
        }
        match rule.standing {
            Standing::Understood => {}
            Standing::MatchesNothing { .. } => return None,
            Standing::DeniesAll { .. } => return Some(Says::Drop),
        }
        if self.is_unusable(rule, *side) {
            return (rule.action != Action::Allow).then_some(Says::Drop);
        }
        let matches = self.is_peer(asked) && self.is_traffic(asked);
        matches.then_some(match rule.action {
            Action::Allow => Says::Allow,
            Action::Drop => Says::Drop,
            Action::Reject => Says::Reject,
            Action::Pass => Says::Pass,
        })
    }

    fn is_unusable(&self, rule: &Rule, side: Side<'_>) -> bool {
        let Peers::Of(peers) = &rule.peers else { return false };
        peers.iter().filter_map(GroupId::of_peer).any(|id| {
            let group = self.group(Role::Address, id, side);
            group.is_none_or(|group| group.holds.unusable.is_some())
        })
    }

    fn is_peer(&self, asked: &Asked<'_>) -> bool {
        let Peers::Of(peers) = &asked.rule.peers else { return true };
        let side = asked.side;
        let depends = asked.expanded.iter().any(|expanded| {
            expanded.applied.iter().any(|id| self.applies(*id, side))
                && self.has(expanded.address, side)
        });
        depends
            || peers.iter().any(|peer| match peer {
                Peer::Pods(_) | Peer::Nodes(_) => {
                    GroupId::of_peer(peer).is_some_and(|id| self.has(id, side))
                }
                Peer::Block(block) => in_block(block, side.far),
                Peer::Name(name) => {
                    side.way == Way::Out && self.naive.any_name(side.far, |it| is_name(name, it))
                }
                Peer::Service(service) => {
                    side.packet.service.is_some_and(|vip| self.naive.is_service(service, vip))
                }
            })
    }

    fn is_traffic(&self, asked: &Asked<'_>) -> bool {
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

    fn is_port(&self, asked: &Asked<'_>, port: &TargetPort, protocol: Protocol, to: u16) -> bool {
        match port {
            TargetPort::Numbers(range) => holds(*range, to),
            TargetPort::Named(name) => self.any_receiver(asked, |ports| {
                let mut named = ports.iter().filter(|p| p.name == *name && p.protocol == protocol);
                named.next().is_some_and(|port| port.port == to)
            }),
        }
    }

    /// Whether it holds of the ports of the pod that gets the packet, as far as this rule's groups know it.
    fn any_receiver(&self, asked: &Asked<'_>, is: impl Fn(&[ContainerPort]) -> bool) -> bool {
        let Asked { policy, rule, expanded, side } = asked;
        let own = policy.key.namespace.as_str();
        let (role, ids): (Role, Vec<GroupId>) = match side.way {
            Way::In => {
                let ids = rule.subject.iter().filter_map(|pods| GroupId::of_subject(pods, own));
                (Role::Applied, ids.collect())
            }
            Way::Out => {
                let peers = match &rule.peers {
                    Peers::Any => &[][..],
                    Peers::Of(peers) => peers,
                };
                let depending = expanded.iter().map(|expanded| expanded.address);
                let ids = peers.iter().filter_map(GroupId::of_peer).chain(depending);
                (Role::Address, ids.chain([GroupId::of_all_pods()]).collect())
            }
        };
        let to = side.packet.destination;
        let groups = ids.into_iter().filter_map(|id| self.group(role, id, *side));
        let mut receivers = groups.flat_map(|group| group.members.values());
        receivers.any(|member| is_pod(member, to) && is(&member.ports))
    }
}

impl Speaks for Indexed<'_> {
    fn says(&self, policy: &Object, side: Side<'_>) -> Vec<(usize, Option<Says>)> {
        let RuleId { kind, namespace, name, .. } = self.naive.rule_id(policy, 0);
        let key = PolicyKey { kind, namespace, name };
        let Some(policy) = self.policy(&key, side) else { return Vec::new() };
        let rules = self.rules(policy, side);
        rules.map(|asked| (asked.rule.index, self.rule(&asked))).collect()
    }

    fn network(&self, side: Side<'_>) -> Option<Half> {
        let mut isolated = false;
        let mut allowing = BTreeSet::new();
        for key in self.policies.keys() {
            let Some(policy) = self.policy(key, side) else { continue };
            let Some(isolation) = &policy.isolation else { continue };
            let closed = match side.way {
                Way::In => isolation.ingress,
                Way::Out => isolation.egress,
            };
            isolated |= closed && self.is_about(&isolation.subject, &key.namespace, side);
            for asked in self.rules(policy, side) {
                if self.rule(&asked) == Some(Says::Allow) {
                    let PolicyKey { kind, namespace, name } = key.clone();
                    allowing.insert(RuleId { kind, namespace, name, index: asked.rule.index });
                }
            }
        }
        match (isolated, allowing.is_empty()) {
            (false, _) => None,
            (true, true) => Some(Half { decision: Decision::Drop, by: By::Isolation }),
            (true, false) => Some(Half::allowed(By::Rules(allowing))),
        }
    }
}

impl<'a> Indexed<'a> {
    fn rules(&'a self, policy: &'a Policy, side: Side<'a>) -> impl Iterator<Item = Asked<'a>> {
        let direction = match side.way {
            Way::In => Direction::Ingress,
            Way::Out => Direction::Egress,
        };
        let all = self.expanded.get(&policy.key).map(Vec::as_slice).unwrap_or_default();
        let mine = policy.rules.iter().enumerate().filter(move |(_, r)| r.direction == direction);
        mine.map(move |(at, rule)| {
            let expanded = all.iter().filter(|expanded| expanded.rule == at).collect();
            Asked { policy, rule, expanded, side }
        })
    }
}

fn is_pod(member: &Member, address: IpAddr) -> bool {
    !member.namespace.is_empty() && member.addresses.contains(&address)
}

fn has(group: &GroupState, address: IpAddr) -> bool {
    group.members.values().any(|member| member.addresses.contains(&address))
}

fn is_name(wanted: &NameMatch, name: &str) -> bool {
    match wanted {
        NameMatch::Domain(domain) => is_domain(domain, name),
        NameMatch::Pattern(pattern) => is_like(&pattern.0, name),
    }
}

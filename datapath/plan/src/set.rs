//! Policy sets: the rules that apply to a pod in one direction.

use crate::{
    digest::digest,
    peers::{AllPeers, Peer, PeerId, groups_of},
    rules::{Reason, RuleId, RuleName, Verdict},
    subject::Subject,
    traffic::{Board, IntervalTable, TrafficKey},
};
use control_wire::{
    NodeSnapshot,
    model::{Peers, Policy, Rule},
};
use policy_core::{
    Action, Decision, Direction, Family, Stage, Standing, Traffic, Transport, index::GroupId,
};
use policy_objects::{PortRange, Protocol, TargetPort};
use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    ops::Range,
};

/// The rules of a pod in one direction, and whether NetworkPolicies isolate it. Pods with equal sets share tables.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PolicySet {
    rules: Vec<SetRule>,
    is_isolated: bool,
}

/// A rule that applies to a pod; peers and ports that depend on the pod are resolved.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SetRule {
    id: RuleId,
    stage: Stage,
    /// The bit of the walk that a Pass ends.
    walk: u32,
    /// `None` for a Pass.
    decision: Option<Decision>,
    /// `None`: every peer.
    peers: Option<SetPeers>,
    /// `None`: all traffic.
    traffic: Option<Vec<Match>>,
    is_logged: bool,
}

/// One peer or Service is enough. All are sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct SetPeers {
    /// The groups of which members are peers. A new member does not change the set's digest.
    groups: Vec<GroupId>,
    peers: Vec<PeerId>,
    services: Vec<GroupId>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Match {
    Keys {
        first: u32,
        end: u32,
        sources: Option<PortRange>,
    },
    /// The port of a name at the peer; with a protocol, the first port of the name with that protocol.
    Named {
        name: String,
        protocol: Option<Protocol>,
        sources: Option<PortRange>,
        groups: Vec<GroupId>,
        among: Vec<PeerId>,
    },
}

/// The numbers of the rules.
#[derive(Debug, Default)]
pub(crate) struct RuleNames {
    numbers: BTreeMap<RuleName, RuleId>,
    pub(crate) names: Vec<RuleName>,
}

impl RuleNames {
    fn number(&mut self, policy: &Policy, rule: &Rule) -> RuleId {
        let (direction, index) = (rule.direction, rule.index);
        let name = RuleName { policy: policy.uid.clone(), direction, index };
        let next = RuleId(u32::try_from(self.names.len()).unwrap_or(u32::MAX));
        *self.numbers.entry(name).or_insert_with_key(|name| {
            self.names.push(name.clone());
            next
        })
    }
}

/// Rules in the order in which they are tried.
pub(crate) type Ordered<'a> = Vec<(&'a Policy, &'a Rule)>;

/// The rules of a direction. The policies are in the order of their UIDs.
pub(crate) fn ordered<'a>(
    policies: &[&'a Policy],
    direction: Direction,
    subject: &Subject,
) -> Ordered<'a> {
    let mut rules: Ordered<'a> = policies
        .iter()
        .flat_map(|policy| policy.rules.iter().map(move |rule| (*policy, rule)))
        .filter(|(_, rule)| rule.direction == direction && subject.is_in(&rule.applied))
        .collect();
    // The sort keeps the order of a policy's rules.
    rules.sort_by(|(left, of_left), (right, of_right)| {
        // Of Antrea policies with equal tiers and priorities, the position of a rule decides first.
        let key = |policy: &'a Policy, rule: &Rule| {
            let is_antrea = policy.place.family == Family::Antrea;
            let position = if is_antrea { rule.index } else { 0 };
            let of = &policy.key;
            (policy.place, position, of.namespace.as_str(), of.kind, of.name.as_str())
        };
        key(left, of_left).cmp(&key(right, of_right))
    });
    rules
}

/// The inputs of a set's compilation.
pub(crate) struct Resolver<'a> {
    pub(crate) snapshot: &'a NodeSnapshot,
    pub(crate) peers: &'a mut AllPeers,
    pub(crate) names: &'a mut RuleNames,
}

impl Resolver<'_> {
    /// The set of a subject with these rules. The set for hairpins has no NetworkPolicies, and of Antrea's rules only
    /// those that may be about Services.
    pub(crate) fn set(
        &mut self,
        subject: &Subject,
        ordered: &Ordered<'_>,
        is_isolated: bool,
        is_hairpin: bool,
    ) -> PolicySet {
        let mut set = PolicySet { rules: Vec::new(), is_isolated: is_isolated && !is_hairpin };
        for (policy, rule) in ordered {
            let exempt = is_hairpin
                && match policy.place.family {
                    Family::Cluster => false,
                    Family::Antrea => !may_name_services(rule),
                    Family::NetworkPolicy => true,
                };
            if !exempt {
                set.rules.extend(self.rule(policy, rule, subject));
            }
        }
        set
    }

    /// Resolves a rule for a pod. `None`: it matches nothing.
    fn rule(&mut self, policy: &Policy, rule: &Rule, subject: &Subject) -> Option<SetRule> {
        let denies_all = match &rule.standing {
            Standing::Understood => self.is_unusable(rule),
            Standing::MatchesNothing { .. } => return None,
            Standing::DeniesAll { .. } => true,
        };
        let id = self.names.number(policy, rule);
        let place = &policy.place;
        let (stage, walk) = (place.stage, walk(place.stage, place.family, place.number));
        let is_logged = rule.log.is_some();
        let decision = match (denies_all, rule.action) {
            (true, Action::Allow) if rule.standing == Standing::Understood => return None,
            (true, _) => {
                let decision = Some(Decision::Drop);
                return Some(SetRule {
                    id,
                    stage,
                    walk,
                    decision,
                    peers: None,
                    traffic: None,
                    is_logged,
                });
            }
            (false, Action::Allow) => Some(Decision::Allow),
            (false, Action::Drop) => Some(Decision::Drop),
            (false, Action::Reject) => Some(Decision::Reject),
            (false, Action::Pass) => None,
        };
        let peers = self.set_peers(policy, rule, subject);
        let traffic = self.traffic(rule, subject);
        Some(SetRule { id, stage, walk, decision, peers, traffic, is_logged })
    }

    /// True if the members of a peer are not known: Allow matches nothing, everything else denies all.
    fn is_unusable(&self, rule: &Rule) -> bool {
        let Peers::Of(of) = &rule.peers else { return false };
        let groups = of.groups.iter().chain(&of.services);
        // Each node that has a policy has all of its groups; without one the peers are not known.
        let is_unusable = |id: &GroupId| {
            let group = self.snapshot.addresses.get(id);
            group.is_none_or(|group| group.holds.unusable.is_some())
        };
        groups.into_iter().any(is_unusable)
    }

    fn set_peers(&mut self, policy: &Policy, rule: &Rule, subject: &Subject) -> Option<SetPeers> {
        let Peers::Of(of) = &rule.peers else { return None };
        let alike = of.alike.iter().filter(|alike| subject.is_in(&alike.applied));
        let alike: Vec<GroupId> = alike.map(|alike| alike.address).collect();
        let mut peers = Vec::new();
        let mut groups: Vec<GroupId> = of.groups.iter().chain(&alike).copied().collect();
        groups.sort_unstable();
        groups.dedup();
        for group in &groups {
            peers.extend(self.peers.members(*group));
            let blocks = self.snapshot.addresses.get(group).map(|group| &group.holds.blocks);
            for block in blocks.into_iter().flatten() {
                peers.push(self.peers.number(Peer::Block(block.clone())));
            }
        }
        for block in &of.blocks {
            peers.push(self.peers.number(Peer::Block(block.clone())));
        }
        for name in of.names.iter().filter(|_| rule.direction == Direction::Egress) {
            let peer = Peer::Name(policy.uid.clone(), name.clone());
            peers.push(self.peers.number(peer));
        }
        peers.sort_unstable();
        peers.dedup();
        let mut services = of.services.clone();
        services.sort_unstable();
        services.dedup();
        Some(SetPeers { groups, peers, services })
    }

    fn traffic(&self, rule: &Rule, subject: &Subject) -> Option<Vec<Match>> {
        let Traffic::Of(transports) = &rule.traffic else { return None };
        let mut matches = Vec::new();
        for transport in transports {
            match transport {
                Transport::Ports { protocol, port, source } => {
                    let all = PortRange { first: 0, last: u16::MAX };
                    match port {
                        None => {
                            matches.push(Match::keys(TrafficKey::ports(*protocol, all), *source))
                        }
                        Some(TargetPort::Numbers(range)) => {
                            matches
                                .push(Match::keys(TrafficKey::ports(*protocol, *range), *source));
                        }
                        Some(TargetPort::Named(name)) => {
                            matches.extend(self.named(
                                rule,
                                subject,
                                name,
                                Some(*protocol),
                                *source,
                            ));
                        }
                    }
                }
                Transport::Named(name) => {
                    matches.extend(self.named(rule, subject, name, None, None))
                }
                Transport::Icmp { kind, code } => {
                    let ranges = TrafficKey::icmp(*kind, *code).into_iter();
                    matches.extend(ranges.map(|range| Match::keys(range, None)));
                }
            }
        }
        Some(matches)
    }

    /// A named port: of the pod itself for ingress, of the peer for egress. `None` if the pod does not have it.
    fn named(
        &self,
        rule: &Rule,
        subject: &Subject,
        name: &str,
        protocol: Option<Protocol>,
        sources: Option<PortRange>,
    ) -> Option<Match> {
        match rule.direction {
            Direction::Ingress => {
                Some(Match::keys(port_of(&subject.ports, name, protocol)?, sources))
            }
            Direction::Egress => {
                let mut groups: Vec<GroupId> = groups_of(rule).collect();
                groups.sort_unstable();
                groups.dedup();
                let members = groups.iter().flat_map(|group| self.peers.members(*group));
                let mut among: Vec<PeerId> = members.copied().collect();
                among.sort_unstable();
                among.dedup();
                Some(Match::Named { name: name.to_owned(), protocol, sources, groups, among })
            }
        }
    }
}

impl Match {
    fn keys(range: Range<u32>, sources: Option<PortRange>) -> Self {
        Self::Keys { first: range.start, end: range.end, sources }
    }
}

/// The keys of a named port: of the first that has the name, and the protocol if one is given.
fn port_of(
    ports: &[policy_objects::ContainerPort],
    name: &str,
    protocol: Option<Protocol>,
) -> Option<Range<u32>> {
    let mut named = ports.iter().filter(|port| port.name == name);
    let found = named.find(|port| protocol.is_none_or(|protocol| port.protocol == protocol))?;
    let port = PortRange { first: found.port, last: found.port };
    Some(TrafficKey::ports(found.protocol, port))
}

/// True if Services are peers of the rule, or if it is not understood and might have such peers.
fn may_name_services(rule: &Rule) -> bool {
    let names_services = match &rule.peers {
        Peers::Of(of) => !of.services.is_empty(),
        Peers::Any => false,
    };
    let denies_all = matches!(rule.standing, Standing::DeniesAll { .. });
    rule.direction == Direction::Egress && (names_services || denies_all)
}

/// The bit of a walk: before NetworkPolicies one for each family, after them one for each family and tier.
fn walk(stage: Stage, family: Family, number: u8) -> u32 {
    let family = match family {
        Family::Cluster => 0,
        Family::Antrea => 1,
        Family::NetworkPolicy => return 0,
    };
    match stage {
        Stage::Before => 1 << family,
        Stage::NetworkPolicies => 0,
        // Tiers after NetworkPolicies have the numbers 251 to 255.
        Stage::Baseline => 1 << (2 + 2 * u32::from(number.saturating_sub(251)) + family),
    }
}

impl PolicySet {
    /// True if the set decides about no packet, whatever the classes of addresses are.
    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty() && !self.is_isolated
    }

    /// True if some rule has Services as peers.
    pub(crate) fn names_services(&self) -> bool {
        self.rules.iter().filter_map(|rule| rule.peers.as_ref()).any(|of| !of.services.is_empty())
    }

    /// A digest that is the same in every compilation: it has contents instead of numbers.
    pub(crate) fn digest(&self, direction: Direction, all: &AllPeers, names: &RuleNames) -> u64 {
        let mut hasher = DefaultHasher::new();
        (direction == Direction::Ingress, self.is_isolated).hash(&mut hasher);
        for rule in &self.rules {
            names.names.get(rule.id.0 as usize).hash(&mut hasher);
            (rule.stage, rule.walk, rule.decision, rule.is_logged).hash(&mut hasher);
            rule.peers.as_ref().map(|of| of.digest(all)).hash(&mut hasher);
            for one in rule.traffic.as_ref().into_iter().flatten() {
                match one {
                    Match::Keys { first, end, sources } => (first, end, sources).hash(&mut hasher),
                    Match::Named { name, protocol, sources, groups, among: _ } => {
                        (name, protocol, sources, groups).hash(&mut hasher);
                    }
                }
            }
            rule.traffic.is_some().hash(&mut hasher);
        }
        hasher.finish()
    }

    /// The peers that the set asks for, sorted.
    pub(crate) fn relevant(&self) -> Vec<PeerId> {
        let mut relevant = Vec::new();
        for rule in &self.rules {
            relevant.extend(rule.peers.iter().flat_map(|of| &of.peers));
            for named in rule.traffic.iter().flatten() {
                if let Match::Named { among, .. } = named {
                    relevant.extend(among);
                }
            }
        }
        if self.is_isolated || self.rules.iter().any(|rule| rule.stage == Stage::NetworkPolicies) {
            relevant.push(AllPeers::OWN_NODE);
        }
        relevant.sort_unstable();
        relevant.dedup();
        relevant
    }

    /// The table for a class of the other end, given by its peers, and the Services that have the address that was asked
    /// for.
    pub(crate) fn table(
        &self,
        direction: Direction,
        class: &[PeerId],
        services: &[GroupId],
        all: &AllPeers,
    ) -> IntervalTable {
        let is_own_node = direction == Direction::Egress && class.contains(&AllPeers::OWN_NODE);
        let mut board = Board::default();
        for stage in [Stage::Before, Stage::NetworkPolicies, Stage::Baseline] {
            if stage == Stage::NetworkPolicies && is_own_node {
                continue;
            }
            for rule in self.rules.iter().filter(|rule| rule.stage == stage) {
                if rule.is_peer(class, services) {
                    rule.apply(&mut board, class, all);
                }
            }
            if stage == Stage::NetworkPolicies && self.is_isolated {
                board.decide(&TrafficKey::all(), None, 0, Verdict::ISOLATION);
            }
        }
        board.into_table()
    }
}

impl SetPeers {
    fn digest(&self, all: &AllPeers) -> u64 {
        let others = self.peers.iter().filter(|peer| !all.is_member(**peer));
        let mut others: Vec<u64> = others.map(|peer| all.digest(*peer)).collect();
        others.sort_unstable();
        digest(&(&self.groups, others, &self.services))
    }
}

impl SetRule {
    fn is_peer(&self, class: &[PeerId], services: &[GroupId]) -> bool {
        let Some(of) = &self.peers else { return true };
        class.iter().any(|peer| of.peers.binary_search(peer).is_ok())
            || services.iter().any(|service| of.services.binary_search(service).is_ok())
    }

    fn apply(&self, board: &mut Board, class: &[PeerId], all: &AllPeers) {
        let mut apply = |keys: Range<u32>, sources: Option<PortRange>| match self.decision {
            Some(decision) => {
                let reason = Reason::Rule(self.id);
                let verdict = Verdict { decision, reason, is_logged: self.is_logged };
                board.decide(&keys, sources, self.walk, verdict);
            }
            None => board.pass(&keys, sources, self.walk),
        };
        let Some(matches) = &self.traffic else { return apply(TrafficKey::all(), None) };
        for one in matches {
            match one {
                Match::Keys { first, end, sources } => apply(*first..*end, *sources),
                Match::Named { name, protocol, sources, groups: _, among } => {
                    for peer in class.iter().filter(|peer| among.binary_search(peer).is_ok()) {
                        if let Some(keys) = port_of(all.ports(*peer), name, *protocol) {
                            apply(keys, *sources);
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn rule() -> SetRule {
        let peers = SetPeers { groups: vec![GroupId([1; 16])], ..SetPeers::default() };
        SetRule {
            id: RuleId(0),
            stage: Stage::Before,
            walk: 1,
            decision: Some(Decision::Allow),
            peers: Some(peers),
            traffic: Some(vec![Match::keys(5..9, None)]),
            is_logged: false,
        }
    }

    fn named(name: &str, sources: Option<PortRange>, group: u8) -> Match {
        let (name, groups) = (name.to_owned(), vec![GroupId([group; 16])]);
        Match::Named { name, protocol: None, sources, groups, among: Vec::new() }
    }

    #[test]
    fn sets_that_differ_have_distinct_digests() {
        let name = |index| RuleName { policy: "p".to_owned(), direction: Direction::Egress, index };
        let names = RuleNames { numbers: BTreeMap::new(), names: vec![name(0), name(1)] };
        let mut all = AllPeers::new();
        let cidr = "10.0.0.0/8".parse().expect("a range");
        let block = policy_objects::Block { cidr, except: Vec::new() };
        let block = all.number(Peer::Block(block));
        let sources = Some(PortRange { first: 1, last: 2 });
        let peers = |groups: Vec<GroupId>, peers, services| SetRule {
            peers: Some(SetPeers { groups, peers, services }),
            ..rule()
        };
        let traffic = |traffic| SetRule { traffic: Some(vec![traffic]), ..rule() };
        let rules = [
            vec![],
            vec![rule()],
            vec![rule(), rule()],
            vec![SetRule { id: RuleId(1), ..rule() }],
            vec![SetRule { stage: Stage::Baseline, ..rule() }],
            vec![SetRule { walk: 2, ..rule() }],
            vec![SetRule { decision: Some(Decision::Drop), ..rule() }],
            vec![SetRule { decision: None, ..rule() }],
            vec![SetRule { is_logged: true, ..rule() }],
            vec![SetRule { peers: None, ..rule() }],
            vec![SetRule { traffic: None, ..rule() }],
            vec![SetRule { traffic: Some(Vec::new()), ..rule() }],
            vec![peers(vec![], vec![], vec![])],
            vec![peers(vec![GroupId([2; 16])], vec![], vec![])],
            vec![peers(vec![GroupId([1; 16])], vec![AllPeers::OWN_NODE], vec![])],
            vec![peers(vec![GroupId([1; 16])], vec![block], vec![])],
            vec![peers(vec![GroupId([1; 16])], vec![], vec![GroupId([3; 16])])],
            vec![traffic(Match::keys(5..10, None))],
            vec![traffic(Match::keys(5..9, sources))],
            vec![traffic(Match::keys(5..9, Some(PortRange { first: 1, last: 3 })))],
            vec![traffic(named("web", None, 1))],
            vec![traffic(named("api", None, 1))],
            vec![traffic(named("web", sources, 1))],
            vec![traffic(named("web", None, 2))],
        ];
        let mut digests = BTreeSet::new();
        for rules in &rules {
            for is_isolated in [false, true] {
                for direction in [Direction::Ingress, Direction::Egress] {
                    let set = PolicySet { rules: rules.clone(), is_isolated };
                    digests.insert(set.digest(direction, &all, &names));
                }
            }
        }
        assert_eq!(digests.len(), rules.len() * 4);
    }

    #[test]
    fn a_new_member_of_a_group_does_not_change_a_set() {
        let mut all = AllPeers::new();
        let names = RuleNames::default();
        let mut set = PolicySet { rules: vec![rule()], is_isolated: true };
        let before = set.digest(Direction::Egress, &all, &names);
        let member = all.number(Peer::Member(GroupId([1; 16]), Vec::new()));
        if let Some(SetRule { peers: Some(of), .. }) = set.rules.first_mut() {
            of.peers.push(member);
        }
        assert_eq!(set.digest(Direction::Egress, &all, &names), before);
    }
}

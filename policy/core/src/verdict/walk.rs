//! The walk through the one order.

use super::{
    Decision, Earlier, Exemption, Half, Reason, RuleName, Unasked, Verdict, WhyNot, Wider,
    matching::{Matched, matches},
};
use crate::{
    Action, Direction, Family, Origin, Packet, Policy, Rule, State, World,
    world::{Stage, Walk, is_known, named},
};
use policy_objects::Pod;
use std::net::IpAddr;

pub(super) fn verdict(world: &World, packet: &Packet, explains: bool) -> Verdict {
    let packet = Packet {
        source: packet.source.to_canonical(),
        destination: packet.destination.to_canonical(),
        service: packet.service.map(|address| address.to_canonical()),
        ..packet.clone()
    };
    let scene = Scene { explains, ..Scene::of(world, &packet) };
    let half = |pod, direction| End::of(&scene, pod, direction).half();
    let egress = scene.sender.map(|pod| half(pod, Direction::Egress));
    let ingress = scene.receiver.map(|pod| half(pod, Direction::Ingress));
    let decisions = [&egress, &ingress].into_iter().flatten().map(|half| half.decision);
    let decision = decisions.into_iter().find(|decision| *decision != Decision::Allow);
    Verdict { decision: decision.unwrap_or(Decision::Allow), egress, ingress }
}

/// The packet and who is at its ends.
pub(super) struct Scene<'a> {
    pub(super) world: &'a World,
    pub(super) packet: &'a Packet,
    /// The pod that made it, if policy knows it.
    sender: Option<&'a Pod>,
    /// The node that made it.
    node: Option<&'a str>,
    /// The pod that has the destination.
    pub(super) receiver: Option<&'a Pod>,
    /// Whether it is to be said why a rule did not decide.
    pub(super) explains: bool,
}

/// One end of a packet, where a pod's policies judge it.
pub(super) struct End<'a> {
    pub(super) scene: &'a Scene<'a>,
    pub(super) pod: &'a Pod,
    pub(super) direction: Direction,
    /// Why NetworkPolicies do not judge it.
    exempt: Option<Exemption>,
}

/// What the walk has seen so far.
#[derive(Default)]
struct Trail<'a> {
    earlier: Vec<Earlier>,
    passes: Vec<(Walk, &'a Policy, &'a Rule)>,
    wider: Vec<Wider>,
    unasked: Option<Unasked>,
}

impl Wider {
    fn of(policy: &Policy, doubt: Option<&String>) -> Option<Self> {
        Some(Self { policy: policy.key.clone(), why: doubt?.clone() })
    }
}

impl<'a> Scene<'a> {
    fn of(world: &'a World, packet: &'a Packet) -> Self {
        let (sender, node) = match &packet.origin {
            Origin::Pod(name) => match world.pod(name) {
                Some(pod) if pod.host_network => (None, Some(pod.node.as_str())),
                pod => (pod.filter(|pod| is_known(pod)), None),
            },
            Origin::Node(name) => (None, Some(name.as_str())),
            Origin::Forwarded => (None, None),
        };
        Self {
            world,
            packet,
            sender,
            node,
            // What goes to a loopback address never leaves the pod.
            receiver: sender
                .filter(|_| packet.destination.is_loopback())
                .or_else(|| world.owner(packet.destination)),
            explains: true,
        }
    }

    fn is_to_node(&self, name: &str) -> bool {
        let has = |address: &IpAddr| address.to_canonical() == self.packet.destination;
        self.world.node(name).is_some_and(|node| node.addresses.iter().any(has))
    }

    fn is_to_itself(&self) -> bool {
        let both = self.sender.zip(self.receiver);
        both.is_some_and(|(Pod { meta: sender, .. }, Pod { meta: receiver, .. })| {
            sender.namespace == receiver.namespace && sender.name == receiver.name
        })
    }
}

impl<'a> End<'a> {
    fn of(scene: &'a Scene<'a>, pod: &'a Pod, direction: Direction) -> Self {
        let to_own_node = direction == Direction::Egress && scene.is_to_node(&pod.node);
        let exempt = match scene.is_to_itself() {
            true => Some(Exemption::Hairpin),
            false => to_own_node.then_some(Exemption::ToOwnNode),
        };
        Self { scene, pod, direction, exempt }
    }

    /// The address of the other end, which peers are about.
    pub(super) fn other(&self) -> IpAddr {
        match self.direction {
            Direction::Ingress => self.scene.packet.source,
            Direction::Egress => self.scene.packet.destination,
        }
    }

    fn half(&self) -> Half {
        let mut trail = Trail::default();
        let (decision, reason) = match self.exempt_from_all() {
            Some(exemption) => (Decision::Allow, Reason::Exemption { exemption }),
            None => self.walk(&mut trail),
        };
        let Trail { earlier, wider, unasked, .. } = trail;
        let (direction, pod) = (self.direction, named(&self.pod.meta));
        Half { direction, pod, decision, reason, wider, unasked, earlier }
    }

    fn walk(&self, trail: &mut Trail<'a>) -> (Decision, Reason) {
        for stage in [Stage::Before, Stage::NetworkPolicies, Stage::Baseline] {
            for (walk, policy) in self.scene.world.ranked(stage) {
                let mine = policy.rules.iter().filter(|rule| rule.direction == self.direction);
                for rule in mine {
                    if let Some(decided) = self.ask(walk, policy, rule, trail) {
                        return decided;
                    }
                }
            }
            if stage == Stage::NetworkPolicies
                && let Some(decided) = self.isolated(trail)
            {
                return decided;
            }
        }
        (Decision::Allow, Reason::Default)
    }

    /// What a rule decides; if nothing, the trail says why.
    fn ask(
        &self,
        walk: Walk,
        policy: &'a Policy,
        rule: &'a Rule,
        trail: &mut Trail<'a>,
    ) -> Option<(Decision, Reason)> {
        let name = || RuleName::of(policy, rule);
        let tried = self.try_rule(walk, policy, rule, trail);
        if tried.is_ok() {
            let now = || self.scene.world.subject_doubt(&rule.subject);
            let doubt = rule.doubt.clone().or_else(now);
            trail.wider = Wider::of(policy, doubt.as_ref()).into_iter().collect();
        }
        let why = match tried {
            Ok(Matched::Rule) => match rule.action {
                Action::Allow => return Some((Decision::Allow, Reason::Rule { rule: name() })),
                Action::Drop => return Some((Decision::Drop, Reason::Rule { rule: name() })),
                Action::Reject => return Some((Decision::Reject, Reason::Rule { rule: name() })),
                Action::Pass => {
                    trail.passes.push((walk, policy, rule));
                    WhyNot::PassesOn
                }
            },
            Ok(Matched::DeniesAll { why }) => {
                return Some((Decision::Drop, Reason::NotUnderstood { rule: name(), why }));
            }
            Err(why) => why,
        };
        if self.scene.explains {
            trail.earlier.push(Earlier { rule: name(), why });
        }
        None
    }

    fn try_rule(
        &self,
        walk: Walk,
        policy: &Policy,
        rule: &Rule,
        trail: &Trail<'_>,
    ) -> Result<Matched, WhyNot> {
        if let Some(exemption) = self.exempt_from(walk.family) {
            return Err(WhyNot::Exempt { exemption });
        }
        if let Some((_, policy, rule)) = trail.passes.iter().find(|(passed, ..)| *passed == walk) {
            return Err(WhyNot::Skipped { by: RuleName::of(policy, rule) });
        }
        matches(self, policy, rule)
    }

    /// What NetworkPolicies decide of what none of their rules allows. Of what is exempt from them
    /// nothing: the baselines judge it, or a policy that allows nothing would let more pass than none.
    fn isolated(&self, trail: &mut Trail<'a>) -> Option<(Decision, Reason)> {
        let world = self.scene.world;
        let isolates = |policy: &&Policy| world.isolates(policy, self.pod, self.direction);
        let all = world.ranked(Stage::NetworkPolicies).map(|(_, policy)| policy);
        let isolating: Vec<&Policy> = all.filter(isolates).collect();
        if isolating.is_empty() {
            return None;
        }
        let policies = isolating.iter().map(|policy| policy.key.clone()).collect();
        if let Some(exemption) = self.exempt_from(Family::NetworkPolicy) {
            trail.unasked = Some(Unasked { exemption, policies });
            return None;
        }
        let wider = |policy: &&Policy| Wider::of(policy, policy.isolation.as_ref()?.doubt.as_ref());
        trail.wider = isolating.iter().filter_map(wider).collect();
        Some((Decision::Drop, Reason::Isolation { policies }))
    }

    fn exempt_from_all(&self) -> Option<Exemption> {
        let Packet { state, service, destination, .. } = self.scene.packet;
        let own_node = |node| self.direction == Direction::Ingress && self.pod.node == node;
        match state {
            State::Reply | State::Related => Some(Exemption::FollowsItsFlow),
            State::New | State::Established => {
                if self.scene.node.filter(|node| !node.is_empty()).is_some_and(own_node) {
                    Some(Exemption::FromOwnNode)
                } else if self.scene.is_to_itself()
                    && (service.is_none() || destination.is_loopback())
                {
                    Some(Exemption::OwnAddress)
                } else {
                    None
                }
            }
        }
    }

    fn exempt_from(&self, family: Family) -> Option<Exemption> {
        match family {
            Family::Cluster => None,
            Family::Antrea => self.exempt.filter(|exemption| *exemption == Exemption::Hairpin),
            Family::NetworkPolicy => self.exempt,
        }
    }
}

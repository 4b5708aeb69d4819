//! The walk through the one order.

use super::{
    Decision, Earlier, Exemption, Half, Reason, RuleName, Unasked, Verdict, WhyNot, Wider,
    end::{End, Scene},
    matching::{Matched, matches},
};
use crate::{
    Action, Direction, Family, Packet, Policy, Rule, State, World,
    world::{Stage, Walk, named},
};

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

/// Results of the walk so far.
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

impl<'a> End<'a> {
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
            for (walk, policy, rule) in self.scene.world.ranked_rules(stage, self.direction) {
                if let Some(decided) = self.ask(walk, policy, rule, trail) {
                    return decided;
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

    /// Decision of a rule. If the rule does not decide, the trail gets the reason.
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
        let is_asked = walk.family == Family::Antrea && rule.judges_hairpins();
        if let Some(exemption) = self.exempt_from(walk.family).filter(|_| !is_asked) {
            return Err(WhyNot::Exempt { exemption });
        }
        if let Some((_, policy, rule)) = trail.passes.iter().find(|(passed, ..)| *passed == walk) {
            return Err(WhyNot::Skipped { by: RuleName::of(policy, rule) });
        }
        matches(self, policy, rule)
    }

    /// Decision of NetworkPolicies if none of their rules allows the packet. They do not decide about an exempt
    /// packet: the baselines judge it. Otherwise a policy that allows nothing would let more pass than no policy.
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

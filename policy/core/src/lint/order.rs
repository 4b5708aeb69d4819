//! Ties, and rules that never decide.

use super::{Check, Finding, ObjectName, cover, field};
use crate::{
    Action, Direction, Family, Policy, Rule, Standing, World,
    world::{Stage, Walk},
};
use policy_objects::{Kind, Read, Severity};
use std::collections::BTreeMap;

pub(super) fn look(world: &World, findings: &mut Vec<Finding>) {
    ties(world, findings);
    tiers(world, findings);
    shadows(world, findings);
}

/// Policies of one priority in one place that could decide otherwise in another order.
fn ties(world: &World, findings: &mut Vec<Finding>) {
    let mut rules_in_order: BTreeMap<_, Vec<&Policy>> = BTreeMap::new();
    for stage in [Stage::Before, Stage::Baseline] {
        for (walk, policy) in world.ranked(stage) {
            let place = (walk, world.tier_number(policy), policy.place.priority);
            rules_in_order.entry(place).or_default().push(policy);
        }
    }
    for ((walk, _, priority), policies) in rules_in_order {
        let order = match walk.family {
            Family::Antrea => "rules are tried by their positions in the lists, then by that order",
            Family::Cluster | Family::NetworkPolicy => "it is asked first",
        };
        for (index, policy) in policies.iter().enumerate() {
            let Some(rival) = policies[..index].iter().find(|rival| differ(rival, policy)) else {
                continue;
            };
            let text = format!(
                "{} has the priority {} in the same tier; here {order}, other \
                 implementations may choose otherwise: give them different priorities",
                rival.key, priority
            );
            let finding = Finding::of(policy, Severity::Warning, Check::Tie, text);
            findings.push(Finding { field: "spec.priority".to_owned(), ..finding });
        }
    }
}

/// True if rules of one direction have different actions for pods that both may be about.
fn differ(one: &Policy, other: &Policy) -> bool {
    one.rules.iter().any(|mine| {
        let against = |rule: &&Rule| {
            rule.direction == mine.direction
                && rule.action != mine.action
                && !cover::apart(&rule.subject, &mine.subject)
        };
        other.rules.iter().any(|rule| against(&rule))
    })
}

/// Tiers of one number, and numbers that others have.
fn tiers(world: &World, findings: &mut Vec<Finding>) {
    let mut seen: BTreeMap<u8, String> = BTreeMap::new();
    for tier in world.tiers() {
        let Read::Known(number) = tier.priority else { continue };
        let name = &tier.meta.name;
        let mut say = |text: String| {
            findings.push(Finding {
                severity: Severity::Warning,
                check: Check::Tie,
                object: ObjectName::new(Kind::AntreaTier, &tier.meta),
                field: "spec.priority".to_owned(),
                text,
            });
        };
        if let Some(rival) = seen.get(&number) {
            say(format!(
                "Tier {rival} has the number {number} too, so their policies are in one order by \
                 priority: give it another number"
            ));
        }
        match number {
            220 => say("ClusterNetworkPolicies of the Admin tier have this number and are asked \
                 first: choose one below or above it"
                .to_owned()),
            251.. if name != "baseline" => {
                say(format!(
                    "{number} is after NetworkPolicies, so its policies are asked only where none \
                     isolates the pod: choose a number below 250"
                ));
            }
            _ => {}
        }
        seen.insert(number, name.clone());
    }
}

/// A rule with its stage and walk.
struct OrderedRule<'a> {
    stage: Stage,
    walk: Walk,
    policy: &'a Policy,
    rule: &'a Rule,
    /// An earlier rule of the same walk is a Pass.
    passed: bool,
}

fn shadows(world: &World, findings: &mut Vec<Finding>) {
    for direction in [Direction::Ingress, Direction::Egress] {
        let rules_in_order = rules_in_order(world, direction);
        let mut before: Vec<&OrderedRule<'_>> = Vec::new();
        for late in &rules_in_order {
            if let Some(early) = before.iter().find(|early| hides(world, early, late)) {
                let text = format!(
                    "it never decides: {} {} ({}) is before it and matches all that it does; \
                     delete it or put it before that",
                    early.policy.key,
                    field(early.rule),
                    early.rule.action,
                );
                findings.push(Finding::of_rule(late.policy, late.rule, Check::Shadowed, text));
            }
            // NetworkPolicies are a union, in which nothing is before anything.
            if late.stage != Stage::NetworkPolicies {
                before.push(late);
            }
        }
    }
}

fn rules_in_order(world: &World, direction: Direction) -> Vec<OrderedRule<'_>> {
    let mut rules_in_order: Vec<OrderedRule<'_>> = Vec::new();
    let mut passes: Vec<Walk> = Vec::new();
    for stage in [Stage::Before, Stage::NetworkPolicies, Stage::Baseline] {
        for (walk, policy, rule) in world.ranked_rules(stage, direction) {
            let passed = passes.contains(&walk);
            rules_in_order.push(OrderedRule { stage, walk, policy, rule, passed });
            if rule.action == Action::Pass {
                passes.push(walk);
            }
        }
    }
    rules_in_order
}

/// True if a rule never decides because another is before it. Each packet that reaches the later rule has reached the
/// earlier one, which matches all of it and passes none.
fn hides(world: &World, early: &OrderedRule<'_>, late: &OrderedRule<'_>) -> bool {
    if late.rule.subject.is_empty() || late.rule.standing != Standing::Understood {
        return false;
    }
    // A hairpin reaches the later rule past Antrea's rules that do not judge it.
    if judges_hairpins(late) && !judges_hairpins(early) {
        return false;
    }
    let one_walk = early.stage == late.stage && early.walk == late.walk;
    let ends = match early.rule.action {
        Action::Pass => one_walk,
        Action::Allow | Action::Drop | Action::Reject => {
            // Another family is asked of what this one passed on, and of what is exempt from it.
            let family = [Family::Cluster, late.walk.family].contains(&early.walk.family);
            one_walk || (family && !early.passed)
        }
    };
    ends && covers(world, early.rule, late.rule)
}

/// True if the rule judges packets that a Service leads back to their sender.
fn judges_hairpins(ordered: &OrderedRule<'_>) -> bool {
    match ordered.walk.family {
        Family::Cluster => true,
        Family::Antrea => ordered.rule.judges_hairpins(),
        Family::NetworkPolicy => false,
    }
}

fn covers(world: &World, early: &Rule, late: &Rule) -> bool {
    let denies_all = match (&early.standing, early.action) {
        (Standing::MatchesNothing { .. }, _) => return false,
        (Standing::Understood, Action::Allow) if !is_understood(world, early) => return false,
        (Standing::Understood, Action::Pass) => !is_understood(world, early),
        (Standing::Understood, _) => world.peer_doubt(&early.peers).is_some(),
        (Standing::DeniesAll { .. }, _) => true,
    };
    cover::subjects(&early.subject, &late.subject)
        && (denies_all
            || (cover::peers(&early.peers, &late.peers)
                && cover::traffic(&early.traffic, &late.traffic)
                && is_understood(world, late)))
}

/// True if all objects that the rule names are understood, with the current objects.
fn is_understood(world: &World, rule: &Rule) -> bool {
    world.peer_doubt(&rule.peers).is_none() && world.subject_doubt(&rule.subject).is_none()
}

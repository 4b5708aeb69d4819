//! Passes that do less than their author may think.

use super::{Check, Finding, cover};
use crate::{Action, Family, Policy, Rule, World, world::Stage};

pub(super) fn look(world: &World, findings: &mut Vec<Finding>) {
    let before: Vec<_> = world.ranked(Stage::Before).collect();
    for (index, (walk, policy)) in before.iter().enumerate() {
        for rule in passing(policy) {
            let later = before[index + 1..].iter().filter(|(other, _)| other.family != walk.family);
            let speaks = |policy: &&Policy| speaks(policy, rule);
            let others: Vec<&Policy> = later.map(|(_, policy)| *policy).filter(speaks).collect();
            let Some(first) = others.first() else { continue };
            let text = text(walk.family, first, others.len() - 1);
            findings.push(Finding::of_rule(policy, rule, Check::Pass, text));
        }
    }
    for (walk, policy) in world.ranked(Stage::Baseline) {
        for rule in passing(policy).filter(|_| walk.family == Family::Antrea) {
            let text = "Antrea refuses a Pass in its baseline; here it leads past the rest of this \
                        tier: write Allow, or delete it";
            findings.push(Finding::of_rule(policy, rule, Check::Pass, text.to_owned()));
        }
    }
}

fn passing(policy: &Policy) -> impl Iterator<Item = &Rule> {
    policy.rules.iter().filter(|rule| rule.action == Action::Pass)
}

/// True if a policy could decide about traffic that a Pass lets continue.
fn speaks(policy: &Policy, pass: &Rule) -> bool {
    let same = |rule: &&Rule| {
        rule.direction == pass.direction && !cover::apart(&rule.subject, &pass.subject)
    };
    policy.rules.iter().filter(same).any(|rule| rule.action != Action::Pass)
}

fn text(family: Family, first: &Policy, more: usize) -> String {
    let (whose, differs) = match family {
        Family::Antrea => ("Antrea's policies", "in Antrea it skips ClusterNetworkPolicies too"),
        Family::Cluster | Family::NetworkPolicy => {
            ("ClusterNetworkPolicies", "in Antrea it skips Antrea's tiers up to 250 too")
        }
    };
    let more = match more {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "this Pass skips {whose} only, and {}{more} may still decide; {differs}: if that is intended, \
         add a rule there",
        first.key
    )
}

//! The one order of policies.

use crate::{Direction, Family, Policy, PolicyKey, Priority, Rule, Tier};
use policy_objects::{Kind, Read};

/// Position of a policy among all policies: the lowest rank is evaluated first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    stage: Stage,
    number: u8,
    family: Family,
    priority: Priority,
    namespace: String,
    kind: Kind,
    name: String,
}

/// Before, among or after NetworkPolicies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// A Pass ends the family's walk here.
    Before,
    NetworkPolicies,
    Baseline,
}

/// Rules that a Pass ends: those of a family before NetworkPolicies, or of a tier after them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Walk {
    pub family: Family,
    /// After NetworkPolicies, the tier's number.
    tier: Option<u8>,
}

impl Rank {
    /// Of a policy whose tier has this number: with its form that is all.
    pub fn of(policy: &Policy, tier: u8) -> Self {
        let PolicyKey { kind, namespace, name } = policy.key.clone();
        let (stage, family) = match &policy.place.tier {
            Tier::Admin => (Stage::Before, Family::Cluster),
            Tier::NetworkPolicy => (Stage::NetworkPolicies, Family::NetworkPolicy),
            Tier::Baseline => (Stage::Baseline, Family::Cluster),
            Tier::Antrea(_) if tier <= LAST_BEFORE => (Stage::Before, Family::Antrea),
            Tier::Antrea(_) => (Stage::Baseline, Family::Antrea),
        };
        let (number, priority) = (tier, policy.place.priority);
        Self { stage, number, family, priority, namespace, kind, name }
    }

    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// True if the rules of the two policies are tried by their positions first: Antrea's, with equal tiers and
    /// priorities.
    fn shares_order(&self, other: &Self) -> bool {
        let place = |rank: &Self| (rank.stage, rank.number, rank.family, rank.priority);
        self.family == Family::Antrea && place(self) == place(other)
    }

    /// Rules that a Pass of this rank ends.
    pub fn walk(&self) -> Walk {
        let tier = (self.stage == Stage::Baseline).then_some(self.number);
        Walk { family: self.family, tier }
    }
}

impl super::World {
    /// The number of a policy's tier in the one order; none for NetworkPolicies.
    pub fn tier_number(&self, policy: &Policy) -> Option<u8> {
        match policy.place.tier {
            Tier::NetworkPolicy => None,
            Tier::Admin | Tier::Baseline | Tier::Antrea(_) => Some(self.number(policy)),
        }
    }

    /// True if an Antrea tier exists: as a Tier, or as one of those that Antrea creates itself.
    pub fn has_tier(&self, name: &str) -> bool {
        lookup(name, |name| self.number_of_tier(name)).is_some()
    }

    /// The rules of a stage and direction in the order in which they are tried: policy by policy. Of Antrea policies
    /// with equal tiers and priorities, a rule's position in its list decides before the order of the policies.
    pub(crate) fn ranked_rules(
        &self,
        stage: Stage,
        direction: Direction,
    ) -> impl Iterator<Item = (Walk, &Policy, &Rule)> {
        let policies: Vec<(&Rank, &Policy)> =
            self.order.iter().filter(|(rank, _)| rank.stage == stage).collect();
        let mut rules = Vec::new();
        for tied in policies.chunk_by(|(one, _), (other, _)| one.shares_order(other)) {
            let from = rules.len();
            for (rank, policy) in tied {
                let own = policy.rules.iter().filter(|rule| rule.direction == direction);
                rules.extend(own.map(|rule| (rank.walk(), *policy, rule)));
            }
            if tied.len() > 1 {
                rules[from..].sort_by_key(|(_, _, rule)| rule.index);
            }
        }
        rules.into_iter()
    }

    /// Rank of a policy by its key; `None` if the policy does not exist.
    pub fn rank(&self, key: &PolicyKey) -> Option<&Rank> {
        self.policies.get(key)
    }

    pub(crate) fn number(&self, policy: &Policy) -> u8 {
        tier_number(&policy.place.tier, |name| self.number_of_tier(name))
    }

    fn number_of_tier(&self, name: &str) -> Option<Option<u8>> {
        self.tiers.get(name).map(|tier| number_of(&tier.priority))
    }
}

/// Number of a Tier; `None` if it is not understood.
pub(crate) fn number_of(priority: &Read<u8>) -> Option<u8> {
    priority.known().copied()
}

/// A tier's number; NetworkPolicies have that of the last tier before them. `number_of_tier` returns the number in the Tier
/// of a name, if the Tier exists.
pub(crate) fn tier_number(tier: &Tier, number_of_tier: impl Fn(&str) -> Option<Option<u8>>) -> u8 {
    match tier {
        Tier::Admin => ADMIN,
        Tier::NetworkPolicy => LAST_BEFORE,
        Tier::Baseline => BASELINE,
        Tier::Antrea(name) => antrea_number(name, number_of_tier),
    }
}

/// Number of an Antrea tier: a missing one counts as `application`.
pub(crate) fn antrea_number(name: &str, number_of_tier: impl Fn(&str) -> Option<Option<u8>>) -> u8 {
    let number = lookup(name, &number_of_tier).or_else(|| lookup(APPLICATION, &number_of_tier));
    number.unwrap_or(LAST_BEFORE)
}

/// Number in its Tier or, if there is none, the number that Antrea assigns.
pub(crate) fn lookup(
    name: &str,
    number_of_tier: impl Fn(&str) -> Option<Option<u8>>,
) -> Option<u8> {
    if let Some(number) = number_of_tier(name) {
        return number;
    }
    DEFAULTS.iter().find(|(default, _)| *default == name).map(|(_, number)| *number)
}

const ADMIN: u8 = 220;
const BASELINE: u8 = 254;
/// The last tier before NetworkPolicies.
const LAST_BEFORE: u8 = 250;
/// Replacement for a missing tier.
pub(crate) const APPLICATION: &str = "application";
/// The tiers that Antrea's controller makes.
const DEFAULTS: [(&str, u8); 6] = [
    ("emergency", 50),
    ("securityops", 100),
    ("networkops", 150),
    ("platform", 200),
    (APPLICATION, 250),
    ("baseline", 253),
];

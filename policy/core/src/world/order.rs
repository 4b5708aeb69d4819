//! The one order of policies.

use crate::{Family, Policy, PolicyKey, Priority, Tier};
use policy_objects::{Kind, Read};

/// Where a policy stands among all: the lesser is asked first.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// A Pass ends the family's walk here.
    Before,
    NetworkPolicies,
    Baseline,
}

/// Which rules a Pass ends: those of a family before NetworkPolicies, or of a tier after them.
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

    /// Which rules a Pass of it ends.
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

    /// Whether an Antrea tier is there: as a Tier, or as one of those that Antrea makes itself.
    pub fn has_tier(&self, name: &str) -> bool {
        lookup(name, |name| self.said(name)).is_some()
    }

    /// Where a policy of a name stands.
    pub fn rank(&self, key: &PolicyKey) -> Option<&Rank> {
        self.policies.get(key)
    }

    pub(crate) fn number(&self, policy: &Policy) -> u8 {
        tier_number(&policy.place.tier, |name| self.said(name))
    }

    fn said(&self, name: &str) -> Option<Option<u8>> {
        self.tiers.get(name).map(|tier| number_of(&tier.priority))
    }
}

/// What a Tier says; nothing if that is not understood.
pub(crate) fn number_of(priority: &Read<u8>) -> Option<u8> {
    priority.known().copied()
}

/// A tier's number; NetworkPolicies have that of the last tier before them. `said` is what the Tier of a
/// name says, if there is one.
pub(crate) fn tier_number(tier: &Tier, said: impl Fn(&str) -> Option<Option<u8>>) -> u8 {
    match tier {
        Tier::Admin => ADMIN,
        Tier::NetworkPolicy => LAST_BEFORE,
        Tier::Baseline => BASELINE,
        Tier::Antrea(name) => antrea_number(name, said),
    }
}

/// That of one of Antrea's: one that is missing counts as `application`.
pub(crate) fn antrea_number(name: &str, said: impl Fn(&str) -> Option<Option<u8>>) -> u8 {
    let number = lookup(name, &said).or_else(|| lookup(APPLICATION, &said));
    number.unwrap_or(LAST_BEFORE)
}

/// As its Tier says, or, where there is none, as Antrea makes it.
pub(crate) fn lookup(name: &str, said: impl Fn(&str) -> Option<Option<u8>>) -> Option<u8> {
    if let Some(number) = said(name) {
        return number;
    }
    DEFAULTS.iter().find(|(default, _)| *default == name).map(|(_, number)| *number)
}

const ADMIN: u8 = 220;
const BASELINE: u8 = 254;
/// The last tier before NetworkPolicies.
const LAST_BEFORE: u8 = 250;
/// What a tier that is missing counts as.
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

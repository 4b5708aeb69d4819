//! The one order of policies.

use crate::{Family, Place, Policy, PolicyKey, Priority, Tier};
use policy_objects::Kind;
use std::collections::BTreeMap;

/// Where a policy stands among all.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
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
pub(crate) enum Stage {
    /// A Pass ends the family's walk here.
    Before,
    /// A union without order.
    NetworkPolicies,
    /// Where no NetworkPolicy isolates.
    Baseline,
}

/// Which rules a Pass ends: those of a family before NetworkPolicies, or of a tier after them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Walk {
    pub(crate) family: Family,
    /// After NetworkPolicies, the tier's number.
    tier: Option<u8>,
}

impl Rank {
    pub(super) fn of(policy: &Policy, tiers: &BTreeMap<String, policy_objects::Tier>) -> Self {
        let PolicyKey { kind, namespace, name } = policy.key.clone();
        let (stage, number, family) = place(&policy.place, tiers);
        Self { stage, number, family, priority: policy.place.priority, namespace, kind, name }
    }

    pub(super) fn stage(&self) -> Stage {
        self.stage
    }

    pub(super) fn walk(&self) -> Walk {
        let tier = (self.stage == Stage::Baseline).then_some(self.number);
        Walk { family: self.family, tier }
    }
}

impl super::World {
    /// The number of a policy's tier in the one order; none for NetworkPolicies.
    pub fn tier_number(&self, policy: &Policy) -> Option<u8> {
        match policy.place.tier {
            Tier::NetworkPolicy => None,
            Tier::Admin | Tier::Baseline | Tier::Antrea(_) => {
                Some(place(&policy.place, &self.tiers).1)
            }
        }
    }

    /// Whether an Antrea tier is there: as a Tier, or as one of those that Antrea makes itself.
    pub fn has_tier(&self, name: &str) -> bool {
        lookup(name, &self.tiers).is_some()
    }
}

fn place(place: &Place, tiers: &BTreeMap<String, policy_objects::Tier>) -> (Stage, u8, Family) {
    match &place.tier {
        Tier::Admin => (Stage::Before, ADMIN, Family::Cluster),
        Tier::NetworkPolicy => (Stage::NetworkPolicies, LAST_BEFORE, Family::NetworkPolicy),
        Tier::Baseline => (Stage::Baseline, BASELINE, Family::Cluster),
        Tier::Antrea(name) => {
            let number = lookup(name, tiers).or_else(|| lookup(APPLICATION, tiers));
            let number = number.unwrap_or(LAST_BEFORE);
            let stage = if number <= LAST_BEFORE { Stage::Before } else { Stage::Baseline };
            (stage, number, Family::Antrea)
        }
    }
}

/// A tier's number as its Tier says, or, where there is none, as Antrea makes it.
fn lookup(name: &str, tiers: &BTreeMap<String, policy_objects::Tier>) -> Option<u8> {
    if let Some(tier) = tiers.get(name) {
        return tier.priority.known().copied();
    }
    DEFAULTS.iter().find(|(default, _)| *default == name).map(|(_, number)| *number)
}

const ADMIN: u8 = 220;
const BASELINE: u8 = 254;
/// The last tier before NetworkPolicies.
const LAST_BEFORE: u8 = 250;
const APPLICATION: &str = "application";
/// The tiers that Antrea's controller makes.
const DEFAULTS: [(&str, u8); 6] = [
    ("emergency", 50),
    ("securityops", 100),
    ("networkops", 150),
    ("platform", 200),
    (APPLICATION, 250),
    ("baseline", 253),
];

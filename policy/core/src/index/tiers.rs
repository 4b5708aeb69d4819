//! Tier numbers of policies.
//!
//! The place of a policy among all depends only on its Tier. If the Tier is missing, the
//! Tier `application` applies. A changed Tier therefore moves the policies of its name. A change of `application`
//! also moves those with a missing Tier.

use super::{Index, ids::Ids};
use crate::{
    Tier,
    world::{APPLICATION, antrea_number, lookup, tier_number},
};
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(super) struct Tiers {
    /// Numbers of Tiers; `None` if the number is not understood.
    numbers: BTreeMap<Box<str>, Option<u8>>,
    /// Antrea's policies by the name of their tier; no name without policies.
    policies: BTreeMap<Box<str>, Ids>,
    /// The name of each one's.
    of: BTreeMap<u32, Box<str>>,
}

impl Tiers {
    fn numbers(&self, name: &str) -> Option<Option<u8>> {
        self.numbers.get(name).copied()
    }

    /// The number of a policy's tier, of which it is from now on.
    pub(super) fn enter(&mut self, policy: u32, tier: &Tier) -> u8 {
        match tier {
            Tier::Antrea(name) if self.of.get(&policy).is_some_and(|of| **of == **name) => {}
            Tier::Antrea(name) => {
                self.leave(policy);
                let name: Box<str> = name.as_str().into();
                self.policies.entry(name.clone()).or_default().insert(policy);
                self.of.insert(policy, name);
            }
            Tier::Admin | Tier::NetworkPolicy | Tier::Baseline => self.leave(policy),
        }
        tier_number(tier, |name| self.numbers(name))
    }

    pub(super) fn leave(&mut self, policy: u32) {
        let Some(name) = self.of.remove(&policy) else { return };
        let Some(policies) = self.policies.get_mut(&name) else { return };
        policies.remove(policy);
        if policies.is_empty() {
            self.policies.remove(&name);
        }
    }

    /// The policies whose place depends on a Tier, with the number of their tier.
    fn hang_on(&self, name: &str) -> Vec<(Ids, u8)> {
        let numbers = |name: &str| self.numbers(name);
        let mut hang = Vec::new();
        if name == APPLICATION {
            let missing =
                self.policies.iter().filter(|(other, _)| lookup(other, numbers).is_none());
            hang.extend(missing.map(|(name, ids)| (ids.clone(), antrea_number(name, numbers))));
        }
        let own = self.policies.get(name).map(|ids| (ids.clone(), antrea_number(name, numbers)));
        hang.extend(own);
        hang
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.numbers.len() + self.policies.len() + self.of.len()
    }
}

impl Index {
    /// A Tier is new, has changed or is gone.
    pub(super) fn tier(&mut self, name: &str, numbers: Option<Option<u8>>) {
        if self.tiers.numbers(name) == numbers {
            return;
        }
        match numbers {
            Some(number) => drop(self.tiers.numbers.insert(name.into(), number)),
            None => drop(self.tiers.numbers.remove(name)),
        }
        for (policies, number) in self.tiers.hang_on(name) {
            for policy in policies.iter() {
                self.put_in_tier(policy, number);
            }
        }
    }

    pub(super) fn put_in_tier(&mut self, policy: u32, number: u8) {
        if std::mem::replace(&mut self.policies[policy].tier, number) != number && !self.loading {
            self.changes.tiers.insert(policy);
        }
    }
}

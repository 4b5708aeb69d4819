//! The addresses of DNS names.

use crate::peers;
use control_wire::NodeSnapshot;
use policy_core::NameMatch;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

/// The addresses to which the names of rules resolve, by the policy's UID.
///
/// An answer to a pod counts for the policies that select the pod, and for no other policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names(BTreeMap<String, BTreeMap<NameMatch, BTreeSet<IpAddr>>>);

impl Names {
    /// No name has an address.
    pub fn none() -> Self {
        Self::default()
    }

    /// Addresses that count for every policy, each with the name that resolves to it.
    pub fn of_all(snapshot: &NodeSnapshot, resolved: &[(IpAddr, String)]) -> Self {
        let mut all = Self::default();
        for (uid, policy) in &snapshot.policies {
            for name in peers::names(policy) {
                let addresses = resolved.iter().filter(|(_, resolved)| matches(name, resolved));
                for (address, _) in addresses {
                    all.add(uid, name, *address);
                }
            }
        }
        all
    }

    /// Adds an address of a policy's name.
    pub fn add(&mut self, policy: &str, name: &NameMatch, address: IpAddr) {
        let names = self.0.entry(policy.to_owned()).or_default();
        names.entry(name.clone()).or_default().insert(address);
    }

    /// The addresses of a policy's name.
    pub fn addresses(&self, policy: &str, name: &NameMatch) -> impl Iterator<Item = IpAddr> {
        let names = self.0.get(policy).and_then(|names| names.get(name));
        names.into_iter().flatten().copied()
    }
}

/// True if the pattern of a rule matches a name without a dot at its end.
pub fn matches(pattern: &NameMatch, name: &str) -> bool {
    match pattern {
        NameMatch::Domain(domain) => domain.matches(name),
        NameMatch::Pattern(pattern) => pattern.matches(name),
    }
}

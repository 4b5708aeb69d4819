//! The features that change what a rule matches, and rules for agents that lack them.

use crate::model::{Peers, Policy, Rule};
use policy_core::{Action, Standing, Traffic};
use std::collections::BTreeSet;

/// Numbers of the match features that a peer understands. A new field that changes the packets a rule matches gets a
/// number. Prost drops unknown fields, so an agent without the feature would read a wider rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Features(BTreeSet<u32>);

impl Features {
    /// The features that this crate decodes. There is none yet beyond the first version of the protocol.
    pub fn supported() -> Self {
        Self::default()
    }

    /// True if the peer understands the feature.
    pub fn contains(&self, feature: u32) -> bool {
        self.0.contains(&feature)
    }

    /// The features that both peers understand.
    #[must_use]
    pub fn shared_with(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0).copied().collect())
    }

    /// The numbers, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }
}

impl FromIterator<u32> for Features {
    fn from_iter<I: IntoIterator<Item = u32>>(features: I) -> Self {
        Self(features.into_iter().collect())
    }
}

impl Policy {
    /// The features that its rules require.
    pub fn requires(&self) -> Features {
        self.rules.iter().flat_map(|rule| rule.requires.iter().copied()).collect()
    }

    /// The policy for an agent with these features: a rule that requires another one fails closed.
    #[must_use]
    pub fn for_features(&self, features: &Features) -> Self {
        let rules = self.rules.iter().map(|rule| match rule.lacks(features) {
            Some(feature) => rule.failed_closed(feature),
            None => rule.clone(),
        });
        Self { rules: rules.collect(), ..self.clone() }
    }
}

impl Rule {
    /// The first feature that it requires beyond these.
    pub(crate) fn lacks(&self, features: &Features) -> Option<u32> {
        self.requires.iter().copied().find(|feature| !features.contains(*feature))
    }

    /// The rule without its matches: Allow matches nothing, everything else denies all of its direction.
    pub(crate) fn failed_closed(&self, feature: u32) -> Self {
        let why = format!("match feature {feature} is not known to this agent");
        let (action, standing) = match (self.action, &self.standing) {
            (Action::Allow, Standing::Understood) => {
                (Action::Allow, Standing::MatchesNothing { why })
            }
            (Action::Drop | Action::Reject | Action::Pass, Standing::Understood) => {
                (Action::Drop, Standing::DeniesAll { why })
            }
            (action, standing @ (Standing::MatchesNothing { .. } | Standing::DeniesAll { .. })) => {
                (action, standing.clone())
            }
        };
        Self {
            action,
            standing,
            peers: Peers::Any,
            traffic: Traffic::Any,
            names: None,
            requires: Vec::new(),
            ..self.clone()
        }
    }
}

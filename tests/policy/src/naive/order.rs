//! The order of policies.

use super::{Naive, RuleId};
use policy_objects::{ClusterTier, Dialect, Kind, Object, Read};

/// The family of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Family {
    Cluster,
    Antrea,
}

/// The position of a policy in the order.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Position {
    pub(super) after_network: bool,
    pub(super) number: u16,
    pub(super) family: Family,
    priority: f64,
}

impl Naive<'_> {
    /// Antrea policies and ClusterNetworkPolicies in evaluation order. Antrea policies of one tier and priority are
    /// together.
    pub(super) fn in_order(&self) -> Vec<(Position, Vec<&Object>)> {
        let mut list = self
            .objects
            .iter()
            .filter_map(|object| Some((self.position(object)?, object)))
            .collect::<Vec<_>>();
        list.sort_by(|(a, one), (b, other)| {
            let tie = |object: &Object| {
                let meta = object.meta();
                (meta.namespace.clone(), self.rule_id(object, 0).kind, meta.name.clone())
            };
            (a.number, a.family)
                .cmp(&(b.number, b.family))
                .then(a.priority.total_cmp(&b.priority))
                .then_with(|| tie(one).cmp(&tie(other)))
        });
        let mut places: Vec<(Position, Vec<&Object>)> = Vec::new();
        for (position, policy) in list {
            match places.last_mut() {
                Some((last, policies))
                    if *last == position && position.family == Family::Antrea =>
                {
                    policies.push(policy);
                }
                _ => places.push((position, vec![policy])),
            }
        }
        places
    }

    fn position(&self, object: &Object) -> Option<Position> {
        let (number, family, priority) = if let Object::AntreaPolicy(policy) = object {
            (self.tier(&policy.tier), Family::Antrea, policy.priority)
        } else if let Object::ClusterPolicy(policy) = object {
            let number = match policy.tier {
                ClusterTier::Admin => 220,
                ClusterTier::Baseline => 254,
            };
            (number, Family::Cluster, f64::from(policy.priority))
        } else {
            return None;
        };
        Some(Position { after_network: number > 250, number, family, priority })
    }

    /// The number of a tier: that of the Tier object, or the default number if there is no object. A tier
    /// that is missing or not understood counts as `application`.
    fn tier(&self, name: &str) -> u16 {
        let found = self.objects.iter().find_map(|object| {
            let Object::Tier(tier) = object else { return None };
            (tier.meta.name == name).then_some(&tier.priority)
        });
        match (found, name) {
            (Some(Read::Known(priority)), _) => u16::from(*priority),
            (Some(Read::Unknown(_)), "application") => 250,
            (Some(Read::Unknown(_)), _) => self.tier("application"),
            (None, "emergency") => 50,
            (None, "securityops") => 100,
            (None, "networkops") => 150,
            (None, "platform") => 200,
            (None, "application") => 250,
            (None, "baseline") => 253,
            (None, _) => self.tier("application"),
        }
    }

    pub(super) fn rule_id(&self, policy: &Object, index: usize) -> RuleId {
        let meta = policy.meta();
        let kind = if let Object::ClusterPolicy(policy) = policy {
            match policy.dialect {
                Dialect::Upstream => Kind::ClusterNetworkPolicy,
                Dialect::Aws => Kind::AwsClusterNetworkPolicy,
            }
        } else if meta.namespace.is_empty() {
            Kind::AntreaClusterNetworkPolicy
        } else {
            Kind::AntreaNetworkPolicy
        };
        RuleId { kind, namespace: meta.namespace.clone(), name: meta.name.clone(), index }
    }
}

//! Token buckets, one per action.

use crate::Action;
use config_model::Time;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The size and the refill of a token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// Tokens in a full bucket; one call takes one.
    pub burst: u32,
    /// Thousandths of a token that come back per second.
    pub refill_milli_per_second: u32,
}

impl Bucket {
    /// A bucket that gets so many tokens back per second.
    pub const fn new(burst: u32, refill_per_second: u32) -> Self {
        Self { burst, refill_milli_per_second: refill_per_second * 1000 }
    }

    /// AWS's bucket of an action, per account and region.
    ///
    /// Source: "Request throttling for the Amazon EC2 API" in the EC2 developer guide. Two facts were checked
    /// against that page on 2026-11-21: the shape (one bucket per action, `RequestLimitExceeded`) and the bucket of
    /// reads, 100 and 20/s.
    ///
    /// The other rows follow the page's table of limits but could not be checked that day:
    ///
    /// - reads with neither filter, id nor page: 50 and 10/s
    /// - changes: 50 and 5/s
    /// - address assignment and ENI life: 100 and 5/s
    /// - tags: 100 and 10/s
    ///
    /// AWS changes them without notice and raises them per account, so no code may rely on them.
    pub const fn published(action: Action, unfiltered: bool) -> Self {
        match action {
            Action::DescribeInstances
            | Action::DescribeNetworkInterfaces
            | Action::DescribeSecurityGroups
                if unfiltered =>
            {
                Self::new(50, 10)
            }
            Action::DescribeInstanceTypes
            | Action::DescribeInstances
            | Action::DescribeNetworkInterfaces
            | Action::DescribeSecurityGroups
            | Action::DescribeSubnets
            | Action::DescribeTags
            | Action::DescribeTrunkInterfaceAssociations
            | Action::DescribeVpcs
            | Action::GetSubnetCidrReservations => Self::new(100, 20),
            Action::CreateTags | Action::DeleteTags => Self::new(100, 10),
            Action::AssignIpv6Addresses
            | Action::AssignPrivateIpAddresses
            | Action::AssociateTrunkInterface
            | Action::AttachNetworkInterface
            | Action::CreateNetworkInterface
            | Action::DeleteNetworkInterface
            | Action::DetachNetworkInterface
            | Action::DisassociateTrunkInterface
            | Action::UnassignIpv6Addresses
            | Action::UnassignPrivateIpAddresses => Self::new(100, 5),
            Action::CreateSubnetCidrReservation
            | Action::DeleteSubnetCidrReservation
            | Action::ModifyNetworkInterfaceAttribute => Self::new(50, 5),
        }
    }
}

/// Limits on the rate of calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Throttling {
    /// Not at all.
    Off,
    /// As AWS publishes it; see [`Bucket::published`].
    Published,
    /// The same bucket for every action, each action its own.
    Uniform(Bucket),
    /// These buckets, each action its own; actions that are not named are not throttled.
    PerAction(BTreeMap<Action, Bucket>),
}

/// One token in the unit of the fill, so that a refill in thousandths per second is exact per
/// millisecond.
const TOKEN: u64 = 1_000_000;

/// Fill level of a bucket.
#[derive(Clone, Copy, Debug)]
struct Fill {
    level: u64,
    at: Time,
}

/// The buckets of one set of limits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Buckets(BTreeMap<(Action, bool), Fill>);

impl Buckets {
    /// Takes a token; false if there is none.
    pub(crate) fn take(&mut self, now: Time, key: (Action, bool), bucket: Bucket) -> bool {
        let full = u64::from(bucket.burst) * TOKEN;
        let fill = self.0.entry(key).or_insert(Fill { level: full, at: now });
        let refill = now.since(fill.at).0.saturating_mul(bucket.refill_milli_per_second.into());
        *fill = Fill { level: fill.level.saturating_add(refill).min(full), at: now };
        if fill.level < TOKEN {
            return false;
        }
        fill.level -= TOKEN;
        true
    }

    /// Takes a token from the bucket that the spec gives to this action.
    pub(crate) fn take_by(
        &mut self,
        now: Time,
        throttling: &Throttling,
        action: Action,
        unfiltered: bool,
    ) -> bool {
        match throttling {
            Throttling::Off => true,
            Throttling::PerAction(buckets) => {
                buckets.get(&action).is_none_or(|bucket| self.take(now, (action, false), *bucket))
            }
            Throttling::Uniform(bucket) => self.take(now, (action, false), *bucket),
            Throttling::Published => {
                self.take(now, (action, unfiltered), Bucket::published(action, unfiltered))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_its_burst_and_refills_at_its_rate() {
        let mut buckets = Buckets::default();
        let bucket = Bucket { burst: 3, refill_milli_per_second: 500 };
        let key = (Action::CreateTags, false);
        let mut passed = |ms: u64, calls: u64| {
            (0..calls).filter(|_| buckets.take(Time(ms), key, bucket)).count()
        };
        assert_eq!(passed(0, 5), 3);
        assert_eq!(passed(1_999, 1), 0);
        assert_eq!(passed(2_000, 2), 1);
        assert_eq!(passed(1_000_000, 9), 3);
    }

    #[test]
    fn actions_without_a_bucket_of_their_own_are_not_throttled() {
        let mut buckets = Buckets::default();
        let attach = Bucket::new(1, 1);
        let some =
            Throttling::PerAction(BTreeMap::from([(Action::AttachNetworkInterface, attach)]));
        assert!(buckets.take_by(Time(0), &some, Action::AttachNetworkInterface, false));
        assert!(!buckets.take_by(Time(0), &some, Action::AttachNetworkInterface, false));
        assert!((0..9).all(|_| buckets.take_by(Time(0), &some, Action::CreateTags, false)));
    }

    #[test]
    fn actions_do_not_share_a_bucket() {
        let mut buckets = Buckets::default();
        let one = Throttling::Uniform(Bucket::new(1, 1));
        for action in Action::ALL {
            assert!(buckets.take_by(Time(0), &one, *action, false), "{action}");
            assert!(!buckets.take_by(Time(0), &one, *action, false), "{action}");
        }
    }
}

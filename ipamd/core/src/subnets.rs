//! The supply of subnets, learned from refusals: addresses, and whole prefixes.

use crate::{CloudFault, Severity, Topic, Want, ctx::Ctx, warm::Unit};
use config_model::{Span, SubnetId, Time};
use std::{collections::BTreeMap, sync::Arc};

/// The time for which a subnet that refused gets smaller requests, or none if it was empty.
const SUBNET_COOLDOWN: Span = Span::seconds(120);
/// The time for which a subnet without a free prefix gives single addresses. It doubles with each failed try.
const FRAGMENTED: Span = Span::seconds(300);
/// The limit of the doubled time.
const LONGEST_FRAGMENTED: Span = Span::seconds(3600);

/// The supply of all subnets.
#[derive(Debug, Default)]
pub(crate) struct SubnetSupplies {
    addresses: BTreeMap<SubnetId, SubnetSupply>,
    prefixes: BTreeMap<SubnetId, SubnetSupply>,
    missing: BTreeMap<SubnetId, Missing>,
}

/// EC2 reports that a subnet or one of the security groups does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Missing {
    pub(crate) fault: Arc<str>,
    /// No ENI is requested there before this time.
    pub(crate) until: Time,
}

/// The supply of one kind of block. Without an entry, requests are unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SubnetSupply {
    /// Requests are limited to `at_most` until then.
    Scarce { at_most: u32, until: Time },
    /// Not even one block: no request until then. `tries` counts the failed tries in a row.
    Dry { until: Time, tries: u32 },
    /// The next request is for one block, and only one such request is under way.
    Probing { in_flight: bool, tries: u32 },
}

/// The meaning of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SubnetRefusal {
    /// The next request is smaller.
    AskForLess,
    /// The subnet has no prefix: single addresses are requested for a while.
    Fragmented,
    /// The subnet has no address: it gets no requests for a while.
    Empty,
}

impl SubnetSupplies {
    /// The kind and the limit of the next request to a subnet that should give `unit`. `None`: no request for now.
    pub(crate) fn offer(&self, subnet: &SubnetId, unit: Unit) -> Option<(Unit, u32)> {
        let addresses = at_most(self.addresses.get(subnet))?;
        match unit {
            Unit::Prefix => match at_most(self.prefixes.get(subnet)) {
                Some(prefixes) => Some((Unit::Prefix, prefixes)),
                None => Some((Unit::Address, addresses)),
            },
            Unit::Address => Some((Unit::Address, addresses)),
            Unit::Ipv6Prefix => Some((Unit::Ipv6Prefix, u32::MAX)),
        }
    }

    /// Notes a request.
    pub(crate) fn asked(&mut self, subnet: &SubnetId, want: Want) {
        if let Some(SubnetSupply::Probing { in_flight, .. }) = self.supplies(want).get_mut(subnet) {
            *in_flight = true;
        }
    }

    /// Notes a success. Returns true if the subnet gives prefixes again.
    pub(crate) fn gave(&mut self, subnet: &SubnetId, want: Want) -> bool {
        let supplies = self.supplies(want);
        let probed = matches!(supplies.get(subnet), Some(SubnetSupply::Probing { .. }));
        if probed {
            supplies.remove(subnet);
        }
        probed && matches!(want, Want::Prefixes(_))
    }

    /// Notes a refusal. The next request is for half as many.
    pub(crate) fn refused(&mut self, subnet: &SubnetId, want: Want, now: Time) -> SubnetRefusal {
        let (first, longest, empty) = match want {
            Want::Prefixes(_) => (FRAGMENTED, LONGEST_FRAGMENTED, SubnetRefusal::Fragmented),
            Want::Addresses(_) | Want::Ipv6Prefixes(_) => {
                (SUBNET_COOLDOWN, SUBNET_COOLDOWN, SubnetRefusal::Empty)
            }
        };
        let supplies = self.supplies(want);
        let half = u32::from(want.blocks()) / 2;
        let (half, tries) = match supplies.get(subnet) {
            None => (half, 1),
            Some(SubnetSupply::Scarce { at_most, .. }) => (half.min(*at_most), 1),
            Some(SubnetSupply::Probing { tries, .. }) => (half, *tries + 1),
            // A request that was under way at the first refusal adds no information.
            Some(SubnetSupply::Dry { .. }) => return SubnetRefusal::AskForLess,
        };
        let (supply, meaning) = if half == 0 {
            let doubled = (first.0 << (tries - 1).min(10)).min(longest.0);
            (SubnetSupply::Dry { until: now + Span(doubled), tries }, empty)
        } else {
            let until = now + SUBNET_COOLDOWN;
            (SubnetSupply::Scarce { at_most: half, until }, SubnetRefusal::AskForLess)
        };
        supplies.insert(subnet.clone(), supply);
        meaning
    }

    /// Notes a failure that does not depend on the supply.
    pub(crate) fn not_answered(&mut self, subnet: &SubnetId, want: Want) {
        if let Some(SubnetSupply::Probing { in_flight, .. }) = self.supplies(want).get_mut(subnet) {
            *in_flight = false;
        }
    }

    /// Notes that the subnet or a security group does not exist.
    pub(crate) fn mark_missing(&mut self, subnet: &SubnetId, fault: &CloudFault, now: Time) {
        let fault = fault.to_string().into();
        let missing = Missing { fault, until: now + SUBNET_COOLDOWN };
        self.missing.insert(subnet.clone(), missing);
    }

    /// The reason why no ENI is requested in the subnet, if it does not exist.
    pub(crate) fn missing(&self, subnet: &SubnetId) -> Option<&Missing> {
        self.missing.get(subnet)
    }

    /// Forgets missing subnets because the configuration has changed.
    pub(crate) fn forget_missing(&mut self) {
        self.missing.clear();
    }

    /// The time until which the subnet gets no requests.
    pub(crate) fn empty_until(&self, subnet: &SubnetId) -> Option<Time> {
        match self.addresses.get(subnet) {
            Some(SubnetSupply::Dry { until, .. }) => Some(*until),
            Some(SubnetSupply::Scarce { .. } | SubnetSupply::Probing { .. }) | None => None,
        }
    }

    /// The time of the last refusal by an empty subnet that still gets no requests.
    pub(crate) fn empty_since(&self) -> Option<Time> {
        let since = |supply: &SubnetSupply| match supply {
            SubnetSupply::Dry { until, .. } => Some(*until - SUBNET_COOLDOWN),
            SubnetSupply::Scarce { .. } | SubnetSupply::Probing { .. } => None,
        };
        self.addresses.values().filter_map(since).max()
    }

    /// EC2's count shows free addresses. If the question of `started` is newer than the refusal, one address is
    /// requested.
    pub(crate) fn has_free_ones(&mut self, subnet: &SubnetId, started: Time) {
        if let Some(supply) = self.addresses.get_mut(subnet)
            && let SubnetSupply::Dry { until, tries } = *supply
            && started > until - SUBNET_COOLDOWN
        {
            *supply = SubnetSupply::Probing { in_flight: false, tries };
        }
    }

    /// Returns whether the subnet gives single addresses instead of prefixes.
    pub(crate) fn fragmented(&self, subnet: &SubnetId) -> bool {
        matches!(
            self.prefixes.get(subnet),
            Some(SubnetSupply::Dry { .. } | SubnetSupply::Probing { .. })
        )
    }

    pub(crate) fn expire(&mut self, now: Time) {
        self.missing.retain(|_, missing| missing.until > now);
        for supplies in [&mut self.addresses, &mut self.prefixes] {
            supplies.retain(|_, supply| match supply {
                SubnetSupply::Scarce { until, .. } => *until > now,
                SubnetSupply::Dry { .. } | SubnetSupply::Probing { .. } => true,
            });
            for supply in supplies.values_mut() {
                if let SubnetSupply::Dry { until, tries } = *supply
                    && until <= now
                {
                    *supply = SubnetSupply::Probing { in_flight: false, tries };
                }
            }
        }
    }

    /// The time of the next larger request.
    pub(crate) fn next_change(&self) -> Option<Time> {
        let supplies = self.addresses.values().chain(self.prefixes.values());
        let until = |supply: &SubnetSupply| match supply {
            SubnetSupply::Scarce { until, .. } | SubnetSupply::Dry { until, .. } => Some(*until),
            SubnetSupply::Probing { .. } => None,
        };
        let missing = self.missing.values().map(|missing| missing.until);
        supplies.filter_map(until).chain(missing).min()
    }

    fn supplies(&mut self, want: Want) -> &mut BTreeMap<SubnetId, SubnetSupply> {
        match want {
            Want::Prefixes(_) => &mut self.prefixes,
            Want::Addresses(_) | Want::Ipv6Prefixes(_) => &mut self.addresses,
        }
    }
}

fn at_most(supply: Option<&SubnetSupply>) -> Option<u32> {
    match supply {
        None => Some(u32::MAX),
        Some(SubnetSupply::Scarce { at_most, .. }) => Some(*at_most),
        Some(SubnetSupply::Probing { in_flight: false, .. }) => Some(1),
        Some(SubnetSupply::Dry { .. } | SubnetSupply::Probing { in_flight: true, .. }) => None,
    }
}

impl Ctx {
    /// Notes and reports a refusal by a subnet.
    pub(crate) fn subnet_refused(&mut self, subnet: &SubnetId, want: Want, fault: &CloudFault) {
        let (severity, topic, next_step) = match self.subnets.refused(subnet, want, self.now) {
            SubnetRefusal::AskForLess => return,
            SubnetRefusal::Fragmented => (
                Severity::Warning,
                Topic::SubnetFragmented,
                "single addresses are used meanwhile; reserve a range of the subnet for prefixes \
                 (a subnet CIDR reservation), or free whole /28 blocks",
            ),
            SubnetRefusal::Empty => (
                Severity::Error,
                Topic::SubnetExhausted,
                "free addresses in the subnet, or give the nodes a larger one",
            ),
        };
        self.report(severity, topic, subnet, fault.to_string(), next_step);
    }

    /// Notes and reports a success.
    pub(crate) fn subnet_gave(&mut self, subnet: &SubnetId, want: Want) {
        if self.subnets.gave(subnet, want) {
            let (severity, topic) = (Severity::Info, Topic::SubnetFragmented);
            self.report(severity, topic, subnet, "it gives prefixes again", "");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> SubnetId {
        SubnetId::from("subnet-1")
    }

    #[test]
    fn requests_to_a_full_subnet_shrink_then_pause_then_try_one() {
        let mut subnets = SubnetSupplies::default();
        let free = Some((Unit::Address, u32::MAX));
        assert_eq!(subnets.refused(&id(), Want::Addresses(9), Time(0)), SubnetRefusal::AskForLess);
        assert_eq!(subnets.offer(&id(), Unit::Address), Some((Unit::Address, 4)));
        assert_eq!(subnets.refused(&id(), Want::Addresses(2), Time(0)), SubnetRefusal::AskForLess);
        assert_eq!(subnets.refused(&id(), Want::Addresses(1), Time(1000)), SubnetRefusal::Empty);
        assert_eq!(subnets.empty_until(&id()), Some(Time(121_000)));
        subnets.expire(Time(120_999));
        assert_eq!(subnets.offer(&id(), Unit::Address), None);
        subnets.expire(Time(121_000));
        assert_eq!(subnets.offer(&id(), Unit::Address), Some((Unit::Address, 1)));
        subnets.gave(&id(), Want::Addresses(1));
        assert_eq!(subnets.offer(&id(), Unit::Address), free);
    }

    #[test]
    fn a_subnet_with_a_few_addresses_has_no_limit_after_the_pause() {
        let mut subnets = SubnetSupplies::default();
        subnets.refused(&id(), Want::Addresses(9), Time(0));
        subnets.gave(&id(), Want::Addresses(4));
        assert_eq!(subnets.offer(&id(), Unit::Address), Some((Unit::Address, 4)));
        subnets.expire(Time(120_000));
        assert_eq!(subnets.offer(&id(), Unit::Address), Some((Unit::Address, u32::MAX)));
    }

    #[test]
    fn a_fragmented_subnet_gives_single_addresses_and_later_one_prefix_is_tried() {
        let mut subnets = SubnetSupplies::default();
        assert_eq!(subnets.refused(&id(), Want::Prefixes(2), Time(0)), SubnetRefusal::AskForLess);
        assert_eq!(subnets.offer(&id(), Unit::Prefix), Some((Unit::Prefix, 1)));
        assert_eq!(subnets.refused(&id(), Want::Prefixes(1), Time(0)), SubnetRefusal::Fragmented);
        assert_eq!(subnets.offer(&id(), Unit::Prefix), Some((Unit::Address, u32::MAX)));
        subnets.expire(Time(300_000));
        assert!(subnets.fragmented(&id()), "no answer has shown a prefix yet");
        assert_eq!(subnets.offer(&id(), Unit::Prefix), Some((Unit::Prefix, 1)));
        subnets.asked(&id(), Want::Prefixes(1));
        let meanwhile = subnets.offer(&id(), Unit::Prefix);
        assert_eq!(meanwhile, Some((Unit::Address, u32::MAX)), "one try at a time");
        assert!(subnets.gave(&id(), Want::Prefixes(1)));
        assert!(!subnets.fragmented(&id()));
        assert_eq!(subnets.offer(&id(), Unit::Prefix), Some((Unit::Prefix, u32::MAX)));
    }

    #[test]
    fn tries_at_a_fragmented_subnet_become_rarer() {
        let (mut subnets, mut now) = (SubnetSupplies::default(), Time(0));
        let mut waits = Vec::new();
        for _ in 0..6 {
            subnets.refused(&id(), Want::Prefixes(1), now);
            let next = subnets.next_change().unwrap_or(now);
            waits.push(next.since(now).0 / 1000);
            now = next;
            subnets.expire(now);
        }
        assert_eq!(waits, [300, 600, 1200, 2400, 3600, 3600]);
    }

    #[test]
    fn a_lost_try_is_repeated_and_late_refusals_change_nothing() {
        let mut subnets = SubnetSupplies::default();
        subnets.refused(&id(), Want::Prefixes(1), Time(0));
        assert_eq!(subnets.refused(&id(), Want::Prefixes(4), Time(10)), SubnetRefusal::AskForLess);
        assert_eq!(subnets.next_change(), Some(Time(300_000)));
        subnets.expire(Time(300_000));
        subnets.asked(&id(), Want::Prefixes(1));
        subnets.not_answered(&id(), Want::Prefixes(1));
        assert_eq!(subnets.offer(&id(), Unit::Prefix), Some((Unit::Prefix, 1)));
    }

    #[test]
    fn an_exhausted_subnet_gets_no_request_of_either_kind() {
        let mut subnets = SubnetSupplies::default();
        subnets.refused(&id(), Want::Addresses(1), Time(0));
        for unit in [Unit::Address, Unit::Prefix, Unit::Ipv6Prefix] {
            assert_eq!(subnets.offer(&id(), unit), None);
        }
    }
}

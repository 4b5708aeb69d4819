//! How much does a subnet still give: addresses, and whole prefixes of them?

use crate::{CloudFault, Severity, Topic, Want, ctx::Ctx, warm::Unit};
use config_model::{Span, SubnetId, Time};
use std::{collections::BTreeMap, sync::Arc};

/// How long a subnet that refused is asked for less, or left alone if it had nothing.
const SUBNET_COOLDOWN: Span = Span::seconds(120);
/// How long a subnet without a free prefix gives single addresses; it doubles with each try in
/// vain.
const FRAGMENTED: Span = Span::seconds(300);
/// It doubles up to this.
const LONGEST_FRAGMENTED: Span = Span::seconds(3600);

/// What was learned about subnets from refusals.
#[derive(Debug, Default)]
pub(crate) struct Subnets {
    addresses: BTreeMap<SubnetId, Supply>,
    prefixes: BTreeMap<SubnetId, Supply>,
    missing: BTreeMap<SubnetId, Missing>,
}

/// EC2 says that a subnet does not exist, or a security group that ENIs were to have in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Missing {
    pub(crate) fault: Arc<str>,
    /// No ENI is asked for there until then.
    pub(crate) until: Time,
}

/// What is known of one kind of block. Nothing known: it is asked for freely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Supply {
    /// So many are asked for at most, until then.
    Scarce { at_most: u32, until: Time },
    /// Not even one: nothing is asked for until then. `tries` in a row came to that.
    Dry { until: Time, tries: u32 },
    /// The next question is for one, to see whether there are any; none beside it.
    Probing { in_flight: bool, tries: u32 },
}

/// What a refusal means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Less is asked for next.
    AskForLess,
    /// It has not even one prefix: it gives single addresses for a while.
    Fragmented,
    /// It has not even one address: it is left alone for a while.
    Empty,
}

impl Subnets {
    /// What to ask of a subnet that should give `unit`: the kind, and how many at most. `None`:
    /// nothing for now.
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

    /// It is being asked.
    pub(crate) fn asked(&mut self, subnet: &SubnetId, want: Want) {
        if let Some(Supply::Probing { in_flight, .. }) = self.supplies(want).get_mut(subnet) {
            *in_flight = true;
        }
    }

    /// It gave what it was asked for; true if it gives prefixes again.
    pub(crate) fn gave(&mut self, subnet: &SubnetId, want: Want) -> bool {
        let supplies = self.supplies(want);
        let probed = matches!(supplies.get(subnet), Some(Supply::Probing { .. }));
        if probed {
            supplies.remove(subnet);
        }
        probed && matches!(want, Want::Prefixes(_))
    }

    /// It did not have as much. Half as much is asked for next.
    pub(crate) fn refused(&mut self, subnet: &SubnetId, want: Want, now: Time) -> Refused {
        let (first, longest, empty) = match want {
            Want::Prefixes(_) => (FRAGMENTED, LONGEST_FRAGMENTED, Refused::Fragmented),
            Want::Addresses(_) | Want::Ipv6Prefixes(_) => {
                (SUBNET_COOLDOWN, SUBNET_COOLDOWN, Refused::Empty)
            }
        };
        let supplies = self.supplies(want);
        let half = u32::from(want.blocks()) / 2;
        let (half, tries) = match supplies.get(subnet) {
            None => (half, 1),
            Some(Supply::Scarce { at_most, .. }) => (half.min(*at_most), 1),
            Some(Supply::Probing { tries, .. }) => (half, *tries + 1),
            // A question that was on its way when the first refusal came says nothing new.
            Some(Supply::Dry { .. }) => return Refused::AskForLess,
        };
        let (supply, meaning) = if half == 0 {
            let doubled = (first.0 << (tries - 1).min(10)).min(longest.0);
            (Supply::Dry { until: now + Span(doubled), tries }, empty)
        } else {
            let until = now + SUBNET_COOLDOWN;
            (Supply::Scarce { at_most: half, until }, Refused::AskForLess)
        };
        supplies.insert(subnet.clone(), supply);
        meaning
    }

    /// The question came to nothing that says how much the subnet has.
    pub(crate) fn not_answered(&mut self, subnet: &SubnetId, want: Want) {
        if let Some(Supply::Probing { in_flight, .. }) = self.supplies(want).get_mut(subnet) {
            *in_flight = false;
        }
    }

    /// It is not there, or not with these groups.
    pub(crate) fn told_missing(&mut self, subnet: &SubnetId, fault: &CloudFault, now: Time) {
        let fault = fault.to_string().into();
        let missing = Missing { fault, until: now + SUBNET_COOLDOWN };
        self.missing.insert(subnet.clone(), missing);
    }

    /// Why no ENI is asked for in the subnet, if EC2 said that it is not there.
    pub(crate) fn missing(&self, subnet: &SubnetId) -> Option<&Missing> {
        self.missing.get(subnet)
    }

    /// Somebody has changed subnet or groups.
    pub(crate) fn forget_missing(&mut self) {
        self.missing.clear();
    }

    /// Until when the subnet is left alone.
    pub(crate) fn empty_until(&self, subnet: &SubnetId) -> Option<Time> {
        match self.addresses.get(subnet) {
            Some(Supply::Dry { until, .. }) => Some(*until),
            Some(Supply::Scarce { .. } | Supply::Probing { .. }) | None => None,
        }
    }

    /// When a subnet last turned out to have no address, if one is left alone for it.
    pub(crate) fn empty_since(&self) -> Option<Time> {
        let since = |supply: &Supply| match supply {
            Supply::Dry { until, .. } => Some(*until - SUBNET_COOLDOWN),
            Supply::Scarce { .. } | Supply::Probing { .. } => None,
        };
        self.addresses.values().filter_map(since).max()
    }

    /// EC2 counts free addresses in it, asked at `started`: if that is newer than the refusal, one is
    /// asked for.
    pub(crate) fn has_free_ones(&mut self, subnet: &SubnetId, started: Time) {
        if let Some(supply) = self.addresses.get_mut(subnet)
            && let Supply::Dry { until, tries } = *supply
            && started > until - SUBNET_COOLDOWN
        {
            *supply = Supply::Probing { in_flight: false, tries };
        }
    }

    /// Whether the subnet gives single addresses in place of prefixes.
    pub(crate) fn fragmented(&self, subnet: &SubnetId) -> bool {
        matches!(self.prefixes.get(subnet), Some(Supply::Dry { .. } | Supply::Probing { .. }))
    }

    /// Time passes.
    pub(crate) fn expire(&mut self, now: Time) {
        self.missing.retain(|_, missing| missing.until > now);
        for supplies in [&mut self.addresses, &mut self.prefixes] {
            supplies.retain(|_, supply| match supply {
                Supply::Scarce { until, .. } => *until > now,
                Supply::Dry { .. } | Supply::Probing { .. } => true,
            });
            for supply in supplies.values_mut() {
                if let Supply::Dry { until, tries } = *supply
                    && until <= now
                {
                    *supply = Supply::Probing { in_flight: false, tries };
                }
            }
        }
    }

    /// When more may be asked for than now.
    pub(crate) fn next_change(&self) -> Option<Time> {
        let supplies = self.addresses.values().chain(self.prefixes.values());
        let until = |supply: &Supply| match supply {
            Supply::Scarce { until, .. } | Supply::Dry { until, .. } => Some(*until),
            Supply::Probing { .. } => None,
        };
        let missing = self.missing.values().map(|missing| missing.until);
        supplies.filter_map(until).chain(missing).min()
    }

    fn supplies(&mut self, want: Want) -> &mut BTreeMap<SubnetId, Supply> {
        match want {
            Want::Prefixes(_) => &mut self.prefixes,
            Want::Addresses(_) | Want::Ipv6Prefixes(_) => &mut self.addresses,
        }
    }
}

fn at_most(supply: Option<&Supply>) -> Option<u32> {
    match supply {
        None => Some(u32::MAX),
        Some(Supply::Scarce { at_most, .. }) => Some(*at_most),
        Some(Supply::Probing { in_flight: false, .. }) => Some(1),
        Some(Supply::Dry { .. } | Supply::Probing { in_flight: true, .. }) => None,
    }
}

impl Ctx {
    /// A subnet did not have what it was asked for.
    pub(crate) fn subnet_refused(&mut self, subnet: &SubnetId, want: Want, fault: &CloudFault) {
        let (severity, topic, next_step) = match self.subnets.refused(subnet, want, self.now) {
            Refused::AskForLess => return,
            Refused::Fragmented => (
                Severity::Warning,
                Topic::SubnetFragmented,
                "single addresses are used meanwhile; reserve a range of the subnet for prefixes \
                 (a subnet CIDR reservation), or free whole /28 blocks",
            ),
            Refused::Empty => (
                Severity::Error,
                Topic::SubnetExhausted,
                "free addresses in the subnet, or give the nodes a larger one",
            ),
        };
        self.report(severity, topic, subnet, fault.to_string(), next_step);
    }

    /// A subnet gave what it was asked for.
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
    fn a_subnet_is_asked_for_less_and_less_then_left_alone_then_tried_with_one() {
        let mut subnets = Subnets::default();
        let free = Some((Unit::Address, u32::MAX));
        assert_eq!(subnets.refused(&id(), Want::Addresses(9), Time(0)), Refused::AskForLess);
        assert_eq!(subnets.offer(&id(), Unit::Address), Some((Unit::Address, 4)));
        assert_eq!(subnets.refused(&id(), Want::Addresses(2), Time(0)), Refused::AskForLess);
        assert_eq!(subnets.refused(&id(), Want::Addresses(1), Time(1000)), Refused::Empty);
        assert_eq!(subnets.empty_until(&id()), Some(Time(121_000)));
        subnets.expire(Time(120_999));
        assert_eq!(subnets.offer(&id(), Unit::Address), None);
        subnets.expire(Time(121_000));
        assert_eq!(subnets.offer(&id(), Unit::Address), Some((Unit::Address, 1)));
        subnets.gave(&id(), Want::Addresses(1));
        assert_eq!(subnets.offer(&id(), Unit::Address), free);
    }

    #[test]
    fn a_subnet_that_still_gives_a_few_is_asked_freely_again_after_the_cooldown() {
        let mut subnets = Subnets::default();
        subnets.refused(&id(), Want::Addresses(9), Time(0));
        subnets.gave(&id(), Want::Addresses(4));
        assert_eq!(subnets.offer(&id(), Unit::Address), Some((Unit::Address, 4)));
        subnets.expire(Time(120_000));
        assert_eq!(subnets.offer(&id(), Unit::Address), Some((Unit::Address, u32::MAX)));
    }

    #[test]
    fn a_fragmented_subnet_gives_single_addresses_and_later_one_prefix_is_tried() {
        let mut subnets = Subnets::default();
        assert_eq!(subnets.refused(&id(), Want::Prefixes(2), Time(0)), Refused::AskForLess);
        assert_eq!(subnets.offer(&id(), Unit::Prefix), Some((Unit::Prefix, 1)));
        assert_eq!(subnets.refused(&id(), Want::Prefixes(1), Time(0)), Refused::Fragmented);
        assert_eq!(subnets.offer(&id(), Unit::Prefix), Some((Unit::Address, u32::MAX)));
        subnets.expire(Time(300_000));
        assert!(subnets.fragmented(&id()), "nobody has seen a prefix yet");
        assert_eq!(subnets.offer(&id(), Unit::Prefix), Some((Unit::Prefix, 1)));
        subnets.asked(&id(), Want::Prefixes(1));
        let meanwhile = subnets.offer(&id(), Unit::Prefix);
        assert_eq!(meanwhile, Some((Unit::Address, u32::MAX)), "one try at a time");
        assert!(subnets.gave(&id(), Want::Prefixes(1)));
        assert!(!subnets.fragmented(&id()));
        assert_eq!(subnets.offer(&id(), Unit::Prefix), Some((Unit::Prefix, u32::MAX)));
    }

    #[test]
    fn a_subnet_that_stays_fragmented_is_tried_ever_less_often() {
        let (mut subnets, mut now) = (Subnets::default(), Time(0));
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
    fn a_lost_try_is_made_again_and_late_refusals_change_nothing() {
        let mut subnets = Subnets::default();
        subnets.refused(&id(), Want::Prefixes(1), Time(0));
        assert_eq!(subnets.refused(&id(), Want::Prefixes(4), Time(10)), Refused::AskForLess);
        assert_eq!(subnets.next_change(), Some(Time(300_000)));
        subnets.expire(Time(300_000));
        subnets.asked(&id(), Want::Prefixes(1));
        subnets.not_answered(&id(), Want::Prefixes(1));
        assert_eq!(subnets.offer(&id(), Unit::Prefix), Some((Unit::Prefix, 1)));
    }

    #[test]
    fn with_no_address_left_nothing_is_asked_for_whatever_the_kind() {
        let mut subnets = Subnets::default();
        subnets.refused(&id(), Want::Addresses(1), Time(0));
        for unit in [Unit::Address, Unit::Prefix, Unit::Ipv6Prefix] {
            assert_eq!(subnets.offer(&id(), unit), None);
        }
    }
}

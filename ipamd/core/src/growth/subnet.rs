//! How many addresses does a subnet still give?

use config_model::{Span, SubnetId, Time};
use std::collections::BTreeMap;

/// How long a subnet without free addresses is left alone.
const SUBNET_COOLDOWN: Span = Span::seconds(120);

/// What was learned about subnets from refusals.
#[derive(Debug, Default)]
pub(crate) struct Subnets {
    known: BTreeMap<SubnetId, Subnet>,
}

#[derive(Clone, Copy, Debug)]
struct Subnet {
    /// Zero: nothing is asked for.
    ask_at_most: u32,
    until: Time,
    /// The last cool-down is over; one address is asked for to see whether there are any.
    probing: bool,
}

impl Subnets {
    /// How many addresses a call should ask for at most.
    pub(crate) fn ask_at_most(&self, subnet: &SubnetId) -> u32 {
        self.known.get(subnet).map_or(u32::MAX, |known| known.ask_at_most)
    }

    /// Until when the subnet is left alone.
    pub(crate) fn blocked(&self, subnet: &SubnetId) -> Option<Time> {
        self.known.get(subnet).filter(|known| known.ask_at_most == 0).map(|known| known.until)
    }

    /// It did not have as many. Half as many are asked for next; true if it did not even have one,
    /// so that it is left alone.
    pub(crate) fn refused(&mut self, subnet: &SubnetId, count: u32, now: Time) -> bool {
        let ask_at_most = (count / 2).min(self.ask_at_most(subnet));
        let until = now + SUBNET_COOLDOWN;
        self.known.insert(subnet.clone(), Subnet { ask_at_most, until, probing: false });
        ask_at_most == 0
    }

    pub(crate) fn gave(&mut self, subnet: &SubnetId) {
        if self.known.get(subnet).is_some_and(|known| known.probing) {
            self.known.remove(subnet);
        }
    }

    pub(crate) fn expire(&mut self, now: Time) {
        self.known.retain(|_, known| known.until > now || known.ask_at_most == 0);
        for known in self.known.values_mut().filter(|known| known.until <= now) {
            *known = Subnet { ask_at_most: 1, until: now + SUBNET_COOLDOWN, probing: true };
        }
    }

    pub(crate) fn next_change(&self) -> Option<Time> {
        self.known.values().map(|known| known.until).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subnet_is_asked_for_less_and_less_then_left_alone_then_tried_with_one() {
        let (mut subnets, id) = (Subnets::default(), SubnetId::from("subnet-1"));
        assert!(!subnets.refused(&id, 9, Time(0)));
        assert_eq!(subnets.ask_at_most(&id), 4);
        assert!(!subnets.refused(&id, 2, Time(0)));
        assert!(subnets.refused(&id, 1, Time(1000)));
        assert_eq!(subnets.blocked(&id), Some(Time(121_000)));
        subnets.expire(Time(120_999));
        assert!(subnets.blocked(&id).is_some());
        subnets.expire(Time(121_000));
        assert_eq!((subnets.blocked(&id), subnets.ask_at_most(&id)), (None, 1));
        subnets.gave(&id);
        assert_eq!(subnets.ask_at_most(&id), u32::MAX);
    }

    #[test]
    fn a_subnet_that_still_gives_a_few_is_asked_freely_again_after_the_cooldown() {
        let (mut subnets, id) = (Subnets::default(), SubnetId::from("subnet-1"));
        subnets.refused(&id, 9, Time(0));
        subnets.gave(&id);
        assert_eq!(subnets.ask_at_most(&id), 4);
        subnets.expire(Time(120_000));
        assert_eq!(subnets.ask_at_most(&id), u32::MAX);
    }
}

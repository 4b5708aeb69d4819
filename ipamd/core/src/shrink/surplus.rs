//! The delay before a card's surplus is returned. Addresses that are returned too early must be requested again.

use config_model::{Span, Time};

/// The least interval between two returns. Only blocks that were surplus for all of it are returned.
const INTERVAL: Span = Span::seconds(30);
/// The limit of the doubled interval.
const LONGEST_INTERVAL: Span = Span::seconds(120);
/// A request within this multiple of the interval after a return shows that the return was too early. The interval then
/// doubles; otherwise it halves.
const VERDICT: u64 = 4;

/// The surplus of a card over time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CardSurplus {
    /// The start, and the least surplus since then; `None` without surplus.
    since: Option<(Time, u32)>,
    /// The surplus grew meanwhile, so a round was postponed once to return all in one call.
    postponed: bool,
    /// The time and the number of the last return, until its verdict.
    last_round: Option<(Time, u32)>,
    interval: Span,
}

impl Default for CardSurplus {
    fn default() -> Self {
        Self { since: None, postponed: false, last_round: None, interval: INTERVAL }
    }
}

impl CardSurplus {
    /// Takes the current surplus. Returns how many may be returned, and when. It waits once while the surplus grows.
    pub(super) fn due(&mut self, count: u32, now: Time) -> Option<(u32, Time)> {
        self.calm_down(now);
        if count == 0 {
            self.restart_interval();
            return None;
        }
        let (mut since, mut least) =
            self.since.map_or((now, count), |(at, least)| (at, least.min(count)));
        if now >= since + self.interval && count > least && !self.postponed {
            (since, least) = (now, count);
            self.postponed = true;
        }
        self.since = Some((since, least));
        Some((least, since + self.interval))
    }

    /// Notes a return.
    pub(super) fn gave(&mut self, count: u32, now: Time) {
        let given = self.last_round.filter(|(at, _)| *at == now).map_or(0, |(_, given)| given);
        self.last_round = Some((now, given + count));
        self.restart_interval();
    }

    fn restart_interval(&mut self) {
        self.since = None;
        self.postponed = false;
    }

    /// The number of addresses that were returned too early if a request is made now, and not for the first time.
    pub(super) fn missed(&self, now: Time) -> u32 {
        if self.interval > INTERVAL { self.returned_lately(now) } else { 0 }
    }

    fn returned_lately(&self, now: Time) -> u32 {
        let lately = |(at, _): &(Time, u32)| now < *at + self.verdict();
        self.last_round.filter(lately).map_or(0, |(_, given)| given)
    }

    /// Notes a request for addresses.
    pub(super) fn addresses_requested(&mut self, now: Time) {
        self.restart_interval();
        if self.returned_lately(now) > 0 {
            self.interval = Span((self.interval.0 * 2).min(LONGEST_INTERVAL.0));
        }
        self.last_round = None;
    }

    fn calm_down(&mut self, now: Time) {
        if self.last_round.is_some_and(|(at, _)| now >= at + self.verdict()) {
            self.interval = Span((self.interval.0 / 2).max(INTERVAL.0));
            self.last_round = None;
        }
    }

    fn verdict(&self) -> Span {
        Span(VERDICT * self.interval.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time(0) + Span::seconds(seconds)
    }

    /// The time and number of the next return if the surplus is `count` from `from` on, checked every second.
    fn next_round(surplus: &mut CardSurplus, count: u32, from: u64) -> (u64, u32) {
        let round = (from..from + 1000).find_map(|second| {
            let (least, due) = surplus.due(count, at(second))?;
            (due <= at(second)).then_some((second, least))
        });
        round.expect("a round within a thousand seconds")
    }

    #[test]
    fn only_a_lasting_surplus_is_returned() {
        let mut surplus = CardSurplus::default();
        for (second, count) in [(0, 5), (10, 2), (20, 4), (29, 2)] {
            assert!(surplus.due(count, at(second)).is_some_and(|(_, due)| due > at(second)));
        }
        assert_eq!(surplus.due(2, at(30)), Some((2, at(30))));
        assert_eq!(surplus.due(0, at(31)), None);
        assert_eq!(surplus.due(1, at(32)), Some((1, at(62))));
    }

    #[test]
    fn a_growing_surplus_delays_a_round_once() {
        let mut surplus = CardSurplus::default();
        surplus.due(1, at(0));
        assert_eq!(surplus.due(8, at(30)), Some((8, at(60))));
        assert_eq!(surplus.due(9, at(60)), Some((8, at(60))));
    }

    #[test]
    fn a_request_after_a_return_doubles_the_interval_up_to_a_bound() {
        let mut surplus = CardSurplus::default();
        let (mut now, mut waited) = (0, Vec::new());
        for _ in 0..4 {
            let (round, least) = next_round(&mut surplus, 1, now);
            waited.push(round - now);
            surplus.gave(least, at(round));
            assert_eq!(surplus.missed(at(round + 1)), u32::from(now > 0));
            surplus.addresses_requested(at(round + 1));
            now = round + 2;
        }
        assert_eq!(waited, [30, 60, 120, 120]);
    }

    #[test]
    fn a_return_without_a_later_request_halves_the_interval() {
        let mut surplus = CardSurplus::default();
        for now in [0, 100, 200] {
            surplus.gave(1, at(now));
            surplus.addresses_requested(at(now + 1));
        }
        assert_eq!(next_round(&mut surplus, 1, 300), (420, 1));
        surplus.gave(1, at(420));
        assert_eq!(surplus.due(0, at(420 + 4 * 120)), None);
        assert_eq!(surplus.missed(at(420 + 4 * 120)), 0);
        assert_eq!(next_round(&mut surplus, 1, 1000), (1060, 1));
    }

    #[test]
    fn a_round_over_several_enis_counts_as_one() {
        let mut surplus = CardSurplus::default();
        surplus.gave(1, at(0));
        surplus.addresses_requested(at(1));
        surplus.gave(2, at(100));
        surplus.gave(3, at(100));
        assert_eq!(surplus.missed(at(101)), 5);
        assert_eq!(surplus.missed(at(100 + 4 * 60)), 0);
    }
}

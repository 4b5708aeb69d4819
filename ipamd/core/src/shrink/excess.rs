//! How patiently does a card's pool hold what is too much? What is given back too soon must be asked
//! for again.

use config_model::{Span, Time};

/// Blocks are given back at most once in so long, and only those that were too many all the while.
const PATIENCE: Span = Span::seconds(30);
/// The patience doubles up to this.
const LONGEST_PATIENCE: Span = Span::seconds(120);
/// What is asked for within so many patiences after something was given back was given back too
/// soon: the patience doubles. If nothing is, it halves.
const VERDICT: u64 = 4;

/// How long a card has had too much.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Excess {
    /// Since when, and the fewest that were too many since; `None` if none were.
    since: Option<(Time, u32)>,
    /// More became too many meanwhile: a round was put off, to take all in one call.
    put_off: bool,
    /// The last round of giving back, and how many went, until its verdict.
    last_round: Option<(Time, u32)>,
    patience: Span,
}

impl Default for Excess {
    fn default() -> Self {
        Self { since: None, put_off: false, last_round: None, patience: PATIENCE }
    }
}

impl Excess {
    /// So many are too many now. How many may go, and when, if that stays so. While ever more are,
    /// it waits once for the rest.
    pub(super) fn due(&mut self, count: u32, now: Time) -> Option<(u32, Time)> {
        self.calm_down(now);
        if count == 0 {
            self.begin_anew();
            return None;
        }
        let (mut since, mut least) =
            self.since.map_or((now, count), |(at, least)| (at, least.min(count)));
        if now >= since + self.patience && count > least && !self.put_off {
            (since, least) = (now, count);
            self.put_off = true;
        }
        self.since = Some((since, least));
        Some((least, since + self.patience))
    }

    /// So many were given back.
    pub(super) fn gave(&mut self, count: u32, now: Time) {
        let given = self.last_round.filter(|(at, _)| *at == now).map_or(0, |(_, given)| given);
        self.last_round = Some((now, given + count));
        self.begin_anew();
    }

    fn begin_anew(&mut self) {
        self.since = None;
        self.put_off = false;
    }

    /// How many were given back too soon, if some are asked for now, and not for the first time.
    pub(super) fn missed(&self, now: Time) -> u32 {
        if self.patience > PATIENCE { self.given_lately(now) } else { 0 }
    }

    fn given_lately(&self, now: Time) -> u32 {
        let lately = |(at, _): &(Time, u32)| now < *at + self.verdict();
        self.last_round.filter(lately).map_or(0, |(_, given)| given)
    }

    /// Some were asked for.
    pub(super) fn regret(&mut self, now: Time) {
        self.begin_anew();
        if self.given_lately(now) > 0 {
            self.patience = Span((self.patience.0 * 2).min(LONGEST_PATIENCE.0));
        }
        self.last_round = None;
    }

    fn calm_down(&mut self, now: Time) {
        if self.last_round.is_some_and(|(at, _)| now >= at + self.verdict()) {
            self.patience = Span((self.patience.0 / 2).max(PATIENCE.0));
            self.last_round = None;
        }
    }

    fn verdict(&self) -> Span {
        Span(VERDICT * self.patience.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time(0) + Span::seconds(seconds)
    }

    /// When a round takes something, if `count` are too many from `from` on; it looks every second.
    fn next_round(excess: &mut Excess, count: u32, from: u64) -> (u64, u32) {
        let round = (from..from + 1000).find_map(|second| {
            let (least, due) = excess.due(count, at(second))?;
            (due <= at(second)).then_some((second, least))
        });
        round.expect("a round within a thousand seconds")
    }

    #[test]
    fn only_what_was_too_much_all_the_while_goes() {
        let mut excess = Excess::default();
        for (second, count) in [(0, 5), (10, 2), (20, 4), (29, 2)] {
            assert!(excess.due(count, at(second)).is_some_and(|(_, due)| due > at(second)));
        }
        assert_eq!(excess.due(2, at(30)), Some((2, at(30))));
        assert_eq!(excess.due(0, at(31)), None);
        assert_eq!(excess.due(1, at(32)), Some((1, at(62))));
    }

    #[test]
    fn while_more_becomes_too_much_a_round_is_put_off_once() {
        let mut excess = Excess::default();
        excess.due(1, at(0));
        assert_eq!(excess.due(8, at(30)), Some((8, at(60))));
        assert_eq!(excess.due(9, at(60)), Some((8, at(60))));
    }

    #[test]
    fn what_is_missed_doubles_the_patience_up_to_a_bound() {
        let mut excess = Excess::default();
        let (mut now, mut waited) = (0, Vec::new());
        for _ in 0..4 {
            let (round, least) = next_round(&mut excess, 1, now);
            waited.push(round - now);
            excess.gave(least, at(round));
            assert_eq!(excess.missed(at(round + 1)), u32::from(now > 0));
            excess.regret(at(round + 1));
            now = round + 2;
        }
        assert_eq!(waited, [30, 60, 120, 120]);
    }

    #[test]
    fn what_is_not_missed_brings_the_patience_back() {
        let mut excess = Excess::default();
        for now in [0, 100, 200] {
            excess.gave(1, at(now));
            excess.regret(at(now + 1));
        }
        assert_eq!(next_round(&mut excess, 1, 300), (420, 1));
        excess.gave(1, at(420));
        assert_eq!(excess.due(0, at(420 + 4 * 120)), None);
        assert_eq!(excess.missed(at(420 + 4 * 120)), 0);
        assert_eq!(next_round(&mut excess, 1, 1000), (1060, 1));
    }

    #[test]
    fn a_round_over_several_enis_counts_as_one() {
        let mut excess = Excess::default();
        excess.gave(1, at(0));
        excess.regret(at(1));
        excess.gave(2, at(100));
        excess.gave(3, at(100));
        assert_eq!(excess.missed(at(101)), 5);
        assert_eq!(excess.missed(at(100 + 4 * 60)), 0);
    }
}

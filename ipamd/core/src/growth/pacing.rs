//! The time of the next plan of each card. A burst of pods is gathered into one plan. Top-ups are at most as frequent
//! as the loop of amazon-vpc-cni.

use config_model::{CardIndex, Span, Time};
use std::collections::{BTreeMap, VecDeque};

/// The time for which a burst is gathered: ADDs of one kubelet sync arrive within it, and EC2 takes ten times as long
/// to answer. The first pods of a burst may find free addresses and thus not start it.
const GATHERING: Span = Span::millis(20);
/// The least interval between two top-ups that no pod waits for.
const TOP_UP: Span = Span::seconds(5);
/// The number of windows over which arrivals are counted. The short windows are for frequent pods, the long ones for
/// rarer pods.
const MEMORY: usize = 5;
const WINDOWS: [Span; 2] = [Span::seconds(1), Span::seconds(4)];
/// A plan within this time after the end of the last forecast shows that pods keep arriving.
const RAMP: Span = Span::seconds(20);
/// The forecast of the second such plan. Each further one doubles it.
const AHEAD: Span = Span::seconds(10);
/// The most arrivals to remember; a kubelet cannot have more in flight.
const MOST_ARRIVALS: usize = 1024;

/// The pacing of all cards.
#[derive(Debug, Default)]
pub(crate) struct Pacing {
    cards: BTreeMap<CardIndex, CardPacing>,
    arrivals: VecDeque<Time>,
}

#[derive(Clone, Copy, Debug, Default)]
struct CardPacing {
    /// The start of a shortage, and whether a pod waits for it.
    gathering: Option<(Time, bool)>,
    /// The time of the last plan.
    planned: Option<Time>,
    /// The forecast span of the last plan.
    ahead: Span,
}

impl Pacing {
    /// Counts a pod's request for an address.
    pub(crate) fn arrived(&mut self, now: Time) {
        self.arrivals.push_back(now);
        let [.., slowest] = WINDOWS;
        while self.arrivals.len() > MOST_ARRIVALS
            || self.arrivals.front().is_some_and(|at| windows_ago(*at, slowest, now) >= MEMORY)
        {
            self.arrivals.pop_front();
        }
    }

    /// The time of the card's next plan; `urgent` if a pod waits for it.
    pub(crate) fn due(&mut self, card: CardIndex, urgent: bool, now: Time) -> Time {
        let pacing = self.cards.entry(card).or_default();
        let (since, was_urgent) = *pacing.gathering.get_or_insert((now, urgent));
        if urgent == was_urgent || !urgent {
            pacing.gathering = Some((since, urgent));
        } else {
            pacing.gathering = Some((now, true));
        }
        let gathered = pacing.gathering.map_or(now, |(since, _)| since) + GATHERING;
        match pacing.planned.filter(|_| !urgent) {
            Some(planned) => gathered.max(planned + TOP_UP),
            None => gathered,
        }
    }

    /// Returns whether a plan is due within the gathering time.
    pub(crate) fn gathers(&self, now: Time) -> bool {
        let soon = |pacing: &CardPacing| {
            pacing.gathering.is_some_and(|(since, _)| now < since + GATHERING)
        };
        self.cards.values().any(soon)
    }

    /// The card lacks nothing any longer.
    pub(crate) fn at_rest(&mut self, card: CardIndex) {
        if let Some(pacing) = self.cards.get_mut(&card) {
            pacing.gathering = None;
        }
    }

    /// A plan has made calls with this forecast span.
    pub(crate) fn planned(&mut self, card: CardIndex, ahead: Span, now: Time) {
        self.cards.insert(card, CardPacing { gathering: None, planned: Some(now), ahead });
    }

    /// The forecast span of a plan made now. It is zero unless pods keep arriving and plans follow each other. It then
    /// doubles up to `most`, so that a long series of pods takes few calls.
    pub(crate) fn ahead(&self, card: CardIndex, most: Span, now: Time) -> Span {
        let Some(pacing) = self.cards.get(&card) else { return Span(0) };
        let lately = |planned: Time| now < planned + pacing.ahead + RAMP;
        if !pacing.planned.is_some_and(lately) || self.coming_within(most, now) == 0 {
            return Span(0);
        }
        Span((pacing.ahead.0 * 2).max(AHEAD.0).min(most.0))
    }

    /// The number of pods that arrive within the span if the rate stays the same.
    pub(crate) fn coming_within(&self, span: Span, now: Time) -> u64 {
        let of_window = |window: Span| u64::from(self.in_a_window(window, now)) * span.0 / window.0;
        WINDOWS.into_iter().map(of_window).max().unwrap_or(0)
    }

    /// The median of the arrivals in the last few windows: a single burst does not predict another.
    fn in_a_window(&self, window: Span, now: Time) -> u32 {
        let mut counts = [0_u32; MEMORY];
        for at in &self.arrivals {
            if let Some(count) = counts.get_mut(windows_ago(*at, window, now)) {
                *count += 1;
            }
        }
        counts.sort_unstable();
        counts[MEMORY / 2]
    }
}

fn windows_ago(at: Time, window: Span, now: Time) -> usize {
    usize::try_from(now.since(at).0 / window.0).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CARD: CardIndex = CardIndex(0);

    #[test]
    fn a_burst_is_gathered_from_its_first_waiting_pod() {
        let mut pacing = Pacing::default();
        assert_eq!(pacing.due(CARD, false, Time(990)), Time(1010));
        assert_eq!(pacing.due(CARD, true, Time(1000)), Time(1020));
        assert_eq!(pacing.due(CARD, true, Time(1015)), Time(1020));
        pacing.planned(CARD, Span(0), Time(1020));
        assert_eq!(pacing.due(CARD, true, Time(1021)), Time(1041));
    }

    #[test]
    fn a_wait_without_a_plan_does_not_shorten_the_next() {
        let mut pacing = Pacing::default();
        pacing.due(CARD, true, Time(1000));
        pacing.at_rest(CARD);
        assert_eq!(pacing.due(CARD, true, Time(2000)), Time(2020));
    }

    #[test]
    fn the_first_top_up_is_soon_and_the_others_are_five_seconds_apart() {
        let mut pacing = Pacing::default();
        assert_eq!(pacing.due(CARD, false, Time(1000)), Time(1020));
        pacing.planned(CARD, Span(0), Time(1020));
        assert_eq!(pacing.due(CARD, false, Time(1021)), Time(6020));
        assert_eq!(pacing.due(CardIndex(1), false, Time(1001)), Time(1021));
        assert_eq!(pacing.due(CARD, true, Time(1100)), Time(1120));
    }

    /// One pod per second, and a plan at the end of each forecast.
    #[test]
    fn consecutive_plans_look_further_ahead() {
        let mut pacing = Pacing::default();
        let most = Span::seconds(30);
        let mut looked = Vec::new();
        let mut next = 10;
        for second in 0..120 {
            pacing.arrived(Time(second * 1000));
            if second == next {
                let ahead = pacing.ahead(CARD, most, Time(second * 1000));
                pacing.planned(CARD, ahead, Time(second * 1000));
                looked.push(ahead.0 / 1000);
                next += ahead.0 / 1000 + 1;
            }
        }
        assert_eq!(looked, [0, 10, 20, 30, 30, 30]);
        assert_eq!(pacing.ahead(CARD, most, Time(200_000)), Span(0));
    }

    #[test]
    fn slowly_arriving_pods_are_forecast_too() {
        let mut pacing = Pacing::default();
        for at in 0..6 {
            pacing.arrived(Time(at * 4000));
        }
        assert_eq!(pacing.coming_within(Span::seconds(20), Time(20_500)), 5);
        assert_eq!(pacing.coming_within(Span::seconds(20), Time(33_000)), 0);
    }

    #[test]
    fn a_burst_does_not_announce_another() {
        let mut pacing = Pacing::default();
        for _ in 0..110 {
            pacing.arrived(Time(1000));
        }
        pacing.planned(CARD, Span(0), Time(1020));
        assert_eq!(pacing.ahead(CARD, Span::seconds(30), Time(3000)), Span(0));
    }
}

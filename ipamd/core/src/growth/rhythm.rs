//! When is the next plan of a card due? A burst is gathered into one; what nobody waits for comes
//! no more often than amazon-vpc-cni's loop would come.

use config_model::{CardIndex, Span, Time};
use std::collections::{BTreeMap, VecDeque};

/// So long the rest of a burst is waited for: ADDs of one kubelet sync arrive within it, and EC2
/// takes ten times as long to answer. Its first pods may take what is free and be no burst yet.
const GATHERING: Span = Span::millis(20);
/// Top-ups that nobody waits for keep so far apart.
const TOP_UP: Span = Span::seconds(5);
/// Arrivals in as many seconds say what is to come in as many.
const MEMORY: usize = 5;
/// A plan so soon after another shows that pods keep coming.
const RAMP: Span = Span::seconds(10);
/// More arrivals than a kubelet can have in flight need not be remembered.
const MOST_ARRIVALS: usize = 1024;

/// The rhythm of all cards.
#[derive(Debug, Default)]
pub(crate) struct Rhythm {
    cards: BTreeMap<CardIndex, Beat>,
    arrivals: VecDeque<Time>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Beat {
    /// Since when something is lacking, and whether somebody waits for it.
    gathering: Option<(Time, bool)>,
    /// The last plan.
    planned: Option<Time>,
}

impl Rhythm {
    /// A pod has asked for an address.
    pub(crate) fn arrived(&mut self, now: Time) {
        self.arrivals.push_back(now);
        while self.arrivals.len() > MOST_ARRIVALS
            || self.arrivals.front().is_some_and(|at| second_ago(*at, now) >= MEMORY)
        {
            self.arrivals.pop_front();
        }
    }

    /// When the card's next plan is due; `urgent` if somebody waits for it.
    pub(crate) fn due(&mut self, card: CardIndex, urgent: bool, now: Time) -> Time {
        let beat = self.cards.entry(card).or_default();
        let (since, was_urgent) = *beat.gathering.get_or_insert((now, urgent));
        if urgent == was_urgent || !urgent {
            beat.gathering = Some((since, urgent));
        } else {
            beat.gathering = Some((now, true));
        }
        let gathered = beat.gathering.map_or(now, |(since, _)| since) + GATHERING;
        match beat.planned.filter(|_| !urgent) {
            Some(planned) => gathered.max(planned + TOP_UP),
            None => gathered,
        }
    }

    /// Whether some card's plan is due in a moment.
    pub(crate) fn gathers(&self, now: Time) -> bool {
        let soon = |beat: &Beat| beat.gathering.is_some_and(|(since, _)| now < since + GATHERING);
        self.cards.values().any(soon)
    }

    /// The card lacks nothing.
    pub(crate) fn at_rest(&mut self, card: CardIndex) {
        if let Some(beat) = self.cards.get_mut(&card) {
            beat.gathering = None;
        }
    }

    /// A plan made calls.
    pub(crate) fn planned(&mut self, card: CardIndex, now: Time) {
        self.cards.insert(card, Beat { gathering: None, planned: Some(now) });
    }

    /// How many more pods will come before the next plan, if they keep coming as they do: none
    /// unless one plan follows the other.
    pub(crate) fn foreseen(&self, card: CardIndex, now: Time) -> u32 {
        let planned = self.cards.get(&card).and_then(|beat| beat.planned);
        if planned.is_none_or(|planned| now.since(planned) >= RAMP) {
            return 0;
        }
        // Per second the middle one of the last few: a burst is over when it has come.
        let mut per_second = [0_u32; MEMORY];
        for at in &self.arrivals {
            if let Some(count) = per_second.get_mut(second_ago(*at, now)) {
                *count += 1;
            }
        }
        per_second.sort_unstable();
        per_second[MEMORY / 2] * 5
    }
}

fn second_ago(at: Time, now: Time) -> usize {
    usize::try_from(now.since(at).0 / 1000).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CARD: CardIndex = CardIndex(0);

    #[test]
    fn a_burst_is_gathered_from_the_first_pod_that_waits() {
        let mut rhythm = Rhythm::default();
        assert_eq!(rhythm.due(CARD, false, Time(990)), Time(1010));
        assert_eq!(rhythm.due(CARD, true, Time(1000)), Time(1020));
        assert_eq!(rhythm.due(CARD, true, Time(1015)), Time(1020));
        rhythm.planned(CARD, Time(1020));
        assert_eq!(rhythm.due(CARD, true, Time(1021)), Time(1041));
    }

    #[test]
    fn a_wait_that_ended_without_a_plan_does_not_hurry_the_next() {
        let mut rhythm = Rhythm::default();
        rhythm.due(CARD, true, Time(1000));
        rhythm.at_rest(CARD);
        assert_eq!(rhythm.due(CARD, true, Time(2000)), Time(2020));
    }

    #[test]
    fn the_first_top_up_comes_soon_and_the_others_five_seconds_apart() {
        let mut rhythm = Rhythm::default();
        assert_eq!(rhythm.due(CARD, false, Time(1000)), Time(1020));
        rhythm.planned(CARD, Time(1020));
        assert_eq!(rhythm.due(CARD, false, Time(1021)), Time(6020));
        assert_eq!(rhythm.due(CardIndex(1), false, Time(1001)), Time(1021));
        assert_eq!(rhythm.due(CARD, true, Time(1100)), Time(1120));
    }

    #[test]
    fn only_a_plan_soon_after_another_looks_ahead() {
        let mut rhythm = Rhythm::default();
        for second in 0..20 {
            rhythm.arrived(Time(second * 1000));
        }
        assert_eq!(rhythm.foreseen(CARD, Time(19_000)), 0);
        rhythm.planned(CARD, Time(12_000));
        assert_eq!(rhythm.foreseen(CARD, Time(19_000)), 5);
        assert_eq!(rhythm.foreseen(CARD, Time(22_000)), 0);
    }

    #[test]
    fn a_burst_does_not_announce_another() {
        let mut rhythm = Rhythm::default();
        for _ in 0..110 {
            rhythm.arrived(Time(1000));
        }
        rhythm.planned(CARD, Time(1020));
        assert_eq!(rhythm.foreseen(CARD, Time(3000)), 0);
    }
}

//! When is the next plan of a card due? A burst is gathered into one; what nobody waits for comes
//! no more often than amazon-vpc-cni's loop would come.

use config_model::{CardIndex, Span, Time};
use std::collections::{BTreeMap, VecDeque};

/// So long the rest of a burst is waited for: ADDs of one kubelet sync arrive within it, and EC2
/// takes ten times as long to answer. Its first pods may take what is free and be no burst yet.
const GATHERING: Span = Span::millis(20);
/// Top-ups that nobody waits for keep so far apart.
const TOP_UP: Span = Span::seconds(5);
/// Arrivals in as many equal times say how many come: in seconds, and in slower beats for pods that
/// come less often than that.
const MEMORY: usize = 5;
const BEATS: [Span; 2] = [Span::seconds(1), Span::seconds(4)];
/// A plan so soon after the time that another looked ahead shows that pods keep coming.
const RAMP: Span = Span::seconds(20);
/// So far ahead looks the second of two such plans; each further one twice as far.
const AHEAD: Span = Span::seconds(10);
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
    /// How far ahead it looked.
    ahead: Span,
}

impl Rhythm {
    /// A pod has asked for an address.
    pub(crate) fn arrived(&mut self, now: Time) {
        self.arrivals.push_back(now);
        let [.., slowest] = BEATS;
        while self.arrivals.len() > MOST_ARRIVALS
            || self.arrivals.front().is_some_and(|at| beats_ago(*at, slowest, now) >= MEMORY)
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

    /// A plan made calls, and looked so far ahead.
    pub(crate) fn planned(&mut self, card: CardIndex, ahead: Span, now: Time) {
        self.cards.insert(card, Beat { gathering: None, planned: Some(now), ahead });
    }

    /// How far a plan made now looks ahead: not at all unless pods keep coming and one plan follows
    /// the other; then ever further, up to `most`, so that what keeps coming for long takes few.
    pub(crate) fn ahead(&self, card: CardIndex, most: Span, now: Time) -> Span {
        let Some(beat) = self.cards.get(&card) else { return Span(0) };
        let lately = |planned: Time| now < planned + beat.ahead + RAMP;
        if !beat.planned.is_some_and(lately) || self.coming_within(most, now) == 0 {
            return Span(0);
        }
        Span((beat.ahead.0 * 2).max(AHEAD.0).min(most.0))
    }

    /// How many pods come in so long, if they keep coming as they do.
    pub(crate) fn coming_within(&self, span: Span, now: Time) -> u64 {
        let of_beat = |beat: Span| u64::from(self.in_a_beat(beat, now)) * span.0 / beat.0;
        BEATS.into_iter().map(of_beat).max().unwrap_or(0)
    }

    /// How many came in the middle one of the last few beats, counted by size: a burst is over when
    /// it has come.
    fn in_a_beat(&self, beat: Span, now: Time) -> u32 {
        let mut counts = [0_u32; MEMORY];
        for at in &self.arrivals {
            if let Some(count) = counts.get_mut(beats_ago(*at, beat, now)) {
                *count += 1;
            }
        }
        counts.sort_unstable();
        counts[MEMORY / 2]
    }
}

fn beats_ago(at: Time, beat: Span, now: Time) -> usize {
    usize::try_from(now.since(at).0 / beat.0).unwrap_or(usize::MAX)
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
        rhythm.planned(CARD, Span(0), Time(1020));
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
        rhythm.planned(CARD, Span(0), Time(1020));
        assert_eq!(rhythm.due(CARD, false, Time(1021)), Time(6020));
        assert_eq!(rhythm.due(CardIndex(1), false, Time(1001)), Time(1021));
        assert_eq!(rhythm.due(CARD, true, Time(1100)), Time(1120));
    }

    /// A pod a second, and a plan when the last one's look ahead is over.
    #[test]
    fn plans_that_follow_each_other_look_ever_further_ahead() {
        let mut rhythm = Rhythm::default();
        let most = Span::seconds(30);
        let mut looked = Vec::new();
        let mut next = 10;
        for second in 0..120 {
            rhythm.arrived(Time(second * 1000));
            if second == next {
                let ahead = rhythm.ahead(CARD, most, Time(second * 1000));
                rhythm.planned(CARD, ahead, Time(second * 1000));
                looked.push(ahead.0 / 1000);
                next += ahead.0 / 1000 + 1;
            }
        }
        assert_eq!(looked, [0, 10, 20, 30, 30, 30]);
        assert_eq!(rhythm.ahead(CARD, most, Time(200_000)), Span(0));
    }

    #[test]
    fn slow_pods_are_foreseen_too() {
        let mut rhythm = Rhythm::default();
        for at in 0..6 {
            rhythm.arrived(Time(at * 4000));
        }
        assert_eq!(rhythm.coming_within(Span::seconds(20), Time(20_500)), 5);
        assert_eq!(rhythm.coming_within(Span::seconds(20), Time(33_000)), 0);
    }

    #[test]
    fn a_burst_does_not_announce_another() {
        let mut rhythm = Rhythm::default();
        for _ in 0..110 {
            rhythm.arrived(Time(1000));
        }
        rhythm.planned(CARD, Span(0), Time(1020));
        assert_eq!(rhythm.ahead(CARD, Span::seconds(30), Time(3000)), Span(0));
    }
}

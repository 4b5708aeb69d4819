//! When may an action be tried again?

use crate::{Action, CloudFault, Remedy};
use config_model::{Span, Time};
use std::collections::BTreeMap;

/// The first pause after a fault; it doubles with each further one.
const FIRST_PAUSE: Span = Span::millis(500);
/// The longest pause after faults that pass.
const LONGEST_PAUSE: Span = Span::seconds(30);
/// The pause after a fault that only a person can mend, or a limit.
const OPERATOR_PAUSE: Span = Span::seconds(60);

/// Back-off for each action, with jitter that the seed decides.
#[derive(Debug)]
pub(crate) struct Pace {
    jitter: u64,
    pauses: BTreeMap<Action, Pause>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Pause {
    faults: u32,
    until: Time,
}

impl Pace {
    pub(crate) fn new(seed: u64) -> Self {
        Self { jitter: seed, pauses: BTreeMap::new() }
    }

    /// When the action must rest still: until when.
    pub(crate) fn paused(&self, action: Action, now: Time) -> Option<Time> {
        self.pauses.get(&action).map(|pause| pause.until).filter(|until| *until > now)
    }

    pub(crate) fn succeeded(&mut self, action: Action) {
        self.pauses.remove(&action);
    }

    pub(crate) fn failed(&mut self, action: Action, fault: &CloudFault, now: Time) {
        let faults = self.pauses.get(&action).map_or(0, |pause| pause.faults).saturating_add(1);
        let doubled = FIRST_PAUSE.0.saturating_mul(1 << (faults - 1).min(10)).min(LONGEST_PAUSE.0);
        let pause = match fault.remedy {
            Remedy::RetryAfter { wait } => Span(doubled.max(wait.unwrap_or_default().0)),
            Remedy::TellOperator | Remedy::LimitReached => OPERATOR_PAUSE,
            Remedy::TryElsewhere | Remedy::Gone | Remedy::Unknown => Span(doubled),
        };
        let until = now + self.jittered(pause);
        self.pauses.insert(action, Pause { faults, until });
    }

    /// Between three quarters of the span and five quarters.
    pub(crate) fn jittered(&mut self, span: Span) -> Span {
        let half = span.0 / 2;
        Span(span.0 - half / 2 + self.draw() % (half + 1))
    }

    /// Splitmix64: well spread, and the same for the same seed.
    fn draw(&mut self) -> u64 {
        self.jitter = self.jitter.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.jitter;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn throttled() -> CloudFault {
        CloudFault {
            code: "RequestLimitExceeded".into(),
            message: "slow down".into(),
            remedy: Remedy::RetryAfter { wait: None },
        }
    }

    #[test]
    fn pauses_double_up_to_a_bound_and_end_with_a_success() {
        let mut pace = Pace::new(7);
        let mut pauses = Vec::new();
        for _ in 0..12 {
            pace.failed(Action::Assign, &throttled(), Time(0));
            pauses.push(pace.paused(Action::Assign, Time(0)).map_or(0, |until| until.0));
        }
        assert!(pauses[0] >= 375 && pauses[0] <= 625, "{pauses:?}");
        assert!(pauses[11] >= 22_500 && pauses[11] <= 37_500, "{pauses:?}");
        assert_eq!(pace.paused(Action::Create, Time(0)), None);
        pace.succeeded(Action::Assign);
        assert_eq!(pace.paused(Action::Assign, Time(0)), None);
    }

    #[test]
    fn the_same_seed_gives_the_same_pauses() {
        let pauses = |seed| {
            let mut pace = Pace::new(seed);
            (0..5).map(|_| pace.jittered(Span::seconds(10)).0).collect::<Vec<_>>()
        };
        assert_eq!(pauses(3), pauses(3));
        assert_ne!(pauses(3), pauses(4));
    }
}

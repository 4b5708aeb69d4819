//! The budgets of EC2 actions: one token bucket per action that adapts to throttling.
//!
//! EC2 throttles per account and region, and a node does not know the others. A throttled call halves the rate and
//! empties the bucket; each success raises the rate towards the ceiling. Other faults pause the action with a
//! back-off. Everything is arithmetic on [`Time`].

#[cfg(test)]
mod tests;

use crate::{Action, BudgetView, CallLimits, CloudFault, Remedy};
use config_model::{Span, Time};
use std::{collections::BTreeMap, sync::Arc};

/// One call, in the unit of the buckets.
const TOKEN: i64 = 1_000_000;
/// The lowest rate, one call in half a minute, in thousandths of a call per second.
const FLOOR: u64 = 32;
/// The lowest rate while pods wait for this node's calls, one call in eight seconds. The last few of many nodes with a
/// shared limit must still use all of it.
const PRESSED_FLOOR: u64 = 125;
/// The time after a throttled call for which calls that no pod waits for are delayed. Observations that only confirm
/// known facts are delayed longer.
pub(crate) const CALM: Span = Span::seconds(60);
pub(crate) const LONG_CALM: Span = Span::seconds(240);
/// A success, or a minute without throttling, raises the rate by this fraction of the ceiling.
const CREEP: u64 = 16;
/// The time without throttling after which the rate rises by itself.
const PEACE: Span = Span::seconds(60);
/// The first pause after a fault other than throttling. It doubles with each further fault.
const FIRST_PAUSE: Span = Span::millis(500);
/// The longest pause after temporary faults.
const LONGEST_PAUSE: Span = Span::seconds(30);
/// The longest `Retry-After` that is honored.
const LONGEST_WAIT: Span = Span::seconds(300);
/// The pause after a limit or a fault that only a person can fix.
const OPERATOR_PAUSE: Span = Span::seconds(60);

/// The budget of an action without throttling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ceiling {
    burst: u32,
    /// Thousandths of a call per second.
    rate: u64,
}

impl Ceiling {
    fn of(action: Action, limits: CallLimits) -> Self {
        let per_second = match action {
            Action::Describe | Action::DescribeSubnets => limits.reads_per_second,
            Action::Create
            | Action::Attach
            | Action::Modify
            | Action::Assign
            | Action::Unassign
            | Action::AssignIpv6
            | Action::UnassignIpv6
            | Action::Detach
            | Action::Delete
            | Action::Tag => limits.changes_per_second,
        };
        Self { burst: limits.burst.max(1), rate: u64::from(per_second.max(1)) * 1000 }
    }
}

/// The budgets of all actions and the jitter, which derives from the seed.
#[derive(Debug)]
pub(crate) struct Budgets {
    limits: CallLimits,
    floor: u64,
    /// The time of the last throttled call, and this node's share of the delay after it, in thousandths. The share
    /// spreads nodes that were throttled together.
    throttled: Option<(Time, u64)>,
    jitter: u64,
    buckets: BTreeMap<Action, Bucket>,
}

/// The budget of one action.
#[derive(Clone, Debug)]
struct Bucket {
    ceiling: Ceiling,
    /// The lowest rate.
    floor: u64,
    rate: u64,
    /// In millionths of a call; a negative count delays the next call.
    tokens: i64,
    filled: Time,
    /// The time of the last halving. Throttling of calls that started earlier does not count again.
    halved: Option<Time>,
    /// The time of the last rise without a call.
    raised: Time,
    /// Faults in a row, without throttling.
    faults: u32,
    /// The last fault, until a call succeeds.
    fault: Option<(Arc<str>, Remedy)>,
    not_before: Time,
    /// The start of the wait for this action, and its current end.
    wanted: Option<(Time, Time)>,
}

/// The effect of a fault on the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BudgetChange {
    /// The rate was halved to this many thousandths of a call per second.
    Halved { rate_milli: u64 },
    /// The action pauses.
    Rests,
}

impl Budgets {
    pub(crate) fn new(limits: CallLimits, seed: u64) -> Self {
        Self { limits, floor: FLOOR, throttled: None, jitter: seed, buckets: BTreeMap::new() }
    }

    /// Sets whether pods wait for the results of calls.
    pub(crate) fn press(&mut self, pressed: bool) {
        self.floor = if pressed { PRESSED_FLOOR } else { FLOOR };
    }

    /// The end of the delay for calls that no pod waits for; `None` without one. EC2 has a limit per action, but the
    /// same load exhausts them all.
    pub(crate) fn storm(&self, calm: Span, now: Time) -> Option<Time> {
        let (at, share) = self.throttled?;
        Some(at + Span(calm.0 * share / 1000)).filter(|until| *until > now)
    }

    /// The time of the next allowed call; `None` if one is allowed now.
    pub(crate) fn next(&mut self, action: Action, now: Time) -> Option<Time> {
        let bucket = self.bucket(action, now);
        bucket.fill(now);
        let next = bucket.next_token(now).max(bucket.not_before);
        if next <= now {
            return None;
        }
        // A wait that ended without a call was given up.
        let since =
            bucket.wanted.filter(|(_, until)| now <= *until).map_or(now, |(since, _)| since);
        bucket.wanted = Some((since, next));
        Some(next)
    }

    /// Uses one token. Returns the time for which the action waited.
    pub(crate) fn take(&mut self, action: Action, now: Time) -> Span {
        let bucket = self.bucket(action, now);
        bucket.fill(now);
        bucket.tokens -= TOKEN;
        bucket.wanted.take().map_or(Span(0), |(since, until)| now.min(until).since(since))
    }

    /// Notes a success.
    pub(crate) fn succeeded(&mut self, action: Action, now: Time) {
        let bucket = self.bucket(action, now);
        bucket.fill(now);
        bucket.faults = 0;
        bucket.fault = None;
        bucket.raise(1);
    }

    /// The last fault of the action, until a call succeeds.
    pub(crate) fn fault(&self, action: Action) -> Option<Arc<str>> {
        self.buckets.get(&action)?.fault.as_ref().map(|(text, _)| Arc::clone(text))
    }

    /// Notes the fault of a call that started at `started`.
    pub(crate) fn failed(
        &mut self,
        action: Action,
        fault: &CloudFault,
        started: Time,
        now: Time,
    ) -> BudgetChange {
        self.bucket(action, now).fault = Some((Arc::from(fault.to_string()), fault.remedy));
        let wait = match fault.remedy {
            Remedy::RetryAfter { wait } => wait.unwrap_or_default().min(LONGEST_WAIT),
            Remedy::TryElsewhere
            | Remedy::NotifyOperator
            | Remedy::Gone
            | Remedy::LimitReached
            | Remedy::Unknown => Span(0),
        };
        if is_throttling(fault) {
            // Between half of a call's time and one and a half, so that throttled nodes return at different times.
            let late = i64::try_from(self.draw() % 1001).unwrap_or(0) * (TOKEN / 1000);
            let bucket = self.bucket(action, now);
            bucket.fill(now);
            bucket.not_before = bucket.not_before.max(now + wait);
            let news = bucket.halved.is_none_or(|halved| started > halved);
            if news {
                bucket.rate = (bucket.rate / 2).max(bucket.floor);
                bucket.halved = Some(now);
                bucket.tokens = TOKEN / 2 - late;
            }
            bucket.raised = now;
            let lesson = BudgetChange::Halved { rate_milli: bucket.rate };
            self.throttled = Some((now, self.jittered(Span(1000)).0));
            return lesson;
        }
        let faults = self.bucket(action, now).faults.saturating_add(1);
        let doubled = FIRST_PAUSE.0.saturating_mul(1 << (faults - 1).min(10)).min(LONGEST_PAUSE.0);
        let pause = match fault.remedy {
            Remedy::NotifyOperator | Remedy::LimitReached => OPERATOR_PAUSE,
            Remedy::RetryAfter { .. } | Remedy::TryElsewhere | Remedy::Gone | Remedy::Unknown => {
                Span(doubled.max(wait.0))
            }
        };
        let until = now + self.jittered(pause);
        let bucket = self.bucket(action, now);
        bucket.faults = faults;
        bucket.not_before = until;
        BudgetChange::Rests
    }

    /// The current state of all buckets in use.
    pub(crate) fn views(&self, now: Time) -> Vec<BudgetView> {
        let view = |(action, bucket): (&Action, &Bucket)| {
            let mut bucket = bucket.clone();
            bucket.set_floor(self.floor, now);
            bucket.fill(now);
            BudgetView {
                action: *action,
                milli_tokens: u64::try_from(bucket.tokens / 1000).unwrap_or(0),
                rate_milli_per_second: bucket.rate,
                ceiling_milli_per_second: bucket.ceiling.rate,
                burst: bucket.burst(),
                fault: bucket.fault,
            }
        };
        self.buckets.iter().map(view).collect()
    }

    /// Returns a random span between 75 % and 125 % of the given one.
    pub(crate) fn jittered(&mut self, span: Span) -> Span {
        let half = span.0 / 2;
        Span(span.0 - half / 2 + self.draw() % (half + 1))
    }

    /// Splitmix64: uniform, and deterministic for a seed.
    fn draw(&mut self) -> u64 {
        self.jitter = self.jitter.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.jitter;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn bucket(&mut self, action: Action, now: Time) -> &mut Bucket {
        let limits = self.limits;
        let full = || Bucket::full(Ceiling::of(action, limits), now);
        let bucket = self.buckets.entry(action).or_insert_with(full);
        bucket.set_floor(self.floor, now);
        bucket
    }
}

impl Bucket {
    fn full(ceiling: Ceiling, now: Time) -> Self {
        Self {
            ceiling,
            floor: FLOOR,
            rate: ceiling.rate,
            tokens: i64::from(ceiling.burst) * TOKEN,
            filled: now,
            halved: None,
            raised: now,
            faults: 0,
            fault: None,
            not_before: Time(0),
            wanted: None,
        }
    }

    /// A rise of the floor raises the rate; a fall keeps it.
    fn set_floor(&mut self, floor: u64, now: Time) {
        if self.floor != floor {
            self.fill(now);
            self.floor = floor;
            self.rate = self.rate.max(floor);
        }
    }

    /// The burst is proportional to the rate. A bucket that fills for minutes under throttling would otherwise cause a
    /// burst of throttled calls.
    fn burst(&self) -> u32 {
        let share = u64::from(self.ceiling.burst) * self.rate / self.ceiling.rate;
        u32::try_from(share.max(1)).unwrap_or(self.ceiling.burst)
    }

    /// Fills the bucket up to `now`: a thousandth of a call per second is a millionth per millisecond.
    fn fill(&mut self, now: Time) {
        let elapsed = now.since(self.filled).0;
        self.filled = self.filled.max(now);
        let gained = i64::try_from(self.rate.saturating_mul(elapsed)).unwrap_or(i64::MAX);
        let minutes = now.since(self.raised).0 / PEACE.0;
        if minutes > 0 {
            self.raised = self.raised + Span(minutes * PEACE.0);
            self.raise(minutes);
        }
        let full = i64::from(self.burst()) * TOKEN;
        self.tokens = self.tokens.saturating_add(gained).min(full);
    }

    fn raise(&mut self, times: u64) {
        let more = (self.ceiling.rate / CREEP).saturating_mul(times);
        self.rate = self.rate.saturating_add(more).min(self.ceiling.rate);
    }

    fn next_token(&self, now: Time) -> Time {
        let lacking = u64::try_from(TOKEN - self.tokens).unwrap_or(0);
        now + Span(lacking.div_ceil(self.rate.max(1)))
    }
}

/// Returns whether EC2 or a proxy reports too many calls.
pub(crate) fn is_throttling(fault: &CloudFault) -> bool {
    let named = ["RequestLimitExceeded", "EC2ThrottledException", "TooManyRequestsException"];
    let begins = ["Throttling", "RequestThrottled"];
    matches!(fault.remedy, Remedy::RetryAfter { .. })
        && (named.contains(&fault.code.as_str())
            || fault.code == "HTTP429"
            || begins.iter().any(|word| fault.code.starts_with(word)))
}

//! When may an action be called? One token bucket per action, which learns what EC2 bears.
//!
//! EC2 throttles per account and region, and no node knows the others: a throttled call halves the
//! rate and empties the bucket, calls that go through creep back to the ceiling. Faults that are
//! not throttling pause the action by a back-off instead. All of it is arithmetic on [`Time`].

#[cfg(test)]
mod tests;

use crate::{Action, BudgetView, CallLimits, CloudFault, Remedy};
use config_model::{Span, Time};
use std::{collections::BTreeMap, sync::Arc};

/// One call, in the unit in which buckets count.
const TOKEN: i64 = 1_000_000;
/// The rate never falls below one call in half a minute, in thousandths of a call per second.
const FLOOR: u64 = 32;
/// Nor, while pods have nothing but this node's calls to wait for, below one call in eight seconds:
/// of many nodes that share a bucket, the last few must still use all that comes to it.
const PRESSED_FLOOR: u64 = 125;
/// So long after a throttled call, what nobody waits for leaves the account's buckets to others;
/// looks that only confirm what is known do so for longer.
pub(crate) const CALM: Span = Span::seconds(60);
pub(crate) const LONG_CALM: Span = Span::seconds(240);
/// A call that went through adds this part of the ceiling to the rate; so does a minute of peace.
const CREEP: u64 = 16;
/// After so long without throttling the rate creeps back by itself.
const PEACE: Span = Span::seconds(60);
/// The first pause after a fault that is not throttling; it doubles with each further one.
const FIRST_PAUSE: Span = Span::millis(500);
/// The longest pause after faults that pass.
const LONGEST_PAUSE: Span = Span::seconds(30);
/// The longest pause that EC2 may ask for.
const LONGEST_WAIT: Span = Span::seconds(300);
/// The pause after a fault that only a person can mend, or a limit.
const OPERATOR_PAUSE: Span = Span::seconds(60);

/// What an action may use while EC2 does not object.
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

/// The budgets of all actions, and the jitter, which the seed decides.
#[derive(Debug)]
pub(crate) struct Budgets {
    limits: CallLimits,
    floor: u64,
    /// The last throttled call of any action, and in what share of a calm this node stays behind,
    /// in thousandths: nodes that were throttled together come back apart.
    throttled: Option<(Time, u64)>,
    jitter: u64,
    buckets: BTreeMap<Action, Bucket>,
}

/// What one action may use.
#[derive(Clone, Debug)]
struct Bucket {
    ceiling: Ceiling,
    /// Below which the rate does not fall.
    floor: u64,
    rate: u64,
    /// In millionths of a call; below zero it waits longer for the next one.
    tokens: i64,
    filled: Time,
    /// The last time that the rate was halved: calls begun before say nothing new.
    halved: Option<Time>,
    /// When peace last raised the rate.
    raised: Time,
    /// Faults in a row that are not throttling, and the pause after the last one.
    faults: u32,
    /// What the last fault said, until a call goes through.
    fault: Option<(Arc<str>, Remedy)>,
    not_before: Time,
    /// Since when the action has been wanted and could not be called, and until when.
    wanted: Option<(Time, Time)>,
}

/// What a fault did to the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lesson {
    /// The rate was halved to so many thousandths of a call per second.
    Halved { rate_milli: u64 },
    /// The action rests for a while.
    Rests,
}

impl Budgets {
    pub(crate) fn new(limits: CallLimits, seed: u64) -> Self {
        Self { limits, floor: FLOOR, throttled: None, jitter: seed, buckets: BTreeMap::new() }
    }

    /// Whether somebody waits for what calls bring.
    pub(crate) fn press(&mut self, pressed: bool) {
        self.floor = if pressed { PRESSED_FLOOR } else { FLOOR };
    }

    /// When what nobody waits for had better be left to others for now: until when. EC2 has a
    /// bucket for each action, but what drains one drains the next.
    pub(crate) fn storm(&self, calm: Span, now: Time) -> Option<Time> {
        let (at, share) = self.throttled?;
        Some(at + Span(calm.0 * share / 1000)).filter(|until| *until > now)
    }

    /// When the action may not be called yet: when it may.
    pub(crate) fn next(&mut self, action: Action, now: Time) -> Option<Time> {
        let bucket = self.bucket(action, now);
        bucket.fill(now);
        let next = bucket.next_token(now).max(bucket.not_before);
        if next <= now {
            return None;
        }
        // A wait that came to its end without a call was given up.
        let since =
            bucket.wanted.filter(|(_, until)| now <= *until).map_or(now, |(since, _)| since);
        bucket.wanted = Some((since, next));
        Some(next)
    }

    /// Uses one token; says how long the action had been wanted.
    pub(crate) fn take(&mut self, action: Action, now: Time) -> Span {
        let bucket = self.bucket(action, now);
        bucket.fill(now);
        bucket.tokens -= TOKEN;
        bucket.wanted.take().map_or(Span(0), |(since, until)| now.min(until).since(since))
    }

    /// A call went through.
    pub(crate) fn succeeded(&mut self, action: Action, now: Time) {
        let bucket = self.bucket(action, now);
        bucket.fill(now);
        bucket.faults = 0;
        bucket.fault = None;
        bucket.raise(1);
    }

    /// What EC2 said when the action failed, if nothing has gone through since.
    pub(crate) fn fault(&self, action: Action) -> Option<Arc<str>> {
        self.buckets.get(&action)?.fault.as_ref().map(|(text, _)| Arc::clone(text))
    }

    /// A call begun at `started` failed.
    pub(crate) fn failed(
        &mut self,
        action: Action,
        fault: &CloudFault,
        started: Time,
        now: Time,
    ) -> Lesson {
        self.bucket(action, now).fault = Some((Arc::from(fault.to_string()), fault.remedy));
        let wait = match fault.remedy {
            Remedy::RetryAfter { wait } => wait.unwrap_or_default().min(LONGEST_WAIT),
            Remedy::TryElsewhere
            | Remedy::TellOperator
            | Remedy::Gone
            | Remedy::LimitReached
            | Remedy::Unknown => Span(0),
        };
        if is_throttling(fault) {
            // Between half a call's time and one and a half: nodes that were throttled together
            // come back apart.
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
            let lesson = Lesson::Halved { rate_milli: bucket.rate };
            self.throttled = Some((now, self.jittered(Span(1000)).0));
            return lesson;
        }
        let faults = self.bucket(action, now).faults.saturating_add(1);
        let doubled = FIRST_PAUSE.0.saturating_mul(1 << (faults - 1).min(10)).min(LONGEST_PAUSE.0);
        let pause = match fault.remedy {
            Remedy::TellOperator | Remedy::LimitReached => OPERATOR_PAUSE,
            Remedy::RetryAfter { .. } | Remedy::TryElsewhere | Remedy::Gone | Remedy::Unknown => {
                Span(doubled.max(wait.0))
            }
        };
        let until = now + self.jittered(pause);
        let bucket = self.bucket(action, now);
        bucket.faults = faults;
        bucket.not_before = until;
        Lesson::Rests
    }

    /// What each action that was called may use at this moment.
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

    /// What was learned below a higher floor is forgotten; above it, it holds.
    fn set_floor(&mut self, floor: u64, now: Time) {
        if self.floor != floor {
            self.fill(now);
            self.floor = floor;
            self.rate = self.rate.max(floor);
        }
    }

    /// The burst shrinks with the rate: a bucket that fills for minutes under throttling would
    /// only be thrown at EC2 at once.
    fn burst(&self) -> u32 {
        let share = u64::from(self.ceiling.burst) * self.rate / self.ceiling.rate;
        u32::try_from(share.max(1)).unwrap_or(self.ceiling.burst)
    }

    /// Brings the bucket up to now: a thousandth of a call per second is a millionth per
    /// millisecond.
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

/// Whether EC2 (or something before it) says that there are too many calls.
pub(crate) fn is_throttling(fault: &CloudFault) -> bool {
    let named = ["RequestLimitExceeded", "EC2ThrottledException", "TooManyRequestsException"];
    let begins = ["Throttling", "RequestThrottled"];
    matches!(fault.remedy, Remedy::RetryAfter { .. })
        && (named.contains(&fault.code.as_str())
            || fault.code == "HTTP429"
            || begins.iter().any(|word| fault.code.starts_with(word)))
}

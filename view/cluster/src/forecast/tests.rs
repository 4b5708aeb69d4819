use super::*;
use std::ops::Range;

/// A small generator of numbers, so that each trace can be repeated.
struct Dice(u64);

impl Dice {
    /// From 0 to 1.
    fn roll(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f64::from(u32::try_from(self.0 >> 33).unwrap_or(0)) / f64::from(1_u32 << 31)
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + self.roll() * (high - low)
    }

    /// Roughly normal, with a standard deviation of 1.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.roll()).sum::<f64>() - 6.0
    }
}

/// Free addresses at each minute.
type Trace = Vec<f64>;

const MINUTES: u32 = 30 * 24 * 60;

fn trace(free: impl FnMut(f64) -> f64) -> Trace {
    (0..MINUTES).map(|minute| f64::from(minute) / 60.0).map(free).collect()
}

fn linear(dice: &mut Dice) -> Trace {
    let (start, rate) = (dice.between(2500.0, 4000.0), dice.between(60.0, 300.0));
    trace(|hours| start - rate * hours)
}

/// Pods of the day and a steady growth.
fn daily_wave(dice: &mut Dice, rate: f64) -> Trace {
    let (height, phase) = (dice.between(50.0, 250.0), dice.between(0.0, 24.0));
    trace(|hours| {
        let wave = ((hours + phase) / 24.0 * std::f64::consts::TAU).sin();
        7000.0 - rate * hours - height * (1.0 + wave.signum() * wave.abs().powf(0.6))
    })
}

/// Events at planned times, each with a delay. Two in a row have twice the mean size, so the rate does not change.
struct Schedule {
    every: f64,
    delay: (f64, f64),
    size: (f64, f64),
    next: f64,
    count: u32,
    last: f64,
}

impl Schedule {
    fn new(every: f64, delay: (f64, f64), size: (f64, f64), dice: &mut Dice) -> Self {
        let next = dice.between(delay.0, delay.1);
        Self { every, delay, size, next, count: 0, last: 0.0 }
    }

    /// Returns the size of an event that is due, or 0.
    fn due(&mut self, hours: f64, dice: &mut Dice) -> f64 {
        if hours < self.next {
            return 0.0;
        }
        let (low, high) = self.size;
        self.last = if self.count.is_multiple_of(2) {
            dice.between(low, high)
        } else {
            low + high - self.last
        };
        self.count += 1;
        self.next = f64::from(self.count) * self.every + dice.between(self.delay.0, self.delay.1);
        self.last
    }
}

/// Rollouts of 30 to 70 pods each half hour, and deletions of 60 to 140 pods each three hours.
fn bursts(dice: &mut Dice) -> Trace {
    let mut free = dice.between(6000.0, 7500.0);
    let mut rollouts = Schedule::new(0.5, (0.0, 1.0 / 3.0), (30.0, 70.0), dice);
    let mut deletions = Schedule::new(3.0, (1.0, 3.0), (60.0, 140.0), dice);
    trace(|hours| {
        free -= rollouts.due(hours, dice);
        free += deletions.due(hours, dice);
        free
    })
}

/// Bursts of these sizes at random times. The rate itself changes later, which no estimate can know.
fn unplanned_bursts(dice: &mut Dice) -> Trace {
    let (mut free, mut rollout, mut deletion) = (dice.between(6000.0, 7500.0), 0.0, 1.0);
    trace(|hours| {
        if hours >= rollout {
            free -= dice.between(30.0, 70.0);
            rollout += dice.between(1.0 / 3.0, 2.0 / 3.0);
        }
        if hours >= deletion {
            free += dice.between(60.0, 140.0);
            deletion += dice.between(2.0, 4.0);
        }
        free
    })
}

/// Pods that come and go around a mean.
fn flat_noise(dice: &mut Dice) -> Trace {
    let (mean, height) = (dice.between(300.0, 3500.0), dice.between(5.0, 120.0));
    let memory: f64 = (-1.0 / dice.between(5.0, 60.0)).exp();
    let mut churn = 0.0;
    trace(|_| {
        churn = memory * churn + height * (1.0 - memory * memory).sqrt() * dice.normal();
        mean + churn
    })
}

/// The counts of some nodes at random moments until `now`, in minutes.
fn counts(trace: &Trace, now: usize, dice: &mut Dice) -> Vec<Sample> {
    let mut samples = Vec::new();
    let mut age = 0.0;
    loop {
        let minute = usize::try_from(whole(age)).unwrap_or(usize::MAX);
        let Some(free) = now.checked_sub(minute).and_then(|then| trace.get(then)) else {
            return samples;
        };
        let available = u32::try_from(whole(*free)).unwrap_or(0);
        samples.push(Sample { seconds_ago: whole(age) * 60, available });
        age += dice.between(2.0, 15.0);
    }
}

/// The time from `now` until the trace has no free address.
fn truth(trace: &Trace, now: usize) -> Option<f64> {
    let left = trace.iter().skip(now).position(|free| *free <= 0.0)?;
    Some(f64::from(u32::try_from(left).ok()?) * 60.0)
}

/// The estimates on many traces, compared with the truth.
#[derive(Default)]
struct Judged {
    made: usize,
    /// The estimates that are more than 20 % wrong: seed, hour, hours until the end, and the estimate in hours.
    wrong: Vec<String>,
    withheld: usize,
}

/// Takes counts at these hours of each trace, each three hours, as long as the trace has `least` hours until its end.
fn judge(mut make: impl FnMut(&mut Dice) -> Trace, hours: Range<usize>, least: f64) -> Judged {
    let mut judged = Judged::default();
    for seed in 0..60 {
        let mut dice = Dice(seed);
        let trace = make(&mut dice);
        for hour in hours.clone().step_by(3) {
            let now = hour * 60;
            let Some(truth) = truth(&trace, now).filter(|left| *left >= least * HOUR) else {
                continue;
            };
            // Three days are kept.
            let mut samples = counts(&trace, now, &mut dice);
            samples.retain(|it| it.seconds_ago <= 3 * 86_400);
            let Ok(forecast) = forecast(&samples, 8187) else {
                judged.withheld += 1;
                continue;
            };
            judged.made += 1;
            let estimate = whole_f64(forecast.full_in_seconds);
            if (estimate / truth - 1.0).abs() > 0.2 {
                let (left, estimate) = (truth / HOUR, estimate / HOUR);
                judged.wrong.push(format!("{seed}: {hour} {left:.1} {estimate:.1}"));
            }
        }
    }
    judged
}

/// The hours of counts from which each estimate must be right on a line: twice the shortest time.
const WARM_UP: usize = 1;
/// The same on traces with a rhythm or with bursts. Fewer hours do not show the rhythm of a day ([`DAILY`]).
const WARM_UP_DAILY: usize = 36;
/// Each trace ends before.
const END: usize = 30 * 24;
/// The hours before the end of a trace in which a single burst or wave can move the end by a fifth.
const LAST: f64 = 24.0;

fn wave_with_growth(dice: &mut Dice) -> Trace {
    let rate = dice.between(40.0, 90.0);
    daily_wave(dice, rate)
}

#[test]
fn each_forecast_of_a_linear_decline_is_within_a_fifth_after_the_warm_up() {
    let Judged { made, wrong, withheld } = judge(linear, WARM_UP..END, 2.0);
    assert!(made > 200 && wrong.is_empty(), "{made} made, {withheld} withheld, wrong: {wrong:?}");
}

#[test]
fn each_forecast_of_a_daily_wave_is_within_a_fifth_after_the_warm_up() {
    let Judged { made, wrong, withheld } = judge(wave_with_growth, WARM_UP_DAILY..END, LAST);
    assert!(made > 900 && wrong.is_empty(), "{made} made, {withheld} withheld, wrong: {wrong:?}");
    assert!(withheld * 10 < made, "{made} made, {withheld} withheld");
}

#[test]
fn each_forecast_of_bursts_is_within_a_fifth_after_the_warm_up() {
    let Judged { made, wrong, withheld } = judge(bursts, WARM_UP_DAILY..END, LAST);
    assert!(made > 700 && wrong.is_empty(), "{made} made, {withheld} withheld, wrong: {wrong:?}");
    assert!(withheld * 10 < made, "{made} made, {withheld} withheld");
}

#[test]
fn forecasts_of_the_last_day_are_within_a_fifth() {
    type Make = fn(&mut Dice) -> Trace;
    let makes: [(&str, Make); 2] = [("wave", wave_with_growth), ("bursts", bursts)];
    for (name, make) in makes {
        let Judged { made, wrong, withheld } = judge(make, 48..78, 1.0);
        assert!(made > 400 && wrong.is_empty(), "{name}: {made}, {withheld}, wrong: {wrong:?}");
    }
    let Judged { made, wrong, withheld } = judge(linear, 4..34, 1.0);
    assert!(made > 200 && wrong.is_empty(), "{made} made, {withheld} withheld, wrong: {wrong:?}");
}

#[test]
fn few_forecasts_of_unplanned_bursts_are_wrong() {
    let Judged { made, wrong, withheld } = judge(unplanned_bursts, 48..78, 1.0);
    let most = made / 15;
    assert!(made > 400 && wrong.len() <= most, "{made} made, {withheld} withheld, {wrong:?}");
}

#[test]
fn a_flat_trace_has_no_forecast() {
    for free in [0.0, 40.0, 3000.0] {
        let flat = trace(|_| free);
        for hours in [2, 6, 24, 60] {
            let samples = counts(&flat, hours * 60, &mut Dice(1));
            assert_eq!(forecast(&samples, 4091), Err(Silence::NoDecline), "{free} {hours}");
        }
    }
}

#[test]
fn noise_and_a_daily_wave_without_growth_have_no_forecast() {
    let made = |make: fn(&mut Dice) -> Trace, hours: &[usize]| {
        let mut made = Vec::new();
        for seed in 0..100 {
            let mut dice = Dice(seed);
            let trace = make(&mut dice);
            for hours in hours {
                let samples = counts(&trace, hours * 60, &mut dice);
                made.extend(forecast(&samples, 4091).ok().map(|forecast| (seed, *hours, forecast)));
            }
        }
        made
    };
    let of_noise = made(flat_noise, &[1, 2, 4, 8, 16, 32, 64]);
    assert!(of_noise.is_empty(), "{of_noise:?}");
    let of_waves = made(|dice| daily_wave(dice, 0.0), &[40, 48, 56, 64, 72]);
    assert!(of_waves.is_empty(), "{of_waves:?}");
}

#[test]
fn few_or_old_counts_have_no_forecast() {
    let falling = trace(|hours| 500.0 - 60.0 * hours);
    let samples = counts(&falling, 4 * 60, &mut Dice(3));
    assert!(forecast(&samples, 4091).is_ok());
    assert_eq!(forecast(&samples[..6], 4091), Err(Silence::FewCounts));
    assert_eq!(forecast(&[], 4091), Err(Silence::FewCounts));
    let older: Vec<Sample> =
        samples.iter().map(|it| Sample { seconds_ago: it.seconds_ago + 2 * 3600, ..*it }).collect();
    assert_eq!(forecast(&older, 4091), Err(Silence::OldCounts));
}

#[test]
fn an_hour_of_counts_gives_no_forecast_for_a_week() {
    let slow = trace(|hours| 4000.0 - 30.0 * hours);
    assert_eq!(forecast(&counts(&slow, 60, &mut Dice(5)), 4091), Err(Silence::Far));
}

#[test]
fn the_rate_and_the_covered_time_are_those_of_the_counts() {
    let falling = trace(|hours| 1000.0 - 100.0 * hours);
    let found = forecast(&counts(&falling, 6 * 60, &mut Dice(7)), 4091);
    let found = found.unwrap_or(Forecast { full_in_seconds: 0, per_hour: 0, over_seconds: 0 });
    assert_eq!(found.per_hour, 100);
    assert!(found.full_in_seconds.abs_diff(4 * 3600) < 120, "{found:?}");
    assert!(found.over_seconds.abs_diff(6 * 3600) < 15 * 60, "{found:?}");
}

use super::*;

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

/// Rollouts of 30 to 70 pods each half hour, and deletions of 60 to 140 pods each three hours.
fn bursts(dice: &mut Dice) -> Trace {
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

/// Compares the estimates with the truth: it takes counts from `from` hours to one hour before the end, on many traces.
/// Returns the number of estimates, of those that are more than 20 % wrong, and of withheld ones.
fn judge(mut make: impl FnMut(&mut Dice) -> Trace, from: usize) -> (u32, u32, u32) {
    let (mut made, mut wrong, mut silent) = (0, 0, 0);
    for seed in 0..60 {
        let mut dice = Dice(seed);
        let trace = make(&mut dice);
        for hour in (from..from + 30).step_by(3) {
            let now = hour * 60;
            let Some(truth) = truth(&trace, now).filter(|left| *left >= HOUR) else { continue };
            // Three days are kept.
            let mut samples = counts(&trace, now, &mut dice);
            samples.retain(|it| it.seconds_ago <= 3 * 86_400);
            match forecast(&samples, 8187) {
                Ok(forecast) => {
                    made += 1;
                    let error = whole_f64(forecast.full_in_seconds) / truth - 1.0;
                    wrong += u32::from(error.abs() > 0.2);
                }
                Err(_) => silent += 1,
            }
        }
    }
    (made, wrong, silent)
}

#[test]
fn a_linear_decline_is_forecast_within_a_fifth() {
    let (made, wrong, silent) = judge(linear, 4);
    assert!(made > 200 && wrong == 0, "{made} made, {wrong} wrong, {silent} withheld");
}

#[test]
fn growth_with_a_daily_wave_is_forecast_within_a_fifth() {
    let wave = |dice: &mut Dice| {
        let rate = dice.between(40.0, 90.0);
        daily_wave(dice, rate)
    };
    let (made, wrong, silent) = judge(wave, 48);
    assert!(made > 400 && wrong * 50 <= made, "{made} made, {wrong} wrong, {silent} withheld");
}

#[test]
fn bursts_with_deletions_are_forecast_within_a_fifth() {
    let (made, wrong, silent) = judge(bursts, 48);
    // On some traces the rate itself changes later.
    assert!(made > 400 && wrong * 10 <= made, "{made} made, {wrong} wrong, {silent} withheld");
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

//! The time at which a subnet has no free address, from earlier counts.
//!
//! The estimate continues the present rate. There is none if the counts are few, old, noisy or without a steady decline.
//! There is none either if the end is far beyond the time that they cover.

mod curve;

use curve::{Point, at, buckets, deviation, median, slopes};
use serde::Serialize;
use std::time::Duration;
use view_node::Sample;

/// An estimate of the time at which a subnet is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Forecast {
    pub full_in_seconds: u64,
    /// Addresses that the subnet loses per hour.
    pub per_hour: u64,
    /// The time that the counts cover.
    pub over_seconds: u64,
}

/// The reason why there is no estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Silence {
    /// There are few counts, or they cover less than half an hour.
    FewCounts,
    /// The last count is older than a quarter of the time that all of them cover.
    OldCounts,
    /// The number of free addresses does not fall.
    NoDecline,
    /// The decline is smaller than the noise, or it is not steady.
    Noise,
    /// The subnet is full later than the counts can show.
    Far,
}

/// Estimates when no address is free. Counts of several nodes may be mixed, in any order.
///
/// # Errors
/// The reason why there is no estimate.
pub fn forecast(samples: &[Sample], total: u64) -> Result<Forecast, Silence> {
    let points = points(samples);
    let ([first, ..], [.., last]) = (points.as_slice(), points.as_slice()) else {
        return Err(Silence::FewCounts);
    };
    let span = last.hours - first.hours;
    if points.len() < FEWEST || span < SHORTEST {
        return Err(Silence::FewCounts);
    }
    if -last.hours > span / 4.0 {
        return Err(Silence::OldCounts);
    }
    let trend = if span >= DAILY { Trend::daily(&points, span) } else { Trend::plain(&points) };
    trend.check(span, total)?;
    let reach = span * if trend.daily.is_some() { REACH_DAILY } else { REACH };
    let full_in = trend.end(*last, reach.min(FARTHEST)).ok_or(Silence::Far)?;
    Ok(Forecast {
        // The last count is in the past.
        full_in_seconds: seconds(full_in + last.hours),
        per_hour: whole(-trend.slope),
        over_seconds: seconds(span),
    })
}

/// Returns one point per moment, oldest first. The present is hour 0.
fn points(samples: &[Sample]) -> Vec<Point> {
    let mut sorted: Vec<(u64, u32)> =
        samples.iter().map(|it| (it.seconds_ago, it.available)).collect();
    sorted.sort_unstable_by(|a, b| b.cmp(a));
    sorted.dedup_by_key(|(ago, _)| *ago);
    let point = |(ago, available): (u64, u32)| Point {
        hours: -Duration::from_secs(ago).as_secs_f64() / HOUR,
        value: f64::from(available),
    };
    sorted.into_iter().map(point).collect()
}

/// A straight line, and with enough counts a daily rhythm around it.
struct Trend {
    /// Counts at even distances, oldest first.
    points: Vec<Point>,
    /// Addresses per hour; negative in a decline.
    slope: f64,
    /// The deviation from the line by hours before the last point: 0 to 24.
    daily: Option<Vec<Point>>,
}

impl Trend {
    fn plain(points: &[Point]) -> Self {
        let points = buckets(points, BUCKETS);
        let slope = median(slopes(&points, 1..points.len())).unwrap_or_default();
        Self { points, slope, daily: None }
    }

    /// Compares counts of the same hour of different days, so that the rhythm of a day is no trend.
    fn daily(points: &[Point], span: f64) -> Self {
        let hourly = buckets(points, whole(span));
        let last = points.last().map_or(0.0, |it| it.hours);
        let ages = (0_u32..).map(f64::from).take_while(|age| *age <= span);
        let mut grid: Vec<Point> =
            ages.map(|age| Point { hours: last - age, value: at(&hourly, last - age) }).collect();
        grid.reverse();
        let slope = median(slopes(&grid, (DAY..grid.len()).step_by(DAY))).unwrap_or_default();
        let deviations: Vec<f64> =
            grid.iter().rev().map(|it| it.value - slope * it.hours).collect();
        let of_hour = |hour: usize| median(deviations.iter().skip(hour).step_by(DAY).copied());
        let hours = (0_u32..).map(f64::from).zip((0..DAY).chain([0]));
        let daily = hours
            .filter_map(|(hours, hour)| Some(Point { hours, value: of_hour(hour)? }))
            .collect();
        Self { points: grid, slope, daily: Some(daily) }
    }

    fn last(&self) -> f64 {
        self.points.last().map_or(0.0, |it| it.hours)
    }

    fn rhythm(&self, hours: f64) -> f64 {
        let before = (self.last() - hours).rem_euclid(24.0);
        self.daily.as_ref().map_or(0.0, |daily| at(daily, before))
    }

    /// Checks that the decline is steady and clearly larger than the noise.
    fn check(&self, span: f64, total: u64) -> Result<(), Silence> {
        let decline = -self.slope * span;
        if decline <= 0.0 {
            return Err(Silence::NoDecline);
        }
        let level = |it: &Point| Point { value: it.value - self.rhythm(it.hours), ..*it };
        let level: Vec<Point> = self.points.iter().map(level).collect();
        let noise = deviation(level.iter().map(|it| it.value - self.slope * it.hours));
        let smallest = (whole_f64(total) * SMALLEST_SHARE).max(SMALLEST);
        if decline < smallest || decline < 4.0 * noise {
            return Err(Silence::Noise);
        }
        if is_steady(&level) && spread(&level) <= SPREAD * -self.slope {
            Ok(())
        } else {
            Err(Silence::Noise)
        }
    }

    /// Returns the hours from the last count until no address is free.
    fn end(&self, last: Point, reach: f64) -> Option<f64> {
        let rhythm = self.rhythm(last.hours);
        let level =
            |ahead: f64| last.value + self.slope * ahead + self.rhythm(last.hours + ahead) - rhythm;
        let steps =
            (1_u32..).map(|n| f64::from(n) * STEP).take_while(|ahead| *ahead <= reach + STEP);
        let mut before = Point { hours: 0.0, value: last.value };
        for ahead in steps {
            let now = Point { hours: ahead, value: level(ahead) };
            if now.value <= 0.0 {
                let part = before.value / (before.value - now.value).max(f64::MIN_POSITIVE);
                return Some(before.hours + part * STEP);
            }
            before = now;
        }
        None
    }
}

/// Returns true if each third of the time is lower than the one before, and neither step is much smaller than the other.
fn is_steady(level: &[Point]) -> bool {
    let third = level.len().div_ceil(3).max(1);
    let medians: Vec<f64> =
        level.chunks(third).filter_map(|chunk| median(chunk.iter().map(|it| it.value))).collect();
    let [first, second, third] = medians.as_slice() else { return false };
    let steps = [first - second, second - third];
    steps.iter().all(|step| *step > 0.0 && *step >= (steps[0] + steps[1]) / 8.0)
}

/// Returns the standard error of the rate, from the rates of eight parts of the time.
fn spread(level: &[Point]) -> f64 {
    let (Some(first), Some(last)) = (level.first(), level.last()) else { return f64::MAX };
    let part = (last.hours - first.hours) / f64::from(PARTS);
    let ends: Vec<f64> =
        (0..=PARTS).map(|n| at(level, first.hours + part * f64::from(n))).collect();
    let rates: Vec<f64> = ends.windows(2).map(|pair| (pair[1] - pair[0]) / part).collect();
    let mean = rates.iter().sum::<f64>() / f64::from(PARTS);
    let squares: f64 = rates.iter().map(|rate| (rate - mean).powi(2)).sum();
    (squares / f64::from(PARTS - 1) / f64::from(PARTS)).sqrt()
}

fn seconds(hours: f64) -> u64 {
    Duration::try_from_secs_f64((hours * HOUR).max(0.0)).map_or(u64::MAX, |it| it.as_secs())
}

/// Rounds to a whole number; negative numbers become 0.
fn whole(number: f64) -> u64 {
    Duration::try_from_secs_f64(number.round().max(0.0)).map_or(u64::MAX, |it| it.as_secs())
}

fn whole_f64(number: u64) -> f64 {
    Duration::from_secs(number).as_secs_f64()
}

const HOUR: f64 = 3600.0;
const DAY: usize = 24;
const FEWEST: usize = 8;
/// In hours.
const SHORTEST: f64 = 0.5;
/// The hours that show a daily rhythm.
const DAILY: f64 = 36.0;
const BUCKETS: u64 = 48;
/// The estimate reaches this multiple of the time that the counts cover.
const REACH: f64 = 2.0;
const REACH_DAILY: f64 = 4.0;
/// Two weeks, in hours.
const FARTHEST: f64 = 336.0;
/// Of the estimate, in hours.
const STEP: f64 = 0.125;
/// The smallest decline, in addresses and as a share of the subnet.
const SMALLEST: f64 = 8.0;
const SMALLEST_SHARE: f64 = 0.005;
/// The largest standard error, as a share of the rate.
const SPREAD: f64 = 0.25;
const PARTS: u32 = 8;

#[cfg(test)]
mod tests;

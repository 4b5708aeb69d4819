//! Points in time and robust statistics over them.

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) hours: f64,
    pub(super) value: f64,
}

/// `None` without numbers.
pub(super) fn median(numbers: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = numbers.into_iter().collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let (low, high) =
        (sorted.get(sorted.len().saturating_sub(1) / 2)?, sorted.get(sorted.len() / 2)?);
    Some(f64::midpoint(*low, *high))
}

/// Returns the standard deviation, estimated from the median of distances to the median.
pub(super) fn deviation(numbers: impl Iterator<Item = f64> + Clone) -> f64 {
    let middle = median(numbers.clone()).unwrap_or_default();
    1.4826 * median(numbers.map(|number| (number - middle).abs())).unwrap_or_default()
}

/// Reduces points, oldest first, to the medians of `count` equal parts of their time. Empty parts are left out.
pub(super) fn buckets(points: &[Point], count: u64) -> Vec<Point> {
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return Vec::new() };
    let count = u32::try_from(count.max(1)).unwrap_or(u32::MAX);
    let part = (last.hours - first.hours) / f64::from(count);
    let mut rest = points;
    let mut reduced = Vec::new();
    for n in 1..=count {
        let end = first.hours + part * f64::from(n);
        let inside =
            if n == count { rest.len() } else { rest.partition_point(|point| point.hours < end) };
        let (here, later) = rest.split_at(inside);
        rest = later;
        let middle =
            median(here.iter().map(|it| it.hours)).zip(median(here.iter().map(|it| it.value)));
        reduced.extend(middle.map(|(hours, value)| Point { hours, value }));
    }
    reduced
}

/// Returns the value at a time, interpolated between the neighbors. Outside the points it is that of the nearest.
pub(super) fn at(points: &[Point], hours: f64) -> f64 {
    let next = points.partition_point(|point| point.hours < hours);
    let before = next.checked_sub(1).and_then(|index| points.get(index));
    match (before, points.get(next)) {
        (Some(before), Some(after)) => {
            let part = (hours - before.hours) / (after.hours - before.hours);
            before.value + part * (after.value - before.value)
        }
        (Some(only), None) | (None, Some(only)) => only.value,
        (None, None) => 0.0,
    }
}

/// Returns the slopes between all pairs of points at these distances in the list.
pub(super) fn slopes(points: &[Point], distances: impl Iterator<Item = usize>) -> Vec<f64> {
    let slope = |(a, b): (&Point, &Point)| (b.value - a.value) / (b.hours - a.hours);
    distances
        .flat_map(|distance| points.iter().zip(points.iter().skip(distance)))
        .filter(|(a, b)| b.hours > a.hours)
        .map(slope)
        .collect()
}

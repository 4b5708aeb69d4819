//! Samples and figures.

use anyhow::{Context as _, Result};
use serde::Serialize;
use std::{
    io::Write as _,
    time::{Duration, Instant},
};

pub fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Durations in milliseconds.
#[derive(Debug, Default)]
pub struct Samples(Vec<f64>);

impl Samples {
    pub fn push(&mut self, duration: Duration) {
        self.0.push(ms(duration));
    }

    /// Measures one call.
    ///
    /// # Errors
    /// The error of the call.
    pub fn time(&mut self, call: impl FnOnce() -> Result<()>) -> Result<()> {
        let started = Instant::now();
        call()?;
        self.push(started.elapsed());
        Ok(())
    }

    /// Measures one call after a pause.
    ///
    /// # Errors
    /// The error of the call.
    pub fn time_at_rest(&mut self, call: impl FnOnce() -> Result<()>) -> Result<()> {
        std::thread::sleep(REST);
        self.time(call)
    }

    /// The median in milliseconds.
    pub fn p50(&self) -> f64 {
        self.quantile(50)
    }

    /// The 99th percentile in milliseconds.
    pub fn p99(&self) -> f64 {
        self.quantile(99)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn quantile(&self, percent: usize) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
        sorted.get(at).copied().unwrap_or(f64::NAN)
    }
}

/// Longer than the daemon's debounce, its repair pass and the removal of a link together.
const REST: Duration = Duration::from_millis(100);

/// A number with its reference and its target.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Stable, because scripts refer to it.
    pub name: String,
    /// Rounded to thousandths.
    pub value: f64,
    /// Of value and reference.
    pub unit: &'static str,
    /// The reference of the ratio: the floor or the peer of the same run.
    pub reference: Option<f64>,
    /// Value divided by reference, or the median of that over all turns.
    pub ratio: Option<f64>,
    /// The maximum of the ratio, or of the value if there is no reference. `None` if the figure is only
    /// reported.
    pub target: Option<f64>,
    /// True if the target holds.
    pub met: bool,
}

impl Figure {
    /// Milliseconds that may be at most `target` times the reference.
    pub fn against(name: &str, value: f64, reference: f64, target: f64) -> Self {
        Self::with_reference(name, value, "ms", reference).at_most(target)
    }

    /// A value that may be at most `target`.
    pub fn bounded(name: &str, value: f64, unit: &'static str, target: f64) -> Self {
        let target = Some(target);
        Self {
            met: target.is_some_and(|target| value <= target),
            target,
            ..Self::reported(name, value, unit)
        }
    }

    /// A value that is only reported.
    pub fn reported(name: &str, value: f64, unit: &'static str) -> Self {
        let (name, value) = (name.to_owned(), round(value));
        Self { name, value, unit, reference: None, ratio: None, target: None, met: true }
    }

    /// A value with its reference. The ratio of zero to zero is 1.
    pub fn with_reference(name: &str, value: f64, unit: &'static str, reference: f64) -> Self {
        let ratio = if value == reference { 1.0 } else { value / reference };
        let ratio = ratio.is_finite().then_some(round(ratio));
        Self { reference: Some(round(reference)), ratio, ..Self::reported(name, value, unit) }
    }

    /// Medians of turns, each with a value and its reference. Other work on the machine slows down both of a turn.
    pub fn in_turns(name: &str, unit: &'static str, turns: &[[f64; 2]]) -> Self {
        let of = |call: fn(&[f64; 2]) -> f64| median(turns.iter().map(call).collect());
        let ratio = of(|[value, reference]| value / reference);
        Self {
            ratio: ratio.is_finite().then_some(round(ratio)),
            ..Self::with_reference(name, of(|turn| turn[0]), unit, of(|turn| turn[1]))
        }
    }

    /// Sets the target: at most `target` times the reference.
    pub fn at_most(self, target: f64) -> Self {
        let within = match (self.reference, self.ratio) {
            (None, _) => true,
            (Some(reference), Some(ratio)) if reference > 0.0 => ratio <= target,
            (Some(reference), _) => self.value <= target * reference,
        };
        Self { target: Some(target), met: self.met && within, ..self }
    }

    /// Sets the target: the value must be zero, whatever the reference is.
    pub fn none(self) -> Self {
        Self { target: Some(0.0), met: self.met && self.value == 0.0, ..self }
    }

    /// Sets the target: the value must be less than the reference, or zero.
    pub fn less(self) -> Self {
        let nothing = self.value == 0.0;
        let less = self.reference.is_none_or(|reference| self.value < reference || nothing);
        Self { target: Some(1.0), met: self.met && less, ..self }
    }
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of.get(of.len() / 2).copied().unwrap_or(f64::NAN)
}

fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// All figures of a run.
#[derive(Debug, Serialize)]
pub struct Bench {
    bench: &'static str,
    machine: String,
    figures: Vec<Figure>,
}

impl Bench {
    pub fn new(bench: &'static str) -> Self {
        Self { bench, machine: machine(), figures: Vec::new() }
    }

    pub fn figures(&self) -> &[Figure] {
        &self.figures
    }

    pub fn push(&mut self, figure: Figure) {
        self.figures.push(figure);
    }
}

fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{cores} cores, Linux {}", kernel.trim())
}

/// Prints the run as one JSON object.
///
/// # Errors
/// If standard output is closed.
pub fn print(bench: &Bench) -> Result<()> {
    let json = serde_json::to_string(bench).context("encode the figures")?;
    writeln!(std::io::stdout(), "{json}").context("print the figures")
}

/// Prints the run as a table for people.
///
/// # Errors
/// If standard output is closed.
pub fn print_table(bench: &Bench) -> Result<()> {
    let mut text = format!(
        "{:44} {:>12} {:7} {:>10} {:>8} {:>8}  met\n",
        "figure", "value", "unit", "reference", "ratio", "target"
    );
    let number = |value: Option<f64>| value.map_or("–".to_owned(), |value| value.to_string());
    for Figure { name, value, unit, reference, ratio, target, met } in &bench.figures {
        let (reference, ratio) = (number(*reference), number(*ratio));
        let met = match (target, met) {
            (None, _) => "",
            (Some(_), true) => "yes",
            (Some(_), false) => "no",
        };
        let target = number(*target);
        text += &format!(
            "{name:44} {value:>12} {unit:7} {reference:>10} {ratio:>8} {target:>8}  {met}\n"
        );
    }
    text += &format!("on {}\n", bench.machine);
    write!(std::io::stdout(), "{text}").context("print the figures")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_taken_from_the_sorted_samples() {
        let mut samples = Samples::default();
        for value in (1..=100).rev() {
            samples.push(Duration::from_millis(value));
        }
        assert_eq!((samples.p50(), samples.p99()), (50.0, 99.0));
    }

    #[test]
    fn a_ratio_beyond_its_target_is_not_met() {
        assert!(Figure::against("f", 2.0, 1.0, 2.0).met);
        assert!(!Figure::against("f", 2.1, 1.0, 2.0).met);
    }

    #[test]
    fn the_ratio_of_turns_is_that_of_a_typical_turn() {
        let figure = Figure::in_turns("f", "us", &[[11.0, 10.0], [90.0, 10.0], [33.0, 30.0]]);
        assert_eq!((figure.value, figure.reference, figure.ratio), (33.0, Some(10.0), Some(1.1)));
        assert!(figure.clone().at_most(1.1).met);
        assert!(!figure.at_most(1.09).met);
    }

    #[test]
    fn less_accepts_a_smaller_value_and_two_zeros() {
        assert!(Figure::with_reference("f", 0.9, "h", 1.0).less().met);
        assert!(!Figure::with_reference("f", 1.0, "h", 1.0).less().met);
        assert!(Figure::with_reference("f", 0.0, "h", 0.0).less().met);
    }

    #[test]
    fn a_ratio_to_zero_is_none_and_misses_its_target() {
        let figure = Figure::with_reference("f", 1.0, "calls", 0.0).at_most(1.0);
        assert_eq!((figure.ratio, figure.met), (None, false));
    }
}

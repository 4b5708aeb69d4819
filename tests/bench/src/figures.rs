//! Samples, and the figures made of them.

use anyhow::{Context as _, Result};
use serde::Serialize;
use std::{
    io::Write as _,
    time::{Duration, Instant},
};

/// A duration in milliseconds.
pub fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Durations in milliseconds.
#[derive(Debug, Default)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// Takes in one.
    pub fn push(&mut self, duration: Duration) {
        self.0.push(ms(duration));
    }

    /// Takes the time of one call.
    ///
    /// # Errors
    /// The call's.
    pub fn time(&mut self, call: impl FnOnce() -> Result<()>) -> Result<()> {
        let started = Instant::now();
        call()?;
        self.push(started.elapsed());
        Ok(())
    }

    /// The same, after a pause.
    ///
    /// # Errors
    /// The call's.
    pub fn time_at_rest(&mut self, call: impl FnOnce() -> Result<()>) -> Result<()> {
        std::thread::sleep(REST);
        self.time(call)
    }

    /// The median in milliseconds.
    pub fn p50(&self) -> f64 {
        self.quantile(50)
    }

    /// The 99th of a hundred, in milliseconds.
    pub fn p99(&self) -> f64 {
        self.quantile(99)
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there is none.
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

/// Longer than the daemon's debounce, its pass and the end of a link take together.
const REST: Duration = Duration::from_millis(100);

/// One number, what it is compared with, and what it should reach.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Stable: scripts ask for it.
    pub name: String,
    /// Rounded to thousandths.
    pub value: f64,
    /// Of value and reference.
    pub unit: &'static str,
    /// The reference of the ratio: the floor or the peer of the same run.
    pub reference: Option<f64>,
    /// Value by reference.
    pub ratio: Option<f64>,
    /// The most that ratio (or value, without a reference) may be; none for what is only told.
    pub target: Option<f64>,
    /// True if the target holds.
    pub met: bool,
}

impl Figure {
    /// Milliseconds that may be at most `target` times the reference.
    pub fn against(name: &str, value: f64, reference: f64, target: f64) -> Self {
        Self::beside(name, value, "ms", reference).at_most(target)
    }

    /// A value that may be at most `target`.
    pub fn bounded(name: &str, value: f64, unit: &'static str, target: f64) -> Self {
        let target = Some(target);
        Self {
            met: target.is_some_and(|target| value <= target),
            target,
            ..Self::told(name, value, unit)
        }
    }

    /// A value that is only reported.
    pub fn told(name: &str, value: f64, unit: &'static str) -> Self {
        let (name, value) = (name.to_owned(), round(value));
        Self { name, value, unit, reference: None, ratio: None, target: None, met: true }
    }

    /// A value told beside its reference. Nothing by nothing is as good as equal.
    pub fn beside(name: &str, value: f64, unit: &'static str, reference: f64) -> Self {
        let ratio = if value == reference { 1.0 } else { value / reference };
        let ratio = ratio.is_finite().then_some(round(ratio));
        Self { reference: Some(round(reference)), ratio, ..Self::told(name, value, unit) }
    }

    /// The same, which may be at most `target` times its reference.
    pub fn at_most(self, target: f64) -> Self {
        let within = self.reference.is_none_or(|reference| self.value <= target * reference);
        Self { target: Some(target), met: self.met && within, ..self }
    }

    /// The same, which must be nothing, whatever its reference is.
    pub fn none(self) -> Self {
        Self { target: Some(0.0), met: self.met && self.value == 0.0, ..self }
    }

    /// The same, which must be less than its reference; nothing beside nothing is as little as
    /// can be.
    pub fn less(self) -> Self {
        let nothing = self.value == 0.0;
        let less = self.reference.is_none_or(|reference| self.value < reference || nothing);
        Self { target: Some(1.0), met: self.met && less, ..self }
    }
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
    /// Without figures as yet.
    pub fn new(bench: &'static str) -> Self {
        Self { bench, machine: machine(), figures: Vec::new() }
    }

    /// All of them, in order.
    pub fn figures(&self) -> &[Figure] {
        &self.figures
    }

    /// Adds a figure.
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
/// If nobody reads it.
pub fn print(bench: &Bench) -> Result<()> {
    let json = serde_json::to_string(bench).context("encode the figures")?;
    writeln!(std::io::stdout(), "{json}").context("print the figures")
}

/// Prints the run as a table for people.
///
/// # Errors
/// If nobody reads it.
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
    fn less_is_less_and_nothing_beside_nothing_will_do() {
        assert!(Figure::beside("f", 0.9, "h", 1.0).less().met);
        assert!(!Figure::beside("f", 1.0, "h", 1.0).less().met);
        assert!(Figure::beside("f", 0.0, "h", 0.0).less().met);
    }

    #[test]
    fn a_ratio_to_nothing_is_none_and_misses_its_target() {
        let figure = Figure::beside("f", 1.0, "calls", 0.0).at_most(1.0);
        assert_eq!((figure.ratio, figure.met), (None, false));
    }
}

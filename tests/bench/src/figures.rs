//! Samples, and the figures made of them.

use anyhow::{Context as _, Result};
use serde::Serialize;
use std::{
    io::Write as _,
    time::{Duration, Instant},
};

/// A duration in milliseconds.
pub(crate) fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Durations in milliseconds.
#[derive(Default)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    pub(crate) fn push(&mut self, duration: Duration) {
        self.0.push(ms(duration));
    }

    /// Takes the time of one call.
    pub(crate) fn time(&mut self, call: impl FnOnce() -> Result<()>) -> Result<()> {
        let started = Instant::now();
        call()?;
        self.push(started.elapsed());
        Ok(())
    }

    /// The same, after a pause.
    pub(crate) fn time_at_rest(&mut self, call: impl FnOnce() -> Result<()>) -> Result<()> {
        std::thread::sleep(REST);
        self.time(call)
    }

    pub(crate) fn p50(&self) -> f64 {
        self.quantile(50)
    }

    pub(crate) fn p99(&self) -> f64 {
        self.quantile(99)
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
#[derive(Serialize)]
pub(crate) struct Figure {
    name: String,
    value: f64,
    unit: &'static str,
    /// What the ratio is to: the floor, or the peer, of the same run.
    reference: Option<f64>,
    ratio: Option<f64>,
    target: f64,
    met: bool,
}

impl Figure {
    /// Milliseconds that may be at most `target` times the reference.
    pub(crate) fn against(name: &str, value: f64, reference: f64, target: f64) -> Self {
        let ratio = value / reference;
        Self {
            name: name.to_owned(),
            value: round(value),
            unit: "ms",
            reference: Some(round(reference)),
            ratio: Some(round(ratio)),
            target,
            met: ratio <= target,
        }
    }

    /// A value that may be at most `target`.
    pub(crate) fn bounded(name: &str, value: f64, unit: &'static str, target: f64) -> Self {
        let (name, value_shown) = (name.to_owned(), round(value));
        let met = value <= target;
        Self { name, value: value_shown, unit, reference: None, ratio: None, target, met }
    }
}

fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// All figures of a run.
#[derive(Serialize)]
pub(crate) struct Bench {
    bench: &'static str,
    machine: String,
    figures: Vec<Figure>,
}

impl Bench {
    pub(crate) fn new(bench: &'static str) -> Self {
        Self { bench, machine: machine(), figures: Vec::new() }
    }

    pub(crate) fn push(&mut self, figure: Figure) {
        self.figures.push(figure);
    }
}

fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{cores} cores, Linux {}", kernel.trim())
}

/// Prints the run as one JSON object.
pub(crate) fn print(bench: &Bench) -> Result<()> {
    let json = serde_json::to_string(bench).context("encode the figures")?;
    writeln!(std::io::stdout(), "{json}").context("print the figures")
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
}

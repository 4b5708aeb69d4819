//! Every metric of the programs: name, type, labels, unit, meaning.
//!
//! This table is the only definition. `runtime-process` creates a program's metrics from it, so a program exposes
//! no other metric. [`page`] is their reference for people (`docs/guide/metrics.md`). The
//! rules and the dashboard may name no other.

mod agent;
mod controller;
mod ipamd;
mod page;

pub use page::page;

/// A program that Prometheus reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Program {
    /// `ferrule-ipamd`, on port 61678 of each node.
    Ipamd,
    /// `ferrule-agent`, on each node.
    Agent,
    /// `ferrule-controller`, on port 61691 of each replica.
    Controller,
}

impl Program {
    pub const ALL: [Self; 3] = [Self::Ipamd, Self::Agent, Self::Controller];

    pub fn name(self) -> &'static str {
        match self {
            Self::Ipamd => "ferrule-ipamd",
            Self::Agent => "ferrule-agent",
            Self::Controller => "ferrule-controller",
        }
    }

    /// Its metrics, in the order in which people read them.
    pub fn metrics(self) -> &'static [Metric] {
        match self {
            Self::Ipamd => ipamd::METRICS,
            Self::Agent => agent::METRICS,
            Self::Controller => controller::METRICS,
        }
    }

    /// The metric of this name.
    pub fn metric(self, name: &str) -> Option<&'static Metric> {
        self.metrics().iter().find(|metric| metric.name == name)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Is as it is.
    Gauge,
    /// Counts by size, up to each of these bounds.
    Histogram(&'static [f64]),
    /// A number and a sum; without quantiles.
    Summary,
}

impl Kind {
    /// Prometheus' word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram(_) => "histogram",
            Self::Summary => "summary",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metric {
    pub name: &'static str,
    pub kind: Kind,
    pub labels: &'static [&'static str],
    /// The counted or measured quantity, in one word or two.
    pub unit: &'static str,
    pub help: &'static str,
}

/// The metric of this name, and who has it. The same name in two programs is the same metric.
pub fn find(name: &str) -> Option<(Program, &'static Metric)> {
    Program::ALL.into_iter().find_map(|program| Some((program, program.metric(name)?)))
}

const fn counter(
    name: &'static str,
    labels: &'static [&'static str],
    unit: &'static str,
    help: &'static str,
) -> Metric {
    Metric { name, kind: Kind::Counter, labels, unit, help }
}

const fn gauge(
    name: &'static str,
    labels: &'static [&'static str],
    unit: &'static str,
    help: &'static str,
) -> Metric {
    Metric { name, kind: Kind::Gauge, labels, unit, help }
}

/// In seconds.
const fn histogram(
    name: &'static str,
    buckets: &'static [f64],
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    Metric { name, kind: Kind::Histogram(buckets), labels, unit: "seconds", help }
}

const BUILD_INFO: Metric = gauge(
    "ferrule_build_info",
    &["program", "version"],
    "",
    "1, with the program's name and version",
);

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_name_means_one_thing() {
        let mut known: BTreeMap<&str, Metric> = BTreeMap::new();
        for metric in Program::ALL.iter().flat_map(|program| program.metrics()) {
            let before = known.insert(metric.name, *metric);
            assert!(before.is_none_or(|before| before == *metric), "{}", metric.name);
        }
    }

    /// amazon-vpc-cni's names are as they are.
    #[test]
    fn our_names_say_unit_and_type() {
        let all = Program::ALL.iter().flat_map(|program| program.metrics());
        for metric in all.filter(|metric| !metric.name.starts_with("awscni_")) {
            let name = metric.name;
            assert!(name.starts_with("ferrule_"), "{name}");
            assert_eq!(metric.kind == Kind::Counter, name.ends_with("_total"), "{name}");
            let timed = matches!(metric.kind, Kind::Histogram(_));
            assert!(!timed || name.ends_with("_seconds"), "{name}");
            assert!(!metric.help.is_empty() && !metric.help.ends_with('.'), "{name}");
        }
    }

    #[test]
    fn buckets_grow() {
        for metric in Program::ALL.iter().flat_map(|program| program.metrics()) {
            if let Kind::Histogram(buckets) = metric.kind {
                assert!(buckets.is_sorted() && !buckets.is_empty(), "{}", metric.name);
            }
        }
    }
}

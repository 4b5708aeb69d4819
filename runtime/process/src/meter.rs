//! Makes a program's metrics as the catalogue has them, and the page that Prometheus reads.
//!
//! Types, labels, buckets and help come from `config-metrics`; a program says a name, and what is
//! not in the catalogue is refused.

use config_metrics::{Kind, Metric, Program};
use prometheus::{
    Encoder as _, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec,
    IntGauge, IntGaugeVec, Opts, Registry, TextEncoder,
    core::{Collector, Desc},
};
use std::collections::HashMap;

pub use prometheus::Error;

/// A program's metrics.
#[derive(Clone, Debug)]
pub struct Meter {
    program: Program,
    registry: Registry,
}

impl Meter {
    /// None yet but who the program is.
    ///
    /// # Errors
    /// Never, as long as the catalogue has the program's version among its metrics.
    pub fn new(program: Program, version: &str) -> Result<Self, Error> {
        let meter = Self { program, registry: Registry::new() };
        meter.gauges("ferrule_build_info")?.with_label_values(&[program.name(), version]).set(1);
        Ok(meter)
    }

    /// A counter without labels.
    ///
    /// # Errors
    /// If the catalogue has none of this name, or it was made before.
    pub fn counter(&self, name: &str) -> Result<IntCounter, Error> {
        self.keep(IntCounter::with_opts(self.opts(name, Kind::Counter)?)?)
    }

    /// A counter by its labels.
    ///
    /// # Errors
    /// If the catalogue has none of this name, or it was made before.
    pub fn counters(&self, name: &str) -> Result<IntCounterVec, Error> {
        self.keep(IntCounterVec::new(self.opts(name, Kind::Counter)?, self.labels(name)?)?)
    }

    /// A gauge without labels.
    ///
    /// # Errors
    /// If the catalogue has none of this name, or it was made before.
    pub fn gauge(&self, name: &str) -> Result<IntGauge, Error> {
        self.keep(IntGauge::with_opts(self.opts(name, Kind::Gauge)?)?)
    }

    /// A gauge by its labels.
    ///
    /// # Errors
    /// If the catalogue has none of this name, or it was made before.
    pub fn gauges(&self, name: &str) -> Result<IntGaugeVec, Error> {
        self.keep(IntGaugeVec::new(self.opts(name, Kind::Gauge)?, self.labels(name)?)?)
    }

    /// A gauge of fractions, by its labels.
    ///
    /// # Errors
    /// If the catalogue has none of this name, or it was made before.
    pub fn real_gauges(&self, name: &str) -> Result<GaugeVec, Error> {
        self.keep(GaugeVec::new(self.opts(name, Kind::Gauge)?, self.labels(name)?)?)
    }

    /// A histogram without labels.
    ///
    /// # Errors
    /// If the catalogue has none of this name, or it was made before.
    pub fn histogram(&self, name: &str) -> Result<Histogram, Error> {
        self.keep(Histogram::with_opts(self.buckets(name)?)?)
    }

    /// A histogram by its labels.
    ///
    /// # Errors
    /// If the catalogue has none of this name, or it was made before.
    pub fn histograms(&self, name: &str) -> Result<HistogramVec, Error> {
        self.keep(HistogramVec::new(self.buckets(name)?, self.labels(name)?)?)
    }

    /// What a collector that the program makes itself says of the metric.
    ///
    /// # Errors
    /// If the catalogue has none of this name.
    pub fn desc(&self, name: &str) -> Result<Desc, Error> {
        let Metric { help, labels, .. } = *self.known(name)?;
        let labels = labels.iter().map(ToString::to_string).collect();
        Desc::new(name.to_owned(), help.to_owned(), labels, HashMap::new())
    }

    /// Shows what this collector collects.
    ///
    /// # Errors
    /// If there is one of its name.
    pub fn keep<C: Collector + Clone + 'static>(&self, collector: C) -> Result<C, Error> {
        self.registry.register(Box::new(collector.clone()))?;
        Ok(collector)
    }

    /// The page that Prometheus reads.
    pub fn page(&self) -> String {
        let mut page = Vec::new();
        // Writing to memory does not fail; a family that cannot be written is left out.
        let _ = TextEncoder::new().encode(&self.registry.gather(), &mut page);
        String::from_utf8(page).unwrap_or_default()
    }

    fn known(&self, name: &str) -> Result<&'static Metric, Error> {
        self.program.metric(name).ok_or_else(|| {
            Error::Msg(format!("the catalogue of {} has no {name}", self.program.name()))
        })
    }

    fn opts(&self, name: &str, kind: Kind) -> Result<Opts, Error> {
        let metric = self.known(name)?;
        if metric.kind == kind {
            Ok(Opts::new(name, metric.help))
        } else {
            Err(Error::Msg(format!("{name} is a {} in the catalogue", metric.kind.name())))
        }
    }

    fn buckets(&self, name: &str) -> Result<HistogramOpts, Error> {
        let metric = self.known(name)?;
        match metric.kind {
            Kind::Histogram(buckets) => {
                Ok(HistogramOpts::new(name, metric.help).buckets(buckets.to_vec()))
            }
            Kind::Counter | Kind::Gauge | Kind::Summary => {
                Err(Error::Msg(format!("{name} is a {} in the catalogue", metric.kind.name())))
            }
        }
    }

    fn labels(&self, name: &str) -> Result<&'static [&'static str], Error> {
        Ok(self.known(name)?.labels)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;

    #[test]
    fn who_the_program_is_stands_on_the_page_from_the_start() {
        let meter = Meter::new(Program::Ipamd, "1.2.3").unwrap();
        let line = "ferrule_build_info{program=\"ferrule-ipamd\",version=\"1.2.3\"} 1\n";
        assert!(meter.page().contains(line), "{}", meter.page());
    }

    #[test]
    fn what_the_catalogue_lacks_or_calls_otherwise_is_refused() {
        let meter = Meter::new(Program::Ipamd, "1").unwrap();
        meter.counter("awscni_add_ip_req_count").unwrap();
        assert!(meter.counter("awscni_add_ip_req_count").is_err(), "it was made before");
        assert!(meter.counter("ferrule_agent_behind").is_err(), "it is the agent's");
        let error = meter.gauge("awscni_no_available_ip_addresses").unwrap_err();
        assert_eq!(
            error.to_string(),
            "Error: awscni_no_available_ip_addresses is a counter in the catalogue"
        );
    }
}

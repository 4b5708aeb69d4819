//! Registers a program's metrics from the catalog, and renders the page for Prometheus.
//!
//! Types, labels, buckets and help come from `config-metrics`. A program passes the name, and a name outside the
//! catalog is an error.

use config_metrics::{Kind, Metric, Program};
use prometheus::{
    Encoder as _, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec,
    IntGauge, IntGaugeVec, Opts, Registry, TextEncoder,
    core::{Collector, Desc},
};
use std::collections::HashMap;

pub use prometheus::Error;

/// The registry of a program's metrics.
#[derive(Clone, Debug)]
pub struct Meter {
    program: Program,
    registry: Registry,
}

impl Meter {
    /// Registers only the program's version.
    ///
    /// # Errors
    /// Never, as long as the catalog has the program's version metric.
    pub fn new(program: Program, version: &str) -> Result<Self, Error> {
        let meter = Self { program, registry: Registry::new() };
        meter.gauges("ferrule_build_info")?.with_label_values(&[program.name(), version]).set(1);
        Ok(meter)
    }

    /// A counter without labels.
    ///
    /// # Errors
    /// If the catalog has none of this name, or it is registered already.
    pub fn counter(&self, name: &str) -> Result<IntCounter, Error> {
        self.keep(IntCounter::with_opts(self.opts(name, Kind::Counter)?)?)
    }

    /// A counter with labels.
    ///
    /// # Errors
    /// If the catalog has none of this name, or it is registered already.
    pub fn counters(&self, name: &str) -> Result<IntCounterVec, Error> {
        self.keep(IntCounterVec::new(self.opts(name, Kind::Counter)?, self.labels(name)?)?)
    }

    /// A gauge without labels.
    ///
    /// # Errors
    /// If the catalog has none of this name, or it is registered already.
    pub fn gauge(&self, name: &str) -> Result<IntGauge, Error> {
        self.keep(IntGauge::with_opts(self.opts(name, Kind::Gauge)?)?)
    }

    /// A gauge with labels.
    ///
    /// # Errors
    /// If the catalog has none of this name, or it is registered already.
    pub fn gauges(&self, name: &str) -> Result<IntGaugeVec, Error> {
        self.keep(IntGaugeVec::new(self.opts(name, Kind::Gauge)?, self.labels(name)?)?)
    }

    /// A gauge of fractions with labels.
    ///
    /// # Errors
    /// If the catalog has none of this name, or it is registered already.
    pub fn real_gauges(&self, name: &str) -> Result<GaugeVec, Error> {
        self.keep(GaugeVec::new(self.opts(name, Kind::Gauge)?, self.labels(name)?)?)
    }

    /// A histogram without labels.
    ///
    /// # Errors
    /// If the catalog has none of this name, or it is registered already.
    pub fn histogram(&self, name: &str) -> Result<Histogram, Error> {
        self.keep(Histogram::with_opts(self.buckets(name)?)?)
    }

    /// A histogram with labels.
    ///
    /// # Errors
    /// If the catalog has none of this name, or it is registered already.
    pub fn histograms(&self, name: &str) -> Result<HistogramVec, Error> {
        self.keep(HistogramVec::new(self.buckets(name)?, self.labels(name)?)?)
    }

    /// The description of a metric with a collector of the program's own.
    ///
    /// # Errors
    /// If the catalog has none of this name.
    pub fn desc(&self, name: &str) -> Result<Desc, Error> {
        let Metric { help, labels, .. } = *self.known(name)?;
        let labels = labels.iter().map(ToString::to_string).collect();
        Desc::new(name.to_owned(), help.to_owned(), labels, HashMap::new())
    }

    /// Registers a collector.
    ///
    /// # Errors
    /// If its name is registered already.
    pub fn keep<C: Collector + Clone + 'static>(&self, collector: C) -> Result<C, Error> {
        self.registry.register(Box::new(collector.clone()))?;
        Ok(collector)
    }

    /// The page for Prometheus.
    pub fn page(&self) -> String {
        let mut page = Vec::new();
        // A write to memory does not fail. An invalid family is omitted.
        let _ = TextEncoder::new().encode(&self.registry.gather(), &mut page);
        String::from_utf8(page).unwrap_or_default()
    }

    fn known(&self, name: &str) -> Result<&'static Metric, Error> {
        self.program.metric(name).ok_or_else(|| {
            Error::Msg(format!("the catalog of {} has no {name}", self.program.name()))
        })
    }

    fn opts(&self, name: &str, kind: Kind) -> Result<Opts, Error> {
        let metric = self.known(name)?;
        if metric.kind == kind {
            Ok(Opts::new(name, metric.help))
        } else {
            Err(Error::Msg(format!("{name} is a {} in the catalog", metric.kind.name())))
        }
    }

    fn buckets(&self, name: &str) -> Result<HistogramOpts, Error> {
        let metric = self.known(name)?;
        match metric.kind {
            Kind::Histogram(buckets) => {
                Ok(HistogramOpts::new(name, metric.help).buckets(buckets.to_vec()))
            }
            Kind::Counter | Kind::Gauge | Kind::Summary => {
                Err(Error::Msg(format!("{name} is a {} in the catalog", metric.kind.name())))
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
    fn the_build_info_is_on_the_page_from_the_start() {
        let meter = Meter::new(Program::Ipamd, "1.2.3").unwrap();
        let line = "ferrule_build_info{program=\"ferrule-ipamd\",version=\"1.2.3\"} 1\n";
        assert!(meter.page().contains(line), "{}", meter.page());
    }

    #[test]
    fn a_metric_outside_the_catalog_or_of_another_type_is_refused() {
        let meter = Meter::new(Program::Ipamd, "1").unwrap();
        meter.counter("awscni_add_ip_req_count").unwrap();
        assert!(meter.counter("awscni_add_ip_req_count").is_err(), "it is registered already");
        assert!(meter.counter("ferrule_agent_behind").is_err(), "it is the agent's");
        let error = meter.gauge("awscni_no_available_ip_addresses").unwrap_err();
        assert_eq!(
            error.to_string(),
            "Error: awscni_no_available_ip_addresses is a counter in the catalog"
        );
    }
}

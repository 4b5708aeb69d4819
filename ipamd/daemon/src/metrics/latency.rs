//! `awscni_aws_api_latency_ms`: a summary without quantiles, a type that the prometheus crate lacks.

use prometheus::{
    core::{Collector, Desc},
    proto::{LabelPair, Metric, MetricFamily, MetricType, Summary},
};
use runtime_process::meter::Meter;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

const NAME: &str = "awscni_aws_api_latency_ms";

/// Count and sum of the latencies, by call, failure and HTTP status.
type Sums = BTreeMap<(String, bool, Option<u16>), (u64, f64)>;

#[derive(Clone, Debug)]
pub(super) struct LatencySums {
    desc: Desc,
    sums: Arc<Mutex<Sums>>,
}

impl LatencySums {
    pub(super) fn new(meter: &Meter) -> Result<Self, runtime_process::meter::Error> {
        let desc = meter.desc(NAME)?;
        meter.keep(Self { desc, sums: Arc::default() })
    }

    pub(super) fn observe(&self, api: &str, failed: bool, status: Option<u16>, took: Duration) {
        let mut sums = runtime_lock::lock(&self.sums);
        let (count, sum) = sums.entry((api.to_owned(), failed, status)).or_default();
        *count += 1;
        *sum += took.as_secs_f64() * 1000.0;
    }
}

impl Collector for LatencySums {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let sums = runtime_lock::lock(&self.sums);
        let metrics = sums.iter().map(|((api, failed, status), (count, sum))| {
            let mut summary = Summary::default();
            summary.set_sample_count(*count);
            summary.set_sample_sum(*sum);
            let error = failed.to_string();
            // As in amazon-vpc-cni, a call without an answer counts as 200.
            let status = status.unwrap_or(200).to_string();
            let labels = self.desc.variable_labels.iter().zip([api, &error, &status]).map(
                |(name, value)| {
                    let mut label = LabelPair::default();
                    label.set_name(name.clone());
                    label.set_value(value.clone());
                    label
                },
            );
            let mut metric = Metric::from_label(labels.collect());
            metric.set_summary(summary);
            metric
        });
        let mut family = MetricFamily::default();
        family.set_name(NAME.to_owned());
        family.set_help(self.desc.help.clone());
        family.set_field_type(MetricType::SUMMARY);
        family.set_metric(metrics.collect());
        vec![family]
    }
}

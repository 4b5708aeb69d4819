//! What is counted and measured: amazon-vpc-cni's names where dashboards have them, ours beside.

mod gauges;
mod latency;

use crate::{cluster::Cluster, repair::PassReport, view::View};
use gauges::Gauges;
use ipamd_cloud::{CallReport, Service};
use ipamd_core::{Action, Answer, Notice, RefusalReason, ReleaseCause, Topic};
use latency::LatencySums;
use prometheus::{
    Encoder as _, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry, TextEncoder, core::Collector,
};
use routing_plan::nat::Backend;
use std::{fmt, time::Duration};

/// Every metric of the daemon.
pub struct Metrics {
    registry: Registry,
    /// `awscni_add_ip_req_count`
    pub(crate) add_requests: IntCounter,
    del_requests: IntCounterVec,
    no_address: IntCounter,
    api_latency: LatencySums,
    api_errors: IntCounterVec,
    ec2_requests: IntCounterVec,
    ec2_errors: IntCounterVec,
    ipamd_errors: IntCounterVec,
    initialization: HistogramVec,
    startup: HistogramVec,
    add_duration: HistogramVec,
    release_duration: Histogram,
    confirm_duration: Histogram,
    reconciled: IntCounterVec,
    in_progress: IntGaugeVec,
    calls: IntCounterVec,
    call_duration: HistogramVec,
    call_wait: HistogramVec,
    notices: IntCounterVec,
    repairs: IntCounterVec,
    refused_repairs: IntCounterVec,
    pass_duration: Histogram,
    pass_failures: IntCounter,
    drift_duration: Histogram,
    unsettled_passes: IntGauge,
    nat_backend: IntGaugeVec,
    nat_passes: IntCounterVec,
    gauges: Gauges,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// All at zero.
    ///
    /// # Panics
    /// Never: names are unique and valid, which a test holds by calling this.
    pub fn new() -> Self {
        let registry = Registry::new();
        let of = |name, help| counter(&registry, name, help);
        let by = |name, help, labels: &[&str]| counters(&registry, name, help, labels);
        let timed = |name, help, buckets| {
            keep(&registry, Histogram::with_opts(histogram_opts(name, help, buckets)))
        };
        let timed_by = |name, help, buckets, labels: &[&str]| {
            keep(&registry, HistogramVec::new(histogram_opts(name, help, buckets), labels))
        };
        register_constants(&registry);
        let in_progress = keep(
            &registry,
            IntGaugeVec::new(
                Opts::new("awscni_ipamd_action_inprogress", "What the daemon does just now"),
                &["fn"],
            ),
        );
        Self {
            add_requests: of("awscni_add_ip_req_count", "Requests of ADDs for an address"),
            del_requests: by("awscni_del_ip_req_count", "Requests of DELs, by reason", &["reason"]),
            no_address: of(
                "awscni_no_available_ip_addresses",
                "ADDs that were refused because there was no address",
            ),
            api_latency: keep(&registry, LatencySums::new()),
            api_errors: by(
                "awscni_aws_api_error_count",
                "Calls to AWS that failed, by error code",
                &["api", "error"],
            ),
            ec2_requests: by("awscni_ec2api_req_count", "Calls to EC2", &["fn"]),
            ec2_errors: by("awscni_ec2api_error_count", "Calls to EC2 that failed", &["fn"]),
            ipamd_errors: by("awscni_ipamd_error_count", "Errors of the daemon", &["fn"]),
            initialization: timed_by(
                "awscni_ipamd_node_initialization_duration_seconds",
                "From start to an address book",
                &SLOW,
                &["success"],
            ),
            startup: timed_by(
                "awscni_ipamd_startup_duration_seconds",
                "From start to the first usable address",
                &SLOW,
                &["success", "with_api_server", "failure_reason"],
            ),
            add_duration: timed_by(
                "ferrule_add_duration_seconds",
                "From an ADD's request to its durable answer",
                &QUICK,
                &["result"],
            ),
            release_duration: timed(
                "ferrule_del_duration_seconds",
                "From a DEL's request to its durable answer",
                &QUICK,
            ),
            confirm_duration: timed(
                "ferrule_confirm_duration_seconds",
                "From a confirmation to its durable answer",
                &QUICK,
            ),
            reconciled: by(
                "awscni_reconcile_count",
                "ENIs and addresses that were found or found gone",
                &["fn"],
            ),
            calls: by(
                "ferrule_ec2_calls_total",
                "Calls to EC2 and IMDS, by action and result (ok or the error code)",
                &["action", "result"],
            ),
            call_duration: timed_by(
                "ferrule_ec2_call_duration_seconds",
                "How long calls to EC2 and IMDS took",
                &SLOW,
                &["action"],
            ),
            call_wait: timed_by(
                "ferrule_ec2_call_wait_seconds",
                "How long calls to EC2 waited for their budget",
                &SLOW,
                &["action"],
            ),
            notices: by(
                "ferrule_notices_total",
                "Notices of the address book, by topic and severity",
                &["topic", "severity"],
            ),
            repairs: by(
                "ferrule_repairs_total",
                "Operations by which host networking was put right, by kind",
                &["kind"],
            ),
            refused_repairs: by(
                "ferrule_repairs_refused_total",
                "Operations that the kernel refused, by kind",
                &["kind"],
            ),
            pass_duration: timed(
                "ferrule_repair_pass_duration_seconds",
                "How long a pass over host networking took",
                &QUICK,
            ),
            pass_failures: of(
                "ferrule_repair_pass_failures_total",
                "Passes that could not observe the kernel",
            ),
            drift_duration: timed(
                "ferrule_drift_repair_seconds",
                "From word of a change to the end of the pass that repaired it",
                &QUICK,
            ),
            nat_backend: keep(
                &registry,
                IntGaugeVec::new(
                    Opts::new("awscni_connmark_backend", "1 at who writes netfilter's rules"),
                    &["backend"],
                ),
            ),
            nat_passes: by(
                "awscni_connmark_reconcile_total",
                "Looks at netfilter's rules, by result: unchanged, changed, failed",
                &["result"],
            ),
            unsettled_passes: gauge(
                &registry,
                "ferrule_repair_unsettled_passes",
                "Passes in a row that still found something to repair",
            ),
            gauges: Gauges::new(&registry, &in_progress),
            in_progress,
            registry,
        }
    }

    pub(crate) fn released(&self, cause: ReleaseCause) {
        let reason = match cause {
            ReleaseCause::PodDeleted => "PodDeleted",
            ReleaseCause::SetupFailed => "SetupNSFailed",
        };
        self.del_requests.with_label_values(&[reason]).inc();
    }

    pub(crate) fn answered(&self, answer: &Answer, took: Duration) {
        let seconds = took.as_secs_f64();
        match answer {
            Answer::Reserved { .. } | Answer::ReservedBranch(_) => self.add("ok", seconds),
            Answer::Refused(refusal) => {
                let result = match refusal.reason {
                    RefusalReason::TryAgain => "try_again",
                    RefusalReason::Exhausted => "exhausted",
                    RefusalReason::Invalid => "invalid",
                    RefusalReason::Stopping => "stopping",
                };
                if matches!(refusal.reason, RefusalReason::TryAgain | RefusalReason::Exhausted) {
                    self.no_address.inc();
                }
                self.add(result, seconds);
            }
            Answer::Confirmed { .. } => self.confirm_duration.observe(seconds),
            Answer::Released { .. } => self.release_duration.observe(seconds),
        }
    }

    fn add(&self, result: &str, seconds: f64) {
        self.add_duration.with_label_values(&[result]).observe(seconds);
    }

    /// A call to EC2 or to the metadata service has ended.
    pub fn called(&self, report: &CallReport<'_>) {
        let CallReport { service, action, duration, status, error } = *report;
        self.calls.with_label_values(&[action, error.unwrap_or("ok")]).inc();
        self.call_duration.with_label_values(&[action]).observe(duration.as_secs_f64());
        self.api_latency.observe(action, error.is_some(), status, duration);
        let ec2 = service == Service::Ec2;
        if ec2 {
            self.ec2_requests.with_label_values(&[action]).inc();
        }
        if let Some(code) = error {
            self.api_errors.with_label_values(&[action, code]).inc();
            if ec2 {
                self.ec2_errors.with_label_values(&[action]).inc();
            }
        }
    }

    /// A call to EC2 begins, after it has waited so long for its budget.
    pub(crate) fn call_begins(&self, action: Action, waited: Duration) {
        self.call_wait.with_label_values(&[action.name()]).observe(waited.as_secs_f64());
        if let Some(name) = in_progress(action) {
            self.in_progress.with_label_values(&[name]).inc();
        }
    }

    /// A call to EC2 has ended.
    pub(crate) fn call_ends(&self, action: Action) {
        if let Some(name) = in_progress(action) {
            self.in_progress.with_label_values(&[name]).dec();
        }
    }

    /// A witness is asked, or has answered.
    pub(crate) fn looks(&self, begins: bool) {
        let gauge = self.in_progress.with_label_values(&["nodeIPPoolReconcile"]);
        gauge.add(if begins { 1 } else { -1 });
    }

    pub(crate) fn noticed(&self, notice: &Notice) {
        let whole_eni = notice.object.starts_with("eni-");
        let reconciled = match (notice.topic, whole_eni) {
            (Topic::Adopted, true) => Some("eniReconcileAdd"),
            (Topic::Adopted, false) => Some("eniDataStorePoolReconcileAdd"),
            (Topic::Vanished, true) => Some("eniReconcileDel"),
            (Topic::Vanished, false) => Some("eniIPPoolReconcileDel"),
            _ => None,
        };
        if let Some(name) = reconciled {
            self.reconciled.with_label_values(&[name]).inc();
        }
        let severity = match notice.severity {
            ipamd_core::Severity::Info => "info",
            ipamd_core::Severity::Warning => "warning",
            ipamd_core::Severity::Error => "error",
        };
        self.notices.with_label_values(&[notice.topic.name(), severity]).inc();
        if notice.severity == ipamd_core::Severity::Error {
            self.ipamd_errors.with_label_values(&[notice.topic.name()]).inc();
        }
    }

    pub(crate) fn initialized(&self, took: Duration) {
        self.initialization.with_label_values(&["true"]).observe(took.as_secs_f64());
    }

    pub(crate) fn started(&self, took: Duration) {
        self.startup.with_label_values(&["true", "false", ""]).observe(took.as_secs_f64());
    }

    pub(crate) fn passed(&self, report: &PassReport) {
        self.pass_duration.observe(report.took.as_secs_f64());
        for kind in &report.done {
            self.repairs.with_label_values(&[*kind]).inc();
        }
        for kind in &report.refused {
            self.refused_repairs.with_label_values(&[*kind]).inc();
        }
        if !report.done.is_empty() {
            self.drift_duration.observe(report.since_word.as_secs_f64());
        }
        self.unsettled_passes.set(report.unsettled.into());
    }

    /// Netfilter was looked at, and is as desired by that backend.
    pub(crate) fn nat_passed(&self, backend: Backend, result: &str) {
        for other in Backend::ALL {
            let value = i64::from(other == backend);
            self.nat_backend.with_label_values(&[other.name()]).set(value);
        }
        self.nat_passes.with_label_values(&[result]).inc();
    }

    /// Netfilter could not be looked at, or not be changed.
    pub(crate) fn nat_failed(&self) {
        self.nat_passes.with_label_values(&["failed"]).inc();
    }

    pub(crate) fn pass_failed(&self) {
        self.pass_failures.inc();
    }

    /// The page that Prometheus reads, its gauges as they were last set.
    pub fn page(&self) -> String {
        let mut page = Vec::new();
        // Writing to memory does not fail; a family that cannot be written is left out.
        let _ = TextEncoder::new().encode(&self.registry.gather(), &mut page);
        String::from_utf8(page).unwrap_or_default()
    }

    /// Sets the gauges of the pool.
    pub(crate) fn set_gauges(&self, view: &View, cluster: &Cluster, report: &PassReport) {
        self.gauges.set(view, cluster, report);
    }
}

/// What amazon-vpc-cni calls it.
fn in_progress(action: Action) -> Option<&'static str> {
    match action {
        Action::Create | Action::Attach | Action::Assign | Action::AssignIpv6 => {
            Some("increaseDatastorePool")
        }
        Action::Unassign | Action::UnassignIpv6 | Action::Detach | Action::Delete => {
            Some("decreaseDatastorePool")
        }
        Action::Modify | Action::Describe | Action::DescribeSubnets | Action::Tag => None,
    }
}

/// Names that dashboards have and that do not change here.
fn register_constants(registry: &Registry) {
    let info = Opts::new("awscni_build_info", "The daemon's version")
        .const_label("version", env!("CARGO_PKG_VERSION"))
        .const_label("goversion", "");
    keep(registry, IntGauge::with_opts(info)).set(1);
    for (name, help) in [
        ("awscni_force_removed_enis", "ENIs dropped with pods on them; never done here"),
        ("awscni_force_removed_ips", "Addresses dropped from pods; never done here"),
    ] {
        counter(registry, name, help);
    }
}

fn counter(registry: &Registry, name: &str, help: &str) -> IntCounter {
    keep(registry, IntCounter::new(name, help))
}

fn counters(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    keep(registry, IntCounterVec::new(Opts::new(name, help), labels))
}

fn gauge(registry: &Registry, name: &str, help: &str) -> IntGauge {
    keep(registry, IntGauge::new(name, help))
}

fn keep<C: Collector + Clone + 'static>(registry: &Registry, made: prometheus::Result<C>) -> C {
    let metric = made.expect("names and labels are valid");
    registry.register(Box::new(metric.clone())).expect("names are unique");
    metric
}

fn histogram_opts(name: &str, help: &str, buckets: &[f64]) -> HistogramOpts {
    HistogramOpts::new(name, help).buckets(buckets.to_vec())
}

/// Seconds, for what should take milliseconds.
const QUICK: [f64; 14] =
    [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 20.0, 60.0];
/// Seconds, for what involves the cloud.
const SLOW: [f64; 12] = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0];

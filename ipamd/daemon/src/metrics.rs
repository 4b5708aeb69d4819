//! The daemon's metrics: the names of amazon-vpc-cni where dashboards use them, and Ferrule's own.

mod gauges;
mod latency;
mod nat;

use crate::{pass_report::PassReport, view::View};
use config_metrics::Program;
use gauges::Gauges;
use ipamd_cloud::{CallReport, Refusal, Service};
use ipamd_core::{Action, Answer, Notice, RefusalReason, ReleaseCause, Severity, Topic};
use ipamd_kube::ConcernStates;
use latency::LatencySums;
use nat::NatMetrics;
use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};
use routing_plan::nat::Backend;
use runtime_process::meter::Meter;
use std::{fmt, time::Duration};

#[derive(Clone, Debug, Default)]
pub(crate) struct Kubernetes {
    pub(crate) concern_states: ConcernStates,
    /// A mode of the daemon waits for the API server.
    pub(crate) lacks: bool,
}

pub struct Metrics {
    meter: Meter,
    /// `awscni_add_ip_req_count`
    pub(crate) add_requests: IntCounter,
    del_requests: IntCounterVec,
    no_address: IntCounter,
    api_latency: LatencySums,
    api_errors: IntCounterVec,
    utils_errors: IntCounterVec,
    ec2_requests: IntCounterVec,
    ec2_errors: IntCounterVec,
    ipamd_errors: IntCounterVec,
    pod_eni_errors: IntCounterVec,
    initialization: HistogramVec,
    startup: HistogramVec,
    add_duration: HistogramVec,
    release_duration: Histogram,
    confirm_duration: Histogram,
    reconciled: IntCounterVec,
    in_progress: IntGaugeVec,
    calls: IntCounterVec,
    refusals: IntCounterVec,
    call_duration: HistogramVec,
    call_wait: HistogramVec,
    notices: IntCounterVec,
    repairs: IntCounterVec,
    refused_repairs: IntCounterVec,
    pass_duration: Histogram,
    pass_failures: IntCounter,
    drift_duration: Histogram,
    unsettled_passes: IntGauge,
    nat: NatMetrics,
    network_restored: IntCounter,
    network_failing: IntGauge,
    source_check: IntGauge,
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
    /// Never: the catalog's names are unique and valid. A test calls this.
    pub fn new() -> Self {
        let meter = made(Meter::new(Program::Ipamd, env!("CARGO_PKG_VERSION")));
        register_constants(&meter);
        let of = |name| made(meter.counter(name));
        let by = |name| made(meter.counters(name));
        let timed = |name| made(meter.histogram(name));
        let timed_by = |name| made(meter.histograms(name));
        let in_progress = made(meter.gauges("awscni_ipamd_action_inprogress"));
        let metrics = Self {
            add_requests: of("awscni_add_ip_req_count"),
            del_requests: by("awscni_del_ip_req_count"),
            no_address: of("awscni_no_available_ip_addresses"),
            api_latency: made(LatencySums::new(&meter)),
            api_errors: by("awscni_aws_api_error_count"),
            utils_errors: by("awscni_aws_utils_error_count"),
            ec2_requests: by("awscni_ec2api_req_count"),
            ec2_errors: by("awscni_ec2api_error_count"),
            ipamd_errors: by("awscni_ipamd_error_count"),
            pod_eni_errors: by("awscni_pod_eni_error_count"),
            initialization: timed_by("awscni_ipamd_node_initialization_duration_seconds"),
            startup: timed_by("awscni_ipamd_startup_duration_seconds"),
            add_duration: timed_by("ferrule_add_duration_seconds"),
            release_duration: timed("ferrule_del_duration_seconds"),
            confirm_duration: timed("ferrule_confirm_duration_seconds"),
            reconciled: by("awscni_reconcile_count"),
            calls: by("ferrule_ec2_calls_total"),
            refusals: by("ferrule_ec2_refusals_total"),
            call_duration: timed_by("ferrule_ec2_call_duration_seconds"),
            call_wait: timed_by("ferrule_ec2_call_wait_seconds"),
            notices: by("ferrule_notices_total"),
            repairs: by("ferrule_repairs_total"),
            refused_repairs: by("ferrule_repairs_refused_total"),
            pass_duration: timed("ferrule_repair_pass_duration_seconds"),
            pass_failures: of("ferrule_repair_pass_failures_total"),
            drift_duration: timed("ferrule_drift_repair_seconds"),
            nat: NatMetrics::new(&meter),
            network_restored: of("ferrule_network_restorations_total"),
            network_failing: made(meter.gauge("ferrule_network_failing")),
            source_check: made(meter.gauge("ferrule_source_check_in_force")),
            unsettled_passes: made(meter.gauge("ferrule_repair_unsettled_passes")),
            gauges: Gauges::new(&meter, &in_progress),
            in_progress,
            meter,
        };
        metrics.begin_series();
        metrics
    }

    /// Creates the series that alerts use with value 0. Prometheus sees no increase in a series that starts at 1.
    fn begin_series(&self) {
        for grant in config_iam::grants() {
            self.ec2_requests.with_label_values(&[grant.action]);
            self.ec2_errors.with_label_values(&[grant.action]);
            let both = [Refusal::Denied, Refusal::Throttled];
            let of_room = [Refusal::LimitReached, Refusal::NoRoom];
            let takes_room = TAKES_ROOM.contains(&grant.action);
            for refusal in both.into_iter().chain(of_room.into_iter().filter(|_| takes_room)) {
                self.refusals.with_label_values(&[grant.action, refusal.name()]);
            }
        }
        for (topic, severity) in ALERTED {
            self.notices.with_label_values(&[topic.name(), severity_name(severity)]);
        }
        for result in ["ok", "try_again", "exhausted"] {
            self.add_duration.with_label_values(&[result]);
        }
        for (counters, values) in [
            (&self.del_requests, &["PodDeleted", "SetupNSFailed"][..]),
            (&self.pod_eni_errors, &["nodeInit", TRUNK]),
            (&self.reconciled, &RECONCILED),
        ] {
            for value in values {
                counters.with_label_values(&[*value]);
            }
        }
        for name in ["increaseDatastorePool", "decreaseDatastorePool", "nodeIPPoolReconcile"] {
            self.in_progress.with_label_values(&[name]);
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

    /// Counts a call to EC2 or to the metadata service.
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
                let refusal = Refusal::of(code);
                if let Some(refusal) = refusal {
                    self.refusals.with_label_values(&[action, refusal.name()]).inc();
                }
                if refusal != Some(Refusal::Throttled) {
                    self.utils_errors.with_label_values(&[action, code]).inc();
                }
            }
        }
    }

    /// Counts the start of a call to EC2, and its wait for the budget.
    pub(crate) fn call_begins(&self, action: Action, waited: Duration) {
        self.call_wait.with_label_values(&[action.name()]).observe(waited.as_secs_f64());
        if let Some(name) = in_progress(action) {
            self.in_progress.with_label_values(&[name]).inc();
        }
    }

    /// Counts the end of a call to EC2.
    pub(crate) fn call_ends(&self, action: Action) {
        if let Some(name) = in_progress(action) {
            self.in_progress.with_label_values(&[name]).dec();
        }
    }

    /// Counts the start or the end of a witness's observation.
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
        let severity = severity_name(notice.severity);
        self.notices.with_label_values(&[notice.topic.name(), severity]).inc();
        if notice.topic == Topic::TrunkMissing && notice.severity != Severity::Info {
            self.pod_eni_errors.with_label_values(&[TRUNK]).inc();
        }
        if notice.severity == Severity::Error {
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

    /// Counts an observation of netfilter that ended in the desired state.
    pub(crate) fn nat_passed(&self, backend: Backend, result: &str) {
        self.nat.passed(backend, result);
    }

    /// Counts an observation or a change of netfilter that failed.
    pub(crate) fn nat_failed(&self) {
        self.nat.failed();
    }

    /// Records whether the table with the check of pods' source addresses is in force.
    pub(crate) fn source_check(&self, in_force: bool) {
        self.source_check.set(in_force.into());
    }

    /// Takes over the installer's report. Its count restarts with the installer.
    pub(crate) fn network(&self, restored: u64, is_failing: bool) {
        self.network_restored.reset();
        self.network_restored.inc_by(restored);
        self.network_failing.set(is_failing.into());
    }

    pub(crate) fn pass_failed(&self) {
        self.pass_failures.inc();
    }

    /// The page for Prometheus, with the gauges as last set.
    pub fn page(&self) -> String {
        self.meter.page()
    }

    /// Sets the gauges of the pool.
    pub(crate) fn set_gauges(&self, view: &View, kubernetes: &Kubernetes, report: &PassReport) {
        self.gauges.set(view, kubernetes, report);
    }

    /// Sets the gauge of problems, by kind and severity.
    pub(crate) fn set_troubles(
        &self,
        troubles: impl IntoIterator<Item = (&'static str, view_node::Severity)>,
    ) {
        self.gauges.set_troubles(troubles);
    }
}

/// amazon-vpc-cni's name of the action.
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

/// Registers the metrics of dashboards that have a constant value here.
fn register_constants(meter: &Meter) {
    let info = made(meter.gauges("awscni_build_info"));
    info.with_label_values(&[env!("CARGO_PKG_VERSION"), ""]).set(1);
    for name in ["awscni_force_removed_enis", "awscni_force_removed_ips"] {
        made(meter.counter(name));
    }
}

/// Unwraps a metric of the catalog.
fn made<T>(metric: Result<T, runtime_process::meter::Error>) -> T {
    metric.expect("the catalog has the metric, and it is registered once")
}

fn severity_name(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "info",
        Severity::Warning => "warning",
        Severity::Error => "error",
    }
}

/// Actions that can fail because a subnet is full or a limit is reached.
const TAKES_ROOM: [&str; 4] = [
    "CreateNetworkInterface",
    "AttachNetworkInterface",
    "AssignPrivateIpAddresses",
    "AssignIpv6Addresses",
];
/// Notices with an alert.
const ALERTED: [(Topic, Severity); 7] = [
    (Topic::SubnetExhausted, Severity::Error),
    (Topic::SubnetFragmented, Severity::Warning),
    (Topic::LimitReached, Severity::Warning),
    (Topic::AttachStuck, Severity::Error),
    (Topic::AssignedVanished, Severity::Error),
    (Topic::EniConfigInvalid, Severity::Error),
    (Topic::KernelDirty, Severity::Warning),
];
/// Label values of amazon-vpc-cni.
const TRUNK: &str = "tryEnableSecurityGroupsForPods";
const RECONCILED: [&str; 4] =
    ["eniReconcileAdd", "eniDataStorePoolReconcileAdd", "eniReconcileDel", "eniIPPoolReconcileDel"];

#[cfg(test)]
mod tests;

//! The metrics of netfilter, of amazon-vpc-cni and of Ferrule.

use super::made;
use prometheus::{IntCounterVec, IntGaugeVec};
use routing_plan::nat::Backend;
use runtime_process::meter::Meter;

/// The backend of the rules and the results of observations.
pub(super) struct NatMetrics {
    amazons_backend: IntGaugeVec,
    amazons_passes: IntCounterVec,
    backend: IntGaugeVec,
    passes: IntCounterVec,
}

impl NatMetrics {
    pub(super) fn new(meter: &Meter) -> Self {
        let of = Self {
            amazons_backend: made(meter.gauges("awscni_connmark_backend")),
            amazons_passes: made(meter.counters("awscni_connmark_reconcile_total")),
            backend: made(meter.gauges("ferrule_netfilter_backend")),
            passes: made(meter.counters("ferrule_netfilter_passes_total")),
        };
        for result in ["success", "error"] {
            of.amazons_passes.with_label_values(&[result]);
        }
        for result in ["unchanged", "changed", "failed"] {
            of.passes.with_label_values(&[result]);
        }
        of
    }

    pub(super) fn passed(&self, backend: Backend, result: &str) {
        for other in Backend::ALL {
            let value = i64::from(other == backend);
            self.backend.with_label_values(&[other.name()]).set(value);
        }
        let nftables = backend == Backend::Nftables;
        for (name, value) in [("nftables", nftables), ("iptables", !nftables)] {
            self.amazons_backend.with_label_values(&[name]).set(value.into());
        }
        self.amazons_passes.with_label_values(&["success"]).inc();
        self.passes.with_label_values(&[result]).inc();
    }

    pub(super) fn failed(&self) {
        self.amazons_passes.with_label_values(&["error"]).inc();
        self.passes.with_label_values(&["failed"]).inc();
    }
}

//! Gauges that are computed for each scrape.

use super::{Kubernetes, made};
use crate::{
    pass_report::PassReport,
    view::{HOST_NETWORKING, KUBERNETES, Phase, REASONS, View},
};
use ipamd_kube::ConcernState;
use ipnet::IpNet;
use prometheus::{Gauge, GaugeVec, IntGauge, IntGaugeVec};
use runtime_process::meter::Meter;
use std::{collections::BTreeMap, net::IpAddr, time::Duration};
use view_node::Severity;

/// The gauges of the pool, the budgets and the connection to Kubernetes.
pub(super) struct Gauges {
    eni_allocated: IntGauge,
    eni_max: IntGauge,
    ip_max: IntGauge,
    total: IntGauge,
    prefixes: IntGauge,
    assigned: IntGauge,
    assigned_per_eni: IntGaugeVec,
    assigned_per_cidr: IntGaugeVec,
    initializing: IntGauge,
    free: IntGauge,
    usable: IntGauge,
    cooling: IntGauge,
    pool_assigned: IntGauge,
    reserved: IntGauge,
    warm_short: IntGauge,
    waiting: IntGauge,
    calls: IntGauge,
    trouble: IntGaugeVec,
    budget_tokens: GaugeVec,
    budget_rate: GaugeVec,
    budget_burst: IntGaugeVec,
    kubernetes: IntGaugeVec,
    troubles: IntGaugeVec,
    subnet_available: IntGaugeVec,
    subnet_total: IntGaugeVec,
    subnet_age: IntGaugeVec,
}

impl Gauges {
    pub(super) fn new(meter: &Meter, in_progress: &IntGaugeVec) -> Self {
        let of = |name| made(meter.gauge(name));
        let by = |name| made(meter.gauges(name));
        let real_by = |name| made(meter.real_gauges(name));
        Self {
            eni_allocated: of("awscni_eni_allocated"),
            eni_max: of("awscni_eni_max"),
            ip_max: of("awscni_ip_max"),
            total: of("awscni_total_ip_addresses"),
            prefixes: of("awscni_total_ipv4_prefixes"),
            assigned: of("awscni_assigned_ip_addresses"),
            assigned_per_eni: by("awscni_assigned_ip_per_eni"),
            assigned_per_cidr: by("awscni_assigned_ip_per_cidr"),
            initializing: in_progress.with_label_values(&["nodeInit"]),
            free: of("ferrule_pool_free_addresses"),
            usable: of("ferrule_pool_usable_addresses"),
            cooling: of("ferrule_pool_cooling_addresses"),
            pool_assigned: of("ferrule_pool_assigned_addresses"),
            reserved: of("ferrule_pool_reserved_addresses"),
            warm_short: of("ferrule_pool_warm_short_addresses"),
            waiting: of("ferrule_waiting_adds"),
            calls: of("ferrule_ec2_calls_in_progress"),
            trouble: by("ferrule_pool_trouble"),
            budget_tokens: real_by("ferrule_ec2_budget_tokens"),
            budget_rate: real_by("ferrule_ec2_budget_rate"),
            budget_burst: by("ferrule_ec2_budget_burst"),
            kubernetes: by("ferrule_kubernetes_working"),
            troubles: by("ferrule_troubles"),
            subnet_available: by("ferrule_subnet_available_addresses"),
            subnet_total: by("ferrule_subnet_addresses"),
            subnet_age: by("ferrule_subnet_count_age_seconds"),
        }
    }

    pub(super) fn set(&self, view: &View, kubernetes: &Kubernetes, report: &PassReport) {
        let counts = &view.snapshot.counts;
        let per_eni = view.limits.as_ref().map_or(0, ipamd_core::Limits::secondary_per_eni);
        self.eni_allocated.set(counts.enis.into());
        self.eni_max.set(counts.max_enis.into());
        let prefixes = view.targets.as_ref().is_some_and(|targets| targets.prefixes);
        let each = if prefixes { 16 } else { 1 };
        self.ip_max.set(i64::from(counts.max_enis) * i64::from(per_eni) * each);
        self.total.set(whole(counts.total));
        self.assigned.set(counts.assigned.into());
        self.set_blocks(view);
        self.set_subnets(view);
        self.initializing.set(matches!(view.phase, Phase::Starting(_)).into());
        self.free.set(whole(counts.free));
        self.usable.set(whole(counts.usable));
        self.cooling.set(counts.cooling.into());
        self.pool_assigned.set(counts.assigned.into());
        self.reserved.set(counts.reserved.into());
        self.warm_short.set(whole(view.snapshot.short));
        let queued = i64::try_from(view.queued).unwrap_or(i64::MAX);
        self.waiting.set(i64::from(counts.waiting) + queued);
        self.calls.set(counts.calls.into());
        let troubles = view.troubles();
        for reason in REASONS {
            let here = troubles.iter().any(|trouble| trouble.reason == reason)
                || (reason == HOST_NETWORKING && !report.trouble.is_empty())
                || (reason == KUBERNETES && kubernetes.lacks);
            self.trouble.with_label_values(&[reason]).set(here.into());
        }
        for budget in &view.snapshot.budgets {
            let action = [budget.action.name()];
            set_thousandths(&self.budget_tokens.with_label_values(&action), budget.milli_tokens);
            let rate = budget.rate_milli_per_second;
            set_thousandths(&self.budget_rate.with_label_values(&action), rate);
            self.budget_burst.with_label_values(&action).set(budget.burst.into());
        }
        for (concern, standing) in &kubernetes.concern_states {
            let works = match standing {
                ConcernState::Good => true,
                ConcernState::Waiting(_) => concern.waits_for_the_node(),
                ConcernState::Failing(_) => false,
            };
            self.kubernetes.with_label_values(&[concern.name()]).set(works.into());
        }
    }

    /// Sets the present problems and removes the series of others.
    pub(super) fn set_troubles(
        &self,
        troubles: impl IntoIterator<Item = (&'static str, Severity)>,
    ) {
        self.troubles.reset();
        for (kind, severity) in troubles {
            let severity = match severity {
                Severity::Trouble => "trouble",
                Severity::Notice => "notice",
            };
            self.troubles.with_label_values(&[kind, severity]).inc();
        }
    }

    /// Creates one series of each vector.
    #[cfg(test)]
    pub(super) fn sample(&self) {
        for of in [&self.assigned_per_eni, &self.assigned_per_cidr, &self.trouble] {
            of.with_label_values(&["one"]);
        }
        self.kubernetes.with_label_values(&["one"]);
        self.troubles.with_label_values(&["one", "one"]);
        for of in [&self.subnet_available, &self.subnet_total, &self.subnet_age] {
            of.with_label_values(&["one", "one"]);
        }
        self.budget_burst.with_label_values(&["one"]);
        for of in [&self.budget_tokens, &self.budget_rate] {
            of.with_label_values(&["one"]);
        }
    }

    /// Sets the counts of the subnets that matter to the node, and removes the series of old counts.
    fn set_subnets(&self, view: &View) {
        let all = [&self.subnet_available, &self.subnet_total, &self.subnet_age];
        all.iter().for_each(|of| of.reset());
        let of_node = view.snapshot.subnets.iter().filter(|it| it.for_pods || it.in_use);
        for subnet in of_node {
            let age = Duration::from_millis(view.now.since(subnet.counted).0);
            if age > COUNT_LIFETIME {
                continue;
            }
            let values = [subnet.available.into(), subnet.total(), age.as_secs()];
            for (of, value) in all.iter().zip(values) {
                of.with_label_values(&[subnet.id.as_str(), &subnet.zone]).set(whole(value));
            }
        }
    }

    /// Sets the gauges per ENI and per block, and removes the series of others.
    fn set_blocks(&self, view: &View) {
        self.assigned_per_eni.reset();
        self.assigned_per_cidr.reset();
        let managed = || view.snapshot.enis.iter().filter(|eni| eni.managed);
        let mut held: BTreeMap<IpNet, i64> =
            managed().flat_map(|eni| eni.blocks.iter()).map(|block| (*block, 0)).collect();
        for of_pod in view.snapshot.pods.iter().flat_map(|pod| &pod.addresses) {
            for block in blocks_of(of_pod.address) {
                held.entry(block).and_modify(|count| *count += 1);
            }
        }
        let prefixes = held.keys().filter(|block| block.prefix_len() == PREFIX_V4);
        self.prefixes.set(i64::try_from(prefixes.count()).unwrap_or(i64::MAX));
        for (block, count) in held {
            self.assigned_per_cidr.with_label_values(&[&block.to_string()]).set(count);
        }
        for eni in managed() {
            let gauge = self.assigned_per_eni.with_label_values(&[eni.id.as_str()]);
            gauge.set(eni.counts.assigned.into());
        }
    }
}

/// The blocks that an address may belong to.
fn blocks_of(address: IpAddr) -> impl Iterator<Item = IpNet> {
    let lengths = match address {
        IpAddr::V4(_) => [32, PREFIX_V4],
        IpAddr::V6(_) => [128, PREFIX_V6],
    };
    lengths.into_iter().map(move |length| IpNet::new_assert(address, length).trunc())
}

fn set_thousandths(gauge: &Gauge, value: u64) {
    let value = u32::try_from(value).unwrap_or(u32::MAX);
    gauge.set(f64::from(value) / 1000.0);
}

fn whole(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// An older count is not exposed: another node's may be newer.
const COUNT_LIFETIME: Duration = Duration::from_secs(15 * 60);
/// The lengths of EC2's prefixes.
const PREFIX_V4: u8 = 28;
const PREFIX_V6: u8 = 80;

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;
    use config_model::Time;
    use ipamd_core::{Snapshot, SubnetSample, SubnetView};
    use std::collections::VecDeque;

    fn page_with(subnets: Vec<SubnetView>, metrics: &crate::metrics::Metrics) -> String {
        let view = View {
            now: Time(1_000_000),
            phase: Phase::Running,
            snapshot: Snapshot { subnets, ..Snapshot::default() },
            limits: None,
            targets: None,
            checkpoint_trouble: None,
            queued: 0,
            waited: Vec::new(),
            notices: VecDeque::new(),
        };
        metrics.set_gauges(&view, &Kubernetes::default(), &PassReport::default());
        metrics.page()
    }

    #[test]
    fn counts_of_subnets_are_exposed_until_they_are_old() {
        let subnet = |id: &str, seconds_ago: u64, for_pods| SubnetView {
            id: id.into(),
            zone: "z-1a".to_owned(),
            cidr: "10.0.0.0/24".parse().unwrap(),
            available: 42,
            counted: Time(1_000_000 - seconds_ago * 1000),
            for_pods,
            excluded: false,
            in_use: false,
            fragmented: false,
            samples: vec![SubnetSample { at: Time(0), available: 42 }],
        };
        let metrics = crate::metrics::Metrics::new();
        let other = subnet("other", 0, false);
        let page =
            page_with(vec![subnet("old", 901, true), subnet("new", 90, true), other], &metrics);
        let of = |name: &str| format!("{name}{{subnet=\"new\",zone=\"z-1a\"}}");
        assert!(
            page.contains(&format!("{} 42\n", of("ferrule_subnet_available_addresses"))),
            "{page}"
        );
        assert!(page.contains(&format!("{} 251\n", of("ferrule_subnet_addresses"))), "{page}");
        assert!(
            page.contains(&format!("{} 90\n", of("ferrule_subnet_count_age_seconds"))),
            "{page}"
        );
        assert!(!page.contains("subnet=\"old\"") && !page.contains("subnet=\"other\""), "{page}");
        let page = page_with(Vec::new(), &metrics);
        assert!(!page.contains("subnet=\"new\""), "{page}");
    }

    #[test]
    fn an_address_is_of_itself_or_of_its_prefix() {
        let of = |text: &str| {
            let blocks = blocks_of(text.parse().unwrap());
            blocks.map(|block| block.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(of("10.0.0.37"), ["10.0.0.37/32", "10.0.0.32/28"]);
        assert_eq!(of("2001:db8::1:2"), ["2001:db8::1:2/128", "2001:db8::/80"]);
    }
}

//! The daemon's: amazon-vpc-cni's names where dashboards have them, ours beside.

use crate::{BUILD_INFO, Kind, Metric, counter, gauge, histogram};

/// Seconds, for what should take milliseconds.
const QUICK: &[f64] =
    &[0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 20.0, 60.0];
/// Seconds, for what involves the cloud.
const SLOW: &[f64] = &[0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0];

pub(crate) const METRICS: &[Metric] = &[
    BUILD_INFO,
    gauge("awscni_build_info", &["version", "goversion"], "", "1, with the daemon's version"),
    counter("awscni_add_ip_req_count", &[], "requests", "Requests of ADDs for an address"),
    counter(
        "awscni_del_ip_req_count",
        &["reason"],
        "requests",
        "Requests of DELs, by reason: PodDeleted, SetupNSFailed",
    ),
    counter(
        "awscni_no_available_ip_addresses",
        &[],
        "requests",
        "ADDs that were refused because there was no address",
    ),
    gauge("awscni_eni_allocated", &[], "ENIs", "ENIs that are attached"),
    gauge("awscni_eni_max", &[], "ENIs", "Limit of attached ENIs"),
    gauge("awscni_ip_max", &[], "addresses", "Limit of pod addresses on the ENIs"),
    gauge("awscni_total_ip_addresses", &[], "addresses", "Pod addresses on the ENIs"),
    gauge("awscni_assigned_ip_addresses", &[], "addresses", "Addresses assigned to pods"),
    gauge("awscni_total_ipv4_prefixes", &[], "prefixes", "IPv4 prefixes on the ENIs"),
    gauge(
        "awscni_assigned_ip_per_eni",
        &["eni"],
        "addresses",
        "Addresses assigned to pods, by ENI",
    ),
    gauge(
        "awscni_assigned_ip_per_cidr",
        &["cidr"],
        "addresses",
        "Addresses assigned to pods, by single address or prefix; returned blocks are no longer shown",
    ),
    counter(
        "awscni_force_removed_enis",
        &[],
        "ENIs",
        "ENIs removed while pods used them; always 0, kept for compatibility",
    ),
    counter(
        "awscni_force_removed_ips",
        &[],
        "addresses",
        "Addresses removed from pods; always 0, kept for compatibility",
    ),
    counter("awscni_ec2api_req_count", &["fn"], "calls", "Calls to EC2, by action"),
    counter("awscni_ec2api_error_count", &["fn"], "calls", "Calls to EC2 that failed, by action"),
    Metric {
        name: "awscni_aws_api_latency_ms",
        kind: Kind::Summary,
        labels: &["api", "error", "status"],
        unit: "milliseconds",
        help: "Time of calls to EC2 and IMDS, by call, failure and HTTP status",
    },
    counter(
        "awscni_aws_api_error_count",
        &["api", "error"],
        "calls",
        "Calls to EC2 and IMDS that failed, by error code",
    ),
    counter(
        "awscni_aws_utils_error_count",
        &["fn", "error"],
        "calls",
        "Failed calls to EC2 except throttling, by error code",
    ),
    counter("awscni_ipamd_error_count", &["fn"], "errors", "Errors of the daemon, by topic"),
    counter(
        "awscni_pod_eni_error_count",
        &["fn"],
        "errors",
        "Errors in security groups for pods: nodeInit, tryEnableSecurityGroupsForPods",
    ),
    gauge(
        "awscni_ipamd_action_inprogress",
        &["fn"],
        "actions",
        "Current activity of the daemon: nodeInit, increaseDatastorePool, decreaseDatastorePool, \
         nodeIPPoolReconcile",
    ),
    counter(
        "awscni_reconcile_count",
        &["fn"],
        "changes",
        "ENIs and addresses that reconciliation added or removed",
    ),
    histogram(
        "awscni_ipamd_node_initialization_duration_seconds",
        SLOW,
        &["success"],
        "Time from start to a complete address book",
    ),
    histogram(
        "awscni_ipamd_startup_duration_seconds",
        SLOW,
        &["success", "with_api_server", "failure_reason"],
        "Time from start to the first usable address",
    ),
    gauge(
        "awscni_connmark_backend",
        &["backend"],
        "",
        "1 for the owner of the netfilter rules: nftables, iptables",
    ),
    counter(
        "awscni_connmark_reconcile_total",
        &["result"],
        "passes",
        "Observations of netfilter rules, by result: success, error",
    ),
    counter(
        "ferrule_netfilter_passes_total",
        &["result"],
        "passes",
        "Passes over netfilter rules, by result: unchanged, changed, failed",
    ),
    gauge(
        "ferrule_netfilter_backend",
        &["backend"],
        "",
        "1 for the backend that writes rules: nftables, iptables-nft, iptables-legacy",
    ),
    gauge(
        "ferrule_source_check_in_force",
        &[],
        "",
        "1 while the rule against foreign source addresses of pods is in force; always 0 with the \
         policy backend ebpf, which has its own check",
    ),
    gauge(
        "ferrule_pool_trouble",
        &["reason"],
        "",
        "1 for each reason why no ADD would succeed: starting, stopping, checkpoint, \
         no_usable_address, kubernetes, host_networking",
    ),
    gauge(
        "ferrule_pool_free_addresses",
        &[],
        "addresses",
        "Addresses that are neither assigned nor cooling",
    ),
    gauge(
        "ferrule_pool_usable_addresses",
        &[],
        "addresses",
        "Free addresses that an ADD can get immediately",
    ),
    gauge("ferrule_pool_cooling_addresses", &[], "addresses", "Addresses in cooldown"),
    gauge("ferrule_pool_assigned_addresses", &[], "addresses", "Addresses assigned to pods"),
    gauge(
        "ferrule_pool_reserved_addresses",
        &[],
        "addresses",
        "Assigned addresses whose ADD is not confirmed yet",
    ),
    gauge(
        "ferrule_pool_warm_short_addresses",
        &[],
        "addresses",
        "Addresses missing from the warm targets",
    ),
    gauge("ferrule_waiting_adds", &[], "requests", "ADDs that wait for an address"),
    histogram(
        "ferrule_add_duration_seconds",
        QUICK,
        &["result"],
        "Time from an ADD's request to its durable answer, by result: ok, try_again, exhausted, invalid, \
         stopping",
    ),
    histogram(
        "ferrule_del_duration_seconds",
        QUICK,
        &[],
        "Time from a DEL's request to its durable answer",
    ),
    histogram(
        "ferrule_confirm_duration_seconds",
        QUICK,
        &[],
        "Time from a confirmation to its durable answer",
    ),
    counter(
        "ferrule_ec2_calls_total",
        &["action", "result"],
        "calls",
        "Calls to EC2 and IMDS, by action and result: ok or the error code",
    ),
    counter(
        "ferrule_ec2_refusals_total",
        &["action", "reason"],
        "calls",
        "Calls that EC2 refused, by reason: denied (IAM), throttled, limit_reached, no_room (in the \
         subnet)",
    ),
    histogram(
        "ferrule_ec2_call_duration_seconds",
        SLOW,
        &["action"],
        "Time of calls to EC2 and IMDS",
    ),
    histogram(
        "ferrule_ec2_call_wait_seconds",
        SLOW,
        &["action"],
        "Time that calls to EC2 waited for their budget",
    ),
    gauge("ferrule_ec2_calls_in_progress", &[], "calls", "Calls to EC2 in progress"),
    gauge(
        "ferrule_ec2_budget_tokens",
        &["action"],
        "calls",
        "Calls that an action's budget allows at once; below 0 calls wait",
    ),
    gauge(
        "ferrule_ec2_budget_rate",
        &["action"],
        "calls per second",
        "Rate of an action's budget, adapted to throttling",
    ),
    gauge("ferrule_ec2_budget_burst", &["action"], "calls", "Burst of an action's budget"),
    gauge(
        "ferrule_subnet_available_addresses",
        &["subnet", "zone"],
        "addresses",
        "EC2's last count of free addresses in a subnet of the node; no series after 15 minutes",
    ),
    gauge(
        "ferrule_subnet_addresses",
        &["subnet", "zone"],
        "addresses",
        "Addresses that EC2 can assign in a subnet, free or not; present as long as the count",
    ),
    gauge(
        "ferrule_subnet_count_age_seconds",
        &["subnet", "zone"],
        "seconds",
        "Age of EC2's count of a subnet; the daemon makes no calls for it, so a node at rest has none",
    ),
    counter(
        "ferrule_notices_total",
        &["topic", "severity"],
        "notices",
        "Notices of the address book, by topic and severity: info, warning, error",
    ),
    counter(
        "ferrule_repairs_total",
        &["kind"],
        "operations",
        "Repair operations on host networking, by kind",
    ),
    counter(
        "ferrule_repairs_refused_total",
        &["kind"],
        "operations",
        "Operations that the kernel refused, by kind",
    ),
    histogram("ferrule_repair_pass_duration_seconds", QUICK, &[], "Time of a repair pass"),
    counter(
        "ferrule_repair_pass_failures_total",
        &[],
        "passes",
        "Repair passes that could not observe the kernel",
    ),
    histogram(
        "ferrule_drift_repair_seconds",
        QUICK,
        &[],
        "Time from a kernel notification to the end of the pass that repaired the change",
    ),
    gauge(
        "ferrule_repair_unsettled_passes",
        &[],
        "passes",
        "Consecutive passes that found something to repair",
    ),
    counter(
        "ferrule_network_restorations_total",
        &[],
        "looks",
        "Passes of the installer (`install --stay`) that found its programs or conflist changed and restored them",
    ),
    gauge(
        "ferrule_network_failing",
        &[],
        "",
        "1 if the last pass of the installer could not restore programs or conflist",
    ),
    gauge(
        "ferrule_troubles",
        &["kind", "severity"],
        "",
        "Present problems of the node as in `ferrule status`, by kind; no series without a problem",
    ),
    gauge(
        "ferrule_kubernetes_working",
        &["concern"],
        "",
        "1 for each API server task that works or has not run yet, 0 for the others",
    ),
];

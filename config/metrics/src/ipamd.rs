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
    gauge("awscni_eni_max", &[], "ENIs", "ENIs that may be attached"),
    gauge("awscni_ip_max", &[], "addresses", "Addresses for pods that the ENIs may hold"),
    gauge("awscni_total_ip_addresses", &[], "addresses", "Addresses for pods that the ENIs hold"),
    gauge("awscni_assigned_ip_addresses", &[], "addresses", "Addresses that pods hold"),
    gauge("awscni_total_ipv4_prefixes", &[], "prefixes", "IPv4 prefixes that the ENIs hold"),
    gauge("awscni_assigned_ip_per_eni", &["eni"], "addresses", "Addresses that pods hold, by ENI"),
    gauge(
        "awscni_assigned_ip_per_cidr",
        &["cidr"],
        "addresses",
        "Addresses that pods hold, by single address or prefix; one that is given back is shown no more",
    ),
    counter(
        "awscni_force_removed_enis",
        &[],
        "ENIs",
        "ENIs dropped with pods on them; always 0, as that is never done here",
    ),
    counter(
        "awscni_force_removed_ips",
        &[],
        "addresses",
        "Addresses dropped from pods; always 0, as that is never done here",
    ),
    counter("awscni_ec2api_req_count", &["fn"], "calls", "Calls to EC2, by action"),
    counter("awscni_ec2api_error_count", &["fn"], "calls", "Calls to EC2 that failed, by action"),
    Metric {
        name: "awscni_aws_api_latency_ms",
        kind: Kind::Summary,
        labels: &["api", "error", "status"],
        unit: "milliseconds",
        help: "How long calls to EC2 and IMDS took, by call, whether it failed, and HTTP status",
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
        "Calls to EC2 that failed for another reason than throttling, by error code",
    ),
    counter("awscni_ipamd_error_count", &["fn"], "errors", "Errors of the daemon, by topic"),
    counter(
        "awscni_pod_eni_error_count",
        &["fn"],
        "errors",
        "Errors on the way to security groups for pods: nodeInit, tryEnableSecurityGroupsForPods",
    ),
    gauge(
        "awscni_ipamd_action_inprogress",
        &["fn"],
        "actions",
        "What the daemon does just now: nodeInit, increaseDatastorePool, decreaseDatastorePool, \
         nodeIPPoolReconcile",
    ),
    counter(
        "awscni_reconcile_count",
        &["fn"],
        "changes",
        "ENIs and addresses that were found or found gone",
    ),
    histogram(
        "awscni_ipamd_node_initialization_duration_seconds",
        SLOW,
        &["success"],
        "From start to an address book",
    ),
    histogram(
        "awscni_ipamd_startup_duration_seconds",
        SLOW,
        &["success", "with_api_server", "failure_reason"],
        "From start to the first usable address",
    ),
    gauge(
        "awscni_connmark_backend",
        &["backend"],
        "",
        "1 at who writes netfilter's rules: nftables, iptables",
    ),
    counter(
        "awscni_connmark_reconcile_total",
        &["result"],
        "passes",
        "Looks at netfilter's rules, by result: success, error",
    ),
    counter(
        "ferrule_netfilter_passes_total",
        &["result"],
        "passes",
        "Looks at netfilter's rules, by result: unchanged, changed, failed",
    ),
    gauge(
        "ferrule_netfilter_backend",
        &["backend"],
        "",
        "1 at the backend that writes rules: nftables, iptables-nft, iptables-legacy",
    ),
    gauge(
        "ferrule_pool_trouble",
        &["reason"],
        "",
        "1 for each reason for which no ADD would succeed: starting, stopping, checkpoint, \
         no_usable_address, kubernetes, host_networking",
    ),
    gauge(
        "ferrule_pool_free_addresses",
        &[],
        "addresses",
        "Addresses that no pod holds and none cools",
    ),
    gauge("ferrule_pool_usable_addresses", &[], "addresses", "Free ones that an ADD gets at once"),
    gauge(
        "ferrule_pool_cooling_addresses",
        &[],
        "addresses",
        "Addresses that rest after their pod, before they are free",
    ),
    gauge("ferrule_pool_assigned_addresses", &[], "addresses", "Addresses that pods hold"),
    gauge(
        "ferrule_pool_reserved_addresses",
        &[],
        "addresses",
        "Addresses that pods hold whose ADD is not confirmed yet",
    ),
    gauge(
        "ferrule_pool_warm_short_addresses",
        &[],
        "addresses",
        "Addresses that the pool lacks to its warm targets",
    ),
    gauge("ferrule_waiting_adds", &[], "requests", "ADDs that wait for an address"),
    histogram(
        "ferrule_add_duration_seconds",
        QUICK,
        &["result"],
        "From an ADD's request to its durable answer, by result: ok, try_again, exhausted, invalid, \
         stopping",
    ),
    histogram(
        "ferrule_del_duration_seconds",
        QUICK,
        &[],
        "From a DEL's request to its durable answer",
    ),
    histogram(
        "ferrule_confirm_duration_seconds",
        QUICK,
        &[],
        "From a confirmation to its durable answer",
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
        "How long calls to EC2 and IMDS took",
    ),
    histogram(
        "ferrule_ec2_call_wait_seconds",
        SLOW,
        &["action"],
        "How long calls to EC2 waited for their budget",
    ),
    gauge("ferrule_ec2_calls_in_progress", &[], "calls", "Calls to EC2 that are under way"),
    gauge(
        "ferrule_ec2_budget_tokens",
        &["action"],
        "calls",
        "Calls that an action may make at once; below 0 it waits",
    ),
    gauge(
        "ferrule_ec2_budget_rate",
        &["action"],
        "calls per second",
        "Calls per second that an action may make, as EC2 has taught",
    ),
    gauge("ferrule_ec2_budget_burst", &["action"], "calls", "Calls that an action may save up"),
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
        "Operations by which host networking was put right, by kind",
    ),
    counter(
        "ferrule_repairs_refused_total",
        &["kind"],
        "operations",
        "Operations that the kernel refused, by kind",
    ),
    histogram(
        "ferrule_repair_pass_duration_seconds",
        QUICK,
        &[],
        "How long a pass over host networking took",
    ),
    counter(
        "ferrule_repair_pass_failures_total",
        &[],
        "passes",
        "Passes that could not observe the kernel",
    ),
    histogram(
        "ferrule_drift_repair_seconds",
        QUICK,
        &[],
        "From word of a change to the end of the pass that repaired it",
    ),
    gauge(
        "ferrule_repair_unsettled_passes",
        &[],
        "passes",
        "Passes in a row that still found something to repair",
    ),
    counter(
        "ferrule_network_restorations_total",
        &[],
        "looks",
        "Looks at which the installer (`install --stay`) found its programs or conflist changed and put \
         them back",
    ),
    gauge(
        "ferrule_network_failing",
        &[],
        "",
        "1 if the installer could not put programs or conflist right when it last looked",
    ),
    gauge(
        "ferrule_troubles",
        &["kind", "severity"],
        "",
        "What is wrong with the node now, as `ferrule status` tells it, counted by kind; none is no series",
    ),
    gauge(
        "ferrule_kubernetes_working",
        &["concern"],
        "",
        "1 for each part of the work with the API server that works or has had nothing to do yet, 0 for others",
    ),
];

use super::*;
use config_metrics::{Kind, Program};
use ipamd_core::Notice;
use std::collections::BTreeSet;

/// A page after one event of each kind.
fn lived_page() -> String {
    let metrics = Metrics::new();
    for error in [None, Some("UnauthorizedOperation"), Some("RequestLimitExceeded")] {
        for service in [Service::Ec2, Service::Imds] {
            metrics.called(&CallReport {
                service,
                action: "AttachNetworkInterface",
                duration: Duration::from_millis(30),
                status: Some(200),
                error,
            });
        }
    }
    metrics.call_begins(Action::Attach, Duration::from_millis(1));
    metrics.call_ends(Action::Attach);
    metrics.noticed(&Notice {
        severity: Severity::Error,
        topic: Topic::CallFailed,
        object: "eni-1".to_owned(),
        pod: None,
        cause: "refused".to_owned(),
        next_step: String::new(),
    });
    metrics.released(ReleaseCause::PodDeleted);
    metrics.initialized(Duration::from_secs(1));
    metrics.started(Duration::from_secs(2));
    metrics.passed(&PassReport {
        done: vec!["add_rule"],
        refused: vec!["add_route"],
        ..PassReport::default()
    });
    metrics.nat_passed(Backend::IptablesNft, "changed");
    metrics.gauges.sample();
    metrics.page()
}

/// The labels of a metric's first sample, except `le`.
fn labels(page: &str, name: &str) -> BTreeSet<String> {
    let sample = |line: &&str| {
        ["", "_bucket", "_sum", "_count"].iter().any(|end| {
            let rest = line.strip_prefix(name).and_then(|rest| rest.strip_prefix(end));
            rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
        })
    };
    let Some(line) = page.lines().find(sample) else { return BTreeSet::new() };
    let inside = line.split_once('{').and_then(|(_, rest)| rest.rsplit_once('}'));
    let pairs = inside.map(|(inside, _)| inside.split("\",")).into_iter().flatten();
    pairs
        .filter_map(|pair| Some(pair.split_once('=')?.0.to_owned()))
        .filter(|label| label != "le")
        .collect()
}

#[test]
fn every_metric_of_the_catalog_is_exposed_with_its_type_and_labels() {
    let page = lived_page();
    for metric in Program::Ipamd.metrics() {
        let line = format!("# TYPE {} {}", metric.name, metric.kind.name());
        assert!(page.lines().any(|found| found == line), "no {line} in:\n{page}");
        let wanted = metric.labels.iter().map(ToString::to_string).collect();
        assert_eq!(labels(&page, metric.name), wanted, "{}", metric.name);
    }
    let exposed = page.lines().filter(|line| line.starts_with("# TYPE ")).count();
    assert_eq!(exposed, Program::Ipamd.metrics().len(), "{page}");
}

/// Names, types and labels that amazon-vpc-cni 1.23 documents: its dashboards keep working.
#[test]
fn all_metrics_of_amazon_vpc_cni_exist() {
    let (counter, gauge, histogram) = ("counter", "gauge", "histogram");
    for (name, kind, labels) in [
        ("awscni_build_info", gauge, "version goversion"),
        ("awscni_ipamd_error_count", counter, "fn"),
        ("awscni_ipamd_action_inprogress", gauge, "fn"),
        ("awscni_eni_max", gauge, ""),
        ("awscni_ip_max", gauge, ""),
        ("awscni_reconcile_count", counter, "fn"),
        ("awscni_add_ip_req_count", counter, ""),
        ("awscni_del_ip_req_count", counter, "reason"),
        ("awscni_pod_eni_error_count", counter, "fn"),
        ("awscni_aws_api_latency_ms", "summary", "api error status"),
        ("awscni_aws_api_error_count", counter, "api error"),
        ("awscni_aws_utils_error_count", counter, "fn error"),
        ("awscni_ec2api_req_count", counter, "fn"),
        ("awscni_ec2api_error_count", counter, "fn"),
        ("awscni_eni_allocated", gauge, ""),
        ("awscni_total_ip_addresses", gauge, ""),
        ("awscni_assigned_ip_addresses", gauge, ""),
        ("awscni_force_removed_enis", counter, ""),
        ("awscni_force_removed_ips", counter, ""),
        ("awscni_total_ipv4_prefixes", gauge, ""),
        ("awscni_assigned_ip_per_cidr", gauge, "cidr"),
        ("awscni_no_available_ip_addresses", counter, ""),
        ("awscni_assigned_ip_per_eni", gauge, "eni"),
        (
            "awscni_ipamd_startup_duration_seconds",
            histogram,
            "success with_api_server failure_reason",
        ),
        ("awscni_ipamd_node_initialization_duration_seconds", histogram, "success"),
        ("awscni_connmark_backend", gauge, "backend"),
        ("awscni_connmark_reconcile_total", counter, "result"),
    ] {
        let metric = Program::Ipamd.metric(name).unwrap_or_else(|| panic!("no {name}"));
        let found: Vec<&str> = metric.labels.to_vec();
        let wanted: Vec<&str> = labels.split_whitespace().collect();
        assert_eq!((metric.kind.name(), found), (kind, wanted), "{name}");
    }
}

/// Alerts need a series that starts at 0.
#[test]
fn series_of_alerts_exist_before_the_first_event() {
    let page = Metrics::new().page();
    for line in [
        "ferrule_ec2_refusals_total{action=\"AssignPrivateIpAddresses\",reason=\"denied\"} 0",
        "ferrule_ec2_refusals_total{action=\"DescribeInstanceTypes\",reason=\"throttled\"} 0",
        "ferrule_notices_total{severity=\"error\",topic=\"subnet_exhausted\"} 0",
        "awscni_pod_eni_error_count{fn=\"tryEnableSecurityGroupsForPods\"} 0",
        "awscni_connmark_reconcile_total{result=\"error\"} 0",
        "ferrule_add_duration_seconds_count{result=\"try_again\"} 0",
    ] {
        assert!(page.lines().any(|found| found == line), "no {line} in:\n{page}");
    }
}

#[test]
fn a_refusal_is_counted_by_its_reason_and_throttling_is_not_an_error() {
    let page = lived_page();
    for line in [
        "ferrule_ec2_refusals_total{action=\"AttachNetworkInterface\",reason=\"denied\"} 1",
        "ferrule_ec2_refusals_total{action=\"AttachNetworkInterface\",reason=\"throttled\"} 1",
        "awscni_ec2api_req_count{fn=\"AttachNetworkInterface\"} 3",
        "awscni_aws_utils_error_count{error=\"UnauthorizedOperation\",fn=\"AttachNetworkInterface\"} 1",
    ] {
        assert!(page.lines().any(|found| found == line), "no {line} in:\n{page}");
    }
    assert!(
        !page.contains("awscni_aws_utils_error_count{error=\"RequestLimitExceeded\""),
        "{page}"
    );
    assert!(Program::Ipamd.metrics().iter().any(|it| matches!(it.kind, Kind::Summary)));
}

#[test]
fn problems_are_counted_by_kind_and_removed_when_they_are_over() {
    let metrics = Metrics::new();
    metrics.set_troubles([("no_place", view_node::Severity::Trouble); 2]);
    let line = "ferrule_troubles{kind=\"no_place\",severity=\"trouble\"} 2";
    assert!(metrics.page().lines().any(|found| found == line), "{}", metrics.page());
    metrics.set_troubles([]);
    assert!(!metrics.page().contains("no_place"), "{}", metrics.page());
}

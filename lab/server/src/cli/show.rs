//! Results for people: tables and sentences.

use super::{
    batch::Outcome,
    cluster_view::{ClusterView, WithCluster},
    show_cloud,
    table::shown,
};
use crate::control::{
    CheckView, CountersView, EniView, FaultView, LogFile, NodeView, PodView, StatusView,
};
use ipnet::IpNet;
use lab_fabric::probe::{Failure, Tally};
use serde_json::Value;
use view_text::Table;

pub(super) fn status(status: &StatusView) -> String {
    let subnets = show_cloud::subnets(&status.subnets);
    format!(
        "lab {} (process {}), EC2 at {}{}, {} pods\n\n{subnets}\n\n{}",
        status.name,
        status.pid,
        status.ec2_endpoint,
        status.api_server.iter().map(|url| format!(", Kubernetes at {url}")).collect::<String>(),
        status.pods,
        nodes(&status.nodes)
    )
}

pub(super) fn whole(whole: &WithCluster) -> String {
    let cluster = whole.cluster.as_ref().map(|view| format!("\n\n{}", cluster(view)));
    format!("{}{}", status(&whole.status), cluster.unwrap_or_default())
}

pub(super) fn cluster(cluster: &ClusterView) -> String {
    let mut out = Table::new(&["program", "node", "process", "log"]);
    for program in &cluster.programs {
        out.row([
            program.name.clone(),
            program.node.clone().unwrap_or_else(|| "-".to_owned()),
            program.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
            program.log.display().to_string(),
        ]);
    }
    let (version, kubeconfig) = (&cluster.version, cluster.kubeconfig.display());
    let out = shown(&out);
    format!("Kubernetes {version}\n{out}\n\nexport KUBECONFIG={kubeconfig}")
}

pub(super) fn nodes(nodes: &[NodeView]) -> String {
    if nodes.is_empty() {
        return "no nodes".to_owned();
    }
    let head = ["node", "instance", "type", "state", "zone", "address", "ENIs", "daemon", "pods"];
    let mut out = Table::new(&head);
    for node in nodes {
        let held = |eni: &EniView| 1 + eni.secondary.len() + 16 * ipv4_prefixes(eni);
        let addresses: usize = node.enis.iter().map(held).sum();
        let daemon = match (node.daemon.pid, node.daemon.restarts) {
            (Some(pid), 0) => format!("{} ({pid})", node.daemon.state),
            (Some(pid), n) => format!("{} ({pid}), {n} restarts", node.daemon.state),
            (None, _) => node.daemon.state.clone(),
        };
        out.row([
            node.name.clone(),
            node.instance.clone(),
            node.instance_type.clone(),
            node.state.clone(),
            node.zone.clone(),
            node.address.map_or_else(String::new, |address| address.to_string()),
            format!("{} ({addresses} addresses)", node.enis.len()),
            daemon,
            node.pods.to_string(),
        ]);
    }
    shown(&out)
}

/// The addresses of a /80 are not counted.
fn ipv4_prefixes(eni: &EniView) -> usize {
    eni.prefixes.iter().filter(|prefix| matches!(prefix, IpNet::V4(_))).count()
}

pub(super) fn pods(pods: &[PodView]) -> String {
    if pods.is_empty() {
        return "no pods".to_owned();
    }
    let mut out = Table::new(&["pod", "node", "address", "ENI", "table", "rules", "ADD"]);
    for pod in pods {
        let table = match pod.device {
            Some(0) => "main".to_owned(),
            Some(device) => (device + 1).to_string(),
            None => "-".to_owned(),
        };
        let rules = match pod.device {
            _ if !pod.has_namespace => "(node went down)",
            Some(0) => "512",
            Some(_) => "512, 1536",
            None => "-",
        };
        out.row([
            format!("{}/{}", pod.namespace, pod.name),
            pod.node.clone(),
            pod.address.map_or_else(|| "-".to_owned(), |address| address.to_string()),
            pod.eni.clone().unwrap_or_else(|| "-".to_owned()),
            table,
            rules.to_owned(),
            format!("{}.{} ms", pod.add_us / 1000, pod.add_us % 1000 / 100),
        ]);
    }
    shown(&out)
}

pub(super) fn added(outcome: &Outcome<PodView>) -> String {
    pods(&outcome.pods)
}

pub(super) fn deleted(outcome: &Outcome<String>) -> String {
    format!("{} of {} pods deleted", outcome.pods.len(), all(outcome))
}

pub(super) fn checked(outcome: &Outcome<String>) -> String {
    format!("CHECK passed for {} of {} pods", outcome.pods.len(), all(outcome))
}

/// Failures are printed one by one on standard error, while the batch runs.
fn all<T>(outcome: &Outcome<T>) -> usize {
    outcome.pods.len() + outcome.failed.len()
}

pub(super) fn faults(faults: &[FaultView]) -> String {
    if faults.is_empty() {
        return "no faults".to_owned();
    }
    let mut out = Table::new(&["id", "fault"]);
    for fault in faults {
        out.row([fault.id.clone(), one_fault(&fault.fault)]);
    }
    shown(&out)
}

/// Its kind, then what narrows it down.
fn one_fault(fault: &Value) -> String {
    let mut text = fault["kind"].as_str().unwrap_or_default().to_owned();
    let error = fault["error"]["code"].as_str().map(|code| ("code", code.to_owned()));
    let plain = fault.as_object().into_iter().flatten().filter_map(|(name, value)| match value {
        Value::String(value) => Some((name.as_str(), value.clone())),
        Value::Number(value) => Some((name.as_str(), value.to_string())),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    });
    for (name, value) in error.into_iter().chain(plain.filter(|(name, _)| *name != "kind")) {
        let unit = if matches!(name, "lag" | "latency") { " ms" } else { "" };
        text += &format!(", {name} {value}{unit}");
    }
    text
}

pub(super) fn logs(files: &[LogFile]) -> String {
    let texts = files
        .iter()
        .map(|file| format!("==> {} <==\n{}", file.path.display(), file.lines.join("\n")));
    texts.collect::<Vec<_>>().join("\n\n")
}

pub(super) fn check(check: &CheckView) -> String {
    let report = &check.report;
    let line = |what: &str, tally: Tally| format!("{what}: {} of {}\n", tally.reached, tally.tried);
    let mut text = line("pod to pod, ICMP", report.pods);
    text += &line("node to pod, ICMP", report.node_to_pod);
    text += &line("pod to node, ICMP", report.pod_to_node);
    text += &line("pod to pod, TCP", report.tcp);
    for failure in report.failures.iter().take(FAILURES_SHOWN) {
        text += &one_failure(failure);
    }
    if let Some(more) = report.failures.len().checked_sub(FAILURES_SHOWN).filter(|&n| n > 0) {
        text += &format!("… and {more} more failures\n");
    }
    if check.without_namespace > 0 {
        let count = check.without_namespace;
        text += &format!("{count} pods not probed: their namespaces went with their node's boot\n");
    }
    let verdict = if check.passed { "PASS" } else { "FAIL" };
    format!("{text}{verdict} after {} ms", report.took_ms)
}

fn one_failure(failure: &Failure) -> String {
    let (from, to) = (&failure.from, &failure.to);
    let mut text = format!(
        "{} ({}, {}) -> {} ({}, {}): {}\n",
        from.name, from.node, from.address, to.name, to.node, to.address, failure.reason
    );
    for because in &failure.because {
        text += &format!("    {because}\n");
    }
    text
}

pub(super) fn counters(counters: &CountersView) -> String {
    let mut enis = Table::new(&["ENI", "sources", "packets", "spoofed", "no public address"]);
    for (id, eni) in &counters.fabric.enis {
        let sum = |map: &std::collections::BTreeMap<_, lab_fabric::Packets>| {
            map.values().map(|count| count.packets).sum::<u64>().to_string()
        };
        let seen = eni.sources.values().filter(|count| count.packets > 0).count().to_string();
        let (all, spoofed) = (sum(&eni.sources), sum(&eni.spoofed));
        enis.row([id.to_string(), seen, all, spoofed, sum(&eni.no_public_address)]);
    }
    let mut drops = Table::new(&["dropped", "packets", "bytes"]);
    for (reason, count) in &counters.fabric.drops {
        let name = serde_json::to_value(reason).unwrap_or_default();
        let name = name.as_str().unwrap_or_default().to_owned();
        drops.row([name, count.packets.to_string(), count.bytes.to_string()]);
    }
    let mut calls = Table::new(&["EC2 action", "outcome", "calls"]);
    for (action, outcomes) in &counters.calls {
        for (outcome, count) in outcomes {
            calls.row([action.clone(), outcome.clone(), count.to_string()]);
        }
    }
    [enis, drops, calls].map(|table| shown(&table)).join("\n\n")
}

/// The rest is in the JSON.
const FAILURES_SHOWN: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_fault_is_a_sentence() {
        let error = json!({
            "kind": "error", "action": "CreateTags", "times": 3,
            "error": { "code": "Foo", "http_status": 400, "message": "A fault of the lab." },
        });
        assert_eq!(one_fault(&error), "error, code Foo, action CreateTags, times 3");
        let lag = json!({ "kind": "imds-lag", "lag": 30000 });
        assert_eq!(one_fault(&lag), "imds-lag, lag 30000 ms");
        let all = json!({ "kind": "throttle-every-nth", "nth": 2, "action": null });
        assert_eq!(one_fault(&all), "throttle-every-nth, nth 2");
    }
}

//! Prometheus scrapes a whole cluster: every target, every query of the dashboard, every rule.

#![expect(clippy::unwrap_used, reason = "a test panics")]

use serde_json::{Value, json};
use std::{collections::BTreeMap, time::Duration};
use tests_lab::wait_for;
use tests_metrics::{DASHBOARD, document, queries};
use tests_support::promtool;
use tests_whole::{Hold, Installed, LaneInputs, POLICY, Prometheus};

const PATIENCE: Duration = Duration::from_secs(120);
const FIRING: &str = "ALERTS{alertstate=\"firing\"}";

/// Returns the dashboard's queries, with values for Grafana's variables.
fn asked() -> Vec<String> {
    let all = queries(&document(DASHBOARD).unwrap());
    // The variable for the data source is not a query.
    let all = all.into_iter().filter(|query| query != "prometheus");
    all.map(|query| {
        let query = query.replace("$__rate_interval", "2m");
        let query =
            ["$namespace", "$node", "$pod"].iter().fold(query, |query, it| query.replace(it, ".*"));
        // A function of Grafana that lists the values of a label of these series.
        match query.strip_prefix("label_values(").and_then(|rest| rest.rsplit_once(',')) {
            Some((series, _)) => series.to_owned(),
            None => query,
        }
    })
    .collect()
}

/// Scales the load and waits for it.
fn load(cluster: &Installed, replicas: u32) {
    cluster.load(replicas, None).unwrap();
    cluster.loaded().unwrap();
}

/// Returns rules that Prometheus cannot evaluate, and pending and firing alerts.
fn active_or_failing(prometheus: &Prometheus<'_>) -> Vec<String> {
    let rules = prometheus.rules().unwrap();
    assert!(rules.len() > 30, "only {} rules", rules.len());
    let found = rules.iter().filter(|rule| rule["health"] != "ok" || rule["state"] != "inactive");
    found
        .map(|rule| format!("{}: {} {}", rule["name"], rule["lastError"], rule["alerts"]))
        .collect()
}

#[test]
fn prometheus_reads_a_whole_cluster_and_each_query_of_the_dashboard_has_data() {
    let test = "prometheus_reads_a_whole_cluster_and_each_query_of_the_dashboard_has_data";
    let Some(inputs) = LaneInputs::or_skip(test) else { return };
    if !promtool::is_there(test) {
        return;
    }
    let cluster = Installed::bare(inputs, "metrics", 2).unwrap();
    cluster.install(POLICY).unwrap();
    let targets = cluster.targets(POLICY).unwrap();
    let mut of = BTreeMap::new();
    targets.iter().for_each(|target| *of.entry(target.container.as_str()).or_insert(0) += 1);
    assert_eq!(of, BTreeMap::from([("agent", 2), ("controller", 2), ("ipamd", 2)]), "{targets:?}");
    for target in &targets {
        let page = cluster.lab().get(&target.node, target.port, "/metrics").unwrap();
        let complaints = promtool::complaints(&page).unwrap();
        // The metrics of amazon-vpc-cni keep their names.
        let ours: Vec<_> = complaints.iter().filter(|it| !it.starts_with("awscni_")).collect();
        assert!(ours.is_empty(), "{target:?}: {ours:?}");
    }

    let prometheus = Prometheus::beside(&cluster, &targets, Hold::AsWritten).unwrap();
    cluster
        .cluster()
        .apply(&[json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": { "name": "closed", "namespace": "default" },
            "spec": { "podSelector": {}, "policyTypes": ["Ingress"] },
        })])
        .unwrap();
    load(&cluster, 8);
    load(&cluster, 2);
    for target in &targets {
        let up = format!("up{{pod=\"{}\",container=\"{}\"}} == 1", target.pod, target.container);
        assert_eq!(prometheus.series(&up).unwrap().len(), 1, "{target:?} is not up");
    }
    // Normal operation: no alert fires, and no alert stays pending.
    let mut printed = Vec::new();
    let waited = wait_for("no pending alert", PATIENCE, || {
        assert_eq!(prometheus.series(FIRING).unwrap(), Vec::<Value>::new(), "an alert fires");
        printed = active_or_failing(&prometheus);
        Ok(printed.is_empty())
    });
    assert!(waited.is_ok(), "{printed:#?}");

    cluster.lab().run(&["fault", "set", "throttle", "--every", "2"]).unwrap();
    load(&cluster, 40);
    cluster.lab().run(&["fault", "clear"]).unwrap();
    let mut without: Vec<String> = asked();
    // The agents of this cluster serve no Services.
    without.retain(|query| !query.contains("ferrule_agent_service_"));
    assert!(without.len() > 50, "only {} queries", without.len());
    let waited = wait_for("data for each query", PATIENCE, || {
        without.retain(|query| prometheus.series(query).unwrap_or_default().is_empty());
        Ok(without.is_empty())
    });
    assert!(waited.is_ok(), "no data for {without:#?}");
    let throttled = "ferrule_ec2_refusals_total{reason=\"throttled\"} > 0";
    let throttled: Vec<Value> = prometheus.series(throttled).unwrap();
    assert!(!throttled.is_empty(), "nothing was throttled");
    let broken = prometheus.rules().unwrap().into_iter().filter(|rule| rule["health"] != "ok");
    assert_eq!(broken.collect::<Vec<_>>(), Vec::<Value>::new());
}

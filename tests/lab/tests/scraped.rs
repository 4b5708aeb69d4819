//! A real Prometheus scrapes a node. The dashboard's queries have data, and an alert fires for its cause.

use anyhow::{Context as _, Result, ensure};
use config_iam::{Mode, grants};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::{Child, Stdio},
    time::Duration,
};
use tests_lab::{Lab, programs, wait_for};
use tests_metrics::{DASHBOARD, RULES, at_root, document, queries};
use tests_support::promtool;

/// A forecast needs two samples at full minutes.
const PATIENCE: Duration = Duration::from_secs(180);
const PORT: u16 = 19090;

/// A Prometheus in the node's namespaces. It scrapes the daemon each second.
struct Prometheus<'a> {
    lab: &'a Lab,
    child: Child,
}

impl<'a> Prometheus<'a> {
    fn start(lab: &'a Lab, folder: &Path) -> Result<Self> {
        let config = folder.join("prometheus.yml");
        let labels = "{namespace: kube-system, node: node1, pod: ferrule-node1, container: ipamd}";
        let text = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n\
             rule_files: ['{}']\n\
             scrape_configs:\n\
             - job_name: ferrule\n\
             \x20 static_configs: [{{targets: ['127.0.0.1:61678'], labels: {labels}}}]\n",
            at_root(RULES).canonicalize()?.display()
        );
        fs::write(&config, text)?;
        let mut command = lab.command(&["node", "exec", "node1", "--", "prometheus"]);
        command
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{PORT}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Ok(Self { lab, child: command.spawn().context("cannot start Prometheus")? })
    }

    /// Returns the number of series of a query.
    fn count(&self, query: &str) -> Result<u64> {
        let query: String =
            format!("count({query})").bytes().map(|at| format!("%{at:02X}")).collect();
        let answer = self.lab.get("node1", PORT, &format!("/api/v1/query?query={query}"))?;
        let answer: Value = serde_json::from_str(&answer).context("no JSON")?;
        ensure!(answer["status"] == "success", "{answer}");
        let value = answer["data"]["result"][0]["value"][1].as_str();
        value.map_or(Ok(0), |value| value.parse().context("no number"))
    }

    fn has(&self, query: &str) -> Result<()> {
        wait_for(query, PATIENCE, || Ok(self.count(query).unwrap_or(0) > 0))
    }
}

impl Drop for Prometheus<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the dashboard's queries of the daemon's metrics, with values for Grafana's variables.
fn daemon_queries() -> Result<Vec<String>> {
    let all = queries(&document(DASHBOARD)?).into_iter();
    let elsewhere = ["ferrule_agent_", "ferrule_controller_", "label_values("];
    let ours = all.filter(|query| {
        let names_one = query.contains("ferrule_") || query.contains("awscni_");
        names_one && !elsewhere.iter().any(|part| query.contains(part))
    });
    Ok(ours
        .map(|query| {
            let query = query.replace("$__rate_interval", "1m");
            ["$namespace", "$node", "$pod"].iter().fold(query, |query, it| query.replace(it, ".*"))
        })
        .collect())
}

/// Fails if the daemon called an EC2 action that the IAM policy of its mode does not allow.
fn only_granted_calls(page: &str) -> Result<()> {
    let counts = page.lines().filter_map(|line| {
        let (action, count) =
            line.strip_prefix("awscni_ec2api_req_count{fn=\"")?.split_once("\"} ")?;
        (count != "0").then_some(action)
    });
    let called: BTreeSet<&str> = counts.collect();
    for action in &called {
        let granted =
            grants().iter().any(|it| it.action == *action && it.modes.contains(&Mode::Ipv4));
        ensure!(granted, "no policy for IPv4 allows ec2:{action}");
    }
    ensure!(called.contains("DescribeInstanceTypes"), "no DescribeInstanceTypes in {called:?}");
    Ok(())
}

#[test]
fn prometheus_reads_a_node_the_dashboard_has_data_and_a_denied_call_raises_its_alert() -> Result<()>
{
    let name = "prometheus_reads_a_node_the_dashboard_has_data_and_a_denied_call_raises_its_alert";
    let Some(bin) = programs(name) else { return Ok(()) };
    if !promtool::is_there(name) {
        return Ok(());
    }
    let lab = Lab::up(&bin, "t-scraped", &["--nodes", "1", "--env", "WARM_IP_TARGET=2"])?;
    lab.run(&["pod", "add", "node1", "--count", "6"])?;
    let page = lab.get("node1", 61678, "/metrics")?;
    let complaints = promtool::complaints(&page)?;
    let of_ours: Vec<_> = complaints.iter().filter(|it| !it.starts_with("awscni_")).collect();
    ensure!(of_ours.is_empty(), "{of_ours:?}");

    only_granted_calls(&page)?;

    let folder = tempfile::tempdir()?;
    let prometheus = Prometheus::start(&lab, folder.path())?;
    prometheus.has("up{container=\"ipamd\"} == 1")?;
    ensure!(
        prometheus.count("ALERTS{alertstate=\"firing\"}")? == 0,
        "an alert fires without a fault"
    );

    lab.run(&["iam", "deny", "AssignPrivateIpAddresses"])?;
    lab.run(&["pod", "add", "node1", "--prefix", "more-", "--count", "1"])?;
    let denied = "ALERTS{alertname=\"FerruleEC2Denied\",action=\"AssignPrivateIpAddresses\",\
                  alertstate=\"firing\"}";
    prometheus.has(denied)?;
    for query in daemon_queries()? {
        prometheus.has(&query)?;
    }
    drop(prometheus);
    lab.down()
}

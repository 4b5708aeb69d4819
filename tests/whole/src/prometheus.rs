//! Prometheus on a node of the cluster. It scrapes the targets of the chart's PodMonitors, as with the Prometheus
//! operator.

use crate::{
    Installed,
    installed::{IMAGE, SPACE},
};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::{
    fs,
    process::{Child, Stdio},
    time::Duration,
};
use tempfile::TempDir;
use tests_lab::wait_for;
use tests_metrics::{RULES, document};

/// A port with metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub pod: String,
    pub container: String,
    pub node: String,
    /// The pod's address.
    pub address: String,
    pub port: u16,
}

/// The time for which an alert's condition must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// The time in the rules.
    AsWritten,
    /// One second, so that a test does not wait for minutes.
    Briefly,
}

/// A Prometheus that scrapes targets and evaluates rules each second. A drop stops it.
pub struct Prometheus<'a> {
    cluster: &'a Installed,
    child: Child,
    _folder: TempDir,
}

impl Installed {
    /// Returns the targets that the chart's PodMonitors select with these values.
    ///
    /// # Errors
    /// With the output of helm or kubectl.
    pub fn targets(&self, sets: &[&str]) -> Result<Vec<Target>> {
        let chart = self.chart()?;
        let mut args = vec!["template", "ferrule", chart, "--show-only", MONITORS];
        args.extend(["--set", "podMonitor.create=true", "--set", IMAGE]);
        args.extend(sets.iter().flat_map(|set| ["--set", *set]));
        let rendered = self.helm(&args)?;
        let mut targets = Vec::new();
        for monitor in rendered.split("\n---").filter(|text| text.contains("kind: PodMonitor")) {
            let monitor: Value = serde_saphyr::from_str(monitor).context("a PodMonitor")?;
            targets.extend(self.selected(&monitor["spec"])?);
        }
        Ok(targets)
    }

    fn selected(&self, spec: &Value) -> Result<Vec<Target>> {
        let labels = spec["selector"]["matchLabels"].as_object().context("no labels")?;
        let labels = labels
            .iter()
            .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
        let labels = labels.collect::<Vec<_>>().join(",");
        let pods = self.cluster().json(&["-n", SPACE, "get", "pods", "-l", &labels])?;
        let mut targets = Vec::new();
        for endpoint in spec["podMetricsEndpoints"].as_array().context("no endpoints")? {
            for pod in pods["items"].as_array().context("no list of pods")? {
                for container in pod["spec"]["containers"].as_array().into_iter().flatten() {
                    let ports = container["ports"].as_array().into_iter().flatten();
                    for port in ports.filter(|port| port["name"] == endpoint["port"]) {
                        targets.push(target(pod, container, port)?);
                    }
                }
            }
        }
        Ok(targets)
    }
}

fn target(pod: &Value, container: &Value, port: &Value) -> Result<Target> {
    let text = |value: &Value| value.as_str().map(str::to_owned).context("a pod lacks a name");
    let port = port["containerPort"].as_u64().context("a port without a number")?;
    Ok(Target {
        pod: text(&pod["metadata"]["name"])?,
        container: text(&container["name"])?,
        node: text(&pod["spec"]["nodeName"])?,
        address: text(&pod["status"]["podIP"])?,
        port: u16::try_from(port).context("a port")?,
    })
}

impl<'a> Prometheus<'a> {
    /// Starts Prometheus on `node1`, and waits until it has scraped every target.
    ///
    /// # Errors
    /// If it cannot be started, or after a timeout.
    pub fn beside(cluster: &'a Installed, targets: &[Target], hold: Hold) -> Result<Self> {
        let folder = tempfile::tempdir().context("cannot create a folder for Prometheus")?;
        let at = |name: &str| folder.path().join(name);
        let mut rules = document(RULES)?;
        if hold == Hold::Briefly {
            let groups = rules["groups"].as_array_mut().into_iter().flatten();
            let alerts =
                groups.flat_map(|group| group["rules"].as_array_mut().into_iter().flatten());
            for alert in alerts.filter(|alert| alert["for"].is_string()) {
                alert["for"] = json!("1s");
            }
        }
        fs::write(at("rules.yml"), rules.to_string()).context("cannot write the rules")?;
        let statics: Vec<Value> = targets
            .iter()
            .map(|it| {
                json!({
                    "targets": [format!("{}:{}", it.address, it.port)],
                    "labels": {
                        "namespace": SPACE, "node": it.node, "pod": it.pod, "container": it.container,
                    },
                })
            })
            .collect();
        let config = json!({
            "global": { "scrape_interval": "1s", "evaluation_interval": "1s" },
            "rule_files": [at("rules.yml")],
            "scrape_configs": [{ "job_name": "ferrule", "static_configs": statics }],
        });
        fs::write(at("prometheus.yml"), config.to_string())
            .context("cannot write the configuration")?;
        let child = cluster
            .lab()
            .command(&["node", "exec", NODE, "--", "prometheus"])
            .arg(format!("--config.file={}", at("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", at("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{PORT}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start Prometheus")?;
        let prometheus = Self { cluster, child, _folder: folder };
        wait_for("Prometheus to scrape all targets", PATIENCE, || {
            Ok(prometheus.series("up").is_ok_and(|up| up.len() == targets.len()))
        })?;
        Ok(prometheus)
    }

    /// Returns the series of a query whose value is a number.
    ///
    /// # Errors
    /// If Prometheus refuses the query.
    pub fn series(&self, query: &str) -> Result<Vec<Value>> {
        let query: String = query.bytes().map(|at| format!("%{at:02X}")).collect();
        let answer = self.get(&format!("/api/v1/query?query={query}"))?;
        let found = answer["data"]["result"].as_array().context("no result")?;
        let is_number = |it: &&Value| it["value"][1].as_str().is_some_and(|value| value != "NaN");
        Ok(found.iter().filter(is_number).cloned().collect())
    }

    /// Returns all rules with their states.
    ///
    /// # Errors
    /// If Prometheus does not answer.
    pub fn rules(&self) -> Result<Vec<Value>> {
        let answer = self.get("/api/v1/rules")?;
        let groups = answer["data"]["groups"].as_array().context("no groups")?;
        let rules = groups.iter().flat_map(|group| group["rules"].as_array().into_iter().flatten());
        Ok(rules.cloned().collect())
    }

    /// Waits until an alert of this name fires whose labels `is_it` accepts. Returns its annotations.
    ///
    /// # Errors
    /// After a timeout, with all active rules.
    pub fn fires(&self, name: &str, is_it: impl Fn(&Value) -> bool) -> Result<String> {
        let mut annotations = None;
        let waited = wait_for(&format!("alert {name}"), PATIENCE, || {
            let rules = self.rules()?;
            let alerts = rules.iter().filter(|rule| rule["name"] == name);
            let mut alerts =
                alerts.flat_map(|rule| rule["alerts"].as_array().into_iter().flatten());
            annotations = alerts
                .find(|alert| alert["state"] == "firing" && is_it(&alert["labels"]))
                .map(|alert| alert["annotations"].to_string());
            Ok(annotations.is_some())
        });
        waited.with_context(|| {
            let active = self.rules().unwrap_or_default().into_iter();
            let active: Vec<Value> = active.filter(|rule| rule["state"] != "inactive").collect();
            format!("active: {active:?}")
        })?;
        annotations.context("the alert has no annotations")
    }

    fn get(&self, path: &str) -> Result<Value> {
        // HTTP/1.0 responses are not chunked.
        let script = format!(
            "exec 3<>/dev/tcp/127.0.0.1/{PORT}; printf 'GET {} HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3",
            path.replace('%', "%%")
        );
        let text = self.cluster.lab().on_node(NODE, &["bash", "-c", &script])?;
        let (_, body) = text.split_once("\r\n\r\n").context("no HTTP response")?;
        let answer: Value = serde_json::from_str(body).context("no JSON")?;
        ensure!(answer["status"] == "success", "{answer}");
        Ok(answer)
    }
}

impl Drop for Prometheus<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const MONITORS: &str = "templates/monitoring.yaml";
const NODE: &str = "node1";
const PORT: u16 = 19091;
const PATIENCE: Duration = Duration::from_secs(90);

//! Pods that the test starts as the kubelet and a runtime do: with their UIDs, and again after a failure.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread::{scope, sleep},
    time::{Duration, Instant},
};
use tests_lab::Lab;

/// The number of concurrent ADDs.
const AT_ONCE: usize = 12;
/// The interval between the attempts of one pod.
const AGAIN: Duration = Duration::from_millis(300);
/// The path of the plugin's log, which the lab reads.
const PLUGIN_LOG: &str = "/var/log/ferrule/plugin.log";

/// A pod of the namespace `default`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Started {
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// The result of an ADD.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answer {
    /// The ADD succeeds with this result.
    Starts(Value),
    /// The ADD fails with this code and message.
    Fails(i64, String),
}

/// A sandbox of a pod.
pub(crate) struct Sandbox<'a> {
    lab: &'a Lab,
    node: &'a str,
    pod: &'a Started,
    number: usize,
    /// The path of the plugin on the node.
    plugin: &'static str,
    /// The network configuration without a previous result.
    config: Value,
}

static NUMBERS: AtomicUsize = AtomicUsize::new(0);

impl<'a> Sandbox<'a> {
    /// Creates the sandbox's network namespace.
    pub(crate) fn new(lab: &'a Lab, node: &'a str, pod: &'a Started) -> Result<Self> {
        let config = json!({
            "cniVersion": "1.0.0", "name": "aws-cni", "type": "ferrule-cni", "mtu": "9001",
            "vethPrefix": "eni", "addWait": "60", "pluginLogFile": PLUGIN_LOG,
        });
        Self::with(lab, node, pod, "/opt/cni/bin/ferrule-cni", config)
    }

    /// Creates the sandbox's network namespace, for a plugin and its network configuration.
    pub(crate) fn with(
        lab: &'a Lab,
        node: &'a str,
        pod: &'a Started,
        plugin: &'static str,
        config: Value,
    ) -> Result<Self> {
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        lab.on_node(node, &["ip", "netns", "add", &format!("policed-{number}")])?;
        Ok(Self { lab, node, pod, number, plugin, config })
    }

    /// Calls the plugin once.
    pub(crate) fn call(&self, verb: &str, prev_result: &Value) -> Result<Answer> {
        let mut netconf = self.config.clone();
        netconf["prevResult"] = prev_result.clone();
        let Started { name, uid } = self.pod;
        let args = format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={name};K8S_POD_UID={uid}"
        );
        let (id, netns) =
            (format!("{:064x}", self.number), format!("/run/netns/policed-{}", self.number));
        let vars = [
            ("CNI_COMMAND", verb),
            ("CNI_CONTAINERID", &id),
            ("CNI_NETNS", &netns),
            ("CNI_IFNAME", "eth0"),
            ("CNI_ARGS", &args),
        ];
        let ended = self.lab.plugin_at(self.node, self.plugin, &vars, &netconf)?;
        let printed = String::from_utf8_lossy(&ended.stdout).into_owned();
        let value: Value = match printed.trim() {
            "" => Value::Null,
            text => serde_json::from_str(text).with_context(|| printed.clone())?,
        };
        if ended.status.success() {
            return Ok(Answer::Starts(value));
        }
        let code = value["code"].as_i64();
        let code = code.with_context(|| {
            format!("{verb} of {name}: {printed} {}", String::from_utf8_lossy(&ended.stderr))
        })?;
        Ok(Answer::Fails(code, value["msg"].as_str().unwrap_or_default().to_owned()))
    }

    /// The name of the sandbox's network namespace on the node.
    pub(crate) fn netns(&self) -> String {
        format!("policed-{}", self.number)
    }

    pub(crate) fn add(&self) -> Result<Answer> {
        self.call("ADD", &Value::Null)
    }

    /// Sends the DEL and deletes the network namespace.
    pub(crate) fn del(&self, result: &Value) -> Result<()> {
        let answer = self.call("DEL", result)?;
        ensure!(answer == Answer::Starts(Value::Null), "{answer:?}");
        let name = format!("policed-{}", self.number);
        self.lab.on_node(self.node, &["ip", "netns", "del", &name]).map(drop)
    }
}

/// Sends one ADD for each pod, side by side. Returns the answers in the order of the pods.
pub(crate) fn once(lab: &Lab, node: &str, pods: &[Started]) -> Result<Vec<Answer>> {
    side_by_side(pods, |pod| Sandbox::new(lab, node, pod)?.add())
}

/// Sends ADDs for these pods side by side and repeats failed ones, as the kubelet does. Returns all answers for each
/// pod; the last one is a success.
pub(crate) fn until_all_start(
    lab: &Lab,
    node: &str,
    pods: &[Started],
    patience: Duration,
) -> Result<Vec<Vec<Answer>>> {
    until_all_start_in(pods, patience, |pod| Sandbox::new(lab, node, pod))
}

/// The same in sandboxes of this kind.
pub(crate) fn until_all_start_in<'a>(
    pods: &'a [Started],
    patience: Duration,
    sandbox: impl Fn(&'a Started) -> Result<Sandbox<'a>> + Sync,
) -> Result<Vec<Vec<Answer>>> {
    let last = Instant::now() + patience;
    side_by_side(pods, |pod| {
        let sandbox = sandbox(pod)?;
        let mut answers = Vec::new();
        loop {
            answers.push(sandbox.add()?);
            if let Some(Answer::Starts(_)) = answers.last() {
                return Ok(answers);
            }
            ensure!(Instant::now() < last, "{}: {:?}", pod.name, answers.last());
            sleep(AGAIN);
        }
    })
}

fn side_by_side<'a, T: Send>(
    pods: &'a [Started],
    start: impl Fn(&'a Started) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let next = AtomicUsize::new(0);
    let (next, start) = (&next, &start);
    let parts = scope(|scope| {
        let workers = (0..AT_ONCE).map(|_| {
            scope.spawn(move || {
                let mut done = Vec::new();
                while let Some(pod) = pods.get(next.fetch_add(1, Ordering::Relaxed)) {
                    done.push((pod.name.clone(), start(pod)?));
                }
                Ok::<_, anyhow::Error>(done)
            })
        });
        let workers: Vec<_> = workers.collect();
        workers.into_iter().map(|worker| worker.join()).collect::<Vec<_>>()
    });
    let mut all = std::collections::BTreeMap::new();
    for part in parts {
        all.extend(part.ok().context("a worker panicked")??);
    }
    pods.iter().map(|pod| all.remove(&pod.name).context("a pod without an answer")).collect()
}

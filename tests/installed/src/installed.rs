//! The cluster, and the hands that an operator has on it.

use crate::Given;
use anyhow::{Context as _, Result, bail, ensure};
use lab_kubernetes::{Program, image};
use serde_json::{Value, json};
use std::{
    io::Write as _,
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, Instant},
};
use tests_lab::Lab;

/// A cluster of the lab. It is taken down when this is dropped.
pub struct Installed {
    given: Given,
    lab: Lab,
    helm: Program,
    kubectl: Program,
    kubeconfig: PathBuf,
}

/// A pod that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Its name.
    pub name: String,
    /// Its node.
    pub node: String,
    /// Its address.
    pub address: String,
    /// How often containers of it were started again.
    pub restarts: u64,
}

impl Installed {
    /// A cluster of so many nodes, with our image on them and nothing installed.
    ///
    /// # Errors
    /// With what the lab said.
    pub fn bare(given: Given, name: &str, nodes: usize) -> Result<Self> {
        let (helm, kubectl) = (Program::helm()?, Program::kubectl()?);
        let name = format!("{name}-{}", std::process::id());
        let up = ["--nodes", &nodes.to_string(), "--cni", "none"];
        let lab = Lab::cluster_up(&given.programs, &name, &up)?;
        let kubeconfig = lab.run(&["cluster", "kubeconfig"])?.trim().into();
        let archive = given.image.to_str().context("the image's path is not UTF-8")?;
        lab.run(&["cluster", "load-image", archive])?;
        Ok(Self { given, lab, helm, kubectl, kubeconfig })
    }

    /// The lab's tool.
    pub fn lab(&self) -> &Lab {
        &self.lab
    }

    /// Installs the chart, or upgrades what is installed, and waits until it runs on every node.
    ///
    /// # Errors
    /// With what helm or kubectl said, and what the cluster looks like.
    pub fn install(&self, sets: &[&str]) -> Result<()> {
        let status = self.lab.json(&["status"])?;
        let ec2 = status["ec2_endpoint"].as_str().context("a lab without EC2")?;
        // The SDK's own setting; on EC2 there is none.
        let extra = json!([{ "name": "AWS_ENDPOINT_URL_EC2", "value": ec2 }]);
        let chart = self.given.chart.to_str().context("the chart's path is not UTF-8")?;
        let extra = format!("extraEnv={extra}");
        let mut args = vec!["upgrade", "--install", "ferrule", chart, "--set-json", &extra];
        // The lab has the definitions of ENIConfigs and CNINodes already, as EKS has.
        args.extend(["--take-ownership", "--force-conflicts", "--set", "env.CLUSTER_NAME=lab"]);
        args.extend(sets.iter().flat_map(|set| ["--set", *set]));
        self.helm(&args)?;
        self.rolled_out()
    }

    /// Waits until the DaemonSet is on every node as it is told to be, and all nodes are ready.
    ///
    /// # Errors
    /// With what the cluster looks like when that does not come.
    pub fn rolled_out(&self) -> Result<()> {
        self.kubectl(&["-n", SPACE, "rollout", "status", "daemonset/ferrule", WAIT])
            .and_then(|_| self.kubectl(&["wait", "--for=condition=Ready", "node", "--all", WAIT]))
            .map(drop)
            .with_context(|| self.state())
    }

    /// Runs helm in our namespace.
    ///
    /// # Errors
    /// With what it said.
    pub fn helm(&self, args: &[&str]) -> Result<String> {
        let mut helm = Command::new(self.helm.path());
        said(helm.args(args).args(["--namespace", SPACE, "--kubeconfig"]).arg(&self.kubeconfig))
    }

    /// Runs kubectl.
    ///
    /// # Errors
    /// With what it said.
    pub fn kubectl(&self, args: &[&str]) -> Result<String> {
        let mut kubectl = Command::new(self.kubectl.path());
        said(kubectl.arg("--kubeconfig").arg(&self.kubeconfig).args(args))
    }

    /// Runs the tool `ferrule` with the cluster's kubeconfig; what came of it, also when it failed.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn ferrule(&self, args: &[&str]) -> Result<std::process::Output> {
        let mut tool = Command::new(self.given.programs.join("ferrule"));
        tool.args(args).env("KUBECONFIG", &self.kubeconfig).stdin(Stdio::null());
        tool.output().context("start ferrule")
    }

    /// Makes or changes objects.
    ///
    /// # Errors
    /// With what the API server said.
    pub fn apply(&self, objects: &Value) -> Result<()> {
        let mut kubectl = Command::new(self.kubectl.path());
        kubectl.arg("--kubeconfig").arg(&self.kubeconfig).args(["apply", "-f", "-"]);
        kubectl.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = kubectl.spawn().context("start kubectl")?;
        let mut stdin = child.stdin.take().context("kubectl has no standard input")?;
        stdin.write_all(objects.to_string().as_bytes()).context("hand kubectl the objects")?;
        drop(stdin);
        let output = child.wait_with_output().context("wait for kubectl")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "kubectl apply: {}: {said}", output.status);
        Ok(())
    }

    /// A DaemonSet of the lab's probe, which serves on port 8080, echoes lines on 8081 and says who it is;
    /// its pods once all of them run.
    ///
    /// # Errors
    /// With what the cluster looks like when they do not come.
    pub fn probes(&self, name: &str) -> Result<Vec<Pod>> {
        let labels = json!({ "app": name });
        self.apply(&json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": { "name": name, "namespace": "default" },
            "spec": {
                "selector": { "matchLabels": labels },
                "template": {
                    "metadata": { "labels": labels },
                    "spec": {
                        "terminationGracePeriodSeconds": 1,
                        "containers": [{
                            "name": "probe", "image": image::PROBE, "args": ["serve", "8080"],
                            "imagePullPolicy": "Never",
                            "readinessProbe": { "httpGet": { "path": "/", "port": 8080 } },
                        }],
                    },
                },
            },
        }))?;
        self.kubectl(&["rollout", "status", &format!("daemonset/{name}"), WAIT])
            .with_context(|| self.state())?;
        self.pods("default", &format!("app={name}"))
    }

    /// The pods of these labels, by their nodes' names.
    ///
    /// # Errors
    /// With what kubectl said.
    pub fn pods(&self, namespace: &str, labels: &str) -> Result<Vec<Pod>> {
        let list = self.kubectl(&["-n", namespace, "get", "pods", "-l", labels, "-o", "json"])?;
        let list: Value = serde_json::from_str(&list).context("the list of pods")?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut pods: Vec<Pod> = list["items"]
            .as_array()
            .context("no list of pods")?
            .iter()
            .map(|pod| Pod {
                name: text(&pod["metadata"]["name"]),
                node: text(&pod["spec"]["nodeName"]),
                address: text(&pod["status"]["podIP"]),
                restarts: pod["status"]["containerStatuses"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(|of| of["restartCount"].as_u64())
                    .sum(),
            })
            .collect();
        pods.sort_by(|a, b| a.node.cmp(&b.node));
        Ok(pods)
    }

    /// What stands in the API about nodes and pods, for whoever reads why a test failed.
    fn state(&self) -> String {
        let asked = [
            &["get", "nodes,pods", "-A", "-o", "wide"][..],
            &["get", "events", "-A", "--field-selector", "type=Warning"],
            &["-n", SPACE, "logs", "daemonset/ferrule", "--all-containers", "--tail=20"],
        ];
        let told = asked.map(|args| self.kubectl(args).unwrap_or_else(|err| format!("{err:#}")));
        told.join("\n")
    }
}

/// Looks until `look` is content; its last word when it is not in time.
///
/// # Errors
/// The last word.
pub(crate) fn patiently<T>(mut look: impl FnMut() -> Result<T>) -> Result<T> {
    let began = Instant::now();
    loop {
        match look() {
            Err(_) if began.elapsed() < PATIENCE => std::thread::sleep(LOOK_AGAIN),
            outcome => return outcome,
        }
    }
}

fn said(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output();
    let name = command.get_program().display().to_string();
    let output = output.with_context(|| format!("start {name}"))?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let args: Vec<_> = command.get_args().map(|arg| arg.to_string_lossy()).collect();
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("{name} {}: {}\n{stdout}{stderr}", args.join(" "), output.status);
    }
    Ok(stdout)
}

const SPACE: &str = "kube-system";
const WAIT: &str = "--timeout=300s";
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK_AGAIN: Duration = Duration::from_millis(300);

//! The cluster, and the hands that an operator has on it.

#![expect(clippy::print_stdout, reason = "a skip is told on standard output")]

use crate::Cluster;
use anyhow::{Context as _, Result, bail};
use lab_kubernetes::{Program, image};
use serde_json::{Value, json};
use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};
use tests_eventually::within;
use tests_lab::Lab;

/// What a test is given by its lane.
#[derive(Clone, Debug)]
pub struct Given {
    programs: PathBuf,
    image: PathBuf,
    chart: PathBuf,
}

impl Given {
    /// What the lane gave; `None`, and a line that says so, where `test` cannot run.
    pub fn or_skip(test: &str) -> Option<Self> {
        let of = |name: &str| {
            let value = std::env::var_os(name).map(PathBuf::from);
            if value.is_none() {
                println!("SKIP {test}: {name} is not set; run: cargo xtask test whole");
            }
            value
        };
        let programs = tests_lab::programs(test)?;
        Some(Self { programs, image: of("FERRULE_IMAGE")?, chart: of("FERRULE_CHART")? })
    }
}

/// A cluster of the lab with our image on its nodes. It is taken down when this is dropped.
pub struct Installed {
    given: Given,
    cluster: Cluster,
    helm: Program,
}

/// A pod that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// The lab in which it is.
    pub lab: String,
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
        Self::bare_with(given, name, nodes, &[])
    }

    /// The same, of a lab that `lab` tells of in the words of `ferrule-lab up`.
    ///
    /// # Errors
    /// With what the lab said.
    pub fn bare_with(given: Given, name: &str, nodes: usize, lab: &[&str]) -> Result<Self> {
        let helm = Program::helm()?;
        let nodes = nodes.to_string();
        let mut up = vec!["--nodes", &nodes, "--cni", "none", "--"];
        up.extend(lab);
        let cluster = Cluster::up(&given.programs, name, &up)?;
        let installed = Self { given, cluster, helm };
        installed.load_image(&[])?;
        Ok(installed)
    }

    /// The lab's tool.
    pub fn lab(&self) -> &Lab {
        &self.cluster.lab
    }

    /// The cluster.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The archive of our image.
    pub(crate) fn image(&self) -> &Path {
        &self.given.image
    }

    /// Where EC2 answers.
    pub(crate) fn ec2(&self) -> Result<String> {
        let status = self.lab().json(&["status"])?;
        status["ec2_endpoint"].as_str().map(str::to_owned).context("a lab without EC2")
    }

    /// Gives the image to all nodes, or as `args` say.
    ///
    /// # Errors
    /// With what the lab said.
    pub fn load_image(&self, args: &[&str]) -> Result<()> {
        let archive = self.given.image.to_str().context("the image's path is not UTF-8")?;
        self.lab().run(&[&["cluster", "load-image", archive], args].concat()).map(drop)
    }

    /// Installs the chart, or upgrades what is installed, and waits until it runs on every node.
    ///
    /// # Errors
    /// With what helm or kubectl said, and what the cluster looks like.
    pub fn install(&self, sets: &[&str]) -> Result<()> {
        self.upgrade(sets)?;
        self.rolled_out()?;
        if POLICY.iter().all(|set| sets.contains(set)) { self.controllers_ready() } else { Ok(()) }
    }

    /// Waits until all replicas of the policy controller serve.
    ///
    /// # Errors
    /// With what the cluster looks like when that does not come.
    pub fn controllers_ready(&self) -> Result<()> {
        self.kubectl(&["-n", SPACE, "rollout", "status", "deployment/ferrule-controller", WAIT])
            .map(drop)
            .with_context(|| self.state())
    }

    /// The same, and waits for nothing.
    ///
    /// # Errors
    /// With what helm said.
    pub fn upgrade(&self, sets: &[&str]) -> Result<()> {
        // The SDK's own setting; on EC2 there is none.
        let extra = json!([{ "name": "AWS_ENDPOINT_URL_EC2", "value": self.ec2()? }]);
        let chart = self.chart()?;
        let extra = format!("extraEnv={extra}");
        let mut args = vec!["upgrade", "--install", "ferrule", chart, "--set-json", &extra];
        args.extend(["--set", "env.CLUSTER_NAME=lab"]);
        args.extend(sets.iter().flat_map(|set| ["--set", *set]));
        self.helm(&args).map(drop)
    }

    pub(crate) fn chart(&self) -> Result<&str> {
        self.given.chart.to_str().context("the chart's path is not UTF-8")
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
        said(
            helm.args(args)
                .args(["--namespace", SPACE, "--kubeconfig"])
                .arg(self.cluster.kubeconfig()),
        )
    }

    /// Runs kubectl.
    ///
    /// # Errors
    /// With what it said.
    pub fn kubectl(&self, args: &[&str]) -> Result<String> {
        self.cluster.kubectl(args)
    }

    /// Runs the tool `ferrule` with the cluster's kubeconfig; what came of it, also when it failed.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn ferrule(&self, args: &[&str]) -> Result<std::process::Output> {
        self.ferrule_as(self.cluster.kubeconfig(), args).output().context("start ferrule")
    }

    /// The same with another kubeconfig, not yet started.
    pub fn ferrule_as(&self, kubeconfig: &Path, args: &[&str]) -> Command {
        let mut tool = Command::new(self.given.programs.join("ferrule"));
        tool.args(args).env("KUBECONFIG", kubeconfig).stdin(Stdio::null());
        tool
    }

    /// A DaemonSet of the lab's probe, which serves on port 8080, echoes lines on 8081 and says who it is;
    /// its pods once all of them run.
    ///
    /// # Errors
    /// With what the cluster looks like when they do not come.
    pub fn probes(&self, name: &str) -> Result<Vec<Pod>> {
        let labels = json!({ "app": name });
        self.cluster.apply(&[json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": { "name": name, "namespace": "default" },
            "spec": {
                "selector": { "matchLabels": labels },
                "template": { "metadata": { "labels": labels }, "spec": probe() },
            },
        })])?;
        self.kubectl(&["rollout", "status", &format!("daemonset/{name}"), WAIT])
            .with_context(|| self.state())?;
        self.pods("default", &format!("app={name}"))
    }

    /// A Deployment `load` of so many of the lab's probes, on this node if one is named. It waits for none of them.
    ///
    /// # Errors
    /// With what kubectl said.
    pub fn load(&self, replicas: u32, node: Option<&str>) -> Result<()> {
        let labels = json!({ "app": "load" });
        let mut pod = probe();
        if let Some(node) = node {
            pod["nodeSelector"] = json!({ "kubernetes.io/hostname": node });
        }
        self.cluster.apply(&[json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": "load", "namespace": "default" },
            "spec": {
                "replicas": replicas, "selector": { "matchLabels": labels },
                "template": { "metadata": { "labels": labels }, "spec": pod },
            },
        })])
    }

    /// Waits until the load runs as it was last asked for.
    ///
    /// # Errors
    /// With what the cluster looks like when that does not come.
    pub fn loaded(&self) -> Result<()> {
        self.kubectl(&["-n", "default", "rollout", "status", "deployment/load", WAIT])
            .map(drop)
            .with_context(|| self.state())
    }

    /// The pods of these labels, by their nodes' names.
    ///
    /// # Errors
    /// With what kubectl said.
    pub fn pods(&self, namespace: &str, labels: &str) -> Result<Vec<Pod>> {
        let list = self.cluster.json(&["-n", namespace, "get", "pods", "-l", labels])?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut pods: Vec<Pod> = list["items"]
            .as_array()
            .context("no list of pods")?
            .iter()
            .map(|pod| Pod {
                lab: self.lab().name().to_owned(),
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

/// What a pod of the lab's probe is.
pub fn probe() -> Value {
    json!({
        "terminationGracePeriodSeconds": 1,
        "containers": [{
            "name": "probe", "image": image::PROBE, "args": ["serve", "8080"],
            "imagePullPolicy": "Never",
            "readinessProbe": { "httpGet": { "path": "/", "port": 8080 } },
        }],
    })
}

/// Looks until `look` is content; its last word when it is not in time.
///
/// # Errors
/// The last word.
pub(crate) fn patiently<T>(look: impl FnMut() -> Result<T>) -> Result<T> {
    Ok(within("the installation", PATIENCE, look)?)
}

pub(crate) fn said(command: &mut Command) -> Result<String> {
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

/// The chart's values with which policy is on.
pub const POLICY: &[&str] = &["enableNetworkPolicy=true", "policy.backend=none"];
/// The labels of the DaemonSet's pods, whatever names the chart is given.
pub const NODE_PODS: &str = "app.kubernetes.io/part-of=ferrule,app.kubernetes.io/component=node";
/// And those of the policy controller's.
pub const CONTROLLERS: &str =
    "app.kubernetes.io/part-of=ferrule,app.kubernetes.io/component=controller";
pub(crate) const SPACE: &str = "kube-system";
pub(crate) const WAIT: &str = "--timeout=300s";
const PATIENCE: Duration = Duration::from_secs(120);

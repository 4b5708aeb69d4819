//! A cluster with Ferrule's image, and an operator's commands on it.

#![expect(clippy::print_stdout, reason = "a skip is reported on standard output")]

use crate::Cluster;
use anyhow::{Context as _, Result, bail};
use lab_kubernetes::{Program, image};
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};
use tests_eventually::within;
use tests_lab::Lab;

/// The programs, image and chart that the lane passes to a test.
#[derive(Clone, Debug)]
pub struct LaneInputs {
    programs: PathBuf,
    image: PathBuf,
    chart: PathBuf,
}

impl LaneInputs {
    /// Reads the lane's environment. If `test` cannot run, prints a line with the reason and returns `None`.
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

/// A cluster of the lab with Ferrule's image on its nodes. A drop takes it down.
pub struct Installed {
    inputs: LaneInputs,
    cluster: Cluster,
    helm: Program,
}

/// A running pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// The name of its lab.
    pub lab: String,
    pub name: String,
    pub node: String,
    pub address: String,
    /// The number of restarts of its containers.
    pub restarts: u64,
}

impl Installed {
    /// Starts a cluster with this number of nodes and Ferrule's image, without an installation.
    ///
    /// # Errors
    /// With the output of the lab's tool.
    pub fn bare(inputs: LaneInputs, name: &str, nodes: usize) -> Result<Self> {
        Self::bare_with(inputs, name, nodes, &[])
    }

    /// Like [`Installed::bare`], with options of `ferrule-lab up`.
    ///
    /// # Errors
    /// With the output of the lab's tool.
    pub fn bare_with(inputs: LaneInputs, name: &str, nodes: usize, lab: &[&str]) -> Result<Self> {
        Self::up(inputs, name, nodes, &[&["--"], lab].concat())
    }

    /// Like [`Installed::bare_with`], without kube-proxy.
    ///
    /// # Errors
    /// With the output of the lab's tool.
    pub fn without_proxy(
        inputs: LaneInputs,
        name: &str,
        nodes: usize,
        lab: &[&str],
    ) -> Result<Self> {
        Self::up(inputs, name, nodes, &[&["--proxy", "none", "--"], lab].concat())
    }

    /// Like [`Installed::without_proxy`], with nodes and Services of both families.
    ///
    /// # Errors
    /// With the output of the lab's tool.
    pub fn of_both_families(inputs: LaneInputs, name: &str, nodes: usize) -> Result<Self> {
        Self::up(inputs, name, nodes, &["--proxy", "none", "--ipv6"])
    }

    fn up(inputs: LaneInputs, name: &str, nodes: usize, args: &[&str]) -> Result<Self> {
        let helm = Program::helm()?;
        let nodes = nodes.to_string();
        let mut up = vec!["--nodes", &nodes, "--cni", "none"];
        up.extend(args);
        let cluster = Cluster::up(&inputs.programs, name, &up)?;
        let installed = Self { inputs, cluster, helm };
        installed.load_image(&[])?;
        Ok(installed)
    }

    /// Returns the lab.
    pub fn lab(&self) -> &Lab {
        &self.cluster.lab
    }

    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Returns the archive of Ferrule's image.
    pub(crate) fn image(&self) -> &Path {
        &self.inputs.image
    }

    /// Returns the URL of the lab's EC2.
    ///
    /// # Errors
    /// With the output of the lab's tool.
    pub fn ec2(&self) -> Result<String> {
        let status = self.lab().json(&["status"])?;
        status["ec2_endpoint"].as_str().map(str::to_owned).context("the lab has no EC2 endpoint")
    }

    /// Loads the image on all nodes, or on the nodes that `args` select.
    ///
    /// # Errors
    /// With the output of the lab's tool.
    pub fn load_image(&self, args: &[&str]) -> Result<()> {
        self.load_on(&self.inputs.image, args)
    }

    /// Loads the archive of an image on all nodes.
    pub(crate) fn load_archive(&self, archive: &Path) -> Result<()> {
        self.load_on(archive, &[])
    }

    fn load_on(&self, archive: &Path, args: &[&str]) -> Result<()> {
        let archive = archive.to_str().context("the image's path is not UTF-8")?;
        self.lab().run(&[&["cluster", "load-image", archive], args].concat()).map(drop)
    }

    /// Installs or upgrades the chart, and waits until it runs on every node.
    ///
    /// # Errors
    /// With the output of helm or kubectl and the cluster's state.
    pub fn install(&self, sets: &[&str]) -> Result<()> {
        self.upgrade(sets)?;
        self.rolled_out()?;
        if POLICY.iter().all(|set| sets.contains(set)) { self.controllers_ready() } else { Ok(()) }
    }

    /// Installs the chart with agents that serve Services. No program of a node's network then reaches the API server by its
    /// Service.
    ///
    /// # Errors
    /// With the output of helm or kubectl and the cluster's state.
    pub fn install_with_services(&self) -> Result<()> {
        self.install_with_services_and(&[])
    }

    /// As [`Installed::install_with_services`], with more values of the chart.
    ///
    /// # Errors
    /// With the output of helm or kubectl and the cluster's state.
    pub fn install_with_services_and(&self, sets: &[&str]) -> Result<()> {
        let services = self.services("ebpf")?;
        let services: Vec<&str> = services.iter().map(String::as_str).collect();
        self.install(&[&services, sets].concat())
    }

    /// Returns the settings of the chart for agents with the backend `ebpf` and this value of `FERRULE_SERVICES`.
    ///
    /// # Errors
    /// With the output of the lab's tool.
    pub fn services(&self, value: &str) -> Result<Vec<String>> {
        Ok(vec![
            "enableNetworkPolicy=true".to_owned(),
            "policy.backend=ebpf".to_owned(),
            format!("env.FERRULE_SERVICES={value}"),
            format!("env.CLUSTER_ENDPOINT={}", self.api_server()?),
        ])
    }

    /// Returns the URL of the API server as the kubelets have it.
    pub(crate) fn api_server(&self) -> Result<String> {
        let config = self.lab().on_node("node1", &["cat", "/var/lib/kubelet/kubeconfig"])?;
        let config: Value = serde_json::from_str(&config).context("the kubelet's kubeconfig")?;
        let server = config["clusters"][0]["cluster"]["server"].as_str();
        server.map(str::to_owned).context("no server in the kubelet's kubeconfig")
    }

    /// Waits until all controller replicas are ready.
    ///
    /// # Errors
    /// After a timeout, with the cluster's state.
    pub fn controllers_ready(&self) -> Result<()> {
        self.kubectl(&["-n", SPACE, "rollout", "status", "deployment/ferrule-controller", WAIT])
            .map(drop)
            .with_context(|| self.state())
    }

    /// Installs or upgrades the chart without waiting.
    ///
    /// # Errors
    /// With the output of helm.
    pub fn upgrade(&self, sets: &[&str]) -> Result<()> {
        // A setting of the AWS SDK, which an installation on EC2 does not need.
        let extra = json!([{ "name": "AWS_ENDPOINT_URL_EC2", "value": self.ec2()? }]);
        let chart = self.chart()?;
        let extra = format!("extraEnv={extra}");
        let mut args = vec!["upgrade", "--install", "ferrule", chart, "--set-json", &extra];
        args.extend(["--set", "env.CLUSTER_NAME=lab", "--set", IMAGE]);
        args.extend(sets.iter().flat_map(|set| ["--set", *set]));
        self.helm(&args).map(drop)
    }

    /// Returns the folder or archive of the chart.
    ///
    /// # Errors
    /// The path is not UTF-8.
    pub fn chart(&self) -> Result<&str> {
        self.inputs.chart.to_str().context("the chart's path is not UTF-8")
    }

    /// Waits until the rollout of the DaemonSet is complete and all nodes are ready.
    ///
    /// # Errors
    /// After a timeout, with the cluster's state.
    pub fn rolled_out(&self) -> Result<()> {
        self.kubectl(&["-n", SPACE, "rollout", "status", "daemonset/ferrule", WAIT])
            .and_then(|_| self.kubectl(&["wait", "--for=condition=Ready", "node", "--all", WAIT]))
            .map(drop)
            .with_context(|| self.state())
    }

    /// Runs helm in the namespace kube-system and returns its standard output.
    ///
    /// # Errors
    /// With the command's output.
    pub fn helm(&self, args: &[&str]) -> Result<String> {
        let mut helm = Command::new(self.helm.path());
        output_of(
            helm.args(args)
                .args(["--namespace", SPACE, "--kubeconfig"])
                .arg(self.cluster.kubeconfig()),
        )
    }

    /// Runs kubectl and returns its standard output.
    ///
    /// # Errors
    /// With the command's output.
    pub fn kubectl(&self, args: &[&str]) -> Result<String> {
        self.cluster.kubectl(args)
    }

    /// Runs the tool `ferrule` with the cluster's kubeconfig and returns its output, also after a failure.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn ferrule(&self, args: &[&str]) -> Result<std::process::Output> {
        self.ferrule_as(self.cluster.kubeconfig(), args).output().context("cannot start ferrule")
    }

    /// Returns the command `ferrule` with another kubeconfig, not started.
    pub fn ferrule_as(&self, kubeconfig: &Path, args: &[&str]) -> Command {
        let mut tool = Command::new(self.inputs.programs.join("ferrule"));
        tool.args(args).env("KUBECONFIG", kubeconfig).stdin(Stdio::null());
        tool
    }

    /// Creates an account with the roles `ferrule-viewer`, as in the guide. Returns its kubeconfig, a file in `folder`.
    ///
    /// # Errors
    /// With the output of kubectl.
    pub fn viewer(&self, folder: &Path) -> Result<PathBuf> {
        let run = |words: &str| self.kubectl(&words.split(' ').collect::<Vec<_>>());
        run("create serviceaccount viewer")?;
        let subject = "--serviceaccount default:viewer";
        run(&format!("create clusterrolebinding viewers --clusterrole ferrule-viewer {subject}"))?;
        run(&format!("-n {SPACE} create rolebinding viewers --role ferrule-viewer {subject}"))?;
        let token = run("create token viewer")?;
        let config = run("config view --raw -o json")?;
        let mut config: Value = serde_json::from_str(&config).context("no kubeconfig")?;
        // The user changes, the cluster stays.
        config["users"][0]["user"] = json!({ "token": token.trim() });
        let path = folder.join("viewer.kubeconfig");
        fs::write(&path, config.to_string())
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    /// Creates a DaemonSet of the lab's probe and returns its pods once all run. The probe serves its pod's name on
    /// port 8080, and echoes lines on port 8081.
    ///
    /// # Errors
    /// After a timeout, with the cluster's state.
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

    /// Applies a Deployment `load` with this number of probes, on one node if one is given. It does not wait for them.
    ///
    /// # Errors
    /// With the output of kubectl.
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

    /// Waits until the rollout of the Deployment `load` is complete.
    ///
    /// # Errors
    /// After a timeout, with the cluster's state.
    pub fn loaded(&self) -> Result<()> {
        self.kubectl(&["-n", "default", "rollout", "status", "deployment/load", WAIT])
            .map(drop)
            .with_context(|| self.state())
    }

    /// Returns the pods with these labels, sorted by node.
    ///
    /// # Errors
    /// With the output of kubectl.
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

    /// Returns nodes, pods, warnings and logs of the cluster for an error message.
    pub(crate) fn state(&self) -> String {
        let asked = [
            &["get", "nodes,pods", "-A", "-o", "wide"][..],
            &["get", "events", "-A", "--field-selector", "type=Warning"],
            &["-n", SPACE, "logs", "daemonset/ferrule", "--all-containers", "--tail=20"],
        ];
        let parts = asked.map(|args| self.kubectl(args).unwrap_or_else(|err| format!("{err:#}")));
        parts.join("\n")
    }
}

/// Returns the spec of a probe pod.
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

/// Repeats `look` until it succeeds.
///
/// # Errors
/// After two minutes, with the last error of `look`.
pub(crate) fn retry<T>(look: impl FnMut() -> Result<T>) -> Result<T> {
    Ok(within("the installation", PATIENCE, look)?)
}

pub(crate) fn output_of(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output();
    let name = command.get_program().display().to_string();
    let output = output.with_context(|| format!("cannot start {name}"))?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let args: Vec<_> = command.get_args().map(|arg| arg.to_string_lossy()).collect();
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("{name} {}: {}\n{stdout}{stderr}", args.join(" "), output.status);
    }
    Ok(stdout)
}

/// The chart's values that enable network policy.
pub const POLICY: &[&str] =
    &["enableNetworkPolicy=true", "policy.backend=none", "controller.view=true"];
/// The labels of the DaemonSet's pods. They do not depend on the chart's name overrides.
pub const NODE_PODS: &str = "app.kubernetes.io/part-of=ferrule,app.kubernetes.io/component=node";
/// The labels of the controller's pods.
pub const CONTROLLERS: &str =
    "app.kubernetes.io/part-of=ferrule,app.kubernetes.io/component=controller";
/// The setting for the image that the lane builds.
pub(crate) const IMAGE: &str =
    concat!("image.override=localhost/ferrule:", env!("CARGO_PKG_VERSION"));
pub(crate) const SPACE: &str = "kube-system";
pub(crate) const WAIT: &str = "--timeout=300s";
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

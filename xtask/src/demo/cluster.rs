//! The demo of a whole cluster: control plane, kubelets and containerds of three lab nodes. The chart installs Ferrule,
//! and sixty pods run.

use crate::{
    binaries::{Binaries, Profile},
    cluster,
    deps::{self, Need},
    generate, image,
    interrupt::Guard,
    say,
};
use anyhow::{Context as _, Result, bail, ensure};
use lab_programs::Program;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    time::{Duration, Instant},
};
use tests_lab::Lab;

const NODES: usize = 3;
const PODS: usize = 60;

#[derive(clap::Args, Clone)]
pub(super) struct Args {
    /// Leave the cluster running and print commands to explore it
    #[arg(long)]
    keep: bool,
    /// The component that serves Services
    #[arg(long, value_enum, default_value_t = Server::KubeProxy)]
    services: Server,
}

#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq)]
enum Server {
    /// kube-proxy on each node
    KubeProxy,
    /// The agents' eBPF programs, on a cluster without kube-proxy
    Ebpf,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    deps::need_root("demo cluster")?;
    deps::install(&[
        Need::Linker,
        Need::Go,
        Need::Iproute,
        Need::Nft,
        Need::Iptables,
        Need::Runtime,
        Need::Image,
    ])?;
    let archive = image::archive(Profile::Dev);
    let programs = image::make(Profile::Dev, image::NAME, &archive)?;
    let (helm, kubectl) = (cluster::program("helm")?, cluster::program("kubectl")?);
    let name = format!("demo-{}", std::process::id());
    let guard = Guard::lab(&programs, &name)?;
    let started = Instant::now();

    say::step(&format!("a VPC, a control plane and {NODES} nodes with kubelet and containerd"));
    let nodes = NODES.to_string();
    let mut up = vec!["--nodes", &nodes, "--cni", "none"];
    if args.services == Server::Ebpf {
        up.extend(["--proxy", "none"]);
    }
    let mut lab = Lab::cluster(&programs.dir, &name, &up)?;
    let kubeconfig = lab.run(&["cluster", "kubeconfig"])?.trim().into();
    let probe = Program::probe()?;
    let scene = Scene { lab: &lab, helm, kubectl, kubeconfig, probe, services: args.services };
    let outcome = scene.play(&programs, &archive);
    if outcome.is_err() {
        scene.print_state();
    }
    if args.keep {
        scene.look_around(&programs);
        guard.release();
        lab.keep();
    } else {
        say::step("taking the cluster down");
        lab.down()?;
    }
    match outcome {
        Ok(()) => {
            say::result(&format!("demo: PASS in {}", say::took(started)));
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            say::fail(&format!("{error:#}"));
            say::result(&format!("demo: FAIL in {}", say::took(started)));
            Ok(ExitCode::FAILURE)
        }
    }
}

struct Scene<'a> {
    lab: &'a Lab,
    helm: PathBuf,
    kubectl: PathBuf,
    kubeconfig: PathBuf,
    probe: Program,
    services: Server,
}

/// The traces of running pods on a node.
#[derive(Debug, Default, PartialEq, Eq)]
struct Traces {
    rules: BTreeSet<String>,
    veths: BTreeSet<String>,
    leases: BTreeSet<String>,
}

impl Scene<'_> {
    fn play(&self, programs: &Binaries, archive: &Path) -> Result<()> {
        say::step("the image, into the nodes' containerds");
        self.lab.run(&["cluster", "load-image", text_of(archive)?])?;

        let began = Instant::now();
        say::step("installing charts/ferrule with helm");
        self.install()?;
        self.kubectl(&["-n", "kube-system", "rollout", "status", "daemonset/ferrule", WAIT])?;
        self.kubectl(&["wait", "--for=condition=Ready", "node", "--all", WAIT])?;
        say::good(&format!("{NODES} nodes are ready, in {}", say::took(began)));
        self.kubectl(&["-n", "kube-system", "rollout", "status", "deployment/coredns", WAIT])?;
        self.check(programs)?;

        let nodes = self.nodes()?;
        let before = self.traces(&nodes)?;
        let began = Instant::now();
        say::step(&format!("a Deployment of {PODS} pods, and a Service before them"));
        self.apply(&pods())?;
        self.kubectl(&["-n", SPACE, "rollout", "status", "deployment/hello", WAIT])?;
        self.spread(&nodes)?;
        say::good(&format!("{PODS} pods run, in {}", say::took(began)));
        self.service_answers()?;
        if self.services == Server::Ebpf {
            self.no_proxy_serves(programs, &nodes)?;
        }

        let began = Instant::now();
        say::step("scaling to 0: no lease, rule or veth is to be left");
        self.kubectl(&["-n", SPACE, "scale", "deployment/hello", "--replicas=0"])?;
        self.kubectl(&["-n", SPACE, "wait", "--for=delete", "pod", "--all", WAIT])?;
        // The daemon reaps veths in groups.
        patiently(|| nothing_new(&before, &self.traces(&nodes)?))?;
        say::good(&format!("nothing is left of them, in {}", say::took(began)));
        Ok(())
    }

    fn install(&self) -> Result<()> {
        let status = self.lab.json(&["status"])?;
        let ec2 = status["ec2_endpoint"].as_str().context("a lab without EC2")?;
        // A setting of the SDK. On EC2 it is not set.
        let extra = json!([{ "name": "AWS_ENDPOINT_URL_EC2", "value": ec2 }]);
        let chart = generate::root().join("charts/ferrule");
        let mut helm = Command::new(&self.helm);
        helm.args(["upgrade", "--install", "ferrule"]).arg(chart);
        helm.args(["--namespace", "kube-system", "--kubeconfig"]).arg(&self.kubeconfig);
        helm.args(["--set", "env.CLUSTER_NAME=lab", "--set-json", &format!("extraEnv={extra}")]);
        helm.args(["--set", &format!("image.override={}", image::NAME)]);
        if self.services == Server::Ebpf {
            let endpoint = format!("env.CLUSTER_ENDPOINT={}", self.api_server()?);
            let values = ["enableNetworkPolicy=true", "policy.backend=ebpf", SERVES, &endpoint];
            for value in values {
                helm.args(["--set", value]);
            }
        }
        output_of(&mut helm).map(drop)
    }

    /// The URL of the API server as the kubelets have it.
    fn api_server(&self) -> Result<String> {
        let config = self.lab.on_node("node1", &["cat", KUBELETS])?;
        let config: Value = serde_json::from_str(&config).context("the kubelet's kubeconfig")?;
        let server = config["clusters"][0]["cluster"]["server"].as_str();
        server.map(str::to_owned).context("no server in the kubelet's kubeconfig")
    }

    /// Checks that Services work without any rule of kube-proxy. Pods and processes of each node reach the API server and
    /// the DNS server by their Services. The processes also reach the demo's Service, by its node port on each node too.
    fn no_proxy_serves(&self, programs: &Binaries, nodes: &[String]) -> Result<()> {
        say::step("no kube-proxy: rules, API server, DNS, cluster IPs and node ports");
        let ferrule = programs.cli();
        let ferrule = text_of(&ferrule)?;
        for node in nodes {
            let rules = self.lab.on_node(node, &["nft", "list", "ruleset"])?;
            ensure!(
                !rules.contains("KUBE-S") && !rules.contains("kube-proxy"),
                "{node} has rules of kube-proxy: {rules}"
            );
            // The command fails if a rule exists in nftables or in legacy iptables.
            self.lab.on_node(node, &[ferrule, "migrate", "services", "rules"])?;
        }
        say::note("no node has a rule of kube-proxy");
        for pod in self.pod_of_each_node()?.values() {
            let version = ["-n", SPACE, "exec", pod.as_str(), "--", "/probe", "api", "/version"];
            let version = self.kubectl(&version).with_context(|| format!("{pod} asks the API"))?;
            ensure!(version.contains("gitVersion"), "the API server has answered {pod}: {version}");
        }
        let (api, dns) = (
            format!("https://{}", self.cluster_ip("default", "kubernetes")?),
            format!("{}:53", self.cluster_ip("kube-system", "kube-dns")?),
        );
        for node in nodes {
            self.node_reaches(node, &api, &dns)?;
        }
        say::note(&format!("pods and nodes reach the API server at {api} and DNS at {dns}"));
        let mut places = vec![format!("{}/80", self.cluster_ip(SPACE, "hello")?)];
        let column = "jsonpath={.status.addresses[?(@.type==\"InternalIP\")].address}";
        for node in nodes {
            let address = self.kubectl(&["get", "node", node, "-o", column])?;
            places.push(format!("{address}/{NODE_PORT}"));
        }
        for node in nodes {
            for place in &places {
                let read = format!(
                    r#"exec 3<>/dev/tcp/{place} && printf 'GET / HTTP/1.0\r\n\r\n' >&3 && timeout 5 cat <&3"#
                );
                let page = self.lab.on_node(node, &["timeout", "10", "bash", "-c", &read]);
                let page = page.with_context(|| format!("{node} asks {place}"))?;
                ensure!(page.contains("hello-"), "{place} has answered {node}: {page}");
            }
        }
        say::good("no node has a rule of kube-proxy, and every Service answers");
        Ok(())
    }

    /// Asks the API server and the DNS server at these addresses, as processes of a node.
    fn node_reaches(&self, node: &str, api: &str, dns: &str) -> Result<()> {
        let kubectl = [text_of(&self.kubectl)?, "--kubeconfig", KUBELETS, "--server", api];
        let version = [&kubectl[..], &["get", "--raw", "/version"]].concat();
        let version = self.lab.on_node(node, &version);
        let version = version.with_context(|| format!("{node} asks the API server at {api}"))?;
        ensure!(version.contains("gitVersion"), "{api} has answered {node}: {version}");
        let name = format!("hello.{SPACE}.svc.cluster.local");
        let address = self.cluster_ip(SPACE, "hello")?;
        let found = self.lab.on_node(node, &[text_of(self.probe.path())?, "lookup", &name, dns]);
        let found = found.with_context(|| format!("{node} asks {dns} for {name}"))?;
        ensure!(found.trim() == address, "{dns} has answered {node}: {found}, not {address}");
        Ok(())
    }

    fn cluster_ip(&self, namespace: &str, service: &str) -> Result<String> {
        let column = "jsonpath={.spec.clusterIP}";
        self.kubectl(&["-n", namespace, "get", "service", service, "-o", column])
    }

    /// Returns the name of one pod for each node.
    fn pod_of_each_node(&self) -> Result<BTreeMap<String, String>> {
        let columns = "jsonpath={range .items[*]}{.spec.nodeName} {.metadata.name}{\"\\n\"}{end}";
        let pods = self.kubectl(&["-n", SPACE, "get", "pods", "-o", columns])?;
        let pair = |line: &str| {
            let (node, pod) = line.split_once(' ')?;
            Some((node.to_owned(), pod.to_owned()))
        };
        Ok(pods.lines().filter_map(pair).collect())
    }

    /// Runs `ferrule check` as a user would.
    fn check(&self, programs: &Binaries) -> Result<()> {
        say::step("ferrule check");
        let mut check = Command::new(programs.cli());
        check
            .args(["check", "--host-network", "--internet", INTERNET])
            .env("KUBECONFIG", &self.kubeconfig);
        say::result(output_of(&mut check)?.trim_end());
        say::good("every path works");
        Ok(())
    }

    fn nodes(&self) -> Result<Vec<String>> {
        let names = self.kubectl(&["get", "nodes", "-o", "name"])?;
        let names = names.lines().filter_map(|line| line.strip_prefix("node/"));
        let names: Vec<String> = names.map(str::to_owned).collect();
        ensure!(names.len() == NODES, "{} nodes, not {NODES}", names.len());
        Ok(names)
    }

    /// The traces in the kernel and in the daemon's introspection.
    fn traces(&self, nodes: &[String]) -> Result<BTreeMap<String, Traces>> {
        nodes.iter().map(|node| Ok((node.clone(), self.traces_of(node)?))).collect()
    }

    fn traces_of(&self, node: &str) -> Result<Traces> {
        let lines = |args: &[&str]| -> Result<BTreeSet<String>> {
            let text = self.lab.on_node(node, args)?;
            Ok(text.lines().map(|line| line.trim().to_owned()).collect())
        };
        let mut rules = lines(&["ip", "-o", "rule"])?;
        // The rule belongs to an ENI, which may stay in the pool after its pods are gone.
        rules.retain(|rule| !rule.starts_with(RULE_OF_AN_ENI));
        let links = lines(&["ip", "-o", "link", "show", "type", "veth"])?;
        // "7: eni3f2a…@if3: <…"
        let name = |line: &String| {
            let name = line.split_whitespace().nth(1)?.split(['@', ':']).next()?;
            name.starts_with("eni").then(|| name.to_owned())
        };
        let veths = links.iter().filter_map(name).collect();
        let pods = self.lab.get(node, INTROSPECTION, "/v1/ferrule/pods")?;
        let pods: Value = serde_json::from_str(&pods).context("the daemon's list of pods")?;
        let pods = pods.as_array().context("the daemon's list of pods is no array")?;
        let lease =
            |pod: &Value| format!("{} of {}/{}", pod["address"], pod["namespace"], pod["name"]);
        Ok(Traces { rules, veths, leases: pods.iter().map(lease).collect() })
    }

    /// Checks that pods run on every node, each with an address of its own.
    fn spread(&self, nodes: &[String]) -> Result<()> {
        let pods = self.kubectl(&["-n", SPACE, "get", "pods", "-o", "json"])?;
        let pods: Value = serde_json::from_str(&pods).context("the list of pods")?;
        let pods = pods["items"].as_array().context("no list of pods")?;
        ensure!(pods.len() == PODS, "{} pods, not {PODS}", pods.len());
        let mut addresses = BTreeSet::new();
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for pod in pods {
            let name = &pod["metadata"]["name"];
            let address = pod["status"]["podIP"].as_str();
            let address = address.with_context(|| format!("{name} has no address"))?;
            ensure!(addresses.insert(address), "{address} is held twice, by {name} too");
            let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
            *counts.entry(node).or_default() += 1;
        }
        ensure!(counts.len() == nodes.len(), "pods run on {} nodes alone", counts.len());
        let told: Vec<String> =
            counts.iter().map(|(node, pods)| format!("{node}: {pods}")).collect();
        say::note(&format!("pods by node: {}; no address is held twice", told.join(", ")));
        Ok(())
    }

    /// Connects from a pod of each node to the Service's name, until several pods have answered.
    fn service_answers(&self) -> Result<()> {
        let url = format!("http://hello.{SPACE}.svc.cluster.local/");
        let one_of_each = self.pod_of_each_node()?;
        let mut heard = BTreeSet::new();
        for pod in one_of_each.values() {
            for _ in 0..4 {
                let answer = self.kubectl(&["-n", SPACE, "exec", pod, "--", "/probe", "get", &url]);
                heard.insert(answer.with_context(|| format!("{pod} asks {url}"))?);
            }
        }
        ensure!(heard.len() > 1, "one pod alone answers for the Service: {heard:?}");
        let nodes = one_of_each.len();
        say::good(&format!("the Service answers pods of {nodes} nodes, by name"));
        Ok(())
    }

    fn kubectl(&self, args: &[&str]) -> Result<String> {
        output_of(Command::new(&self.kubectl).arg("--kubeconfig").arg(&self.kubeconfig).args(args))
    }

    fn apply(&self, objects: &Value) -> Result<()> {
        let mut kubectl = Command::new(&self.kubectl);
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

    /// Prints the state of the cluster for the diagnosis of a failure.
    fn print_state(&self) {
        for args in [
            &["get", "nodes,pods", "-A", "-o", "wide"][..],
            &["get", "events", "-A", "--field-selector", "type=Warning"],
            &["-n", "kube-system", "logs", "daemonset/ferrule", "--all-containers", "--tail=20"],
        ] {
            match self.kubectl(args) {
                Ok(text) => text.lines().take(60).for_each(say::note),
                Err(error) => say::note(&format!("{error:#}")),
            }
        }
    }

    fn look_around(&self, programs: &Binaries) {
        let (kubeconfig, tool) = (self.kubeconfig.display(), self.lab.command_line());
        say::step("the cluster is up; to look around:");
        say::note(&format!("export KUBECONFIG={kubeconfig}"));
        say::note(&format!("{} get nodes,pods -A -o wide", self.kubectl.display()));
        say::note(&format!("{} --help", programs.cli().display()));
        for line in ["status", "node exec node1 -- ip rule", "cluster status", "down"] {
            say::note(&format!("{tool} {line}"));
        }
    }
}

/// Checks that every trace existed before.
fn nothing_new(before: &BTreeMap<String, Traces>, now: &BTreeMap<String, Traces>) -> Result<()> {
    for (node, seen) in now {
        let known = before.get(node).context("a node that was not there")?;
        for (what, seen, known) in [
            ("a rule", &seen.rules, &known.rules),
            ("a veth", &seen.veths, &known.veths),
            ("a lease", &seen.leases, &known.leases),
        ] {
            if let Some(left) = seen.difference(known).next() {
                bail!("{what} is left on {node}: {left}");
            }
        }
    }
    Ok(())
}

/// A namespace, sixty pods spread over the nodes, and their Service.
fn pods() -> Value {
    let labels = json!({ "app": "hello" });
    json!({ "apiVersion": "v1", "kind": "List", "items": [
        { "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": SPACE } },
        {
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": "hello", "namespace": SPACE },
            "spec": {
                "replicas": PODS,
                "selector": { "matchLabels": labels },
                "template": {
                    "metadata": { "labels": labels },
                    "spec": {
                        "terminationGracePeriodSeconds": 2,
                        "topologySpreadConstraints": [{
                            "maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
                            "whenUnsatisfiable": "DoNotSchedule",
                            "labelSelector": { "matchLabels": labels },
                        }],
                        "containers": [{
                            "name": "hello", "image": PROBE, "args": ["serve", "8080"],
                            "imagePullPolicy": "Never",
                            "readinessProbe": { "httpGet": { "path": "/", "port": 8080 } },
                        }],
                    },
                },
            },
        },
        {
            "apiVersion": "v1", "kind": "Service",
            "metadata": { "name": "hello", "namespace": SPACE },
            "spec": {
                "type": "NodePort", "selector": labels,
                "ports": [{ "port": 80, "targetPort": 8080, "nodePort": NODE_PORT }],
            },
        },
    ] })
}

fn text_of(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("the path {} is not UTF-8", path.display()))
}

fn output_of(command: &mut Command) -> Result<String> {
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

fn patiently(look: impl Fn() -> Result<()>) -> Result<()> {
    let began = Instant::now();
    loop {
        match look() {
            Ok(()) => return Ok(()),
            Err(error) if began.elapsed() > PATIENCE => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(500)),
        }
    }
}

const RULE_OF_AN_ENI: &str = "32765:";
/// The kubeconfig of a node's kubelet.
const KUBELETS: &str = "/var/lib/kubelet/kubeconfig";
const SPACE: &str = "demo";
const NODE_PORT: u16 = 30_080;
const SERVES: &str = "env.FERRULE_SERVICES=ebpf";
/// The one host of the lab's internet, which is an echo server.
const INTERNET: &str = "192.0.2.1:7";
/// The image that every node of the lab's clusters contains.
const PROBE: &str = "localhost/probe:1";
const INTROSPECTION: u16 = 61679;
const WAIT: &str = "--timeout=300s";
const PATIENCE: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_before_is_not_left_and_all_else_is() {
        let node = |rules: &[&str]| {
            let rules = rules.iter().map(|rule| (*rule).to_owned()).collect();
            BTreeMap::from([("node1".to_owned(), Traces { rules, ..Traces::default() })])
        };
        let before = node(&["512: to 10.0.0.7", "1024:"]);
        assert!(nothing_new(&before, &node(&["1024:"])).is_ok());
        let left = nothing_new(&before, &node(&["1024:", "512: to 10.0.0.9"]));
        assert!(left.is_err_and(|error| error.to_string().contains("10.0.0.9")));
    }
}

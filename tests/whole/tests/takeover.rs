//! The takeover of a cluster of the real amazon-vpc-cni, node by node, with the commands of docs/guide/eks.md. One node
//! is rolled back and taken over again. No connection of a pod is lost.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test panics and prints its progress"
)]

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    process::{Child, Stdio},
    thread::JoinHandle,
    time::Duration,
};
use tests_docs::{command::commands, page::Page, root};
use tests_lab::wait_for;
use tests_whole::{Flows, Installed, LaneInputs, NODE_PODS, Pod, probe};

/// The page whose commands the test executes.
struct Guide(Page);

impl Guide {
    fn read() -> Self {
        let path = root().join("docs/guide/eks.md");
        Self(Page::of(path.clone(), &std::fs::read_to_string(path).unwrap()))
    }

    /// Returns the page's only kubectl command with all these words, for this node.
    fn kubectl(&self, words: &[&str], node: &str) -> Vec<String> {
        let blocks = self.0.blocks.iter().filter(|block| block.language == "sh");
        let has = |command: &Vec<String>| {
            command.first().is_some_and(|program| program == "kubectl")
                && words.iter().all(|word| command.iter().any(|of| of == word))
        };
        let found: BTreeSet<Vec<String>> =
            blocks.flat_map(|block| commands(&block.text)).filter(has).collect();
        assert_eq!(found.len(), 1, "commands of the page with {words:?}: {found:?}");
        let command = found.into_iter().next().unwrap();
        let of_node = |word: &String| word.replace("NODE", node);
        command.iter().skip(1).map(of_node).collect()
    }

    /// Returns the page's only JSON block with this text, which operators save as a file.
    fn file(&self, text: &str) -> Result<tempfile::NamedTempFile> {
        let mut blocks = self.0.blocks.iter().filter(|block| block.language == "json");
        let block = blocks.find(|block| block.text.contains(text)).context("no such block")?;
        let mut file = tempfile::NamedTempFile::new()?;
        file.write_all(block.text.as_bytes())?;
        Ok(file)
    }
}

struct Takeover {
    guide: Guide,
    cluster: Installed,
}

impl Takeover {
    fn kubectl(&self, args: &[String]) -> Result<String> {
        self.cluster.kubectl(&args.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Runs the page's command that has these words.
    fn follow(&self, words: &[&str], node: &str) -> Result<String> {
        self.kubectl(&self.guide.kubectl(words, node))
    }

    /// Applies the page's patch from a file.
    fn patch(&self) -> Result<()> {
        let file = self.guide.file("updateStrategy")?;
        let path = file.path().to_str().context("the path is not UTF-8")?.to_owned();
        let mut words = self.guide.kubectl(&["patch", "aws-node", "json"], "");
        *words.last_mut().context("an empty command")? = path;
        self.kubectl(&words).map(drop)
    }

    /// Returns the node's pod with these labels.
    fn of(&self, labels: &str, node: &str) -> Result<Option<Pod>> {
        let pods = self.cluster.pods("kube-system", labels)?;
        Ok(pods.into_iter().find(|pod| pod.node == node))
    }

    /// Takes a node over. One pod is created during the takeover by either network, and one after it.
    fn take_over(&self, node: &str, newest: &str) -> Result<()> {
        self.follow(&["label", "ferrule.io/network=ferrule"], node)?;
        let meanwhile = format!("{newest}-meanwhile");
        self.create(&meanwhile, node)?;
        self.wait_for_ferrule_pod(node)?;
        // The metadata service lags, and the plan refuses addresses that it does not show yet.
        wait_for(&format!("a plan without refusals on {node}"), PATIENCE, || {
            let (code, printed) = self.migrate("plan", node)?.end()?;
            ensure!(code == 0 && printed.contains("no refusals"), "{code}: {printed}");
            Ok(true)
        })?;
        let (code, printed) = self.migrate("apply", node)?.end()?;
        ensure!(code == 0 && printed.ends_with("no steps remain\n"), "{code}: {printed}");
        self.ready(&meanwhile)?;
        self.create(newest, node)?;
        self.ready(newest)?;
        let ours = self.of(NODE_PODS, node)?.context("Ferrule has no pod on the node")?;
        ensure!(ours.restarts == 0, "{ours:?}");
        self.ensure_created_by(&self.newest(newest)?, PodNetwork::Ferrule)
    }

    /// Waits for Ferrule's pod with the page's command.
    fn wait_for_ferrule_pod(&self, node: &str) -> Result<()> {
        wait_for(&format!("Ferrule's pod on {node}"), PATIENCE, || {
            let table = self.follow(&["get", "pods", NODE_PODS], node)?;
            ensure!(table.contains(" Running "), "{table}");
            Ok(true)
        })?;
        ensure!(self.of(AMAZON, node)?.is_none(), "amazon-vpc-cni has not left {node}");
        Ok(())
    }

    /// Rolls a node back.
    fn roll_back(&self, node: &str, newest: &str) -> Result<()> {
        self.follow(&["label", "ferrule.io/network=leaving"], node)?;
        let rollback = self.migrate("rollback", node)?;
        rollback.wait_for_output("wait until amazon-vpc-cni's agent serves")?;
        ensure!(
            self.of(AMAZON, node)?.is_none(),
            "amazon-vpc-cni runs before the label is removed"
        );
        self.follow(&["label", "ferrule.io/network-"], node)?;
        let (code, printed) = rollback.end()?;
        ensure!(code == 0 && printed.ends_with("no steps remain\n"), "{code}: {printed}");
        ensure!(self.of(NODE_PODS, node)?.is_none(), "Ferrule has not left {node}");
        self.create(newest, node)?;
        self.ready(newest)?;
        self.ensure_created_by(&self.newest(newest)?, PodNetwork::Amazon)
    }

    /// Starts the page's `ferrule migrate` command on a node.
    fn migrate(&self, verb: &str, node: &str) -> Result<DebugCommand<'_>> {
        // The nodes have Ferrule's image only. Its name is another one than on the page.
        let set = self.cluster.cluster().json(&["-n", SPACE, "get", "daemonset/ferrule"])?;
        let image = &set["spec"]["template"]["spec"]["containers"][0]["image"];
        let image = image.as_str().context("a DaemonSet without an image")?;
        let custom = self.guide.file("runAsUser")?;
        let custom = custom.path().display();
        let words = self.guide.kubectl(&["debug", "migrate", "--root", verb], node);
        let words = words.into_iter().map(|word| match word.split_once('=') {
            Some(("--image", _)) => format!("--image={image}"),
            Some(("--custom", _)) => format!("--custom={custom}"),
            _ => word,
        });
        let words: Vec<String> = words.collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut command = self.cluster.cluster().command(&words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("cannot start kubectl debug")?;
        let mut lines = BufReader::new(child.stdout.take().context("no standard output")?);
        let mut first = String::new();
        lines.read_line(&mut first).context("cannot read the output of kubectl debug")?;
        let named = first.split_whitespace().find(|word| word.starts_with("node-debugger-"));
        let named = named.map(str::to_owned);
        let rest = std::thread::spawn(move || drop(lines.read_to_end(&mut Vec::new())));
        let Some(pod) = named else {
            let output = child.wait_with_output().context("cannot wait for kubectl debug")?;
            anyhow::bail!("kubectl debug: {first}{}", String::from_utf8_lossy(&output.stderr));
        };
        Ok(DebugCommand { cluster: &self.cluster, pod, child, rest })
    }

    fn create(&self, name: &str, node: &str) -> Result<()> {
        let mut spec = probe();
        spec["nodeName"] = json!(node);
        self.cluster.cluster().apply(&[json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "namespace": "default", "labels": { "app": "newest" } },
            "spec": spec,
        })])
    }

    fn ready(&self, pod: &str) -> Result<()> {
        let pod = format!("pod/{pod}");
        let waited =
            self.cluster.kubectl(&["wait", "--for=condition=Ready", &pod, "--timeout=120s"]);
        waited.map(drop).with_context(|| {
            self.cluster.kubectl(&["describe", &pod]).unwrap_or_else(|err| format!("{err:#}"))
        })
    }

    fn newest(&self, name: &str) -> Result<Pod> {
        let pods = self.cluster.pods("default", "app=newest")?;
        pods.into_iter().find(|of| of.name == name).with_context(|| format!("no pod {name}"))
    }

    /// Fails if another network created the pod. Ferrule's rules have its protocol number.
    fn ensure_created_by(&self, pod: &Pod, maker: PodNetwork) -> Result<()> {
        let rules = self.cluster.lab().on_node(&pod.node, &["ip", "rule"])?;
        let to = format!("to {} ", pod.address);
        let found: Vec<&str> = rules.lines().filter(|line| line.contains(&to)).collect();
        let [rule] = found[..] else { anyhow::bail!("rules of {pod:?}: {found:?}") };
        let is_ours = rule.contains(" proto ");
        ensure!(is_ours == (maker == PodNetwork::Ferrule), "{pod:?} is not {maker:?}'s: {rule}");
        Ok(())
    }

    /// Fails if a node's rules and links differ from those of its pods.
    fn ensure_routed(&self, node: &str) -> Result<()> {
        let json = |args: &[&str]| -> Result<Vec<Value>> {
            serde_json::from_str(&self.cluster.lab().on_node(node, args)?)
                .context("cannot parse the output of ip")
        };
        let list = self.cluster.cluster().json(&["get", "pods", "-A"])?;
        let pods = list["items"].as_array().context("no list of pods")?.iter();
        let addresses: BTreeSet<&str> = pods
            .filter(|pod| pod["spec"]["nodeName"] == node && pod["spec"]["hostNetwork"] != true)
            .filter_map(|pod| pod["status"]["podIP"].as_str())
            .collect();
        let rules = json(&["ip", "-j", "rule"])?;
        let of = |preference: u64, side: &str| -> Vec<String> {
            let found = rules.iter().filter(|rule| rule["priority"] == preference);
            found.filter_map(|rule| rule[side].as_str().map(str::to_owned)).collect()
        };
        let (to, from) = (of(512, "dst"), of(1536, "src"));
        let led: BTreeSet<&str> = to.iter().map(String::as_str).collect();
        ensure!(led == addresses && to.len() == led.len(), "{node}: {to:?}, not {addresses:?}");
        let lost: Vec<_> = from.iter().filter(|of| !addresses.contains(of.as_str())).collect();
        ensure!(lost.is_empty(), "{node} has rules of deleted pods: {lost:?}");
        let links = json(&["ip", "-j", "link", "show", "type", "veth"])?;
        let names = links.iter().filter_map(|link| link["ifname"].as_str());
        let hosts = names.filter(|name| name.starts_with("eni")).count();
        ensure!(hosts == addresses.len(), "{node} has {hosts} links for {addresses:?}");
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PodNetwork {
    Ferrule,
    Amazon,
}

/// A running command of `kubectl debug`.
struct DebugCommand<'a> {
    cluster: &'a Installed,
    pod: String,
    child: Child,
    rest: JoinHandle<()>,
}

impl DebugCommand<'_> {
    fn printed(&self) -> Result<String> {
        self.cluster.kubectl(&["-n", SPACE, "logs", &self.pod])
    }

    fn wait_for_output(&self, text: &str) -> Result<()> {
        wait_for(&format!("{} to print: {text}", self.pod), PATIENCE, || {
            let printed = self.printed()?;
            ensure!(printed.contains(text), "{printed}");
            Ok(true)
        })
    }

    /// Waits until the command exits, and deletes its pod. Returns exit code and output.
    fn end(mut self) -> Result<(i64, String)> {
        self.child.wait().context("cannot wait for kubectl debug")?;
        let _ = self.rest.join();
        let path = format!("pod/{}", self.pod);
        let mut code = None;
        wait_for(&format!("{path} to end"), PATIENCE, || {
            let pod = self.cluster.cluster().json(&["-n", SPACE, "get", &path])?;
            let ended = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
            code = Some(ended["exitCode"].as_i64().with_context(|| pod["status"].to_string())?);
            Ok(true)
        })?;
        let printed = self.cluster.kubectl(&["-n", SPACE, "logs", &path])?;
        self.cluster.kubectl(&["-n", SPACE, "delete", &path])?;
        Ok((code.context("no exit code")?, printed))
    }
}

#[test]
fn a_running_cluster_is_taken_over_by_the_guide_and_loses_no_connection() {
    let test = "a_running_cluster_is_taken_over_by_the_guide_and_loses_no_connection";
    let Some(inputs) = LaneInputs::or_skip(test) else { return };
    let cluster = Installed::bare(inputs, "takeover", 2).unwrap();
    cluster.run_amazon_vpc_cni().unwrap();
    let pods = cluster.probes("steady").unwrap();
    let [one, other] = &pods[..] else { panic!("{pods:?}") };
    let name_server = cluster.pods("kube-system", "k8s-app=kube-dns").unwrap();
    let flows = Flows::between(one, other).unwrap();
    let takeover = Takeover { guide: Guide::read(), cluster };
    let cluster = &takeover.cluster;

    println!("the patch, and the chart");
    let amazons = cluster.pods("kube-system", AMAZON).unwrap();
    takeover.patch().unwrap();
    cluster.install(&["migration.byLabel=true"]).unwrap();
    assert_eq!(cluster.pods("kube-system", NODE_PODS).unwrap(), []);
    assert_eq!(cluster.pods("kube-system", AMAZON).unwrap(), amazons, "the patch replaced pods");

    println!("takeover, rollback and takeover of {}", one.node);
    takeover.take_over(&one.node, "first").unwrap();
    takeover.roll_back(&one.node, "second").unwrap();
    takeover.take_over(&one.node, "third").unwrap();
    println!("takeover of {}", other.node);
    takeover.take_over(&other.node, "fourth").unwrap();

    println!("removal of amazon-vpc-cni");
    takeover.follow(&["patch", "aws-node", "merge"], "").unwrap();
    cluster.install(&["migration.byLabel=false"]).unwrap();
    assert_eq!(cluster.pods("kube-system", AMAZON).unwrap(), []);
    takeover.follow(&["delete", "daemonset", "aws-node"], "").unwrap();
    let later = cluster.probes("later").unwrap();
    assert_eq!(later.len(), 2, "{later:?}");

    flows.end().unwrap();
    assert_eq!(cluster.pods("default", "app=steady").unwrap(), pods, "steady pods have changed");
    let after = cluster.pods("kube-system", "k8s-app=kube-dns").unwrap();
    assert_eq!(after, name_server, "the name server has changed");
    for pod in cluster.pods("kube-system", NODE_PODS).unwrap() {
        assert_eq!(pod.restarts, 0, "{pod:?}");
    }
    for pod in &pods {
        takeover.ensure_routed(&pod.node).unwrap();
    }

    println!("deletion of pods that amazon-vpc-cni created");
    cluster.kubectl(&["delete", "daemonset", "steady"]).unwrap();
    cluster.kubectl(&["delete", "pod", "--selector", "app in (steady, newest)"]).unwrap();
    for pod in &pods {
        wait_for("the removal of all objects of deleted pods", PATIENCE, || {
            takeover.ensure_routed(&pod.node).map(|()| true)
        })
        .unwrap();
    }
}

#[test]
fn a_node_that_reboots_before_its_takeover_migrates_by_itself() {
    let test = "a_node_that_reboots_before_its_takeover_migrates_by_itself";
    let Some(inputs) = LaneInputs::or_skip(test) else { return };
    let cluster = Installed::bare(inputs, "rebooted", 1).unwrap();
    cluster.run_amazon_vpc_cni().unwrap();
    let takeover = Takeover { guide: Guide::read(), cluster };
    let cluster = &takeover.cluster;
    let pods = cluster.probes("steady").unwrap();
    let [before] = &pods[..] else { panic!("{pods:?}") };
    takeover.ensure_created_by(before, PodNetwork::Amazon).unwrap();
    takeover.patch().unwrap();
    cluster.install(&["migration.byLabel=true"]).unwrap();
    takeover.follow(&["label", "ferrule.io/network=ferrule"], &before.node).unwrap();
    takeover.wait_for_ferrule_pod(&before.node).unwrap();

    cluster.lab().run(&["node", "reboot", &before.node]).unwrap();
    cluster.lab().run(&["cluster", "join", &before.node]).unwrap();
    wait_for("the node's pod to run with Ferrule's network", PATIENCE, || {
        let pods = cluster.pods("default", "app=steady")?;
        let [after] = &pods[..] else { anyhow::bail!("{pods:?}") };
        ensure!(after.name == before.name && after.restarts == 1, "{after:?}");
        takeover.ensure_created_by(after, PodNetwork::Ferrule)?;
        takeover.ensure_routed(&after.node)?;
        Ok(true)
    })
    .unwrap();
    cluster.probes("steady").unwrap();
    cluster.rolled_out().unwrap();
}

const SPACE: &str = "kube-system";
const AMAZON: &str = "k8s-app=aws-node";
const PATIENCE: Duration = Duration::from_secs(120);

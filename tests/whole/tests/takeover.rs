//! The takeover of a cluster of the real amazon-vpc-cni, node by node, with the commands of docs/guide/eks.md. One node
//! is rolled back and taken over again. No connection of a pod is lost.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test panics and prints its progress"
)]

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead as _, BufReader, Read as _},
    process::{Child, Stdio},
    thread::JoinHandle,
    time::Duration,
};
use tempfile::TempDir;
use tests_docs::{
    command::commands,
    page::{Block, Page},
    root,
};
use tests_lab::wait_for;
use tests_whole::{Flows, Installed, LaneInputs, NODE_PODS, Pod, probe};

/// The page whose commands the test executes.
struct Guide {
    page: Page,
    /// Words of the page and those of this cluster.
    words: Vec<(&'static str, String)>,
    /// The files that operators save.
    folder: TempDir,
}

impl Guide {
    fn of(cluster: &Installed) -> Result<Self> {
        let path = root().join("docs/guide/eks.md");
        let text = fs::read_to_string(&path).context("cannot read the page")?;
        let words = vec![
            ("111122223333.dkr.ecr.eu-west-1.amazonaws.com", "localhost".to_owned()),
            ("my-cluster", "lab".to_owned()),
            ("charts/ferrule", cluster.chart()?.to_owned()),
        ];
        let mut guide = Self { page: Page::of(path, &text), words, folder: TempDir::new()? };
        // An installation on EC2 does not need this setting of the AWS SDK.
        let ec2 = cluster.ec2()?;
        let extra = format!("extraEnv:\n- name: AWS_ENDPOINT_URL_EC2\n  value: {ec2:?}\n");
        guide.save("my-values.yaml", "yaml", "overrideRepository", &extra)?;
        guide.save("leave-labelled-nodes.json", "json", "updateStrategy", "")?;
        guide.save("as-root.json", "json", "runAsUser", "")?;
        Ok(guide)
    }

    /// Saves the page's only block with this text as a file, with more lines at its end.
    fn save(&mut self, name: &'static str, language: &str, text: &str, more: &str) -> Result<()> {
        let has = |block: &&Block| block.language == language && block.text.contains(text);
        let blocks: Vec<&Block> = self.page.blocks.iter().filter(has).collect();
        let [block] = blocks[..] else { bail!("blocks of the page with {text:?}: {blocks:?}") };
        let path = self.folder.path().join(name);
        let content = self.in_this_cluster(&block.text, &[]) + more;
        fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
        self.words.push((name, path.to_str().context("the path is not UTF-8")?.to_owned()));
        Ok(())
    }

    /// Replaces words of the page; `own` are further words.
    fn in_this_cluster(&self, text: &str, own: &[(&str, &str)]) -> String {
        let own = own.iter().copied();
        let all = own.chain(self.words.iter().map(|(from, to)| (*from, to.as_str())));
        all.fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
    }

    /// Returns the page's only command with all these words.
    fn command(&self, words: &[&str], own: &[(&str, &str)]) -> Vec<String> {
        let blocks = self.page.blocks.iter().filter(|block| block.language == "sh");
        let has =
            |command: &Vec<String>| words.iter().all(|word| command.iter().any(|of| of == word));
        let found: BTreeSet<Vec<String>> =
            blocks.flat_map(|block| commands(&block.text)).filter(has).collect();
        assert_eq!(found.len(), 1, "commands of the page with {words:?}: {found:?}");
        found.iter().flatten().map(|word| self.in_this_cluster(word, own)).collect()
    }
}

struct Takeover {
    guide: Guide,
    cluster: Installed,
}

impl Takeover {
    fn new(cluster: Installed) -> Result<Self> {
        Ok(Self { guide: Guide::of(&cluster)?, cluster })
    }

    /// Runs the page's command that has these words; `own` replaces more of its words.
    fn follow(&self, words: &[&str], own: &[(&str, &str)]) -> Result<String> {
        let command = self.guide.command(words, own);
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        match &command[..] {
            ["kubectl", "ferrule", args @ ..] => {
                let output = self.cluster.ferrule(args)?;
                let printed = [output.stdout, output.stderr].concat();
                let printed = String::from_utf8_lossy(&printed).into_owned();
                ensure!(output.status.success(), "{command:?}: {}: {printed}", output.status);
                Ok(printed)
            }
            ["kubectl", args @ ..] => self.cluster.kubectl(args),
            ["helm", args @ ..] => self.cluster.helm(args),
            _ => bail!("the test has no program for {command:?}"),
        }
    }

    /// Applies the page's patch and installs Ferrule for labeled nodes.
    fn install(&self) -> Result<()> {
        self.follow(&["kubectl", "patch", "aws-node", "json"], &[])?;
        self.follow(&["helm", "--install", "migration.byLabel=true"], &[])?;
        self.cluster.rolled_out()?;
        let printed = self.follow(&["kubectl", "ferrule", "migrate", "check"], &[])?;
        ensure!(printed.ends_with("no refusals\n"), "{printed}");
        Ok(())
    }

    /// Returns the node's pod with these labels.
    fn of(&self, labels: &str, node: &str) -> Result<Option<Pod>> {
        let pods = self.cluster.pods("kube-system", labels)?;
        Ok(pods.into_iter().find(|pod| pod.node == node))
    }

    /// Takes a node over. One pod is created during the takeover by either network, and one after it.
    fn take_over(&self, node: &str, newest: &str) -> Result<()> {
        self.follow(&["kubectl", "label", "ferrule.io/network=ferrule"], &[(NODE, node)])?;
        let meanwhile = format!("{newest}-meanwhile");
        self.create(&meanwhile, node)?;
        self.wait_for_ferrule_pod(node)?;
        // The metadata service lags, and the plan refuses addresses that it does not show yet.
        wait_for(&format!("a plan without refusals on {node}"), PATIENCE, || {
            let (code, printed) = self.migrate("plan", node)?.end()?;
            ensure!(code == 0 && printed.contains("no refusals"), "{code}: {printed}");
            // The agent of amazon-vpc-cni has left the node: its settings are those of its DaemonSet.
            ensure!(printed.contains("setting WARM_IP_TARGET: aws-node has \"0\""), "{printed}");
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
            let table = self.follow(&["kubectl", "get", "pods", NODE_PODS], &[(NODE, node)])?;
            ensure!(table.contains(" Running "), "{table}");
            Ok(true)
        })?;
        ensure!(self.of(AMAZON, node)?.is_none(), "amazon-vpc-cni has not left {node}");
        Ok(())
    }

    /// Rolls a node back.
    fn roll_back(&self, node: &str, newest: &str) -> Result<()> {
        self.follow(&["kubectl", "label", "ferrule.io/network=leaving"], &[(NODE, node)])?;
        let rollback = self.migrate("rollback", node)?;
        rollback.wait_for_output("wait until amazon-vpc-cni's agent serves")?;
        ensure!(
            self.of(AMAZON, node)?.is_none(),
            "amazon-vpc-cni runs before the label is removed"
        );
        self.follow(&["kubectl", "label", "ferrule.io/network-"], &[(NODE, node)])?;
        let (code, printed) = rollback.end()?;
        ensure!(code == 0 && printed.ends_with("no steps remain\n"), "{code}: {printed}");
        ensure!(self.of(NODE_PODS, node)?.is_none(), "Ferrule has not left {node}");
        self.create(newest, node)?;
        self.ready(newest)?;
        self.ensure_created_by(&self.newest(newest)?, PodNetwork::Amazon)
    }

    /// Starts the page's `ferrule migrate` command on a node.
    fn migrate(&self, verb: &str, node: &str) -> Result<DebugCommand<'_>> {
        let words = ["kubectl", "debug", "migrate", "--root", verb];
        let words = self.guide.command(&words, &[(NODE, node)]);
        let words: Vec<&str> = words.iter().skip(1).map(String::as_str).collect();
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
            bail!("kubectl debug: {first}{}", String::from_utf8_lossy(&output.stderr));
        };
        Ok(DebugCommand { takeover: self, pod, child, rest })
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
        let [rule] = found[..] else { bail!("rules of {pod:?}: {found:?}") };
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
    takeover: &'a Takeover,
    pod: String,
    child: Child,
    rest: JoinHandle<()>,
}

impl DebugCommand<'_> {
    fn printed(&self) -> Result<String> {
        self.takeover.follow(&["kubectl", "logs", DEBUG_POD], &[(DEBUG_POD, self.pod.as_str())])
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
            let pod = self.takeover.cluster.cluster().json(&["-n", SPACE, "get", &path])?;
            let ended = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
            code = Some(ended["exitCode"].as_i64().with_context(|| pod["status"].to_string())?);
            Ok(true)
        })?;
        let own = [(DEBUG_POD, self.pod.as_str())];
        let printed = self.takeover.follow(&["kubectl", "logs", DEBUG_POD], &own)?;
        self.takeover.follow(&["kubectl", "delete", DEBUG_POD], &own)?;
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
    let takeover = Takeover::new(cluster).unwrap();
    let cluster = &takeover.cluster;

    println!("the patch, and the chart");
    let amazons = cluster.pods("kube-system", AMAZON).unwrap();
    takeover.install().unwrap();
    assert_eq!(cluster.pods("kube-system", NODE_PODS).unwrap(), []);
    assert_eq!(cluster.pods("kube-system", AMAZON).unwrap(), amazons, "the patch replaced pods");

    println!("takeover, rollback and takeover of {}", one.node);
    takeover.take_over(&one.node, "first").unwrap();
    takeover.roll_back(&one.node, "second").unwrap();
    takeover.take_over(&one.node, "third").unwrap();
    println!("takeover of {}", other.node);
    takeover.take_over(&other.node, "fourth").unwrap();

    println!("removal of amazon-vpc-cni");
    takeover.follow(&["kubectl", "patch", "aws-node", "merge"], &[]).unwrap();
    takeover.follow(&["helm", "migration.byLabel=false"], &[]).unwrap();
    cluster.rolled_out().unwrap();
    assert_eq!(cluster.pods("kube-system", AMAZON).unwrap(), []);
    takeover.follow(&["kubectl", "delete", "daemonset", "aws-node"], &[]).unwrap();
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
    let takeover = Takeover::new(cluster).unwrap();
    let cluster = &takeover.cluster;
    let pods = cluster.probes("steady").unwrap();
    let [before] = &pods[..] else { panic!("{pods:?}") };
    takeover.ensure_created_by(before, PodNetwork::Amazon).unwrap();
    takeover.install().unwrap();
    let of_node = [(NODE, before.node.as_str())];
    takeover.follow(&["kubectl", "label", "ferrule.io/network=ferrule"], &of_node).unwrap();
    takeover.wait_for_ferrule_pod(&before.node).unwrap();

    cluster.lab().run(&["node", "reboot", &before.node]).unwrap();
    cluster.lab().run(&["cluster", "join", &before.node]).unwrap();
    wait_for("the node's pod to run with Ferrule's network", PATIENCE, || {
        let pods = cluster.pods("default", "app=steady")?;
        let [after] = &pods[..] else { bail!("{pods:?}") };
        ensure!(after.name == before.name && after.restarts == 1, "{after:?}");
        takeover.ensure_created_by(after, PodNetwork::Ferrule)?;
        takeover.ensure_routed(&after.node)?;
        Ok(true)
    })
    .unwrap();
    cluster.probes("steady").unwrap();
    cluster.rolled_out().unwrap();
}

/// The page's name of a node.
const NODE: &str = "NODE";
/// The page's name of a pod of `kubectl debug`.
const DEBUG_POD: &str = "node-debugger-NODE-xxxxx";
const SPACE: &str = "kube-system";
const AMAZON: &str = "k8s-app=aws-node";
const PATIENCE: Duration = Duration::from_secs(120);

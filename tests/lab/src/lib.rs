//! A lab to test whole nodes in: `ferrule-lab` as a value that is taken down when it is dropped.
//!
//! Used by this crate's tests and by `cargo xtask demo` and `bench`. Everything goes through the
//! tool's own command line and its JSON, as a person or a script would do it.

#![expect(clippy::print_stdout, reason = "a skip is told on standard output")]

pub mod dice;
pub mod dumps;
pub mod flow;
pub mod vpc_cni;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Duration,
};
use tests_eventually::within;

/// A running lab.
pub struct Lab {
    tool: PathBuf,
    name: String,
    keep: bool,
}

impl Lab {
    /// Starts a lab from the programs in `bin_dir`; `args` follow `ferrule-lab up`.
    ///
    /// # Errors
    /// Carries what the tool said.
    pub fn up(bin_dir: &Path, name: &str, args: &[&str]) -> Result<Self> {
        let tool = bin_dir.join("ferrule-lab");
        let lab = Self { tool, name: name.to_owned(), keep: false };
        let dir = bin_dir.to_str().context("the folder of the programs is not UTF-8")?;
        lab.run(&[&["up", "--bin-dir", dir], args].concat())?;
        Ok(lab)
    }

    /// Starts one whose nodes are a cluster; `args` follow `ferrule-lab cluster up`.
    ///
    /// # Errors
    /// Carries what the tool said.
    pub fn cluster(bin_dir: &Path, name: &str, args: &[&str]) -> Result<Self> {
        let lab = Self { tool: bin_dir.join("ferrule-lab"), name: name.to_owned(), keep: false };
        lab.run(&[&["cluster", "up"], args].concat())?;
        Ok(lab)
    }

    /// Leaves the lab running when the value goes.
    pub fn keep(&mut self) {
        self.keep = true;
    }

    /// The lab's name, for `ferrule-lab --name`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The tool's command line for people to repeat.
    pub fn command_line(&self) -> String {
        format!("{} --name {}", self.tool.display(), self.name)
    }

    /// The tool with these arguments, not yet started.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.tool);
        command.args(["--name", &self.name]).args(args).stdin(Stdio::null());
        command
    }

    /// Runs a verb and gives what came of it, also when it failed.
    ///
    /// # Errors
    /// Only when the tool could not be started.
    pub fn output(&self, args: &[&str]) -> Result<Output> {
        self.command(args).output().with_context(|| format!("start {}", self.tool.display()))
    }

    /// Runs a verb to its end; its standard output.
    ///
    /// # Errors
    /// Carries what the tool said when it failed.
    pub fn run(&self, args: &[&str]) -> Result<String> {
        let output = self.output(args)?;
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            bail!("ferrule-lab {}: {}\n{stdout}{stderr}", args.join(" "), output.status);
        }
        Ok(stdout)
    }

    /// Runs a verb with `-o json`.
    ///
    /// # Errors
    /// Carries what the tool said when it failed, or what is wrong with its JSON.
    pub fn json(&self, args: &[&str]) -> Result<Value> {
        let text = self.run(&[&["-o", "json"], args].concat())?;
        serde_json::from_str(&text).with_context(|| format!("JSON of {}: {text}", args.join(" ")))
    }

    /// Runs a program in a node's namespaces; its standard output.
    ///
    /// # Errors
    /// Carries what it said when it failed.
    pub fn on_node(&self, node: &str, command: &[&str]) -> Result<String> {
        self.run(&[&["node", "exec", node, "--"], command].concat())
    }

    /// Calls the plugin on a node as a runtime would, with these variables and `conf` on standard
    /// input; what came of it, also when it failed.
    ///
    /// # Errors
    /// Only when it could not be started.
    pub fn plugin(&self, node: &str, vars: &[(&str, &str)], conf: &Value) -> Result<Output> {
        let vars = vars.iter().map(|(name, value)| format!("{name}={value}"));
        let mut command = self.command(&["node", "exec", node, "--", "env"]);
        command.args(vars).args(["CNI_PATH=/opt/cni/bin", "/opt/cni/bin/ferrule-cni"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("start the plugin")?;
        let mut stdin = child.stdin.take().context("the plugin has no standard input")?;
        // One that refuses its variables reads nothing: what it says counts.
        let _ = stdin.write_all(conf.to_string().as_bytes());
        drop(stdin);
        child.wait_with_output().context("wait for the plugin")
    }

    /// The body of an HTTP answer from a port on the node's loopback.
    ///
    /// # Errors
    /// When nothing answers there.
    pub fn get(&self, node: &str, port: u16, path: &str) -> Result<String> {
        // bash can speak TCP: a node needs no HTTP client of its own.
        let path = path.replace('%', "%%");
        let script = format!(
            "exec 3<>/dev/tcp/127.0.0.1/{port}; \
             printf 'GET {path} HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n' >&3; \
             cat <&3"
        );
        let answer = self.on_node(node, &["bash", "-c", &script])?;
        let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP answer")?;
        ensure!(head.starts_with("HTTP/1.1 200"), "{path} on port {port}: {head}");
        Ok(body.to_owned())
    }

    /// The sum of a metric of the node's daemon over those of its series whose labels contain all of
    /// `labels`; `None` if it has no such series.
    ///
    /// # Errors
    /// When the daemon serves no metrics.
    pub fn metric(&self, node: &str, name: &str, labels: &[&str]) -> Result<Option<f64>> {
        let body = self.get(node, 61678, "/metrics")?;
        let values: Vec<f64> = body
            .lines()
            .filter_map(|line| line.strip_prefix(name))
            .filter(|rest| rest.starts_with([' ', '{']))
            .filter(|rest| labels.iter().all(|label| rest.contains(label)))
            .filter_map(|rest| rest.rsplit(' ').next()?.parse().ok())
            .collect();
        Ok(if values.is_empty() { None } else { Some(values.iter().sum()) })
    }

    /// The pods of a node, by the lab's list.
    ///
    /// # Errors
    /// When the lab does not answer.
    pub fn pods(&self, node: &str) -> Result<Vec<Value>> {
        let Value::Array(pods) = self.json(&["pod", "list"])? else {
            bail!("pod list is no array")
        };
        Ok(pods.into_iter().filter(|pod| pod["node"] == node).collect())
    }

    /// What the lab shows of a node.
    ///
    /// # Errors
    /// When there is no such node.
    pub fn node(&self, node: &str) -> Result<Value> {
        let nodes = self.json(&["node", "list"])?;
        let nodes = nodes.as_array().context("node list is no array")?;
        let found = nodes.iter().find(|found| found["name"] == node);
        found.cloned().with_context(|| format!("no node {node}"))
    }

    /// The ENIs of a node, as EC2 has them.
    ///
    /// # Errors
    /// When there is no such node.
    pub fn enis(&self, node: &str) -> Result<Vec<Value>> {
        let node = self.node(node)?;
        Ok(node["enis"].as_array().context("a node without ENIs")?.clone())
    }

    /// How many calls the node's daemon has made of this action of EC2.
    ///
    /// # Errors
    /// When the daemon serves no metrics.
    pub fn calls(&self, node: &str, action: &str) -> Result<f64> {
        let label = format!("action=\"{action}\"");
        Ok(self.metric(node, "ferrule_ec2_calls_total", &[&label])?.unwrap_or(0.0))
    }

    /// Whether the node's daemon is `live` or `ready`.
    ///
    /// # Errors
    /// Only when the tool could not be started.
    pub fn is(&self, node: &str, health: &str) -> Result<bool> {
        let ask = ["node", "exec", node, "--", "ferrule-ipamd", "health", health];
        Ok(self.output(&ask)?.status.success())
    }

    /// What daemon and plugin of the node wrote.
    ///
    /// # Errors
    /// Carries what the tool said when it failed.
    pub fn logs(&self, node: &str) -> Result<String> {
        self.run(&["logs", node, "--lines", "20000"])
    }

    /// Waits until one line of the node's log has all of these words in it.
    ///
    /// # Errors
    /// After a minute, with what the node wrote.
    pub fn wait_for_line(&self, node: &str, words: &[&str]) -> Result<()> {
        wait_for(&format!("a line of {node}'s log with {words:?}"), LOG_PATIENCE, || {
            let logs = self.logs(node)?;
            let told = logs.lines().any(|line| words.iter().all(|word| line.contains(word)));
            ensure!(told, "{}", tail(&logs));
            Ok(true)
        })
    }

    /// Runs a verb that must fail; what it said.
    ///
    /// # Errors
    /// When it did not fail.
    pub fn refused(&self, args: &[&str]) -> Result<String> {
        let output = self.output(args)?;
        let said =
            [output.stdout, output.stderr].map(|of| String::from_utf8_lossy(&of).into_owned());
        ensure!(
            !output.status.success(),
            "ferrule-lab {} worked: {}",
            args.join(" "),
            said.join("")
        );
        Ok(said.join(""))
    }

    /// Attaches an ENI that other software made, `args` as of `eni add`, and waits until the node
    /// has its device; its id. EC2 and, without lag, the node's metadata show it by then.
    ///
    /// # Errors
    /// Carries what the tool said, or that the device did not come.
    pub fn attach_theirs(&self, node: &str, args: &[&str]) -> Result<String> {
        let made = self.json(&[&["eni", "add", "--attach", node], args].concat())?;
        let text = |key: &str| made[key].as_str().with_context(|| format!("an ENI without {key}"));
        let (id, mac) = (text("id")?.to_owned(), text("mac")?);
        wait_for(&format!("{id} on {node}"), LOG_PATIENCE, || {
            Ok(self.on_node(node, &["ip", "-o", "link"])?.contains(mac))
        })?;
        Ok(id)
    }

    /// The id of the subnet that the lab calls by this letter.
    ///
    /// # Errors
    /// When there is no such subnet.
    pub fn subnet(&self, letter: &str) -> Result<String> {
        let subnets = self.json(&["subnet", "list"])?;
        let mut subnets = subnets.as_array().context("no list of subnets")?.iter();
        let found = subnets.find(|subnet| subnet["name"] == letter);
        let id = found.and_then(|subnet| subnet["id"].as_str());
        id.map(str::to_owned).with_context(|| format!("no subnet {letter}"))
    }

    /// How many addresses of the lab's subnets are taken, by EC2's own count.
    ///
    /// # Errors
    /// When the lab does not answer.
    pub fn addresses_in_use(&self) -> Result<u64> {
        let status = self.json(&["status"])?;
        let subnets = status["subnets"].as_array().context("a lab without subnets")?;
        subnets.iter().try_fold(0, |sum, subnet| {
            let length = subnet["cidr"].as_str().and_then(|cidr| cidr.split_once('/'));
            let length: u32 = length.context("a subnet without length")?.1.parse()?;
            // AWS keeps five addresses of each subnet.
            let size = 2_u64.pow(32 - length) - 5;
            Ok(sum + size - subnet["free"].as_u64().context("a subnet without free addresses")?)
        })
    }

    /// Takes the lab down.
    ///
    /// # Errors
    /// Carries what the tool said when it failed.
    pub fn down(mut self) -> Result<()> {
        self.keep = true;
        self.run(&["down"]).map(drop)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if self.keep {
            return;
        }
        if let Err(err) = self.run(&["down"]) {
            eprintln!("{err:#}");
        }
    }
}

/// The last lines of a log, for those who read why a test failed.
fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}

const LOG_PATIENCE: Duration = Duration::from_secs(60);

/// The folder of the programs under test, as `cargo xtask test` hands it over; `None`, after saying
/// so, where a lab cannot run.
pub fn programs(test: &str) -> Option<PathBuf> {
    let skip = |why: &str| {
        println!("SKIP {test}: {why}");
        None
    };
    let Some(dir) = std::env::var_os("FERRULE_BIN_DIR") else {
        return skip("FERRULE_BIN_DIR is not set; `cargo xtask test` sets it");
    };
    let root = std::fs::metadata("/proc/self").is_ok_and(|of| {
        use std::os::unix::fs::MetadataExt as _;
        of.uid() == 0
    });
    if root { Some(dir.into()) } else { skip("needs root") }
}

/// Waits until `done` says so.
///
/// # Errors
/// After `patience`, with the last reason why it is not so yet.
pub fn wait_for(
    what: &str,
    patience: Duration,
    mut done: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let observe =
        || done().and_then(|is_done| is_done.then_some(()).context("the condition is false"));
    Ok(within(what, patience, observe)?)
}

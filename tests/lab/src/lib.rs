//! A lab to test whole nodes in. A drop takes it down.
//!
//! This crate's tests, `cargo xtask demo` and `cargo xtask bench` use it. It calls `ferrule-lab` and reads its JSON, as
//! a script would.

#![expect(clippy::print_stdout, reason = "a skip is reported on standard output")]

pub mod dice;
pub mod dumps;
pub mod flood;
pub mod flow;
pub mod spoof;
pub mod streams;
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
    /// Starts a lab from the programs in `bin_dir`; `args` are added to `ferrule-lab up`.
    ///
    /// # Errors
    /// With the tool's output.
    pub fn up(bin_dir: &Path, name: &str, args: &[&str]) -> Result<Self> {
        let tool = bin_dir.join("ferrule-lab");
        let lab = Self { tool, name: name.to_owned(), keep: false };
        let dir = bin_dir.to_str().context("the path of the programs is not UTF-8")?;
        lab.run(&[&["up", "--bin-dir", dir], args].concat())?;
        Ok(lab)
    }

    /// Starts a lab whose nodes are a cluster; `args` are added to `ferrule-lab cluster up`.
    ///
    /// # Errors
    /// With the tool's output.
    pub fn cluster(bin_dir: &Path, name: &str, args: &[&str]) -> Result<Self> {
        let lab = Self { tool: bin_dir.join("ferrule-lab"), name: name.to_owned(), keep: false };
        lab.run(&[&["cluster", "up"], args].concat())?;
        Ok(lab)
    }

    /// Leaves the lab running after the drop.
    pub fn keep(&mut self) {
        self.keep = true;
    }

    /// Returns the lab's name, for `ferrule-lab --name`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the start of a command line of the tool for this lab.
    pub fn command_line(&self) -> String {
        format!("{} --name {}", self.tool.display(), self.name)
    }

    /// Returns the command with these arguments, not started.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.tool);
        command.args(["--name", &self.name]).args(args).stdin(Stdio::null());
        command
    }

    /// Runs a subcommand and returns its output, also after a failure.
    ///
    /// # Errors
    /// Only if the tool cannot be started.
    pub fn output(&self, args: &[&str]) -> Result<Output> {
        self.command(args).output().with_context(|| format!("cannot start {}", self.tool.display()))
    }

    /// Runs a subcommand and returns its standard output.
    ///
    /// # Errors
    /// With the tool's output if it fails.
    pub fn run(&self, args: &[&str]) -> Result<String> {
        let output = self.output(args)?;
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            bail!("ferrule-lab {}: {}\n{stdout}{stderr}", args.join(" "), output.status);
        }
        Ok(stdout)
    }

    /// Runs a subcommand with `-o json`.
    ///
    /// # Errors
    /// With the tool's output if it fails or is not JSON.
    pub fn json(&self, args: &[&str]) -> Result<Value> {
        let text = self.run(&[&["-o", "json"], args].concat())?;
        serde_json::from_str(&text).with_context(|| format!("JSON of {}: {text}", args.join(" ")))
    }

    /// Runs a program in a node's namespaces and returns its standard output.
    ///
    /// # Errors
    /// With the program's output if it fails.
    pub fn on_node(&self, node: &str, command: &[&str]) -> Result<String> {
        self.run(&[&["node", "exec", node, "--"], command].concat())
    }

    /// Calls the plugin on a node as a runtime would, with these variables and with `conf` on standard input. Returns
    /// its output, also after a failure.
    ///
    /// # Errors
    /// Only if it cannot be started.
    pub fn plugin(&self, node: &str, vars: &[(&str, &str)], conf: &Value) -> Result<Output> {
        self.plugin_at(node, "/opt/cni/bin/ferrule-cni", vars, conf)
    }

    /// Calls the plugin at this path of a node. See [`Lab::plugin`].
    ///
    /// # Errors
    /// Only if it cannot be started.
    pub fn plugin_at(
        &self,
        node: &str,
        path: &str,
        vars: &[(&str, &str)],
        conf: &Value,
    ) -> Result<Output> {
        let vars = vars.iter().map(|(name, value)| format!("{name}={value}"));
        let mut command = self.command(&["node", "exec", node, "--", "env"]);
        command.args(vars).args(["CNI_PATH=/opt/cni/bin", path]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("cannot start the plugin")?;
        let mut stdin = child.stdin.take().context("the plugin has no standard input")?;
        // A plugin that refuses its variables does not read its input. The caller judges its output.
        let _ = stdin.write_all(conf.to_string().as_bytes());
        drop(stdin);
        child.wait_with_output().context("cannot wait for the plugin")
    }

    /// Returns the body of an HTTP response from a port on the node's loopback interface.
    ///
    /// # Errors
    /// If there is no response with status 200.
    pub fn get(&self, node: &str, port: u16, path: &str) -> Result<String> {
        // bash can open TCP connections, so the node needs no HTTP client.
        let path = path.replace('%', "%%");
        let script = format!(
            "exec 3<>/dev/tcp/127.0.0.1/{port}; \
             printf 'GET {path} HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n' >&3; \
             cat <&3"
        );
        let answer = self.on_node(node, &["bash", "-c", &script])?;
        let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP response")?;
        ensure!(head.starts_with("HTTP/1.1 200"), "{path} on port {port}: {head}");
        Ok(body.to_owned())
    }

    /// Returns the sum of a metric of the node's daemon over the series that contain all of `labels`; `None` if there
    /// is no such series.
    ///
    /// # Errors
    /// If the daemon serves no metrics.
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

    /// Returns the pods of a node from the lab's list.
    ///
    /// # Errors
    /// If the lab does not answer.
    pub fn pods(&self, node: &str) -> Result<Vec<Value>> {
        let Value::Array(pods) = self.json(&["pod", "list"])? else {
            bail!("pod list is not an array")
        };
        Ok(pods.into_iter().filter(|pod| pod["node"] == node).collect())
    }

    /// Returns the lab's document of a node.
    ///
    /// # Errors
    /// If there is no such node.
    pub fn node(&self, node: &str) -> Result<Value> {
        let nodes = self.json(&["node", "list"])?;
        let nodes = nodes.as_array().context("node list is not an array")?;
        let found = nodes.iter().find(|found| found["name"] == node);
        found.cloned().with_context(|| format!("no node {node}"))
    }

    /// Returns the ENIs of a node in the simulated EC2.
    ///
    /// # Errors
    /// If there is no such node.
    pub fn enis(&self, node: &str) -> Result<Vec<Value>> {
        let node = self.node(node)?;
        Ok(node["enis"].as_array().context("a node without ENIs")?.clone())
    }

    /// Returns the number of calls of an EC2 action by the node's daemon.
    ///
    /// # Errors
    /// If the daemon serves no metrics.
    pub fn calls(&self, node: &str, action: &str) -> Result<f64> {
        let label = format!("action=\"{action}\"");
        Ok(self.metric(node, "ferrule_ec2_calls_total", &[&label])?.unwrap_or(0.0))
    }

    /// Returns true if the node's daemon is in the given state: `live` or `ready`.
    ///
    /// # Errors
    /// Only if the tool cannot be started.
    pub fn is(&self, node: &str, health: &str) -> Result<bool> {
        let ask = ["node", "exec", node, "--", "ferrule-ipamd", "health", health];
        Ok(self.output(&ask)?.status.success())
    }

    /// Returns the last 20,000 lines of the logs of the node's daemon and plugin.
    ///
    /// # Errors
    /// With the tool's output if it fails.
    pub fn logs(&self, node: &str) -> Result<String> {
        self.run(&["logs", node, "--lines", "20000"])
    }

    /// Waits until one line of the node's log contains all of these words.
    ///
    /// # Errors
    /// After a minute, with the end of the log.
    pub fn wait_for_line(&self, node: &str, words: &[&str]) -> Result<()> {
        wait_for(&format!("a line of {node}'s log with {words:?}"), LOG_PATIENCE, || {
            let logs = self.logs(node)?;
            let has_line = logs.lines().any(|line| words.iter().all(|word| line.contains(word)));
            ensure!(has_line, "{}", tail(&logs));
            Ok(true)
        })
    }

    /// Runs a subcommand that must fail and returns its output.
    ///
    /// # Errors
    /// If it succeeds.
    pub fn refused(&self, args: &[&str]) -> Result<String> {
        let output = self.output(args)?;
        let printed =
            [output.stdout, output.stderr].map(|of| String::from_utf8_lossy(&of).into_owned());
        ensure!(
            !output.status.success(),
            "ferrule-lab {} succeeded: {}",
            args.join(" "),
            printed.join("")
        );
        Ok(printed.join(""))
    }

    /// Attaches an ENI as other software would, with `args` of `eni add`. Waits until the node has its device and
    /// returns its ID. EC2 shows the ENI by then; so does the node's metadata if it does not lag.
    ///
    /// # Errors
    /// With the tool's output, or if the device does not appear in a minute.
    pub fn attach_theirs(&self, node: &str, args: &[&str]) -> Result<String> {
        let made = self.json(&[&["eni", "add", "--attach", node], args].concat())?;
        let text = |key: &str| made[key].as_str().with_context(|| format!("an ENI without {key}"));
        let (id, mac) = (text("id")?.to_owned(), text("mac")?);
        wait_for(&format!("{id} on {node}"), LOG_PATIENCE, || {
            Ok(self.on_node(node, &["ip", "-o", "link"])?.contains(mac))
        })?;
        Ok(id)
    }

    /// Returns the ID of the subnet with this letter as its name in the lab.
    ///
    /// # Errors
    /// If there is no such subnet.
    pub fn subnet(&self, letter: &str) -> Result<String> {
        let subnets = self.json(&["subnet", "list"])?;
        let mut subnets = subnets.as_array().context("no list of subnets")?.iter();
        let found = subnets.find(|subnet| subnet["name"] == letter);
        let id = found.and_then(|subnet| subnet["id"].as_str());
        id.map(str::to_owned).with_context(|| format!("no subnet {letter}"))
    }

    /// Returns the number of addresses in use in the lab's subnets, counted by the simulated EC2.
    ///
    /// # Errors
    /// If the lab does not answer.
    pub fn addresses_in_use(&self) -> Result<u64> {
        let status = self.json(&["status"])?;
        let subnets = status["subnets"].as_array().context("a lab without subnets")?;
        subnets.iter().try_fold(0, |sum, subnet| {
            let length = subnet["cidr"].as_str().and_then(|cidr| cidr.split_once('/'));
            let length: u32 = length.context("a subnet without length")?.1.parse()?;
            // AWS reserves five addresses of each subnet.
            let size = 2_u64.pow(32 - length) - 5;
            Ok(sum + size - subnet["free"].as_u64().context("a subnet without free addresses")?)
        })
    }

    /// Takes the lab down.
    ///
    /// # Errors
    /// With the tool's output if it fails.
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

/// Returns the last 40 lines of a log for an error message.
fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}

const LOG_PATIENCE: Duration = Duration::from_secs(60);

/// Returns the folder of the programs under test, from `cargo xtask test`. If a lab cannot run here, prints a line with
/// the reason and returns `None`.
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

/// Returns the object file of the eBPF programs. If it is not given, prints a line with the reason and returns `None`.
pub fn bpf_object(test: &str) -> Option<PathBuf> {
    let path = std::env::var_os("FERRULE_BPF").map(PathBuf::from);
    if path.is_none() {
        println!("SKIP {test}: FERRULE_BPF is not set; `cargo xtask test` sets it");
    }
    path
}

/// Waits until `done` returns true.
///
/// # Errors
/// After `patience`, with the last error of `done`.
pub fn wait_for(
    what: &str,
    patience: Duration,
    mut done: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let observe =
        || done().and_then(|is_done| is_done.then_some(()).context("the condition is false"));
    Ok(within(what, patience, observe)?)
}

//! A cluster of the lab. A drop takes it down.
//!
//! It calls `ferrule-lab cluster` and `kubectl`, as an operator would.

mod amazon;
mod balancer;
mod based;
mod crowd;
mod installed;
mod kube_proxy;
mod prometheus;
mod traffic;

pub use crowd::{Crowd, CrowdReport, EndpointWatch, Failure, Loss, Removals, Requests, Size};
pub use installed::{CONTROLLERS, Installed, LaneInputs, NODE_PODS, POLICY, Pod, probe};
pub use prometheus::{Hold, Prometheus, Target};
pub use traffic::{Client, Counts, Flows, LongConnections, ShortConnections, ShortCounts};

use anyhow::{Context as _, Result, bail, ensure};
use lab_kubernetes::Program;
use serde_json::Value;
use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};
use tests_lab::Lab;

/// A running cluster.
pub struct Cluster {
    pub lab: Lab,
    kubectl: Program,
    kubeconfig: PathBuf,
}

impl Cluster {
    /// Starts a cluster from the programs in `bin_dir`; `args` are added to `ferrule-lab cluster up`.
    ///
    /// # Errors
    /// With the tool's output.
    pub fn up(bin_dir: &Path, name: &str, args: &[&str]) -> Result<Self> {
        let kubectl = Program::kubectl()?;
        let lab = Lab::cluster(bin_dir, name, args)?;
        let kubeconfig = lab.run(&["cluster", "kubeconfig"])?.trim().into();
        Ok(Self { lab, kubectl, kubeconfig })
    }

    /// Returns the kubeconfig of the cluster's administrator.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Returns a `kubectl` command of the administrator, not started.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(self.kubectl.path());
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(args).stdin(Stdio::null());
        command
    }

    /// Runs `kubectl` and returns its standard output.
    ///
    /// # Errors
    /// With the command's output if it fails.
    pub fn kubectl(&self, args: &[&str]) -> Result<String> {
        let output = self.command(args).output().context("cannot start kubectl")?;
        let printed = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "kubectl {}: {printed}", args.join(" "));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs `kubectl` with `-o json`.
    ///
    /// # Errors
    /// With the command's output if it fails.
    pub fn json(&self, args: &[&str]) -> Result<Value> {
        let text = self.kubectl(&[args, &["-o", "json"]].concat())?;
        serde_json::from_str(&text).with_context(|| format!("JSON of kubectl {}", args.join(" ")))
    }

    /// Applies objects.
    ///
    /// # Errors
    /// With the output of kubectl if an object is refused.
    pub fn apply(&self, objects: &[Value]) -> Result<()> {
        for object in objects {
            let mut command = self.command(&["apply", "-f", "-"]);
            command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
            let mut child = command.spawn().context("cannot start kubectl")?;
            let mut stdin = child.stdin.take().context("kubectl has no standard input")?;
            stdin.write_all(object.to_string().as_bytes()).context("cannot write to kubectl")?;
            drop(stdin);
            let output = child.wait_with_output().context("cannot wait for kubectl")?;
            if !output.status.success() {
                bail!("{}: {}", object["kind"], String::from_utf8_lossy(&output.stderr));
            }
        }
        Ok(())
    }

    /// Executes the program of the image `localhost/probe:1` in a pod of it.
    ///
    /// # Errors
    /// With the command's output if it fails.
    pub fn probe(&self, pod: &str, args: &[&str]) -> Result<String> {
        let text = self.kubectl(&[&["exec", pod, "--", "/probe"], args].concat())?;
        Ok(text.trim().to_owned())
    }
}

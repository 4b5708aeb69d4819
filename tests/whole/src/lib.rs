//! A cluster of the lab as a value that is taken down when it is dropped.
//!
//! Everything goes through `ferrule-lab cluster` and `kubectl`, as a person would do it.

mod amazon;
mod installed;
mod prometheus;
mod traffic;

pub use installed::{CONTROLLERS, Given, Installed, NODE_PODS, POLICY, Pod, probe};
pub use prometheus::{Hold, Prometheus, Target};
pub use traffic::{Answers, Counts, Flows, Newcomers, Traffic};

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
    /// Its lab.
    pub lab: Lab,
    kubectl: Program,
    kubeconfig: PathBuf,
}

impl Cluster {
    /// Starts one from the programs in `bin_dir`; `args` follow `ferrule-lab cluster up`.
    ///
    /// # Errors
    /// Carries what the tool said.
    pub fn up(bin_dir: &Path, name: &str, args: &[&str]) -> Result<Self> {
        let kubectl = Program::kubectl()?;
        let lab = Lab::cluster(bin_dir, name, args)?;
        let kubeconfig = lab.run(&["cluster", "kubeconfig"])?.trim().into();
        Ok(Self { lab, kubectl, kubeconfig })
    }

    /// The kubeconfig of one who may do everything.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// `kubectl` as one who may do everything.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(self.kubectl.path());
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(args).stdin(Stdio::null());
        command
    }

    /// Runs `kubectl` to its end; its standard output.
    ///
    /// # Errors
    /// Carries what it said when it failed.
    pub fn kubectl(&self, args: &[&str]) -> Result<String> {
        let output = self.command(args).output().context("start kubectl")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "kubectl {}: {said}", args.join(" "));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The same with `-o json`.
    ///
    /// # Errors
    /// Carries what it said when it failed.
    pub fn json(&self, args: &[&str]) -> Result<Value> {
        let text = self.kubectl(&[args, &["-o", "json"]].concat())?;
        serde_json::from_str(&text).with_context(|| format!("JSON of kubectl {}", args.join(" ")))
    }

    /// Applies objects.
    ///
    /// # Errors
    /// Carries what was said when they were not taken.
    pub fn apply(&self, objects: &[Value]) -> Result<()> {
        for object in objects {
            let mut command = self.command(&["apply", "-f", "-"]);
            command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
            let mut child = command.spawn().context("start kubectl")?;
            let mut stdin = child.stdin.take().context("kubectl has no standard input")?;
            stdin.write_all(object.to_string().as_bytes()).context("hand an object over")?;
            drop(stdin);
            let output = child.wait_with_output().context("wait for kubectl")?;
            if !output.status.success() {
                bail!("{}: {}", object["kind"], String::from_utf8_lossy(&output.stderr));
            }
        }
        Ok(())
    }

    /// Runs the program of the image `localhost/probe:1` once more in a pod that runs it.
    ///
    /// # Errors
    /// Carries what it said when it failed.
    pub fn probe(&self, pod: &str, args: &[&str]) -> Result<String> {
        let text = self.kubectl(&[&["exec", pod, "--", "/probe"], args].concat())?;
        Ok(text.trim().to_owned())
    }
}

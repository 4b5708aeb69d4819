//! Connections that a test keeps open in pods with `lab-flow`.

use crate::Lab;
use anyhow::{Context as _, Result, bail};
use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Stdio},
};

/// A `lab-flow` process in a pod. A drop stops it.
pub struct Flow {
    pod: String,
    child: Child,
    asks: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Flow {
    /// Starts an echo server on a port of the pod. It serves when the function returns.
    ///
    /// # Errors
    /// If the server does not start.
    pub fn serve(lab: &Lab, program: &Path, pod: &str, port: u16) -> Result<Self> {
        let mut flow = Self::start(lab, program, pod, &["serve", &port.to_string()])?;
        let printed = flow.line()?;
        if printed != "listening" {
            let why = flow.error();
            bail!("lab-flow in {pod}: {printed}{why}");
        }
        Ok(flow)
    }

    /// Keeps a connection from the pod to each target. All are established when the function returns.
    ///
    /// # Errors
    /// If a connection cannot be established.
    pub fn hold(lab: &Lab, program: &Path, pod: &str, targets: &[&str]) -> Result<Self> {
        let mut flow = Self::start(lab, program, pod, &[&["hold"], targets].concat())?;
        flow.counts()?;
        Ok(flow)
    }

    fn start(lab: &Lab, program: &Path, pod: &str, words: &[&str]) -> Result<Self> {
        let program = program.to_str().context("the path is not UTF-8")?;
        let mut command = lab.command(&[&["exec", pod, "--", program], words].concat());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child =
            command.spawn().with_context(|| format!("cannot start lab-flow in {pod}"))?;
        let asks = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().context("no standard output")?);
        Ok(Self { pod: pod.to_owned(), child, asks, answers })
    }

    /// Returns the name of the pod.
    pub fn pod(&self) -> &str {
        &self.pod
    }

    /// Returns the bytes received so far, by connection.
    ///
    /// # Errors
    /// If a connection is lost.
    pub fn counts(&mut self) -> Result<Vec<u64>> {
        let asks = self.asks.as_mut().context("lab-flow has exited")?;
        let asked = asks.write_all(b"\n");
        asked.with_context(|| format!("cannot write to lab-flow in {}", self.pod))?;
        self.numbers()
    }

    /// Closes all connections and returns the bytes received, by connection.
    ///
    /// # Errors
    /// If a connection was lost, or returned other bytes than those sent.
    pub fn end(mut self) -> Result<Vec<u64>> {
        drop(self.asks.take());
        let counts = self.numbers()?;
        let status = self.child.wait().context("cannot wait for lab-flow")?;
        if !status.success() {
            let why = self.error();
            bail!("lab-flow in {}: {status}{why}", self.pod);
        }
        Ok(counts)
    }

    fn numbers(&mut self) -> Result<Vec<u64>> {
        let printed = self.line()?;
        let numbers: Option<Vec<u64>> = printed.split(' ').map(|word| word.parse().ok()).collect();
        if let Some(numbers) = numbers {
            return Ok(numbers);
        }
        let why = self.error();
        bail!("lab-flow in {}: {printed}{why}", self.pod)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        let read = self.answers.read_line(&mut line);
        read.with_context(|| format!("cannot read from lab-flow in {}", self.pod))?;
        Ok(line.trim_end().to_owned())
    }

    /// Returns the process's standard error after its exit.
    fn error(&mut self) -> String {
        let mut printed = String::new();
        if self.child.wait().is_ok()
            && let Some(errors) = self.child.stderr.as_mut()
        {
            let _ = errors.read_to_string(&mut printed);
        }
        printed
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        // `lab-flow` exits at the end of its standard input.
        drop(self.asks.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

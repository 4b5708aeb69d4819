//! `ferrule policy flows`, `uses` and `verdict --kernel` of an agent whose backend enforces policies.

use crate::{
    policed::{Agent, AgentSite},
    world::{PATIENCE, World},
};
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::{
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    thread::JoinHandle,
};
use tests_lab::wait_for;

/// The command-line tool beside the agent of a node.
pub(crate) struct Tool<'a> {
    pub(crate) bin: &'a Path,
    pub(crate) world: &'a World,
    pub(crate) agent: &'a Agent,
}

impl Tool<'_> {
    /// Runs a subcommand. Returns its exit code and its output.
    fn run(&self, words: &[&str]) -> Result<(i32, String)> {
        let mut command = Command::new(self.bin.join("ferrule"));
        command.arg("policy").args(words).arg("--agent").arg(AgentSite::socket(self.agent));
        let output = command.env_clear().output().context("cannot start the tool")?;
        let code = output.status.code().context("a signal ended the tool")?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(code != 2, "ferrule policy {}: {error}", words.join(" "));
        Ok((code, String::from_utf8(output.stdout)?))
    }

    fn verdict(&self, from: &str, to: &str) -> Result<(i32, Value)> {
        let kubeconfig = self.world.cluster.kubeconfig().display().to_string();
        let words = ["verdict", "--kubeconfig", &kubeconfig, "--kernel", "-o", "json"];
        let (from, to) = (format!("default/{from}"), format!("default/{to}"));
        let ends = ["--from", &from, "--to", &to];
        let (code, text) = self.run(&[&words[..], &ends].concat())?;
        Ok((code, serde_json::from_str(&text)?))
    }

    /// Fails unless the recent drops have one of the pod `from` to the pod `to`, with this reason.
    pub(crate) fn ensure_dropped(&self, from: &str, to: &str, reason: &str) -> Result<()> {
        let (_, text) = self.run(&["flows", "-o", "json"])?;
        let flows = text.lines().map(serde_json::from_str::<Value>);
        let flows = flows.collect::<Result<Vec<_>, _>>()?;
        let is_it = |flow: &&Value| {
            flow["source"]["pod"] == format!("default/{from}")
                && flow["destination"]["pod"] == format!("default/{to}")
        };
        let flow = flows.iter().rfind(is_it).with_context(|| format!("{from} to {to}: {text}"))?;
        ensure!(flow["reason"] == reason && flow["decision"] == "drop", "{flow}");
        let (_, lines) = self.run(&["flows"])?;
        ensure!(lines.contains(&format!("default/{from} (")), "{lines}");
        Ok(())
    }

    /// Fails unless the maps and the model agree about a connection.
    pub(crate) fn ensure_agree(&self, from: &str, to: &str, allowed: bool) -> Result<()> {
        let (code, verdict) = self.verdict(from, to)?;
        ensure!(code == i32::from(!allowed), "exit code {code}: {verdict:#}");
        let kernel = &verdict["kernel"];
        let lookups = kernel["lookups"].as_array().context("no lookups")?;
        ensure!(
            !lookups.is_empty() && kernel["differences"] == serde_json::json!([]),
            "{kernel:#}"
        );
        let steps = &lookups[0]["steps"];
        ensure!(steps["generation"].is_string() && steps["set"].is_string(), "{kernel:#}");
        Ok(())
    }

    /// Fails unless a rule of the policy has allowed connections.
    pub(crate) fn ensure_used(&self, policy: &str) -> Result<()> {
        wait_for("the use of a rule", PATIENCE, || {
            let (_, text) = self.run(&["uses", "-o", "json"])?;
            let uses: Value = serde_json::from_str(&text)?;
            let uses = uses["uses"].as_array().context("no uses")?;
            let of = uses.iter().find(|of| of["rule"]["policy"] == format!("default/{policy}"));
            let of = of.with_context(|| text.clone())?;
            ensure!(of["flows"].as_u64().is_some_and(|flows| flows > 0), "{of}");
            Ok(true)
        })
    }
}

/// The flow events of some agents, from a start to an end.
pub(crate) struct Watch {
    tools: Vec<(Child, JoinHandle<Vec<Value>>)>,
}

impl Watch {
    pub(crate) fn start<'a>(bin: &Path, agents: impl Iterator<Item = &'a Agent>) -> Result<Self> {
        let mut tools = Vec::new();
        for agent in agents {
            let words = ["policy", "flows", "--follow", "-o", "json", "--agent"];
            let mut command = Command::new(bin.join("ferrule"));
            command.args(words).arg(AgentSite::socket(agent)).env_clear().stdout(Stdio::piped());
            let mut child = command.spawn().context("cannot start the tool")?;
            let output = child.stdout.take().context("no standard output")?;
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            let events =
                move || lines.filter_map(|line| serde_json::from_str(&line).ok()).collect();
            tools.push((child, std::thread::spawn(events)));
        }
        Ok(Self { tools })
    }

    /// Stops the tools and returns the events.
    pub(crate) fn end(self) -> Result<Vec<Value>> {
        let mut events = Vec::new();
        for (mut child, read) in self.tools {
            child.kill().context("cannot stop the tool")?;
            child.wait().context("cannot wait for the tool")?;
            events.extend(read.join().ok().context("a thread panicked")?);
        }
        Ok(events)
    }
}

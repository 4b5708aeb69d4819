//! One CNI on its node: carries out what the other process asks for, and tells how long it took.

use crate::{
    daemon::{Daemon, gauge},
    programs::{Plugin, Verb},
    sandbox::Sandbox,
    side_by_side, wait_until,
};
use anyhow::{Context as _, Result, bail};
use std::{
    io::{BufRead as _, Write as _},
    path::PathBuf,
    time::{Duration, Instant},
};
use tests_bench::figures::ms;

/// Whose plugin and agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Cni {
    Ferrule,
    AmazonVpcCni,
}

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Whose they are
    #[arg(long, value_enum)]
    cni: Cni,
    /// The plugin
    #[arg(long)]
    plugin: PathBuf,
    /// The node's conflist
    #[arg(long)]
    conflist: PathBuf,
}

/// As many ADDs at a time while pods are made that are only there.
const AT_A_TIME: usize = 8;

/// Reads a line, does it, answers with a line of milliseconds or KiB, until the input ends.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut worker = Worker {
        cni: args.cni,
        plugin: Plugin::new(&args.plugin, &args.conflist)?,
        held: Vec::new(),
        round: 0,
    };
    for line in std::io::stdin().lock().lines() {
        let line = line.context("read what to do")?;
        let (verb, number) = line.split_once(' ').unwrap_or((line.as_str(), "0"));
        let number: usize = number.parse().with_context(|| format!("the number of {line:?}"))?;
        let answer = match verb {
            "hold" => worker.hold(number)?,
            "one" => worker.one()?,
            "burst" => worker.burst(number)?,
            "resident" => worker.resident()?,
            "end" => worker.end()?,
            _ => bail!("{line:?} is not known"),
        };
        let answer: Vec<String> = answer.iter().map(ToString::to_string).collect();
        let mut out = std::io::stdout();
        writeln!(out, "{}", answer.join(" ")).context("answer")?;
        out.flush().context("answer")?;
    }
    Ok(())
}

struct Worker {
    cni: Cni,
    plugin: Plugin,
    held: Vec<Sandbox>,
    round: usize,
}

impl Worker {
    /// Makes pods until there are as many, and waits for a pool for what comes next.
    fn hold(&mut self, count: usize) -> Result<Vec<f64>> {
        while self.held.len() < count {
            let more = AT_A_TIME.min(count - self.held.len());
            self.wait_free(more)?;
            let pods = self.sandboxes(more)?;
            side_by_side(&pods, |pod| self.plugin.call(Verb::Add, pod))?;
            self.held.extend(pods);
        }
        self.wait_free(WARM)?;
        Ok(vec![self.held.len() as f64])
    }

    /// An ADD and a DEL.
    fn one(&mut self) -> Result<Vec<f64>> {
        self.wait_free(1)?;
        let pod = self.sandboxes(1)?.remove(0);
        std::thread::sleep(REST);
        let began = Instant::now();
        self.plugin.call(Verb::Add, &pod)?;
        let added = began.elapsed();
        std::thread::sleep(REST);
        let began = Instant::now();
        self.plugin.call(Verb::Del, &pod)?;
        Ok(vec![ms(added), ms(began.elapsed())])
    }

    /// ADDs side by side, then their DELs.
    fn burst(&mut self, count: usize) -> Result<Vec<f64>> {
        self.wait_free(count)?;
        let pods = self.sandboxes(count)?;
        let added = side_by_side(&pods, |pod| self.plugin.call(Verb::Add, pod))?;
        let deleted = side_by_side(&pods, |pod| self.plugin.call(Verb::Del, pod))?;
        Ok(vec![ms(added), ms(deleted)])
    }

    fn resident(&self) -> Result<Vec<f64>> {
        let name = match self.cni {
            Cni::Ferrule => "ferrule-ipamd",
            Cni::AmazonVpcCni => "aws-k8s-agent",
        };
        Ok(vec![Daemon::named(name)?.resident_kib()? as f64])
    }

    fn end(&mut self) -> Result<Vec<f64>> {
        for pods in self.held.chunks(AT_A_TIME) {
            side_by_side(pods, |pod| self.plugin.call(Verb::Del, pod))?;
        }
        self.held.clear();
        Ok(vec![0.0])
    }

    fn sandboxes(&mut self, count: usize) -> Result<Vec<Sandbox>> {
        self.round += 1;
        (0..count).map(|at| Sandbox::new("beside", self.round * 1000 + at)).collect()
    }

    /// Ours waits for an address within the ADD, theirs fails: both get theirs ready.
    fn wait_free(&self, wanted: usize) -> Result<()> {
        let free = || match self.cni {
            Cni::Ferrule => gauge("ferrule_pool_free_addresses").unwrap_or(0.0),
            Cni::AmazonVpcCni => {
                let total = gauge("awscni_total_ip_addresses").unwrap_or(0.0);
                total - gauge("awscni_assigned_ip_addresses").unwrap_or(0.0)
            }
        };
        wait_until(|| free() >= wanted as f64, "free addresses")
    }
}

/// What both pools have ready before a size is measured.
const WARM: usize = 64;
/// Longer than an agent's work after a call takes.
const REST: Duration = Duration::from_millis(100);

//! Worker for one CNI on its node: executes commands of the parent process and prints the times.

use crate::{
    daemon::{Daemon, gauge},
    programs::{Plugin, Verb},
    sandbox::{Pod, Sandbox},
    side_by_side, wait_until,
};
use anyhow::{Context as _, Result, bail, ensure};
use std::{
    io::{BufRead as _, Write as _},
    path::PathBuf,
    time::{Duration, Instant},
};
use tests_bench::figures::ms;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Cni {
    Ferrule,
    AmazonVpcCni,
}

#[derive(clap::Args)]
pub(crate) struct Args {
    /// CNI of this node
    #[arg(long, value_enum)]
    cni: Cni,
    /// Path of the plugin
    #[arg(long)]
    plugin: PathBuf,
    /// Path of the node's conflist
    #[arg(long)]
    conflist: PathBuf,
    /// Path of a JSON list of the pods to start, by namespace, name and uid; default: pods that no API server knows
    #[arg(long)]
    pods: Option<PathBuf>,
}

/// Concurrent ADDs while background pods are created.
const AT_A_TIME: usize = 8;
/// The repetitions of a burst of amazon-vpc-cni with a failed ADD.
const AGAIN: usize = 3;

/// Reads a command per line and answers with a line of milliseconds or KiB, until the input is closed.
pub(crate) fn run(args: &Args) -> Result<()> {
    let pods = args.pods.as_ref().map(|path| -> Result<Vec<Pod>> {
        let context = || format!("read {}", path.display());
        serde_json::from_slice(&std::fs::read(path).with_context(context)?).with_context(context)
    });
    let mut worker = Worker {
        cni: args.cni,
        pods: pods.transpose()?,
        plugin: Plugin::new(&args.plugin, &args.conflist)?,
        background: Vec::new(),
        round: 0,
    };
    for line in std::io::stdin().lock().lines() {
        let line = line.context("read a command")?;
        let (verb, number) = line.split_once(' ').unwrap_or((line.as_str(), "0"));
        let number: usize = number.parse().with_context(|| format!("the number of {line:?}"))?;
        let answer = match verb {
            "hold" => worker.hold(number)?,
            "one" => worker.one()?,
            "burst" => worker.burst(number)?,
            "resident" => worker.resident("ferrule-ipamd", "aws-k8s-agent")?,
            "agent" => worker.resident("ferrule-agent", "controller")?,
            "end" => worker.end()?,
            _ => bail!("unknown command {line:?}"),
        };
        let answer: Vec<String> = answer.iter().map(ToString::to_string).collect();
        let mut out = std::io::stdout();
        writeln!(out, "{}", answer.join(" ")).context("print the answer")?;
        out.flush().context("print the answer")?;
    }
    Ok(())
}

struct Worker {
    cni: Cni,
    pods: Option<Vec<Pod>>,
    plugin: Plugin,
    background: Vec<Sandbox>,
    round: usize,
}

impl Worker {
    /// Creates background pods up to `count`, and waits for a warm pool.
    fn hold(&mut self, count: usize) -> Result<Vec<f64>> {
        // amazon-vpc-cni counts a cooling address as free.
        std::thread::sleep(COOLDOWN);
        while self.background.len() < count {
            let more = AT_A_TIME.min(count - self.background.len());
            self.wait_free(more)?;
            let pods = self.sandboxes(more)?;
            side_by_side(&pods, |pod| self.plugin.call(Verb::Add, pod))?;
            self.background.extend(pods);
        }
        self.wait_free(WARM)?;
        Ok(vec![self.background.len() as f64])
    }

    /// One ADD and one DEL.
    fn one(&mut self) -> Result<Vec<f64>> {
        self.wait_free(1)?;
        let pod = self.sandboxes(1)?.remove(0);
        std::thread::sleep(REST);
        let start = Instant::now();
        self.plugin.call(Verb::Add, &pod)?;
        let added = start.elapsed();
        std::thread::sleep(REST);
        let start = Instant::now();
        self.plugin.call(Verb::Del, &pod)?;
        Ok(vec![ms(added), ms(start.elapsed())])
    }

    /// Concurrent ADDs, then their DELs.
    fn burst(&mut self, count: usize) -> Result<Vec<f64>> {
        self.wait_free(count)?;
        let mut tries = 0;
        loop {
            let pods = self.sandboxes(count)?;
            let added = side_by_side(&pods, |pod| self.plugin.call(Verb::Add, pod));
            let deleted = side_by_side(&pods, |pod| self.plugin.call(Verb::Del, pod))?;
            match added {
                Ok(added) => return Ok(vec![ms(added), ms(deleted)]),
                // Its plugin fails if the kernel's links change during each of its reads.
                Err(error) if self.cni == Cni::AmazonVpcCni && tries < AGAIN => {
                    eprintln!("  a burst of amazon-vpc-cni failed, and is repeated: {error:#}");
                }
                Err(error) => return Err(error),
            }
            tries += 1;
            self.wait_free(count)?;
        }
    }

    /// The resident memory of the process with the name of this CNI.
    fn resident(&self, ours: &str, theirs: &str) -> Result<Vec<f64>> {
        let name = match self.cni {
            Cni::Ferrule => ours,
            Cni::AmazonVpcCni => theirs,
        };
        Ok(vec![Daemon::named(name)?.resident_kib()? as f64])
    }

    fn end(&mut self) -> Result<Vec<f64>> {
        for pods in self.background.chunks(AT_A_TIME) {
            side_by_side(pods, |pod| self.plugin.call(Verb::Del, pod))?;
        }
        self.background.clear();
        Ok(vec![0.0])
    }

    fn sandboxes(&mut self, count: usize) -> Result<Vec<Sandbox>> {
        if let Some(pods) = &self.pods {
            ensure!(count <= pods.len(), "{count} pods are wanted, and {} exist", pods.len());
            return pods.iter().take(count).map(Sandbox::of).collect();
        }
        self.round += 1;
        (0..count).map(|at| Sandbox::new("beside", self.round * 1000 + at)).collect()
    }

    /// Ferrule waits for an address within the ADD, amazon-vpc-cni fails. To be fair, the pool is filled
    /// before each ADD.
    fn wait_free(&self, wanted: usize) -> Result<()> {
        let free = || match self.cni {
            Cni::Ferrule => gauge("ferrule_pool_free_addresses"),
            Cni::AmazonVpcCni => {
                Ok(gauge("awscni_total_ip_addresses")? - gauge("awscni_assigned_ip_addresses")?)
            }
        };
        let is_enough = || free().is_ok_and(|free| free >= wanted as f64);
        let waited = wait_until(is_enough, "free addresses");
        waited.with_context(|| format!("{wanted} addresses are wanted; free now: {:?}", free()))
    }
}

/// Free addresses of both pools before a size is measured.
const WARM: usize = 64;
/// Longer than `IP_COOLDOWN_PERIOD` of both nodes.
const COOLDOWN: Duration = Duration::from_secs(3);
/// Longer than the work that an agent does after a call.
const REST: Duration = Duration::from_millis(100);

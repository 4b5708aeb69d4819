//! ADDs while a pod of the node floods an HTTP port of the node, beside ADDs without the flood. Both take turns.

use crate::beside::{InLab, OURS, column, quantile};
use anyhow::{Context as _, Result, ensure};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::{
    fs::File,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::SocketAddrV4,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};
use tests_bench::figures::{self, Bench, Figure};
use tests_lab::{flood::Flood, wait_for};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    of: InLab,
    /// Node of the pods
    #[arg(long)]
    node: String,
    /// Path of a JSON list of the pods to start, by namespace, name and uid
    #[arg(long)]
    pods: PathBuf,
    /// Path of the network namespace of the pod that sends the flood
    #[arg(long)]
    hostile: PathBuf,
    /// Flooded ports, each with its own figures
    #[arg(long, required = true)]
    to: Vec<SocketAddrV4>,
    /// Number of sequential ADDs with each flood, and as many without it
    #[arg(long, default_value_t = 200)]
    rounds: usize,
}

#[derive(clap::Args)]
pub(crate) struct FloodArgs {
    /// Path of the network namespace
    #[arg(long)]
    from: PathBuf,
    /// The flooded port
    #[arg(long)]
    to: SocketAddrV4,
}

/// Request loops of the pod.
const LOOPS: u64 = 300;
/// Connections of a flood before the first ADD under it.
const OPENED: u64 = 2_000;
const PATIENCE: Duration = Duration::from_secs(120);
/// Turns without a flood and with it.
const TURNS: usize = 4;
/// The lowest CPU priority: the kubelet gives a pod without CPU requests 2 shares of 1,024.
const NICE: &str = "19";
const MOST: f64 = 2.0;

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut bench = Bench::new("flood");
    let mut worker = args.of.place(&args.node).start(&args.of.plugin, OURS, Some(&args.pods))?;
    worker.ask("hold 0")?;
    let each = args.rounds.div_ceil(TURNS);
    for to in &args.to {
        let port = to.port();
        let (mut quiet, mut flooded) = (Vec::new(), Vec::new());
        let (mut connections, mut pages) = (0.0, 0.0);
        for turn in 1..=TURNS {
            eprintln!("  port {port}: turn {turn} of {TURNS}, {each} ADDs each");
            for _ in 0..each {
                quiet.push(worker.ask("one")?);
            }
            let flood = FloodProcess::start(&args.hostile, *to)?;
            for _ in 0..each {
                flooded.push(worker.ask("one")?);
            }
            let counts = flood.end()?;
            connections += counts[0];
            pages += counts[1];
        }
        for (percent, target) in [(50, None), (99, Some(MOST))] {
            let [value, reference] =
                [&flooded, &quiet].map(|answers| quantile(&column(answers, 0), percent));
            let name = format!("add_p{percent}_port_{port}");
            let figure = Figure::with_reference(&name, value, "ms", reference);
            bench.push(match target {
                Some(target) => figure.at_most(target),
                None => figure,
            });
        }
        for (name, count) in [("connections", connections), ("pages", pages)] {
            bench.push(Figure::reported(&format!("{name}_port_{port}"), count, name));
        }
    }
    figures::print(&bench)
}

/// The CPU priority of a session, as `sched(7)` describes: the priority of a process counts within its session only.
const AUTOGROUP: &str = "/proc/self/autogroup";

/// Sends a flood until standard input is closed. Prints a line once the flood is complete, and then its counts.
pub(crate) fn flood(args: &FloodArgs) -> Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most)?;
    if Path::new(AUTOGROUP).exists() {
        std::fs::write(AUTOGROUP, NICE).with_context(|| format!("cannot write {AUTOGROUP}"))?;
    }
    let from = File::open(&args.from);
    let from = from.with_context(|| format!("cannot open {}", args.from.display()))?;
    let flood = Flood::with_loops(&from, args.to, LOOPS)?;
    wait_for("the flood's connections", PATIENCE, || Ok(flood.opened() >= OPENED))?;
    let mut out = std::io::stdout();
    writeln!(out, "ready").and_then(|()| out.flush()).context("cannot print")?;
    std::io::stdin().read_to_end(&mut Vec::new()).context("cannot read standard input")?;
    ensure!(flood.runs(), "the flood has ended");
    writeln!(out, "{} {}", flood.opened(), flood.pages()).context("cannot print")?;
    flood.end()
}

/// The flood as a process of its own, because its CPU priority is that of a process.
struct FloodProcess {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl FloodProcess {
    /// Starts the flood, and waits until it is complete.
    fn start(from: &Path, to: SocketAddrV4) -> Result<Self> {
        let me = std::env::current_exe().context("cannot find this program")?;
        let mut command = Command::new("setsid");
        command.args(["nice", "-n", NICE]).arg(me).args([
            "flood",
            "--to",
            &to.to_string(),
            "--from",
        ]);
        command.arg(from).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start the flood")?;
        let output = child.stdout.take().context("the flood has no standard output")?;
        let mut flood = Self { child, output: BufReader::new(output) };
        ensure!(flood.line()?.trim() == "ready", "the flood has ended; its messages are above");
        Ok(flood)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line).context("cannot read from the flood")?;
        Ok(line)
    }

    /// Ends the flood. Returns its numbers of connections and of pages.
    fn end(mut self) -> Result<[f64; 2]> {
        drop(self.child.stdin.take());
        let line = self.line()?;
        let status = self.child.wait().context("cannot wait for the flood")?;
        ensure!(status.success(), "the flood failed: {status}");
        let (connections, pages) = line.trim().split_once(' ').context("no counts of the flood")?;
        Ok([connections.parse()?, pages.parse()?])
    }
}

impl Drop for FloodProcess {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

//! Real streams over TLS: one replica, and all agents in one process beside it. From an event that every node is
//! told of to the last agent that holds it; bytes that a node is told; all agents anew after the replica was away;
//! steady churn. Needs no privileges; stays on loopback.
//!
//! The replica's memory for an agent is what its own process has more in memory when all agents are connected
//! and hold everything than before the first came, TLS and all, by agent: what agents hold of it is in the
//! other process. Both clocks are one: the kernel's monotonic.

mod agents;
mod replica;

use anyhow::{Context as _, Result, bail};
use clap::{Parser, Subcommand, ValueEnum};
use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeValLike as _,
};
use replica::Replica;
use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::SocketAddr,
    path::PathBuf,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};
use tests_bench::figures::{self, Bench, Figure, Samples};

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
}

#[derive(Parser)]
struct Args {
    /// How the figures are printed
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
    /// A hundredth of each size
    #[arg(long)]
    small: bool,
    /// This size alone: 1000 or 5000
    #[arg(long)]
    agents: Option<usize>,
    /// How many events are told to all
    #[arg(long, default_value_t = 50)]
    events: u32,
    /// How long the churn lasts, in seconds
    #[arg(long, default_value_t = 10)]
    churn: u64,
    #[command(subcommand)]
    part: Option<Part>,
}

#[derive(Subcommand)]
enum Part {
    /// All agents: told over standard input what to wait for
    #[command(hide = true)]
    Agents { at: SocketAddr, authority: PathBuf, number: usize },
}

/// Agents, and by how much an event may be late at the last of them, in milliseconds.
const SIZES: [(usize, f64); 2] = [(1_000, 50.0), (5_000, 200.0)];
/// Pods on each node.
const PODS: usize = 20;

fn main() -> Result<()> {
    let args = Args::parse();
    let (_, most) = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE)?;
    nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE, most, most)?;
    if let Some(Part::Agents { at, authority, number }) = &args.part {
        return agents::run(*at, authority, *number);
    }
    let mut bench = Bench::new("stream");
    for size in SIZES {
        if args.agents.is_none_or(|agents| agents == size.0) {
            Measured::new(&args, size, &mut bench)?.run()?;
        }
    }
    match args.output {
        Format::Json => figures::print(&bench),
        Format::Table => figures::print_table(&bench),
    }
}

/// One replica, its agents, and what is measured of them.
struct Measured<'a> {
    args: &'a Args,
    /// As figures are named: those of a small run are named alike.
    agents: usize,
    number: usize,
    /// Milliseconds.
    target: f64,
    begun: Instant,
    replica: Replica,
    bench: &'a mut Bench,
}

impl<'a> Measured<'a> {
    fn new(args: &'a Args, size: (usize, f64), bench: &'a mut Bench) -> Result<Self> {
        let (agents, target) = size;
        let number = if args.small { agents / 100 } else { agents };
        let (begun, replica) = (Instant::now(), Replica::start(number, PODS)?);
        let measured = Self { args, agents, number, target, begun, replica, bench };
        measured.say(&format!("{number} nodes with {PODS} pods each are read"));
        Ok(measured)
    }

    fn run(mut self) -> Result<()> {
        let mut others = self.connect()?;
        self.events(&mut others)?;
        self.churn(&mut others)?;
        self.resync(&mut others)?;
        others.end()
    }

    /// How far it is: the figures come at the end, after minutes.
    fn say(&self, what: &str) {
        let _ = writeln!(std::io::stderr(), "{:7.1} s  {what}", self.begun.elapsed().as_secs_f64());
    }

    fn name(&self, what: &str) -> String {
        format!("agents_{}_{what}", self.agents)
    }

    fn told(&mut self, what: &str, value: f64, unit: &'static str) {
        self.bench.push(Figure::told(&self.name(what), value, unit));
        self.say(&format!("{what}: {value:.2} {unit}"));
    }

    fn bounded(&mut self, what: &str, value: f64, unit: &'static str, target: f64) {
        self.bench.push(Figure::bounded(&self.name(what), value, unit, target));
        self.say(&format!("{what}: {value:.2} {unit}"));
    }

    /// What the replica's processor did since then, for each: it says more than time does where others work too.
    #[expect(clippy::cast_precision_loss, reason = "figures are read by people")]
    fn worked(&mut self, what: &str, since: Duration, each: usize) -> Result<()> {
        let took = worked()?.saturating_sub(since);
        self.told(what, figures::ms(took) / each.max(1) as f64, "ms");
        Ok(())
    }

    #[expect(clippy::cast_precision_loss, reason = "figures are read by people")]
    fn a_node(&self, bytes: u64) -> f64 {
        bytes as f64 / self.number as f64
    }

    fn connect(&mut self) -> Result<AgentsProcess> {
        let (before, begun, since) = (resident()?, Instant::now(), worked()?);
        let mut others = AgentsProcess::start(&self.replica, self.number)?;
        let (_, bytes) = others.hold(self.replica.generation())?;
        self.told("all_connected", figures::ms(begun.elapsed()), "ms");
        self.told("first_bytes_a_node", self.a_node(bytes), "bytes");
        let memory = self.a_node(resident()?.saturating_sub(before)) / 1024.0;
        self.bounded("memory_an_agent", memory, "KiB", 48.0);
        self.worked("connect_work_an_agent", since, self.number)?;
        Ok(others)
    }

    /// One event at a time, which every node is told of: the next comes when the replica knows that all hold it.
    fn events(&mut self, others: &mut AgentsProcess) -> Result<()> {
        let (mut late, mut all, since) = (Samples::default(), 0, worked()?);
        for _ in 0..self.args.events {
            let (took, bytes) = self.event(others)?;
            late.push(took);
            all += bytes;
            self.replica.hears_of_all()?;
        }
        self.bounded("event_to_the_last_p50", late.p50(), "ms", self.target);
        self.told("event_to_the_last_p99", late.p99(), "ms");
        let each = self.a_node(all) / f64::from(self.args.events);
        self.told("event_bytes_a_node", each, "bytes");
        self.worked("event_work", since, self.args.events as usize)?;
        Ok(())
    }

    fn event(&mut self, others: &mut AgentsProcess) -> Result<(Duration, u64)> {
        let begun = now();
        let generation = self.replica.event_for_all();
        let (last, bytes) = others.hold(generation)?;
        Ok((Duration::from_nanos(last.saturating_sub(begun)), bytes))
    }

    /// A hundred pods a second are others; each second one event is told to all among those that few are told.
    fn churn(&mut self, others: &mut AgentsProcess) -> Result<()> {
        let (mut churned, begun, since) = (0_u64, Instant::now(), worked()?);
        let (mut behind, mut all) = (Samples::default(), 0);
        while begun.elapsed() < Duration::from_secs(self.args.churn) {
            let due = begun + Duration::from_millis(churned * 10);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            self.replica.churn();
            churned += 1;
            if churned.is_multiple_of(100) {
                let (took, bytes) = self.event(others)?;
                behind.push(took);
                all += bytes;
            }
        }
        #[expect(clippy::cast_precision_loss, reason = "figures are read by people")]
        let rate = churned as f64 / begun.elapsed().as_secs_f64();
        self.told("churn_events", rate, "/s");
        self.told("churn_behind_p50", behind.p50(), "ms");
        self.told("churn_behind_p99", behind.p99(), "ms");
        let seconds = begun.elapsed().as_secs_f64();
        self.told("churn_bytes_a_node", self.a_node(all) / seconds, "B/s");
        self.worked("churn_work_an_event", since, usize::try_from(churned)?)?;
        Ok(())
    }

    /// The replica is away, and another that nobody has spoken to is there.
    fn resync(&mut self, others: &mut AgentsProcess) -> Result<()> {
        let begun = now();
        self.replica.replace()?;
        self.say("another replica is there");
        let since = worked()?;
        let (last, bytes) = others.hold_anew(self.replica.generation())?;
        let took = Duration::from_nanos(last.saturating_sub(begun));
        self.told("resync_all", figures::ms(took), "ms");
        self.told("resync_bytes_a_node", self.a_node(bytes), "bytes");
        self.worked("resync_work_an_agent", since, self.number)?;
        Ok(())
    }
}

/// The process of the agents.
struct AgentsProcess {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl AgentsProcess {
    fn start(replica: &Replica, number: usize) -> Result<Self> {
        let exe = std::env::current_exe().context("find this program")?;
        let mut child = Command::new(exe)
            .args(["agents", &replica.at().to_string()])
            .arg(replica.authority())
            .arg(number.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("start the agents")?;
        let to = child.stdin.take().context("the agents' input")?;
        let from = BufReader::new(child.stdout.take().context("the agents' output")?);
        Ok(Self { child, to, from })
    }

    /// Waits until all agents hold a generation: when the last did, and the bytes since it was asked last.
    fn hold(&mut self, generation: u64) -> Result<(u64, u64)> {
        self.ask(&format!("hold {generation}"))
    }

    /// The same for a replica that has restarted.
    fn hold_anew(&mut self, generation: u64) -> Result<(u64, u64)> {
        self.ask(&format!("anew {generation}"))
    }

    fn ask(&mut self, words: &str) -> Result<(u64, u64)> {
        writeln!(self.to, "{words}").context("ask the agents")?;
        let mut line = String::new();
        self.from.read_line(&mut line).context("hear the agents")?;
        let mut numbers = line.split_whitespace().map(str::parse);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(last)), Some(Ok(bytes))) => Ok((last, bytes)),
            _ => bail!("the agents said {line:?} to {words:?}"),
        }
    }

    fn end(mut self) -> Result<()> {
        drop(self.to);
        self.child.wait().context("wait for the agents").map(drop)
    }
}

/// Nanoseconds by the clock that all processes share.
fn now() -> u64 {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
    time.map_or(0, |time| u64::try_from(Duration::from(time).as_nanos()).unwrap_or(u64::MAX))
}

/// What this process has had of processors.
fn worked() -> Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).context("ask what this process has used")?;
    Ok([usage.user_time(), usage.system_time()]
        .map(|part| part.num_microseconds())
        .iter()
        .sum::<i64>())
    .map(|micros| Duration::from_micros(u64::try_from(micros).unwrap_or_default()))
}

/// Bytes of this process that are in memory.
fn resident() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status").context("read /proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().context("read VmRSS")?;
    Ok(kib * 1024)
}

//! Streams over TLS between one replica and all agents, which share a second process.
//!
//! The benchmark measures the delay of an event at the last agent and the bytes for each node. It also measures
//! the resync of all agents after a restart of the replica, and steady churn. It needs no privileges and uses
//! loopback only.
//!
//! The replica's memory for an agent is the growth of its resident memory, TLS included, divided by the
//! number of agents. The growth is from before the first connection until all agents hold everything. The
//! agents' own state is in the other process. Both processes use the kernel's monotonic clock.

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
    /// Output format
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
    /// A hundredth of each size
    #[arg(long)]
    small: bool,
    /// Only this size: 1000 or 5000
    #[arg(long)]
    agents: Option<usize>,
    /// Number of events for all nodes
    #[arg(long, default_value_t = 50)]
    events: u32,
    /// Duration of the churn in seconds
    #[arg(long, default_value_t = 10)]
    churn: u64,
    #[command(subcommand)]
    part: Option<Part>,
}

#[derive(Subcommand)]
enum Part {
    /// All agents; reads the generations to wait for from standard input
    #[command(hide = true)]
    Agents { at: SocketAddr, authority: PathBuf, number: usize },
}

/// Number of agents, and the target for the delay of an event at the last of them, in milliseconds.
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
            Measurement::new(&args, size, &mut bench)?.run()?;
        }
    }
    match args.output {
        Format::Json => figures::print(&bench),
        Format::Table => figures::print_table(&bench),
    }
}

/// A replica, its agents and their figures.
struct Measurement<'a> {
    args: &'a Args,
    /// Nominal size, which is in the names of figures. A small run uses the same names.
    agents: usize,
    number: usize,
    /// Milliseconds.
    target: f64,
    start: Instant,
    replica: Replica,
    bench: &'a mut Bench,
}

impl<'a> Measurement<'a> {
    fn new(args: &'a Args, size: (usize, f64), bench: &'a mut Bench) -> Result<Self> {
        let (agents, target) = size;
        let number = if args.small { agents / 100 } else { agents };
        let (start, replica) = (Instant::now(), Replica::start(number, PODS)?);
        let measurement = Self { args, agents, number, target, start, replica, bench };
        measurement.progress(&format!("{number} nodes with {PODS} pods each are loaded"));
        Ok(measurement)
    }

    fn run(mut self) -> Result<()> {
        let mut agents = self.connect()?;
        self.events(&mut agents)?;
        self.churn(&mut agents)?;
        self.resync(&mut agents)?;
        agents.end()
    }

    /// Prints progress, because the figures are printed only after minutes.
    fn progress(&self, what: &str) {
        let _ = writeln!(std::io::stderr(), "{:7.1} s  {what}", self.start.elapsed().as_secs_f64());
    }

    fn name(&self, what: &str) -> String {
        format!("agents_{}_{what}", self.agents)
    }

    fn report(&mut self, what: &str, value: f64, unit: &'static str) {
        self.bench.push(Figure::reported(&self.name(what), value, unit));
        self.progress(&format!("{what}: {value:.2} {unit}"));
    }

    fn bounded(&mut self, what: &str, value: f64, unit: &'static str, target: f64) {
        self.bench.push(Figure::bounded(&self.name(what), value, unit, target));
        self.progress(&format!("{what}: {value:.2} {unit}"));
    }

    /// Adds a figure with the CPU time of this process since then, for each of `each`. Unlike elapsed time it
    /// does not depend on other load.
    #[expect(clippy::cast_precision_loss, reason = "figures are read by people")]
    fn cpu_time(&mut self, what: &str, since: Duration, each: usize) -> Result<()> {
        let took = cpu_time()?.saturating_sub(since);
        self.report(what, figures::ms(took) / each.max(1) as f64, "ms");
        Ok(())
    }

    #[expect(clippy::cast_precision_loss, reason = "figures are read by people")]
    fn per_node(&self, bytes: u64) -> f64 {
        bytes as f64 / self.number as f64
    }

    fn connect(&mut self) -> Result<AgentsProcess> {
        let (before, start, since) = (resident()?, Instant::now(), cpu_time()?);
        let mut agents = AgentsProcess::start(&self.replica, self.number)?;
        let (_, bytes) = agents.hold(self.replica.generation())?;
        self.report("all_connected", figures::ms(start.elapsed()), "ms");
        self.report("first_bytes_a_node", self.per_node(bytes), "bytes");
        let memory = self.per_node(resident()?.saturating_sub(before)) / 1024.0;
        self.bounded("memory_an_agent", memory, "KiB", 48.0);
        self.cpu_time("connect_work_an_agent", since, self.number)?;
        Ok(agents)
    }

    /// Events for every node, one at a time. The next one starts after the acks of all agents.
    fn events(&mut self, agents: &mut AgentsProcess) -> Result<()> {
        let (mut late, mut all, since) = (Samples::default(), 0, cpu_time()?);
        for _ in 0..self.args.events {
            let (took, bytes) = self.event(agents)?;
            late.push(took);
            all += bytes;
            self.replica.wait_for_acks()?;
        }
        self.bounded("event_to_the_last_p50", late.p50(), "ms", self.target);
        self.report("event_to_the_last_p99", late.p99(), "ms");
        let each = self.per_node(all) / f64::from(self.args.events);
        self.report("event_bytes_a_node", each, "bytes");
        self.cpu_time("event_work", since, self.args.events as usize)?;
        Ok(())
    }

    fn event(&mut self, agents: &mut AgentsProcess) -> Result<(Duration, u64)> {
        let start = now();
        let generation = self.replica.event_for_all();
        let (last, bytes) = agents.hold(generation)?;
        Ok((Duration::from_nanos(last.saturating_sub(start)), bytes))
    }

    /// Relabels a hundred pods per second, which affects few nodes each. Once per second it sends an event
    /// for all nodes as well.
    fn churn(&mut self, agents: &mut AgentsProcess) -> Result<()> {
        let (mut churned, start, since) = (0_u64, Instant::now(), cpu_time()?);
        let (mut behind, mut all) = (Samples::default(), 0);
        while start.elapsed() < Duration::from_secs(self.args.churn) {
            let due = start + Duration::from_millis(churned * 10);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            self.replica.churn();
            churned += 1;
            if churned.is_multiple_of(100) {
                let (took, bytes) = self.event(agents)?;
                behind.push(took);
                all += bytes;
            }
        }
        #[expect(clippy::cast_precision_loss, reason = "figures are read by people")]
        let rate = churned as f64 / start.elapsed().as_secs_f64();
        self.report("churn_events", rate, "/s");
        self.report("churn_behind_p50", behind.p50(), "ms");
        self.report("churn_behind_p99", behind.p99(), "ms");
        let seconds = start.elapsed().as_secs_f64();
        self.report("churn_bytes_a_node", self.per_node(all) / seconds, "B/s");
        self.cpu_time("churn_work_an_event", since, usize::try_from(churned)?)?;
        Ok(())
    }

    /// Replaces the replica by one with another epoch, so that every agent resyncs.
    fn resync(&mut self, agents: &mut AgentsProcess) -> Result<()> {
        let start = now();
        self.replica.replace()?;
        self.progress("the replica has restarted");
        let since = cpu_time()?;
        let (last, bytes) = agents.hold_after_restart(self.replica.generation())?;
        let took = Duration::from_nanos(last.saturating_sub(start));
        self.report("resync_all", figures::ms(took), "ms");
        self.report("resync_bytes_a_node", self.per_node(bytes), "bytes");
        self.cpu_time("resync_work_an_agent", since, self.number)?;
        Ok(())
    }
}

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

    /// Waits until all agents hold a generation. Returns the time of the last one, and the bytes since the
    /// previous call.
    fn hold(&mut self, generation: u64) -> Result<(u64, u64)> {
        self.ask(&format!("hold {generation}"))
    }

    /// As `hold`, after a restart of the replica.
    fn hold_after_restart(&mut self, generation: u64) -> Result<(u64, u64)> {
        self.ask(&format!("restarted {generation}"))
    }

    fn ask(&mut self, command: &str) -> Result<(u64, u64)> {
        writeln!(self.to, "{command}").context("send a command to the agents")?;
        let mut line = String::new();
        self.from.read_line(&mut line).context("read the agents' answer")?;
        let mut numbers = line.split_whitespace().map(str::parse);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(last)), Some(Ok(bytes))) => Ok((last, bytes)),
            _ => bail!("the agents answered {line:?} to {command:?}"),
        }
    }

    fn end(mut self) -> Result<()> {
        drop(self.to);
        self.child.wait().context("wait for the agents").map(drop)
    }
}

/// Nanoseconds of the monotonic clock, which all processes share.
fn now() -> u64 {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
    time.map_or(0, |time| u64::try_from(Duration::from(time).as_nanos()).unwrap_or(u64::MAX))
}

/// CPU time of this process.
fn cpu_time() -> Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).context("read this process's CPU time")?;
    Ok([usage.user_time(), usage.system_time()]
        .map(|part| part.num_microseconds())
        .iter()
        .sum::<i64>())
    .map(|micros| Duration::from_micros(u64::try_from(micros).unwrap_or_default()))
}

/// Resident memory of this process in bytes.
fn resident() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status").context("read /proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().context("read VmRSS")?;
    Ok(kib * 1024)
}

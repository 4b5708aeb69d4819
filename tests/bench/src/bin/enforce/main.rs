//! Policy enforcement by eBPF: verdicts, changes, memory, traffic and losses.
//!
//! Needs root. It makes namespaces of its own with the host links of pods and a bpffs, and leaves nothing behind.

mod losses;
mod names;
mod packet;
mod peer;
mod traffic;
mod verdicts;
mod way;

use anyhow::{Context as _, Result, ensure};
use clap::{Parser, ValueEnum};
use datapath_ebpf::memory_of_maps;
use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
};
use peer::Peer;
use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};
use tests_bench::{
    agent::{self, Agent},
    cores::processor_time,
    figures::{self, Bench, Figure, Samples},
    namespace::Namespace,
    world::{self, WIRE, World},
};
use way::Way;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
}

#[derive(Parser)]
struct Args {
    /// The object file of the programs
    #[arg(long)]
    object: PathBuf,
    /// The object file of the program of aws-network-policy-agent
    #[arg(long)]
    peer: PathBuf,
    /// Output format
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
    /// A tenth of the rounds
    #[arg(long)]
    small: bool,
    /// Only this part of the figures
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// Prints the resident memory after some changes
    #[arg(long, hide = true)]
    memory: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Verdicts,
    Changes,
    Beside,
    Memory,
    Traffic,
    Losses,
    Names,
}

impl Part {
    async fn measure(
        self,
        args: &Args,
        pins: &Path,
        way: &Way,
        rounds: u32,
        bench: &mut Bench,
    ) -> Result<()> {
        match self {
            Self::Verdicts => {
                for (peers, target) in VERDICTS {
                    let pins = pins.join(peers.to_string());
                    let of = verdicts::measure(&args.object, &pins, peers, rounds / 5).await?;
                    let name = format!("verdict_{peers}_peers");
                    bench.push(Figure::bounded(&name, of.verdict, "ns", target));
                    let name = format!("lookups_{peers}_peers");
                    bench.push(Figure::bounded(&name, of.lookups, "ns", target));
                    let name = format!("first_packet_{peers}_peers");
                    bench.push(Figure::reported(&name, of.first, "ns"));
                }
            }
            Self::Changes => {
                let many = World { peers: 100_000, ..NODE };
                let mut agent = Agent::start(&args.object, &pins.join("many"), &many).await?;
                let first = addresses(&mut agent, &many, 1).await?.p99();
                let times = addresses(&mut agent, &many, rounds).await?;
                let (p50, p99) = (times.p50(), times.p99());
                bench.push(Figure::reported("address_of_100000_after_load", first, "ms"));
                bench.push(Figure::bounded("address_of_100000_in_force_p99", p99, "ms", 2.0));
                bench.push(Figure::reported("address_of_100000_in_force_p50", p50, "ms"));
                drop(agent);
                let mut agent = Agent::start(&args.object, &pins.join("changes"), &NODE).await?;
                let times = policies(&mut agent, rounds).await?;
                let (p50, p99) = (times.p50(), times.p99());
                bench.push(Figure::bounded("policy_of_1000_in_force_p99", p99, "ms", 20.0));
                bench.push(Figure::reported("policy_of_1000_in_force_p50", p50, "ms"));
                let idle = share_of_core(&mut agent, &NODE, rounds * 5, false).await?;
                bench.push(Figure::reported("core_without_changes", idle, "%"));
                let share = share_of_core(&mut agent, &NODE, rounds * 5, true).await?;
                bench.push(Figure::bounded("core_100_addresses_a_second", share, "%", 3.0));
                drop(agent);
                let few = World { pods: 50, policies: 50, ..NODE };
                let mut agent = Agent::start(&args.object, &pins.join("few"), &few).await?;
                let share = share_of_core(&mut agent, &few, rounds * 5, true).await?;
                bench.push(Figure::reported("core_100_addresses_a_second_50_pods", share, "%"));
            }
            Self::Beside => {
                let mut peer = Peer::load(&args.peer, &pins.join("peer"), 10_000)?;
                let pins = pins.join("beside");
                let rounds = rounds / 5;
                let [ours, theirs] =
                    verdicts::beside(&args.object, &pins, &mut peer, 10_000, rounds).await?;
                let figure = Figure::with_reference("first_packet_beside", ours, "ns", theirs);
                bench.push(figure.at_most(0.6));
            }
            Self::Memory => {
                let agent = Agent::start(&args.object, &pins.join("memory"), &NODE).await?;
                let maps = agent.maps.clone();
                packet::connections(&mut agent.into_programs()?, NODE.pods, CONNECTIONS)?;
                let bytes = memory_of_maps(&maps)?;
                let mega = |bytes: u64| bytes as f64 / 1e6;
                bench.push(Figure::bounded("kernel_memory", mega(bytes), "MB", 32.0));
                let theirs = peer::memory(&args.peer, &pins.join("peers"), &NODE)?;
                let figure =
                    Figure::with_reference("kernel_memory_beside", mega(bytes), "MB", mega(theirs));
                bench.push(figure.at_most(0.5));
                let resident = resident_of_child(args)?;
                bench.push(Figure::bounded("agent_memory", resident, "MiB", 60.0));
            }
            Self::Traffic => measure_traffic(args, pins, way, rounds, bench).await?,
            Self::Names => {
                let world = World { has_names: true, ..POD };
                let folder = pins.join("names");
                let times = names::measure(&args.object, &folder, &world, way, rounds * 2).await?;
                bench.push(Figure::bounded("dns_answer_held_p99", times.p99(), "ms", 20.0));
                bench.push(Figure::reported("dns_answer_held_p50", times.p50(), "ms"));
            }
            Self::Losses => measure_losses(args, pins, way, rounds, bench).await?,
        }
        Ok(())
    }
}

/// Peers, and the target in nanoseconds.
const VERDICTS: [(u32, f64); 4] = [(100, 130.0), (1000, 130.0), (10_000, 140.0), (60_000, 220.0)];
/// The node of most figures.
const NODE: World = World {
    peers: 10_000,
    groups: 200,
    pods: 250,
    policies: 1000,
    parts: 50,
    is_open: false,
    has_names: false,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let args = Args::parse();
    let pins = tempfile::tempdir().context("create a folder for the bpffs")?;
    isolate(pins.path())?;
    let way = Way::over(Namespace::current()?)?;
    if args.memory {
        return memory(&args, pins.path()).await;
    }
    let rounds = if args.small { 20 } else { 200 };
    let mut bench = Bench::new("enforce");
    for part in Part::value_variants() {
        if args.only.is_none_or(|only| only == *part) {
            part.measure(&args, pins.path(), &way, rounds, &mut bench).await?;
        }
    }
    match args.output {
        Format::Json => figures::print(&bench),
        Format::Table => figures::print_table(&bench),
    }
}

/// Moves the process into namespaces of its own, with the pods' links and a bpffs.
fn isolate(pins: &Path) -> Result<()> {
    let none = None::<&str>;
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).context("need root")?;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
        .context("make / private")?;
    mount(Some("bpf"), pins, Some("bpf"), MsFlags::empty(), none).context("mount a bpffs")?;
    Namespace::current()?.add_links(NODE.pods)
}

/// The world of a pod with 50 policies.
const POD: World = World {
    peers: 1000,
    groups: 50,
    pods: 1,
    policies: 50,
    parts: 1,
    is_open: true,
    has_names: false,
};

async fn measure_traffic(
    args: &Args,
    pins: &Path,
    way: &Way,
    rounds: u32,
    bench: &mut Bench,
) -> Result<()> {
    let none = Way::new(NODE.pods)?;
    let agent = Agent::start(&args.object, &pins.join("traffic"), &POD).await?;
    let of = traffic::measure([way, &none], rounds * 5)?;
    drop(agent);
    for (name, unit, turns, target) in [
        ("udp_round_trip", "us", of.round_trip, 1.05),
        ("tcp_connect_request_close", "us", of.connection, 1.08),
        // The time of a bit: a target is a maximum.
        ("stream_time", "ns/kbit", of.stream, 1.03),
    ] {
        bench.push(Figure::in_turns(name, unit, &turns).at_most(target));
    }
    Ok(())
}

async fn measure_losses(
    args: &Args,
    pins: &Path,
    way: &Way,
    rounds: u32,
    bench: &mut Bench,
) -> Result<()> {
    let (swaps, restarts) = (rounds * 3 / 2, rounds / 10);
    let world = POD;
    let folder = pins.join("losses");
    let of = losses::measure(&args.object, &folder, &world, way, [swaps, restarts]).await?;
    let count = |name: &str, count: u64| Figure::reported(name, count as f64, "");
    bench.push(count("program_swaps", swaps.into()));
    bench.push(count("agent_restarts", restarts.into()));
    bench.push(count("swaps_packets", of.sent));
    bench.push(count("swaps_packets_lost", of.lost).none());
    bench.push(count("swaps_denied_packets_passed", of.passed).none());
    bench.push(count("swaps_requests", of.requests));
    bench.push(count("swaps_connections_lost", of.connections).none());
    let world = World { pods: 10, ..POD };
    let foreign = rounds / 4;
    let lost = losses::beside_foreign(&args.object, &pins.join("foreign"), &world, foreign).await?;
    bench.push(count("foreign_starts", u64::from(foreign) * u64::from(losses::FOREIGN)));
    bench.push(count("foreign_connections_lost", lost.into()).none());
    Ok(())
}

async fn addresses(agent: &mut Agent, world: &World, rounds: u32) -> Result<Samples> {
    let mut samples = Samples::default();
    for round in 0..rounds {
        agent.rest(PAUSE).await;
        let peer = round / 2 * 97 % world.peers;
        samples.push(agent.receive(vec![world.address(peer, round % 2 == 0)]).await?);
    }
    Ok(samples)
}

async fn policies(agent: &mut Agent, rounds: u32) -> Result<Samples> {
    let mut samples = Samples::default();
    for round in 0..rounds {
        agent.rest(PAUSE).await;
        let port = if round % 2 == 0 { 81 } else { 80 };
        samples.push(agent.receive(vec![NODE.last_policy(port)]).await?);
    }
    Ok(samples)
}

/// The share of a core for 100 changes of addresses in a second, or for none, in percent.
async fn share_of_core(
    agent: &mut Agent,
    world: &World,
    rounds: u32,
    has_changes: bool,
) -> Result<f64> {
    let begun = (Instant::now(), processor_time()?);
    for round in 0..rounds {
        let due = begun.0 + Duration::from_millis(10) * round;
        agent.rest(due.saturating_duration_since(Instant::now())).await;
        if !has_changes {
            continue;
        }
        let change = world.address(round / 2 * 97 % world.peers, round % 2 == 0);
        agent.receive(vec![change]).await?;
    }
    let ran = (processor_time()? - begun.1).as_secs_f64();
    Ok(ran / begun.0.elapsed().as_secs_f64() * 100.0)
}

/// Prints the resident memory of an agent's core with its backend, in MiB.
async fn memory(args: &Args, pins: &Path) -> Result<()> {
    let mut agent = Agent::start(&args.object, &pins.join("resident"), &NODE).await?;
    addresses(&mut agent, &NODE, 20).await?;
    policies(&mut agent, 20).await?;
    let status = std::fs::read_to_string("/proc/self/status").context("read /proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse().context("read VmRSS")?;
    writeln!(std::io::stdout(), "{}", kib / 1024.0).context("print the memory")
}

/// Of a process of its own: this one has measured other worlds.
fn resident_of_child(args: &Args) -> Result<f64> {
    let mut command = Command::new(std::env::current_exe().context("find the own program")?);
    command.arg("--memory").arg("--object").arg(&args.object);
    command.arg("--peer").arg(&args.peer).stderr(Stdio::inherit());
    let output = command.output().context("start the own program")?;
    ensure!(output.status.success(), "the process that measures memory failed");
    String::from_utf8_lossy(&output.stdout).trim().parse().context("read the memory")
}

const CONNECTIONS: u32 = 50_000;
/// linux/pkt_cls.h: TC_ACT_UNSPEC
const PASS: i32 = -1;
/// Longer than the time after which unused rows are removed.
const PAUSE: Duration = Duration::from_millis(25);

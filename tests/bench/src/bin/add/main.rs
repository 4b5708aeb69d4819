//! Measures ADD and DEL through the production plugin, next to the floor, on the node it runs on.
//!
//! `bench-add floor` runs inside a lab's node (`ferrule-lab node exec NODE -- bench-add floor …`) whose
//! production daemon has a warm pool. The floor is a static C program that sends the same netlink messages.
//! The same code spawns both, alternating, in one run, so that the ratios are comparable between machines.
//!
//! `bench-add beside` runs outside of the nodes. It has a worker on each of two nodes: one with Ferrule, one
//! with the real amazon-vpc-cni. `bench-add enforced` and `bench-add agents` compare nodes that enforce policies in the
//! same way. `bench-add flooded` compares a node under a flood with the same node without it.

mod beside;
mod daemon;
mod enforced;
mod flooded;
mod programs;
mod sandbox;
mod worker;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use daemon::Daemon;
use programs::{Floor, Plugin, Verb};
use sandbox::Sandbox;
use std::{
    path::PathBuf,
    process::{Command, Stdio},
    sync::Barrier,
    time::{Duration, Instant},
};
use tests_bench::figures::{self, Bench, Figure, Samples};

/// Free addresses of a warm pool.
const WARM: u64 = 112;
const PATIENCE: Duration = Duration::from_secs(120);
/// Bursts of each size.
const BURSTS: usize = 5;
/// The kernel removes a burst's namespaces within this time.
const REMOVAL: Duration = Duration::from_secs(1);

#[derive(Parser)]
enum Cli {
    /// Compare with the floor, within a node
    Floor(Args),
    /// Compare with amazon-vpc-cni, outside of the nodes
    Beside(beside::Args),
    /// Compare a node that enforces policies with one that does not, and with one of aws-network-policy-agent, outside
    /// of the nodes
    Enforced(enforced::Args),
    /// Compare the memory of the agents of two nodes, outside of the nodes
    Agents(enforced::AgentsArgs),
    /// Compare ADDs under floods of the node's HTTP ports with ADDs without, outside of the node
    Flooded(flooded::Args),
    /// Send a flood until standard input is closed
    Flood(flooded::FloodArgs),
    /// Worker of the other commands on a node
    Worker(worker::Args),
}

#[derive(clap::Args)]
struct Args {
    /// Path of the production plugin
    #[arg(long)]
    plugin: PathBuf,
    /// Path of the floor program
    #[arg(long)]
    floor: PathBuf,
    /// Path of the node's conflist
    #[arg(long)]
    conflist: PathBuf,
    /// Number of sequential ADDs
    #[arg(long, default_value_t = 100)]
    rounds: usize,
}

fn main() -> Result<()> {
    match Cli::parse() {
        Cli::Floor(args) => floor(&args),
        Cli::Beside(args) => beside::run(&args),
        Cli::Enforced(args) => enforced::run(&args),
        Cli::Agents(args) => enforced::agents(&args),
        Cli::Flooded(args) => flooded::run(&args),
        Cli::Flood(args) => flooded::flood(&args),
        Cli::Worker(args) => worker::run(&args),
    }
}

fn floor(args: &Args) -> Result<()> {
    let plugin = Plugin::new(&args.plugin, &args.conflist)?;
    let floor = Floor::new(&args.floor);
    let daemon = Daemon::find()?;
    let mut bench = Bench::new("add");

    daemon.wait_free(WARM, PATIENCE)?;
    // Writes of the build's files must not delay the daemon's checkpoint.
    nix::unistd::sync();
    let idle = daemon.resident_kib()?;
    bench.push(Figure::bounded("daemon_resident_idle", idle as f64 / 1024.0, "MiB", 20.0));
    startup(&mut bench, args)?;
    one_at_a_time(&mut bench, &plugin, &floor, args.rounds)?;
    for count in [30, 110] {
        bursts(&mut bench, &plugin, &floor, &daemon, count)?;
    }
    daemon.wait_free(WARM, PATIENCE)?;
    with_pods(&mut bench, &plugin, &daemon)?;
    figures::print(&bench)
}

/// Size of the plugin, and its start time next to that of `/bin/true`.
fn startup(bench: &mut Bench, args: &Args) -> Result<()> {
    let size = std::fs::metadata(&args.plugin).context("the plugin's size")?.len();
    bench.push(Figure::bounded("plugin_size", size as f64 / 1e6, "MB", 3.0));
    let (mut ours, mut nothing) = (Samples::default(), Samples::default());
    for _ in 0..200 {
        nothing.time(|| programs::exec(Command::new("/bin/true")))?;
        let mut version = Command::new(&args.plugin);
        version.env_clear().env("CNI_COMMAND", "VERSION").stdout(Stdio::null());
        ours.time(|| programs::exec(version))?;
    }
    bench.push(Figure::against("exec_version_p50", ours.p50(), nothing.p50(), 1.3));
    Ok(())
}

/// One call at a time on a quiet node. Before each call, the effects of the previous one (a repair pass, the
/// removal of a namespace) have finished. Bursts have figures of their own.
fn one_at_a_time(bench: &mut Bench, plugin: &Plugin, floor: &Floor, rounds: usize) -> Result<()> {
    let (mut add, mut add_floor) = (Samples::default(), Samples::default());
    let (mut del, mut del_floor) = (Samples::default(), Samples::default());
    let mut gone = Samples::default();
    let mut kept = Vec::new();
    for round in 0..rounds {
        let (pod, bare) = (Sandbox::new("one", round)?, Sandbox::new("floor", round)?);
        add_floor.time_at_rest(|| floor.add(&bare))?;
        add.time_at_rest(|| plugin.call(Verb::Add, &pod))?;
        del_floor.time_at_rest(|| floor.del(&bare))?;
        del.time_at_rest(|| plugin.call(Verb::Del, &pod))?;
        let left = Instant::now();
        wait_until(|| !plugin.has_link(&pod), "the host veth to go")?;
        gone.push(left.elapsed());
        kept.push((pod, bare));
    }
    bench.push(Figure::against("add_one_p50", add.p50(), add_floor.p50(), 2.0));
    bench.push(Figure::against("add_one_p99", add.p99(), add_floor.p50(), 10.0));
    bench.push(Figure::against("del_one_p50", del.p50(), del_floor.p50(), 2.0));
    bench.push(Figure::against("del_one_p99", del.p99(), del_floor.p50(), 10.0));
    bench.push(Figure::bounded("del_link_gone_p99", gone.p99(), "ms", 100.0));
    Ok(())
}

/// Runs all calls concurrently. Returns the time until the last one ends.
fn side_by_side<T: Sync>(items: &[T], call: impl Fn(&T) -> Result<()> + Sync) -> Result<Duration> {
    let barrier = Barrier::new(items.len() + 1);
    std::thread::scope(|scope| {
        let threads: Vec<_> = items
            .iter()
            .map(|item| {
                let (barrier, call) = (&barrier, &call);
                scope.spawn(move || {
                    barrier.wait();
                    call(item)
                })
            })
            .collect();
        barrier.wait();
        let started = Instant::now();
        for thread in threads {
            thread.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
        }
        Ok(started.elapsed())
    })
}

/// Bursts by turns with the floor's: a single one varies by a factor of two, the floor's too.
fn bursts(
    bench: &mut Bench,
    plugin: &Plugin,
    floor: &Floor,
    daemon: &Daemon,
    count: usize,
) -> Result<()> {
    let (mut add, mut add_floor, mut del) =
        (Samples::default(), Samples::default(), Samples::default());
    for turn in 0..BURSTS {
        daemon.wait_free(WARM, PATIENCE)?;
        let sandboxes = |name: &str| {
            (0..count).map(|at| Sandbox::new(name, turn * count + at)).collect::<Result<Vec<_>>>()
        };
        let bare = sandboxes("bfloor")?;
        add_floor.push(side_by_side(&bare, |s| floor.add(s))?);
        side_by_side(&bare, |s| floor.del(s))?;
        drop(bare);
        std::thread::sleep(REMOVAL);
        let pods = sandboxes("burst")?;
        add.push(side_by_side(&pods, |s| plugin.call(Verb::Add, s))?);
        del.push(side_by_side(&pods, |s| plugin.call(Verb::Del, s))?);
    }
    let name = format!("add_burst_{count}_total");
    bench.push(Figure::against(&name, add.p50(), add_floor.p50(), 2.0));
    bench.push(Figure::bounded(&format!("del_burst_{count}_total"), del.p50(), "ms", 500.0));
    Ok(())
}

/// Memory of the daemon and repair of deleted rules, with a hundred pods on the node.
fn with_pods(bench: &mut Bench, plugin: &Plugin, daemon: &Daemon) -> Result<()> {
    let pods = (0..100).map(|at| Sandbox::new("background", at)).collect::<Result<Vec<_>>>()?;
    for pod in &pods {
        plugin.call(Verb::Add, pod)?;
    }
    let resident = daemon.resident_kib()? as f64 / 1024.0;
    bench.push(Figure::bounded("daemon_resident_100_pods", resident, "MiB", 35.0));
    let rules = programs::rules_to_pods()?;
    ensure!(rules.len() >= pods.len(), "{} pods but {} rules", pods.len(), rules.len());
    let mut repair = Samples::default();
    for address in rules.iter().take(40) {
        programs::delete_rule_to(address)?;
        let removed = Instant::now();
        wait_until(
            || programs::rules_to_pods().is_ok_and(|rules| rules.contains(address)),
            "the daemon to put the rule back",
        )?;
        repair.push(removed.elapsed());
    }
    bench.push(Figure::bounded("drift_repaired_p50", repair.p50(), "ms", 2000.0));
    bench.push(Figure::bounded("drift_repaired_p99", repair.p99(), "ms", 2000.0));
    for pod in &pods {
        plugin.call(Verb::Del, pod)?;
    }
    Ok(())
}

fn wait_until(done: impl Fn() -> bool, what: &str) -> Result<()> {
    let give_up = Instant::now() + PATIENCE;
    while !done() {
        ensure!(Instant::now() < give_up, "waited {PATIENCE:?} for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

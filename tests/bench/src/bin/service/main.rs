//! Services in eBPF: connections beside kube-proxy and by the number of Services, changes, memory and losses.
//!
//! Needs root. The program makes namespaces of its own with nodes, pods and clients, and a bpffs. They end with it. The real
//! kube-proxy has an API server of this program ([`api`]).

mod api;
mod changes;
mod churn;
mod cluster;
mod connection;
mod load;
mod losses;
mod ours;
mod path;
mod proxy;
mod replica;
mod site;

use anyhow::{Context as _, Result};
use churn::{Churn, Connections};
use clap::{Parser, ValueEnum};
use cluster::{Backends, Cluster};
use connection::{Span, To, Way, in_turns, pair};
use losses::Losses;
use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
};
use ours::{Programs, put_into_force};
use proxy::Proxy;
use site::{Place, Site};
use std::path::{Path, PathBuf};
use tests_bench::figures::{self, Bench, Figure};

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
    /// The program with all components of Kubernetes
    #[arg(long, required_unless_present = "memory")]
    kubernetes: Option<PathBuf>,
    /// The root of cgroup v2, or the folder with all cgroup trees
    #[arg(long, default_value = "/sys/fs/cgroup")]
    cgroup: PathBuf,
    /// Output format
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
    /// A tenth of the rounds and of the Services
    #[arg(long)]
    small: bool,
    /// Only this part of the figures
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// Prints the resident memory of an agent in a large cluster
    #[arg(long, hide = true)]
    memory: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Size,
    Beside,
    Path,
    Host,
    Changes,
    Load,
    Losses,
}

/// The settings of a run.
struct Run<'a> {
    args: &'a Args,
    pins: &'a Path,
    rounds: u32,
}

impl Run<'_> {
    /// A number of Services or backends.
    fn size(&self, of: u32) -> u32 {
        if self.args.small { of / 10 } else { of }
    }

    fn cluster(&self, services: u32) -> Cluster {
        Cluster { services: self.size(services), backends: Backends::Ports(1) }
    }

    fn kubernetes(&self) -> Result<&Path> {
        self.args.kubernetes.as_deref().context("--kubernetes is missing")
    }

    /// A node whose agent has put a cluster's Services into force.
    fn ours(&self, name: &str, cluster: &Cluster, cgroup: Option<&Path>) -> Result<Site> {
        let site = site_for(cluster)?;
        let pins = self.pins.join(name);
        let programs = Programs { cgroup, ..Programs::new(&self.args.object, &pins) };
        put_into_force(&site.node, programs, cluster).context(name.to_owned())?;
        Ok(site)
    }

    /// Two nodes whose agents have put a cluster's Services into force.
    fn ours_across(&self, cluster: &Cluster) -> Result<Site> {
        let site = Site::across().context("create two nodes")?;
        for (name, node, pods) in
            [("near", Some(&site.node), [1, 2]), ("far", site.other.as_ref(), [0, 1])]
        {
            let pins = self.pins.join(name);
            let programs = Programs { pods, ..Programs::new(&self.args.object, &pins) };
            let node = node.context("there is one node")?;
            put_into_force(node, programs, cluster).context(name)?;
        }
        Ok(site)
    }

    /// Two nodes with the rules of kube-proxy, which has ended.
    fn theirs_across(&self, mode: &str, cluster: &Cluster) -> Result<Site> {
        let site = Site::across().context("create two nodes")?;
        let other = site.other.as_ref().context("there is one node")?;
        // The nodes have default routes.
        for node in [&site.node, other] {
            drop(Proxy::start_on(node, node, self.kubernetes()?, mode, cluster)?);
        }
        site.check_sources()?;
        Ok(site)
    }

    /// A node with the rules of kube-proxy, which has ended, and without the check of source addresses.
    fn theirs_unchecked(&self, mode: &str, cluster: &Cluster) -> Result<Site> {
        let site = site_for(cluster)?;
        drop(Proxy::start(self.kubernetes()?, mode, &site, cluster)?);
        Ok(site)
    }

    /// A node with the rules of kube-proxy, which has ended.
    fn theirs(&self, mode: &str, cluster: &Cluster) -> Result<Site> {
        let site = self.theirs_unchecked(mode, cluster)?;
        site.check_sources()?;
        Ok(site)
    }

    fn measure(&self, part: Part, bench: &mut Bench) -> Result<()> {
        match part {
            Part::Size => self.measure_size(bench),
            Part::Beside => self.measure_beside(bench),
            Part::Path => self.measure_path(bench),
            Part::Host => self.measure_host(bench),
            Part::Changes => self.measure_changes(bench),
            Part::Load => self.measure_load(bench),
            Part::Losses => self.measure_losses(bench),
        }
    }

    /// Connections by the number of Services and of backends.
    fn measure_size(&self, bench: &mut Bench) -> Result<()> {
        let few = Cluster { services: FEW, backends: Backends::Ports(1) };
        let many = self.cluster(10_000);
        let wide =
            Cluster { services: FEW, backends: Backends::Ports(u16::try_from(self.size(1000))?) };
        let sites = [
            self.ours("few", &few, None)?,
            self.ours("many", &many, None)?,
            self.ours("wide", &wide, None)?,
        ];
        let numbers = [few, many, wide].map(|of| To::Services(of.services));
        let ways = [0, 1, 2].map(|at| Way { site: &sites[at], from: Place::Pod, to: numbers[at] });
        let turns = in_turns(&ways, Span::Whole, self.rounds * 2)?;
        for (name, way) in [("connection_10000_services", 1), ("connection_1000_backends", 2)] {
            bench.push(Figure::in_turns(name, "us", &pair(&turns, [way, 0])).at_most(1.05));
        }
        Ok(())
    }

    /// Connections beside kube-proxy.
    fn measure_beside(&self, bench: &mut Bench) -> Result<()> {
        let [some, more] = [self.cluster(1000), self.cluster(5000)];
        let sites = [
            self.ours("some", &some, None)?,
            self.ours("more", &more, None)?,
            self.theirs("iptables", &some)?,
            self.theirs("iptables", &more)?,
            self.theirs("nftables", &more)?,
            self.theirs_unchecked("nftables", &more)?,
        ];
        let clusters = [some, more, some, more, more, more];
        let ways = [0, 1, 2, 3, 4, 5].map(|at| Way {
            site: &sites[at],
            from: Place::Pod,
            to: To::Services(clusters[at].services),
        });
        let turns = in_turns(&ways, Span::Whole, self.rounds * 2)?;
        for (name, ways, target) in [
            ("connection_beside_nftables_5000", [1, 4], 0.75),
            ("connection_beside_iptables_1000", [0, 2], 0.72),
            ("connection_beside_iptables_5000", [1, 3], 0.65),
        ] {
            bench.push(Figure::in_turns(name, "us", &pair(&turns, ways)).at_most(target));
        }
        let name = "connection_beside_nftables_5000_unchecked";
        bench.push(Figure::in_turns(name, "us", &pair(&turns, [1, 5])));
        let ways =
            [1, 3, 4].map(|at| Way { site: &sites[at], from: Place::Outside, to: To::NodePort });
        let turns = in_turns(&ways, Span::Whole, self.rounds * 2)?;
        for (name, reference) in
            [("node_port_beside_nftables_5000", 2), ("node_port_beside_iptables_5000", 1)]
        {
            bench.push(Figure::in_turns(name, "us", &pair(&turns, [0, reference])).at_most(0.85));
        }
        drop(sites);
        let sites = [
            self.ours_across(&more)?,
            self.theirs_across("iptables", &more)?,
            self.theirs_across("nftables", &more)?,
        ];
        let to = To::Services(more.services);
        let ways = [0, 1, 2].map(|at| Way { site: &sites[at], from: Place::Pod, to });
        let turns = in_turns(&ways, Span::Whole, self.rounds * 2)?;
        for (name, reference) in
            [("other_node_beside_nftables_5000", 2), ("other_node_beside_iptables_5000", 1)]
        {
            bench.push(Figure::in_turns(name, "us", &pair(&turns, [0, reference])).at_most(0.9));
        }
        Ok(())
    }

    /// Packets between two pods of a node, on the fast path and by the stack, also with the routing rules of many pods.
    fn measure_path(&self, bench: &mut Bench) -> Result<()> {
        let cluster = Cluster { services: FEW, backends: Backends::Ports(1) };
        let mut ours = Vec::new();
        let mut bare = Vec::new();
        for pods in [1, 250, 700] {
            ours.push(self.ours(&format!("path{pods}"), &cluster, None)?);
            let site = site_with(1)?;
            site.check_sources()?;
            bare.push(site);
            for site in ours.last().into_iter().chain(bare.last()).filter(|_| pods > 1) {
                site.add_rules(pods).context("add the rules of pods")?;
            }
        }
        let sites: Vec<&Site> = ours.iter().chain(&bare).collect();
        let turns = path::round_trips(&sites, self.rounds * 2)?;
        for (name, ways, target) in [
            ("round_trip_beside_none", [0, 3], Some(0.85)),
            ("round_trip_250_pods", [1, 0], Some(1.05)),
            ("round_trip_700_pods", [2, 0], Some(1.05)),
            ("round_trip_250_pods_without_programs", [4, 3], None),
            ("round_trip_700_pods_without_programs", [5, 3], None),
        ] {
            let figure = Figure::in_turns(name, "us", &pair(&turns, ways));
            bench.push(target.map_or(figure.clone(), |target| figure.at_most(target)));
        }
        let turns = path::streams(&[&ours[0], &bare[0]], self.rounds)?;
        let figure = Figure::in_turns("stream_time_beside_none", "us", &pair(&turns, [0, 1]));
        bench.push(figure.at_most(1.0));
        Ok(())
    }

    /// Processes of the node.
    fn measure_host(&self, bench: &mut Bench) -> Result<()> {
        let cluster = Cluster { services: FEW, backends: Backends::Ports(1) };
        let site = self.ours("host", &cluster, Some(&self.args.cgroup))?;
        let ways = [To::Services(cluster.services), To::Pod].map(|to| Way {
            site: &site,
            from: Place::Node,
            to,
        });
        let turns = in_turns(&ways, Span::Connect, self.rounds * 2)?;
        let figure = Figure::in_turns("host_connect_beside_pod", "us", &pair(&turns, [0, 1]));
        bench.push(figure.at_most(1.03));
        // The programs of the cgroup end with their pins.
        std::fs::remove_dir_all(self.pins.join("host")).context("remove the pins of a node")
    }

    fn measure_changes(&self, bench: &mut Bench) -> Result<()> {
        let cluster = self.cluster(10_000);
        let pins = ["changes", "churn"].map(|name| self.pins.join(name));
        let [changes, churn] = pins.each_ref().map(|pins| Programs::new(&self.args.object, pins));
        let ours = changes::ours(&site_with(2)?, changes, &cluster, self.rounds)?;
        bench.push(Figure::bounded("slice_in_force_p99", ours.p99(), "ms", 150.0));
        bench.push(Figure::reported("slice_in_force_p50", ours.p50(), "ms"));
        let (mode, rounds) = ("nftables", self.rounds / 5);
        let theirs = changes::theirs(self.kubernetes()?, mode, &site_with(2)?, &cluster, rounds)?;
        for (name, [ours, theirs]) in [
            ("slice_in_force_p99_beside_nftables", [ours.p99(), theirs.p99()]),
            ("slice_in_force_p50_beside_nftables", [ours.p50(), theirs.p50()]),
        ] {
            bench.push(Figure::with_reference(name, ours, "ms", theirs).at_most(0.3));
        }
        let seconds = if self.args.small { 6 } else { 60 };
        let churn = churn::under_changes(&site_with(2)?, churn, &cluster, seconds)?;
        let Churn { core, connections: Connections { opened, to_removed, failed } } = churn;
        let count = |name, count: u64| Figure::reported(name, count as f64, "");
        bench.push(Figure::bounded("core_1000_endpoints_a_second", core, "%", 30.0));
        bench.push(count("churn_connections", opened));
        bench.push(count("churn_connections_to_removed_backends", to_removed).none());
        bench.push(count("churn_connections_not_opened", failed).none());
        Ok(())
    }

    fn measure_load(&self, bench: &mut Bench) -> Result<()> {
        let cluster = self.large();
        let pins = self.pins.join("load");
        std::fs::create_dir(&pins).context("create a folder of pins")?;
        let programs = Programs::new(&self.args.object, &pins);
        let (times, memory) = load::ours(&site_with(1)?, programs, &cluster, LOADS)?;
        bench.push(Figure::bounded("load_of_100000_endpoints", times.p50(), "ms", 1000.0));
        let [all, of_services] = memory.map(|bytes| bytes as f64 / 1e6);
        bench.push(Figure::bounded("kernel_memory_of_services", of_services, "MB", 48.0));
        bench.push(Figure::reported("kernel_memory", all, "MB"));
        let resident = load::resident_of_child(&self.args.object, self.args.small)?;
        let (time, of_proxy) =
            load::theirs(self.kubernetes()?, "nftables", &site_with(1)?, &cluster)?;
        let figure = Figure::with_reference("memory_beside_nftables", resident, "MiB", of_proxy);
        bench.push(figure.at_most(0.4));
        bench.push(Figure::reported("kube_proxy_start", figures::ms(time), "ms"));
        Ok(())
    }

    fn measure_losses(&self, bench: &mut Bench) -> Result<()> {
        let cluster = self.cluster(1000);
        let (swaps, restarts) = (self.rounds * 3 / 2, self.rounds / 10);
        let pins = ["swaps", "upgrade"].map(|name| self.pins.join(name));
        let [of_swaps, of_upgrade] =
            pins.each_ref().map(|pins| Programs::new(&self.args.object, pins));
        let count = |name: &str, count: u64| Figure::reported(name, count as f64, "");
        bench.push(count("program_swaps", swaps.into()));
        bench.push(count("agent_restarts", restarts.into()));
        let swaps = losses::swaps(&site_with(1)?, of_swaps, &cluster, [swaps, restarts])?;
        let upgrade = losses::upgrade(&site_with(1)?, of_upgrade, &cluster)?;
        for (of, losses) in [("swaps", swaps), ("upgrade", upgrade)] {
            let Losses { datagrams, lost, requests, broken, opened, failed } = losses;
            bench.push(count(&format!("{of}_packets"), datagrams));
            bench.push(count(&format!("{of}_packets_lost"), lost).none());
            bench.push(count(&format!("{of}_requests"), requests));
            bench.push(count(&format!("{of}_connections_lost"), broken).none());
            bench.push(count(&format!("{of}_connections_opened"), opened));
            bench.push(count(&format!("{of}_connections_not_opened"), failed).none());
        }
        Ok(())
    }

    /// The cluster of the figures about memory.
    fn large(&self) -> Cluster {
        Cluster { services: self.size(10_000), backends: Backends::Elsewhere(10) }
    }

    /// Prints the memory of an agent, for the process that measures it beside kube-proxy.
    fn print_memory(&self) -> Result<()> {
        let pins = self.pins.join("resident");
        let programs = Programs::new(&self.args.object, &pins);
        load::print_memory(&site_with(1)?, programs, &self.large())
    }
}

/// A node whose server has the ports of the cluster's backends.
fn site_for(cluster: &Cluster) -> Result<Site> {
    match cluster.backends {
        Backends::Ports(ports) => site_with(ports),
        Backends::Elsewhere(_) => site_with(1),
    }
}

fn site_with(ports: u16) -> Result<Site> {
    Site::new(ports).context("create a node")
}

fn main() -> Result<()> {
    let args = Args::parse();
    let pins = tempfile::tempdir().context("create a folder for the bpffs")?;
    isolate(pins.path())?;
    let rounds = if args.small { 20 } else { 200 };
    let run = Run { args: &args, pins: pins.path(), rounds };
    if args.memory {
        return run.print_memory();
    }
    let mut bench = Bench::new("service");
    for part in Part::value_variants() {
        if args.only.is_none_or(|only| only == *part) {
            run.measure(*part, &mut bench)?;
        }
    }
    match args.output {
        Format::Json => figures::print(&bench),
        Format::Table => figures::print_table(&bench),
    }
}

/// Moves the process into namespaces of its own with a bpffs.
fn isolate(pins: &Path) -> Result<()> {
    let none = None::<&str>;
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).context("need root")?;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
        .context("make / private")?;
    mount(Some("bpf"), pins, Some("bpf"), MsFlags::empty(), none).context("mount a bpffs")
}

/// The Services of the cluster that is the reference for larger ones.
const FEW: u32 = 10;
/// The loads of a large cluster, of which the median counts.
const LOADS: u32 = 5;

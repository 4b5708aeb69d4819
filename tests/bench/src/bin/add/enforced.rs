//! ADDs of pods whose policies are enforced. On a second node no policy is enforced, and on a third one the real
//! aws-network-policy-agent enforces them. The nodes take turns call by call.

use crate::beside::{InLab, OURS, THEIR_PLUGIN, THEIRS, column, quantile, turns};
use anyhow::Result;
use std::path::{Path, PathBuf};
use tests_bench::figures::{self, Bench, Figure};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    of: InLab,
    /// Node whose agent has the backend `ebpf`
    #[arg(long)]
    enforced: String,
    /// Node whose agent has the backend `none`
    #[arg(long)]
    open: String,
    /// Node of amazon-vpc-cni and aws-network-policy-agent
    #[arg(long)]
    theirs: String,
    /// Folder with a list of pods for each node, as NODE.json
    #[arg(long)]
    pods: PathBuf,
    /// Half the number of sequential ADDs, and five times the number of bursts
    #[arg(long, default_value_t = 100)]
    rounds: usize,
}

#[derive(clap::Args)]
pub(crate) struct AgentsArgs {
    #[command(flatten)]
    of: InLab,
    /// Node of ferrule-agent
    #[arg(long)]
    enforced: String,
    /// Node of aws-network-policy-agent
    #[arg(long)]
    theirs: String,
}

const BURST: usize = 110;

pub(crate) fn run(args: &Args) -> Result<()> {
    let worker = |node: &str, plugin: &Path, cni| {
        let pods = args.pods.join(format!("{node}.json"));
        args.of.place(node).start(plugin, cni, Some(&pods))
    };
    let mut all = [
        worker(&args.enforced, &args.of.plugin, OURS)?,
        worker(&args.open, &args.of.plugin, OURS)?,
        worker(&args.theirs, Path::new(THEIR_PLUGIN), THEIRS)?,
    ];
    for node in &mut all {
        node.ask("hold 0")?;
    }
    let burst = format!("burst {BURST}");
    // The first ones find cold caches.
    turns(&mut all, "one", 2)?;
    turns(&mut all, &burst, 1)?;
    let mut bench = Bench::new("enforce");
    let mut push = |name: &str, line: &str, count: usize, beside_none: f64| -> Result<()> {
        let all = turns(&mut all, line, count)?;
        let [enforced, open, theirs] = all.map(|answers| column(&answers, 0));
        for (of, references, target) in [("none", open, beside_none), ("theirs", theirs, 0.6)] {
            let turns = enforced.iter().zip(references).map(|(ours, other)| [*ours, other]);
            let turns: Vec<[f64; 2]> = turns.collect();
            let name = format!("{name}_beside_{of}");
            bench.push(Figure::in_turns(&name, "ms", &turns).at_most(target));
        }
        Ok(())
    };
    push("add_p50", "one", args.rounds * 2, 1.15)?;
    push("add_burst_110", &burst, args.rounds.div_ceil(5), 1.2)?;
    figures::print(&bench)
}

/// The resident memory of the agents of two nodes.
pub(crate) fn agents(args: &AgentsArgs) -> Result<()> {
    let mut both = [
        args.of.place(&args.enforced).start(&args.of.plugin, OURS, None)?,
        args.of.place(&args.theirs).start(Path::new(THEIR_PLUGIN), THEIRS, None)?,
    ];
    let [ours, theirs] = turns(&mut both, "agent", 1)?;
    let [ours, theirs] = [ours, theirs].map(|of| quantile(&column(&of, 0), 50) / 1024.0);
    let mut bench = Bench::new("enforce");
    let figure = Figure::with_reference("agent_memory_beside", ours, "MiB", theirs);
    bench.push(figure.at_most(0.5));
    bench.push(Figure::bounded("agent_memory_in_cluster", ours, "MiB", 60.0));
    figures::print(&bench)
}

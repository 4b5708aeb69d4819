//! ADDs of pods whose policies are enforced, beside a node on which nothing enforces them. The two alternate call by call.

use crate::beside::{InLab, column, quantile, turns};
use anyhow::Result;
use std::path::PathBuf;
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
    /// Folder with a list of pods for each node, as NODE.json
    #[arg(long)]
    pods: PathBuf,
    /// Number of sequential ADDs, and ten times the number of bursts
    #[arg(long, default_value_t = 100)]
    rounds: usize,
}

const BURST: usize = 110;
const CNI: [&str; 2] = ["ferrule", "/etc/cni/net.d/05-ferrule.conflist"];

pub(crate) fn run(args: &Args) -> Result<()> {
    let worker = |node: &str| {
        args.of.place(node).start(
            &args.of.plugin,
            CNI,
            Some(&args.pods.join(format!("{node}.json"))),
        )
    };
    let mut both = [worker(&args.enforced)?, worker(&args.open)?];
    for node in &mut both {
        node.ask("hold 0")?;
    }
    let burst = format!("burst {BURST}");
    // The first ones find cold caches.
    turns(&mut both, "one", 2)?;
    turns(&mut both, &burst, 1)?;
    let mut bench = Bench::new("enforce");
    let mut push = |name: &str, line: &str, count: usize, target: f64| -> Result<()> {
        let [enforced, open] =
            turns(&mut both, line, count)?.map(|answers| quantile(&column(&answers, 0), 50));
        let figure = Figure::with_reference(name, enforced, "ms", open);
        bench.push(figure.at_most(target));
        Ok(())
    };
    push("add_p50_beside_none", "one", args.rounds, 1.15)?;
    push("add_burst_110_beside_none", &burst, args.rounds.div_ceil(10), 1.2)?;
    figures::print(&bench)
}

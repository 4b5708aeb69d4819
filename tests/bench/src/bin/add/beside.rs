//! Comparison of Ferrule with the real amazon-vpc-cni, each on its own node of one lab. The two alternate
//! call by call, so that other load of the machine affects both.

use anyhow::{Context as _, Result, ensure};
use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};
use tests_bench::figures::{self, Bench, Figure};

/// A lab and the plugin of its nodes.
#[derive(clap::Args)]
pub(crate) struct InLab {
    /// Path of the lab's tool
    #[arg(long)]
    lab: PathBuf,
    /// Name of the lab
    #[arg(long)]
    name: String,
    /// Path of Ferrule's plugin
    #[arg(long)]
    pub(crate) plugin: PathBuf,
}

impl InLab {
    pub(crate) fn place<'a>(&'a self, node: &'a str) -> Place<'a> {
        Place { lab: &self.lab, name: &self.name, node }
    }
}

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    of: InLab,
    /// Ferrule's node
    #[arg(long)]
    ours: String,
    /// Node of amazon-vpc-cni
    #[arg(long)]
    theirs: String,
    /// Number of sequential ADDs at each size
    #[arg(long, default_value_t = 30)]
    rounds: usize,
    /// Number of other pods on the node, for each size
    #[arg(long, value_delimiter = ',', default_values_t = [0, 100, 250])]
    pods: Vec<usize>,
}

/// The CNI of a worker, and its conflist.
pub(crate) const OURS: [&str; 2] = ["ferrule", "/etc/cni/net.d/05-ferrule.conflist"];
pub(crate) const THEIRS: [&str; 2] = ["amazon-vpc-cni", "/etc/cni/net.d/10-aws.conflist"];
pub(crate) const THEIR_PLUGIN: &str = "/opt/cni/bin/aws-cni";
const BURST: usize = 30;
/// Bursts at each size.
const BURSTS: usize = 3;
/// Target of the daemon's resident memory at each size, in MiB.
const RESIDENT: f64 = 20.0;

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut bench = Bench::new("add");
    let mut both = [
        args.of.place(&args.ours).start(&args.of.plugin, OURS, None)?,
        args.of.place(&args.theirs).start(Path::new(THEIR_PLUGIN), THEIRS, None)?,
    ];
    for pods in &args.pods {
        eprintln!("  with {pods} other pods: {} rounds, {BURSTS} bursts", args.rounds);
        size(&mut bench, &mut both, *pods, args.rounds)?;
    }
    for party in &mut both {
        party.ask("end 0")?;
    }
    figures::print(&bench)
}

fn size(
    bench: &mut Bench,
    both: &mut [WorkerProcess; 2],
    pods: usize,
    rounds: usize,
) -> Result<()> {
    // Cooling addresses are not available for a while; both sides wait until their pool has refilled.
    for party in both.iter_mut() {
        party.ask(&format!("hold {pods}"))?;
    }
    let [ours, theirs] = turns(both, "one", rounds)?;
    let mut push =
        |name: String, pick: fn(&[f64]) -> f64, at: usize, unit, of: [&[Vec<f64>]; 2]| {
            let [ours, theirs] = of.map(|answers| pick(&column(answers, at)));
            bench.push(Figure::with_reference(&name, ours, unit, theirs));
        };
    for (verb, at) in [("add", 0), ("del", 1)] {
        push(
            format!("{verb}_p50_beside_{pods}"),
            |of| quantile(of, 50),
            at,
            "ms",
            [&ours, &theirs],
        );
        push(
            format!("{verb}_p99_beside_{pods}"),
            |of| quantile(of, 99),
            at,
            "ms",
            [&ours, &theirs],
        );
    }
    let [ours, theirs] = turns(both, &format!("burst {BURST}"), BURSTS)?;
    for (verb, at) in [("add", 0), ("del", 1)] {
        let name = format!("{verb}_burst_{BURST}_beside_{pods}");
        push(name, |of| quantile(of, 50), at, "ms", [&ours, &theirs]);
    }
    let [ours, theirs] = turns(both, "resident", 1)?;
    let mib = |of: &[f64]| quantile(of, 50) / 1024.0;
    push(format!("agent_resident_beside_{pods}"), mib, 0, "MiB", [&ours, &theirs]);
    let ours = mib(&column(&ours, 0));
    bench.push(Figure::bounded(&format!("daemon_resident_beside_{pods}"), ours, "MiB", RESIDENT));
    Ok(())
}

/// Sends a command to all workers by turns. Returns the answers of each.
pub(crate) fn turns<const N: usize>(
    all: &mut [WorkerProcess; N],
    line: &str,
    count: usize,
) -> Result<[Vec<Vec<f64>>; N]> {
    let mut answers = [const { Vec::new() }; N];
    for turn in 0..count {
        // The first one changes, so that no side is always the first.
        for at in (0..N).map(|at| (turn + at) % N) {
            answers[at].push(all[at].ask(line)?);
        }
    }
    Ok(answers)
}

pub(crate) fn column(answers: &[Vec<f64>], at: usize) -> Vec<f64> {
    answers.iter().filter_map(|answer| answer.get(at).copied()).collect()
}

pub(crate) fn quantile(values: &[f64], percent: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

/// A worker process on its node. It exits when its standard input is closed.
pub(crate) struct WorkerProcess {
    node: String,
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

/// A node of a lab.
pub(crate) struct Place<'a> {
    lab: &'a Path,
    name: &'a str,
    node: &'a str,
}

impl Place<'_> {
    /// Starts a worker on the node, for a CNI and the path of its conflist.
    pub(crate) fn start(
        &self,
        plugin: &Path,
        [cni, conflist]: [&str; 2],
        pods: Option<&Path>,
    ) -> Result<WorkerProcess> {
        let me = std::env::current_exe().context("this program's path")?;
        let mut command = Command::new(self.lab);
        command.args(["--name", self.name, "node", "exec", self.node, "--"]).arg(me);
        command.args(["worker", "--cni", cni, "--conflist", conflist, "--plugin"]).arg(plugin);
        if let Some(pods) = pods {
            command.arg("--pods").arg(pods);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("start {command:?}"))?;
        let input = child.stdin.take();
        let output =
            BufReader::new(child.stdout.take().context("the worker has no standard output")?);
        Ok(WorkerProcess { node: self.node.to_owned(), child, input, output })
    }
}

impl WorkerProcess {
    pub(crate) fn ask(&mut self, line: &str) -> Result<Vec<f64>> {
        let what = || format!("{line} on {}", self.node);
        let input = self.input.as_mut().with_context(what)?;
        writeln!(input, "{line}").and_then(|()| input.flush()).with_context(what)?;
        let mut answer = String::new();
        self.output.read_line(&mut answer).with_context(what)?;
        ensure!(!answer.is_empty(), "{}: the worker exited; its messages are above", what());
        let numbers = answer.split_whitespace().map(str::parse);
        numbers.collect::<Result<_, _>>().with_context(what)
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

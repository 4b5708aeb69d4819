//! Time from pages of lists to all groups and spans, and time of single events, at the four sizes of Antrea's
//! controller benchmark.
//!
//! The targets hold for objects as small as those of that benchmark. Objects as large as on a cluster
//! (`…_full`) are measured next to them. The benchmark needs no privileges. It writes its pages to a
//! temporary folder, 0.7 GB at the largest size, and removes them.

use anyhow::{Context as _, Result, bail};
use clap::{Parser, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufReader, BufWriter, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};
use tests_bench::{
    figures::{self, Bench, Figure, ms},
    policy::{self, LoadMode, ObjectForm, Scale, Size},
};

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
    /// Only the size of this name
    #[arg(long)]
    size: Option<String>,
    /// A hundredth of each size
    #[arg(long)]
    small: bool,
    /// Objects as large as on clusters, for a part
    #[arg(long, hide = true)]
    full: bool,
    /// Number of runs at each size; the fastest counts
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    #[command(subcommand)]
    part: Option<Part>,
}

/// A measurement in a separate process.
#[derive(Subcommand)]
enum Part {
    /// Writes the pages
    #[command(hide = true)]
    Write { into: PathBuf },
    /// Reads the pages with derived types and drops the lists: the plain parse
    #[command(hide = true)]
    Plain { from: PathBuf },
    /// Reads the pages with the production reader and drops the objects
    #[command(hide = true)]
    Own { from: PathBuf },
    /// Reads the pages and computes all groups and spans
    #[command(hide = true)]
    Groups { from: PathBuf },
    /// As `groups`, and applies single events
    #[command(hide = true)]
    Events { from: PathBuf },
}

/// The result of a part.
#[derive(Default, Serialize, Deserialize)]
struct PartResult {
    ms: f64,
    /// Share of `ms` in which the process ran.
    ran_ms: f64,
    peak_mb: f64,
    bytes: u64,
    objects: usize,
    groups: usize,
    /// By name: median and 99th percentile in milliseconds, and the mean number of changed members.
    events: BTreeMap<String, (f64, f64, f64)>,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let scale = if args.small { Scale::Small } else { Scale::Full };
    let size = args.size.as_deref().map(|name| Size::of(name).context("no size has this name"));
    let size = size.transpose()?;
    let Some(part) = &args.part else { return run(&args, size) };
    let size = size.context("a part is of one size")?;
    match part {
        Part::Write { into } => {
            let file = File::create(into).with_context(|| format!("create {}", into.display()))?;
            let mut file = BufWriter::with_capacity(1 << 20, file);
            let form = if args.full { ObjectForm::Full } else { ObjectForm::Lean };
            policy::pages(size, form, scale, &mut file)?;
            file.flush().with_context(|| format!("write {}", into.display()))
        }
        Part::Plain { from } => print(&measure(from, LoadMode::Plain, false)?),
        Part::Own { from } => print(&measure(from, LoadMode::OwnReader, false)?),
        Part::Groups { from } => print(&measure(from, LoadMode::Groups, false)?),
        Part::Events { from } => print(&measure(from, LoadMode::Groups, true)?),
    }
}

fn measure(from: &Path, what: LoadMode, events: bool) -> Result<PartResult> {
    let open = || File::open(from).with_context(|| format!("open {}", from.display()));
    let mut loaded = policy::load(&mut open()?, what)?;
    let mut result = PartResult {
        ms: ms(loaded.took),
        ran_ms: ms(loaded.ran),
        peak_mb: peak_mb()?,
        bytes: loaded.bytes,
        objects: loaded.objects,
        groups: loaded.index.len(),
        events: BTreeMap::new(),
    };
    if events {
        for timed in policy::events(&mut loaded.index, &mut BufReader::new(open()?), EVENTS)? {
            let members = timed.members as f64 / timed.samples.len() as f64;
            let of = (timed.samples.p50(), timed.samples.p99(), members);
            result.events.insert(timed.name.to_owned(), of);
        }
    }
    Ok(result)
}

const EVENTS: usize = 1000;

fn print(result: &PartResult) -> Result<()> {
    let json = serde_json::to_string(result).context("encode the result")?;
    writeln!(std::io::stdout(), "{json}").context("print the result")
}

/// Peak resident memory of this process.
fn peak_mb() -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status").context("read /proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse().context("read VmHWM")?;
    Ok(kib * 1024.0 / 1e6)
}

fn run(args: &Args, only: Option<Size>) -> Result<()> {
    let mut bench = Bench::new("policy");
    let folder = std::env::temp_dir().join(format!("bench-policy-{}", std::process::id()));
    std::fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    let done = Size::ALL
        .into_iter()
        .filter(|size| only.is_none_or(|only| only == *size))
        .try_for_each(|size| one(args, size, &folder.join("pages"), &mut bench));
    std::fs::remove_dir_all(&folder).with_context(|| format!("remove {}", folder.display()))?;
    done?;
    match args.output {
        Format::Json => figures::print(&bench),
        Format::Table => figures::print_table(&bench),
    }
}

fn one(args: &Args, size: Size, pages: &Path, bench: &mut Bench) -> Result<()> {
    let Quietest { plain, own, groups } = quietest(args, size, ObjectForm::Lean, pages)?;
    let events = parse_result(&part(args, size, ObjectForm::Lean, "events", pages)?)?.events;
    let name = size.name();
    let (most_ms, most_mb) = size.targets();
    let bounded = |what: &str, value, unit, target| {
        Figure::bounded(&format!("{name}_{what}"), value, unit, target)
    };
    let reported =
        |what: &str, value, unit| Figure::reported(&format!("{name}_{what}"), value, unit);
    let with_reference = |what: &str, reference| {
        Figure::with_reference(&format!("{name}_{what}"), groups.ran_ms, "ms", reference)
    };
    bench.push(reported("objects", groups.objects as f64, "objects"));
    bench.push(reported("pages", groups.bytes as f64 / 1e6, "MB"));
    bench.push(reported("groups", groups.groups as f64, "groups"));
    bench.push(bounded("load", groups.ms, "ms", most_ms));
    // The run time, without the time in which other processes ran: on a busy machine it approximates the time
    // on a quiet one.
    bench.push(with_reference("load_running", plain.ran_ms).at_most(2.0));
    bench.push(with_reference("load_running_own_reader", own.ran_ms));
    bench.push(reported("index_alone", groups.ran_ms - own.ran_ms, "ms"));
    bench.push(bounded("peak", groups.peak_mb, "MB", most_mb));
    bench.push(reported("parse_peak", plain.peak_mb, "MB"));
    bench.push(reported("parse_peak_own_reader", own.peak_mb, "MB"));
    for (event, (p50, p99, members)) in events {
        let (p50, p99) = (p50 * 1e3, p99 * 1e3);
        let figure = |which: &str, value| match event.as_str() {
            "pod_added" => bounded(&format!("{event}_{which}"), value, "µs", 100.0),
            _ => reported(&format!("{event}_{which}"), value, "µs"),
        };
        bench.push(figure("p50", p50));
        bench.push(figure("p99", p99));
        bench.push(reported(&format!("{event}_members"), members, "each"));
    }
    let Quietest { plain, own, groups } = quietest(args, size, ObjectForm::Full, pages)?;
    let with_reference = |what: &str, reference| {
        Figure::with_reference(&format!("{name}_{what}"), groups.ran_ms, "ms", reference)
    };
    bench.push(reported("pages_full", groups.bytes as f64 / 1e6, "MB"));
    bench.push(reported("load_full", groups.ms, "ms"));
    bench.push(with_reference("load_running_full", plain.ran_ms));
    bench.push(with_reference("load_running_full_own_reader", own.ran_ms));
    bench.push(reported("peak_full", groups.peak_mb, "MB"));
    Ok(())
}

/// The fastest run of each part.
struct Quietest {
    plain: PartResult,
    own: PartResult,
    groups: PartResult,
}

fn quietest(args: &Args, size: Size, form: ObjectForm, pages: &Path) -> Result<Quietest> {
    part(args, size, form, "write", pages)?;
    let none = || PartResult { ran_ms: f64::INFINITY, ..PartResult::default() };
    let mut quietest = Quietest { plain: none(), own: none(), groups: none() };
    for _ in 0..args.rounds.max(1) {
        let Quietest { plain, own, groups } = &mut quietest;
        for (which, least) in [("plain", plain), ("own", own), ("groups", groups)] {
            let next = parse_result(&part(args, size, form, which, pages)?)?;
            // The memory is the maximum of all runs, the time that of the fastest run.
            let peak_mb = next.peak_mb.max(least.peak_mb);
            if next.ran_ms < least.ran_ms {
                *least = next;
            }
            least.peak_mb = peak_mb;
        }
    }
    Ok(quietest)
}

/// Runs a part in a separate process, so that its peak memory is its own.
fn part(args: &Args, size: Size, form: ObjectForm, part: &str, pages: &Path) -> Result<String> {
    let own = std::env::current_exe().context("find this program")?;
    let mut command = Command::new(own);
    command.args(["--size", size.name()]);
    if args.small {
        command.arg("--small");
    }
    if form == ObjectForm::Full {
        command.arg("--full");
    }
    command.arg(part).arg(pages).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output().context("start a process for a part")?;
    if !output.status.success() {
        bail!("{part} of {} failed; its messages are above", size.name());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn parse_result(text: &str) -> Result<PartResult> {
    serde_json::from_str(text).context("parse the result of a part")
}

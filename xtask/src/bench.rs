//! Benchmarks: they print a table for people or, with `-o json`, one object for machines.

mod save;

use crate::{
    binaries::{self, Binaries, Profile},
    bpf, cargo,
    deps::{self, Need},
    generate,
    interrupt::Guard,
    programs::{self, Targets, variable},
    say,
};
use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;
use serde_json::Value;
use std::{
    collections::BTreeSet,
    ffi::OsString,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};
use tests_lab::Lab;

#[derive(Clone, Copy, ValueEnum)]
enum Name {
    /// ADD and DEL through the plugin, beside the floor and beside amazon-vpc-cni's, with 0, 100 and 250
    /// pods; memory; repair of drift
    Add,
    /// Round trips and packets per second through nodes with 1 to 700 pods, by the rules they have
    Route,
    /// The pool against amazon-vpc-cni's algorithm, on the same pod traces, in simulated time
    Pool,
    /// Enforcement by eBPF: verdicts, changes, memory, traffic, losses, and aws-network-policy-agent's program
    Enforce,
    /// ADDs while a pod floods the metrics ports of daemon and agent, beside ADDs without the flood
    Flood,
    /// From pages of lists to all groups and spans, and single events, at four sizes of clusters
    Policy,
    /// Services in eBPF: connections beside kube-proxy and by the number of Services, changes, memory, losses
    Service,
    /// 1,000 and 5,000 agents with real streams: event to the last, bytes, memory, resync, churn
    Stream,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
}

#[derive(clap::Args)]
pub(crate) struct Args {
    name: Name,
    /// Format of the figures
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
    /// add: number of ADDs one at a time, a quarter of it beside amazon-vpc-cni; route: a tenth of the turns of each node
    #[arg(long, default_value_t = 100)]
    rounds: u32,
    /// add, route: build profile of the measuring program, and for add of daemon and lab; targets are for release
    #[arg(long, value_enum, default_value = "release")]
    profile: Profile,
    /// add: only the comparison with amazon-vpc-cni
    #[arg(long)]
    beside: bool,
    /// pool: seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// pool, policy, stream, enforce, service: the small traces, or sizes, of the tests
    #[arg(long)]
    small: bool,
    /// Store the figures in docs/benchmarks, write docs/benchmarks.md, and print the change of each figure
    #[arg(long, conflicts_with_all = ["small", "beside"])]
    save: bool,
}

/// The names of the benchmarks, as their reports carry them.
#[cfg(test)]
fn names() -> Vec<String> {
    let values = Name::value_variants().iter().filter_map(ValueEnum::to_possible_value);
    values.map(|value| value.get_name().to_owned()).collect()
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let report = match args.name {
        Name::Add => {
            deps::need_root("bench add")?;
            deps::install(&[Need::Linker, Need::Iproute, Need::Nft])?;
            add(args)?
        }
        Name::Route => {
            deps::need_root("bench route")?;
            deps::install(&[Need::Linker, Need::Nft])?;
            route(args)?
        }
        Name::Pool => {
            say::step("simulating; the thousand nodes take minutes");
            measure(args, "bench-pool", &["--seed", &args.seed.to_string()])?
        }
        Name::Enforce => {
            deps::need_root("bench enforce")?;
            deps::install(&[Need::Iproute, Need::Clang, Need::Go])?;
            let object = bpf::bench_object()?.display().to_string();
            let peer = bpf::peer_object()?.display().to_string();
            let report = measure(args, "bench-enforce", &["--object", &object, "--peer", &peer])?;
            with_figures(report, &enforced_adds(args)?)
        }
        Name::Flood => {
            deps::need_root("bench flood")?;
            deps::install(&[Need::Iproute, Need::Nft, Need::Iptables, Need::Go])?;
            let rounds = if args.small { 20 } else { 2 * args.rounds };
            say::step("measuring ADDs on one node, with and without a flood of its ports");
            figures(&in_a_lab(
                args,
                FLOODED_ADDS,
                &[variable("FERRULE_BENCH_ROUNDS", rounds.to_string())],
            )?)?
        }
        Name::Policy => measure(args, "bench-policy", &[])?,
        Name::Service => {
            deps::need_root("bench service")?;
            deps::install(&[Need::Iproute, Need::Nft, Need::Iptables, Need::Clang, Need::Go])?;
            let object = bpf::object()?.display().to_string();
            let kubernetes = lab_programs::Program::ready()?.path().display().to_string();
            measure(args, "bench-service", &["--object", &object, "--kubernetes", &kubernetes])?
        }
        Name::Stream => measure(args, "bench-stream", &[])?,
    };
    print(&report, args.output);
    if args.save {
        let docs = generate::root().join("docs");
        let changes = save::save(&report, &docs, &today()?)?;
        for change in &changes {
            match change.slipped {
                true => say::fail(&change.to_string()),
                false => say::note(&change.to_string()),
            }
        }
        say::good(&format!("{} figures changed; stored in docs/benchmarks", changes.len()));
    }
    Ok(ExitCode::SUCCESS)
}

/// The day in UTC, as `2026-01-31`.
fn today() -> Result<String> {
    let output = Command::new("date").args(["-u", "+%F"]).output().context("start date")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Runs a driver that needs no lab; it shows its progress itself.
fn measure(args: &Args, name: &str, more: &[&str]) -> Result<Value> {
    deps::install(&[Need::Linker])?;
    let driver = driver(Profile::Release, name)?;
    say::step("measuring; nothing else should run on this machine meanwhile");
    let mut command = Command::new(driver);
    command.args(["--output", "json"]).args(more);
    if args.small {
        command.arg("--small");
    }
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("start {name}"))?;
    if !output.status.success() {
        bail!("{name} failed; its output is above");
    }
    figures(&String::from_utf8_lossy(&output.stdout))
}

fn print(report: &Value, format: Format) {
    match format {
        Format::Json => say::result(&report.to_string()),
        Format::Table => table(report),
    }
}

/// Uses network namespaces of its own, without daemon and lab.
fn route(args: &Args) -> Result<Value> {
    let driver = driver(args.profile, "bench-route")?;
    say::step("making sixteen nodes, of up to 700 pods; then they take turns");
    let mut command = Command::new(driver);
    command.args(["--turns", &(10 * args.rounds).to_string()]);
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.context("start bench-route")?;
    if !output.status.success() {
        bail!("bench-route failed; its output is above");
    }
    figures(&String::from_utf8_lossy(&output.stdout))
}

fn figures(text: &str) -> Result<Value> {
    let line = text.lines().rfind(|line| line.starts_with('{')).context("no figures")?;
    serde_json::from_str(line).context("read the figures")
}

/// Beside the floor, then beside amazon-vpc-cni: one report.
fn add(args: &Args) -> Result<Value> {
    let programs = binaries::build_for_bench(args.profile)?;
    let bench = driver(args.profile, "bench-add")?;
    if args.beside {
        return beside(&programs, &bench, args.rounds);
    }
    let report = beside_the_floor(&programs, &bench, args.rounds)?;
    // Every round of the comparison takes both sides' rests.
    let compared = beside(&programs, &bench, args.rounds.div_ceil(4)).inspect_err(|_| {
        print(&report, args.output);
        say::fail(
            "the comparison with amazon-vpc-cni failed; the figures beside the floor are above",
        );
    })?;
    Ok(with_figures(report, &compared))
}

/// Adds the figures of another report.
fn with_figures(mut report: Value, more: &Value) -> Value {
    if let (Some(figures), Some(more)) =
        (report["figures"].as_array_mut(), more["figures"].as_array())
    {
        figures.extend_from_slice(more);
    }
    report
}

/// ADDs on a node of a real cluster that enforces policies, beside a node that does not and one of
/// aws-network-policy-agent.
fn enforced_adds(args: &Args) -> Result<Value> {
    deps::install(&[Need::Nft, Need::Iptables])?;
    say::step("measuring ADDs on three nodes of a cluster; they take turns call by call");
    let rounds = if args.small { 10 } else { args.rounds };
    let pods = if args.small { "1000" } else { "10000" };
    let env = [
        variable("FERRULE_BPF", bpf::object()?),
        variable("FERRULE_BENCH_ROUNDS", rounds.to_string()),
        variable("FERRULE_BENCH_PODS", pods),
    ];
    let text = in_a_lab(args, ENFORCED_ADDS, &env)?;
    let (adds, agents) = text.trim().split_once('\n').context("no figures of the agents")?;
    Ok(with_figures(figures(adds)?, &figures(agents)?))
}

/// Runs a benchmark that is an ignored test of `tests-lab`, with these variables. Returns its figures, a JSON object
/// per line.
fn in_a_lab(args: &Args, test: &str, env: &[(&str, OsString)]) -> Result<String> {
    let programs = binaries::build(args.profile)?;
    let bench = driver(args.profile, "bench-add")?;
    let built = programs::build(&BTreeSet::from(["tests-lab"]), Targets::Tests)?;
    let tests = built.tests("tests-lab", Some("kubernetes"));
    let [program] = tests.as_slice() else { bail!("the tests of tests-lab were not built") };
    let labs = PathBuf::from(format!("/run/ferrule-bench-{}", std::process::id()));
    let _guard = Guard::folder(&programs, &labs)?;
    let output = programs.dir.join("adds.json");
    let mut command = Command::new(program.executable());
    command.args(["--ignored", "--exact", test]).current_dir(program.folder());
    command.env("FERRULE_BIN_DIR", &programs.dir).env("FERRULE_LAB_DIR", &labs);
    command.env("FERRULE_BENCH_ADD", bench).env("FERRULE_BENCH_FIGURES", &output);
    command.envs(env.iter().map(|(name, value)| (name, value)));
    // Standard output is for the figures.
    let run = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let run = run.context("start the test program of tests-lab")?;
    if !run.status.success() {
        bail!("{test} failed:\n{}", String::from_utf8_lossy(&run.stdout));
    }
    let text = std::fs::read_to_string(&output);
    text.with_context(|| format!("read {}", output.display()))
}

/// The tests that measure.
const ENFORCED_ADDS: &str = "adds::measures_adds_beside_a_node_without_enforcement";
const FLOODED_ADDS: &str = "hostile::measures_adds_under_floods";

/// An m5.4xlarge has 232 addresses for pods: the burst of 110 finds its addresses warm.
fn beside_the_floor(programs: &Binaries, bench: &Path, rounds: u32) -> Result<Value> {
    let floor = floor(programs)?;
    say::step("one node of m5.4xlarge with a warm pool");
    let name = format!("bench{}", std::process::id());
    let _guard = Guard::lab(programs, &name)?;
    let node = ["--nodes", "1", "--type", "m5.4xlarge", "--env", "MINIMUM_IP_TARGET=232"];
    let lab = Lab::up(&programs.dir, &name, &[&node[..], &SETTINGS[..]].concat())?;
    say::step("measuring; nothing else should run on this machine meanwhile");
    let node = lab.json(&["node", "list"])?;
    let node = node[0]["name"].as_str().context("the lab has no node")?.to_owned();
    let path = |path: &Path| path.display().to_string();
    let text = lab.on_node(
        &node,
        &[
            &path(bench),
            "floor",
            "--plugin",
            &path(&programs.plugin()),
            "--floor",
            &path(&floor),
            "--conflist",
            "/etc/cni/net.d/05-ferrule.conflist",
            "--rounds",
            &rounds.to_string(),
        ],
    )?;
    figures(&text)
}

/// Two nodes of m5.24xlarge, with addresses for 250 pods and those that come and go.
fn beside(programs: &Binaries, bench: &Path, rounds: u32) -> Result<Value> {
    let theirs = lab_programs::Program::vpc_cni()?;
    let theirs = theirs.path().to_str().context("a path that is not UTF-8")?;
    say::step("two nodes of m5.24xlarge: ours, and one of amazon-vpc-cni");
    let name = format!("beside{}", std::process::id());
    let _guard = Guard::lab(programs, &name)?;
    let lab = Lab::up(&programs.dir, &name, &["--nodes", "0"])?;
    let kind =
        ["--type", "m5.24xlarge", "--env", "MINIMUM_IP_TARGET=350", "--env", "WARM_IP_TARGET=1"];
    let add = |node: &str, of: &[&str]| {
        lab.run(&[&["node", "add", node][..], &kind, &SETTINGS, of].concat())
    };
    add("ours", &[])?;
    add("theirs", &["--cni", "amazon-vpc-cni", "--cni-dir", theirs])?;
    tests_lab::vpc_cni::wait_until_ready(&lab, "theirs")?;
    say::step("measuring; they take turns call by call");
    let mut command = Command::new(bench);
    command.arg("beside").arg("--lab").arg(programs.lab()).args(["--name", &name]);
    command.args(["--ours", "ours", "--theirs", "theirs", "--plugin"]).arg(programs.plugin());
    command.args(["--rounds", &rounds.to_string()]);
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.context("start bench-add")?;
    if !output.status.success() {
        bail!("bench-add failed; its output is above");
    }
    figures(&String::from_utf8_lossy(&output.stdout))
}

/// A short cooldown returns addresses soon; logs are as in production.
const SETTINGS: [&str; 4] =
    ["--env", "IP_COOLDOWN_PERIOD=2", "--env", "AWS_VPC_K8S_CNI_LOGLEVEL=INFO"];

/// Compiles the C program of the floor.
fn floor(programs: &Binaries) -> Result<PathBuf> {
    let source = generate::root().join("tests/bench/floor/floor.c");
    let out = programs.dir.join("floor");
    let status = Command::new("cc")
        .args(["-O2", "-static", "-o"])
        .arg(&out)
        .arg(&source)
        .stdin(Stdio::null())
        .status()
        .context("start cc")?;
    if !status.success() {
        bail!("cc could not compile {}", source.display());
    }
    Ok(out)
}

fn driver(profile: Profile, name: &str) -> Result<PathBuf> {
    say::step("building the driver");
    cargo::build(&[profile.cargo_args(), &["-p", "tests-bench", "--bin", name]].concat())?;
    Ok(cargo::target_dir().join(profile.folder()).join(name))
}

fn table(report: &Value) {
    let text = |value: &Value| {
        let number = value.as_f64().map(|number| number.to_string());
        number.unwrap_or_else(|| value.as_str().unwrap_or("–").to_owned())
    };
    say::result(&format!(
        "{:36} {:>10} {:5} {:>10} {:>8} {:>8}  met",
        "figure", "value", "unit", "reference", "ratio", "target"
    ));
    for figure in report["figures"].as_array().map(Vec::as_slice).unwrap_or_default() {
        say::result(&format!(
            "{:36} {:>10} {:5} {:>10} {:>8} {:>8}  {}",
            text(&figure["name"]),
            text(&figure["value"]),
            text(&figure["unit"]),
            text(&figure["reference"]),
            text(&figure["ratio"]),
            text(&figure["target"]),
            if figure["met"] == true { "yes" } else { "no" },
        ));
    }
    say::result(&format!("on {}", text(&report["machine"])));
}

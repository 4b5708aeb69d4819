//! Benchmarks: they print a table for people or, with `-o json`, one object for machines.

use crate::{
    binaries::{self, Binaries},
    deps::{self, Need},
    generate,
    interrupt::Guard,
    say,
};
use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;
use serde_json::Value;
use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};
use tests_lab::Lab;

#[derive(Clone, Copy, ValueEnum)]
enum Name {
    /// ADD and DEL through the plugin, beside the floor; memory; repair of drift
    Add,
    /// The pool against amazon-vpc-cni's algorithm, on the same pod traces, in simulated time
    Pool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
}

#[derive(clap::Args)]
pub(crate) struct Args {
    name: Name,
    /// How the figures are printed
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
    /// How many ADDs one at a time
    #[arg(long, default_value_t = 100)]
    rounds: u32,
    /// pool: decides all chance
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// pool: the small traces of the tests
    #[arg(long)]
    small: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    match args.name {
        Name::Add => {
            deps::need_root("bench add")?;
            deps::install(&[Need::Linker, Need::Iproute, Need::Nft])?;
            let report = add(args.rounds)?;
            match args.output {
                Format::Json => say::result(&report.to_string()),
                Format::Table => table(&report),
            }
        }
        Name::Pool => pool(args)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Nothing but arithmetic: it prints by itself, as it goes.
fn pool(args: &Args) -> Result<()> {
    deps::install(&[Need::Linker])?;
    say::step("building the simulation");
    binaries::cargo_build(&["--release", "-p", "tests-bench", "--bin", "bench-pool"])?;
    say::step("simulating; the thousand nodes take minutes");
    let format = match args.output {
        Format::Json => "json",
        Format::Table => "table",
    };
    let mut command = Command::new(binaries::target_dir().join("release/bench-pool"));
    command.args(["--output", format, "--seed", &args.seed.to_string()]);
    if args.small {
        command.arg("--small");
    }
    let status = command.stdin(Stdio::null()).status().context("start bench-pool")?;
    if !status.success() {
        bail!("bench-pool failed; its words stand above");
    }
    Ok(())
}

/// An m5.4xlarge has 232 addresses for pods: the burst of 110 finds its addresses warm.
fn add(rounds: u32) -> Result<Value> {
    let programs = binaries::build(binaries::Profile::Release)?;
    let floor = floor(&programs)?;
    let bench = driver(&programs)?;
    say::step("one node of m5.4xlarge with a warm pool");
    let name = format!("bench{}", std::process::id());
    let _guard = Guard::lab(&programs, &name)?;
    let lab = Lab::up(
        &programs.dir,
        &name,
        &[
            "--nodes",
            "1",
            "--type",
            "m5.4xlarge",
            "--env",
            "MINIMUM_IP_TARGET=232",
            "--env",
            "IP_COOLDOWN_PERIOD=2",
            "--env",
            "AWS_VPC_K8S_CNI_LOGLEVEL=INFO",
        ],
    )?;
    say::step("measuring; nothing else should run on this machine meanwhile");
    let node = lab.json(&["node", "list"])?;
    let node = node[0]["name"].as_str().context("the lab has no node")?.to_owned();
    let path = |path: &Path| path.display().to_string();
    let text = lab.on_node(
        &node,
        &[
            &path(&bench),
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
    let line = text.lines().rfind(|line| line.starts_with('{')).context("no figures")?;
    serde_json::from_str(line).context("read the figures")
}

/// Compiles the floor's C program.
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

fn driver(programs: &Binaries) -> Result<PathBuf> {
    binaries::cargo_build(&["--release", "-p", "tests-bench"])?;
    let out = programs.dir.join("bench-add");
    binaries::place(&binaries::target_dir().join("release/bench-add"), &out)?;
    Ok(out)
}

fn table(report: &Value) {
    let text = |value: &Value| {
        let number = value.as_f64().map(|number| number.to_string());
        number.unwrap_or_else(|| value.as_str().unwrap_or("–").to_owned())
    };
    say::result(&format!(
        "{:28} {:>10} {:5} {:>10} {:>8} {:>8}  met",
        "figure", "value", "unit", "reference", "ratio", "target"
    ));
    for figure in report["figures"].as_array().map(Vec::as_slice).unwrap_or_default() {
        say::result(&format!(
            "{:28} {:>10} {:5} {:>10} {:>8} {:>8}  {}",
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

//! `cargo xtask sim`: thousands of simulated node lives.

use crate::{cargo, deps};
use anyhow::{Context as _, Result};
use std::process::ExitCode;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Number of lives; without --mode, a tenth more with branch pods (mode trunk)
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// One mode only: secondary, prefixes, …
    #[arg(long)]
    mode: Option<String>,
    /// Print the events of the first life
    #[arg(long)]
    trace: bool,
    /// Continue after a failure, and list them all
    #[arg(long)]
    keep_going: bool,
    /// Plant a fault at the seams; it should be found
    #[arg(long)]
    planted: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    deps::install(&[deps::Need::Linker])?;
    let mut cargo = cargo::command();
    cargo.args(["run", "--locked", "-q", "--profile", "sim", "-p", "tests-sim", "--"]);
    cargo.args(["--seeds", &args.seeds.to_string(), "--from", &args.from.to_string()]);
    for (name, value) in [("--mode", &args.mode), ("--planted", &args.planted)] {
        cargo.args(value.iter().flat_map(|value| [name, value]));
    }
    cargo.args(args.trace.then_some("--trace"));
    cargo.args(args.keep_going.then_some("--keep-going"));
    let status = cargo.status().context("start cargo run")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

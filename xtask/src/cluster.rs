//! `cargo xtask cluster`: a real Kubernetes for people, by the tests' own program.

use crate::{
    binaries,
    deps::{self, Need},
};
use anyhow::{Context as _, Result};
use std::process::ExitCode;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to do, and its options: up, down, status, --help
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    deps::install(&[Need::Linker, Need::Go])?;
    let mut cargo = binaries::cargo();
    cargo.args(["run", "--locked", "--quiet", "-p", "tests-cluster", "--"]).args(&args.words);
    let status = cargo.status().context("run the program of tests/cluster")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

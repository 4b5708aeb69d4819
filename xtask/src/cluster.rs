//! `cargo xtask cluster`: a real Kubernetes for manual use, started by the program of the tests.

use crate::{
    architecture::Architecture,
    binaries, cargo,
    deps::{self, Need},
};
use anyhow::{Context as _, Result, ensure};
use std::{
    path::PathBuf,
    process::{Command, ExitCode, Stdio},
};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Command and options: up, down, status, program, --help
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    deps::install(&[Need::Linker, Need::Go])?;
    let mut cargo = cargo::command();
    cargo.args(["run", "--locked", "--quiet", "-p", "tests-cluster", "--"]).args(&args.words);
    let status = cargo.status().context("run the program of tests/cluster")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns a program that is built once from its Go modules: `kubectl`, `helm`, or the folder `plugins`.
///
/// # Errors
/// If the build fails; its output is above.
pub(crate) fn program(name: &str) -> Result<PathBuf> {
    program_with(name, &[])
}

/// Returns the plugins of the CNI project for this architecture.
///
/// # Errors
/// If the build fails; its output is above.
pub(crate) fn plugins(architecture: Architecture) -> Result<PathBuf> {
    program_with("plugins", &["--arch", architecture.name()])
}

fn program_with(name: &str, args: &[&str]) -> Result<PathBuf> {
    deps::install(&[Need::Linker, Need::Go])?;
    let mut command = match binaries::built_beside("ferrule-cluster") {
        Some(built) => Command::new(built),
        None => {
            let mut cargo = cargo::command();
            cargo.args(["run", "--locked", "--quiet", "-p", "tests-cluster", "--"]);
            cargo
        }
    };
    command.args(["program", name]).args(args).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output().context("run the program of tests/cluster")?;
    ensure!(output.status.success(), "{name} could not be built: its words are above");
    Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()))
}

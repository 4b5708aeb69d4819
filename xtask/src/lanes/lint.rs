//! Lane `lint`: what is wrong with the source without running it.

use super::Tally;
use crate::{binaries, generate, layers};
use anyhow::{Context as _, Result};
use std::process::{ExitCode, Stdio};

pub(super) fn run(tally: &mut Tally) -> Result<()> {
    cargo(tally, "cargo fmt", &["fmt", "--all", "--check"])?;
    tally.count("generated files", generate::check()?);
    tally.count("layers", layers::run()? == ExitCode::SUCCESS);
    let clippy =
        ["clippy", "--locked", "-q", "--workspace", "--all-targets", "--", "-D", "warnings"];
    cargo(tally, "cargo clippy", &clippy)?;
    cargo(tally, "cargo doc", &["doc", "--locked", "-q", "--workspace", "--no-deps"])
}

fn cargo(tally: &mut Tally, step: &str, args: &[&str]) -> Result<()> {
    let mut cargo = binaries::cargo();
    cargo.args(args).stdout(Stdio::from(std::io::stderr())).env("RUSTDOCFLAGS", "-D warnings");
    tally.count(step, cargo.status().with_context(|| format!("start {step}"))?.success());
    Ok(())
}

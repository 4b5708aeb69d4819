//! Lane `lint`: what is wrong with the source without running it.

use super::Tally;
use crate::{
    cargo, generate, layers, prose, say,
    tools::{DENY, MACHETE, Tool},
};
use anyhow::{Context as _, Result};
use std::process::{ExitCode, Stdio};

pub(super) fn run(tally: &mut Tally) -> Result<()> {
    cargo(tally, "cargo fmt", &["fmt", "--all", "--check"])?;
    tally.count("generated files", generate::check()?);
    tally.count("layers", layers::run()? == ExitCode::SUCCESS);
    tally.count("prose", prose::check()?);
    let clippy =
        ["clippy", "--locked", "-q", "--workspace", "--all-targets", "--", "-D", "warnings"];
    cargo(tally, "cargo clippy", &clippy)?;
    cargo(tally, "cargo doc", &["doc", "--locked", "-q", "--workspace", "--no-deps"])?;
    tally.count("unused dependencies", tool(&MACHETE, &["."])?);
    tally.count("cargo deny", tool(&DENY, &["check", "licenses", "sources", "bans"])?);
    // Advisories appear without a change of ours, so they do not block.
    if !tool(&DENY, &["check", "advisories"])? {
        say::note("advisories: see above; they do not fail the lane");
    }
    Ok(())
}

/// Checks each crate with its own features alone: features of other crates cannot hide a missing one.
pub(super) fn each_crate_alone(tally: &mut Tally) -> Result<()> {
    for name in layers::names_of_packages()?.values() {
        cargo(tally, &format!("{name} alone"), &["check", "--locked", "-q", "-p", name])?;
    }
    Ok(())
}

fn tool(tool: &Tool, args: &[&str]) -> Result<bool> {
    let mut command = tool.command()?;
    command.args(args).stdin(Stdio::null()).stdout(Stdio::from(std::io::stderr()));
    Ok(command.status().context("start a tool")?.success())
}

fn cargo(tally: &mut Tally, step: &str, args: &[&str]) -> Result<()> {
    let mut cargo = cargo::command();
    cargo.args(args).stdout(Stdio::from(std::io::stderr())).env("RUSTDOCFLAGS", "-D warnings");
    tally.count(step, cargo.status().with_context(|| format!("start {step}"))?.success());
    Ok(())
}

//! Prometheus' own judgement: `promtool`, of Debian's package `prometheus`.

use anyhow::{Context as _, Result, ensure};
use std::{
    io::Write as _,
    process::{Command, Stdio},
};

/// Whether it is installed; says that the test is skipped if not.
#[expect(clippy::print_stdout, reason = "whoever runs tests is told what was not tested")]
pub fn is_there(test: &str) -> bool {
    let found = Command::new("promtool").arg("--version").output().is_ok();
    if !found {
        println!("SKIP {test}: no promtool; install Debian's package prometheus");
    }
    found
}

/// Runs it.
///
/// # Errors
/// If it cannot be run or complains, with what it says.
pub fn run(args: &[&str]) -> Result<()> {
    let output = Command::new("promtool").args(args).output().context("run promtool")?;
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "promtool {}: {out}{err}", args.join(" "));
    Ok(())
}

/// What it complains of a page of metrics: one line each, the metric's name first.
///
/// # Errors
/// If it cannot be run, or the page is not one that Prometheus reads.
pub fn complaints(page: &str) -> Result<Vec<String>> {
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("run promtool")?;
    promtool.stdin.take().context("promtool has no input")?.write_all(page.as_bytes())?;
    let output = promtool.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    // 3: there are complaints. Anything else: it could not be read.
    ensure!(matches!(output.status.code(), Some(0 | 3)), "promtool cannot read it: {text}\n{page}");
    Ok(text.lines().map(str::to_owned).collect())
}

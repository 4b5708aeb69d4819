//! Prometheus' checks by `promtool` of Debian's package `prometheus`.

use anyhow::{Context as _, Result, ensure};
use std::{
    io::Write as _,
    process::{Command, Stdio},
};

/// True if `promtool` is installed. Otherwise prints that the test is skipped.
#[expect(clippy::print_stdout, reason = "a skipped test must be visible")]
pub fn is_there(test: &str) -> bool {
    let found = Command::new("promtool").arg("--version").output().is_ok();
    if !found {
        println!("SKIP {test}: no promtool; install Debian's package prometheus");
    }
    found
}

/// Runs `promtool`.
///
/// # Errors
/// If it cannot be started or reports a problem; the error contains its output.
pub fn run(args: &[&str]) -> Result<()> {
    let output = Command::new("promtool").args(args).output().context("run promtool")?;
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "promtool {}: {out}{err}", args.join(" "));
    Ok(())
}

/// The complaints about a page of metrics: one line each, which starts with the metric's name.
///
/// # Errors
/// If `promtool` cannot be started, or the page is not in Prometheus' format.
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
    // Exit code 3 means complaints. Other codes mean that the page cannot be parsed.
    ensure!(
        matches!(output.status.code(), Some(0 | 3)),
        "promtool cannot parse the page: {text}\n{page}"
    );
    Ok(text.lines().map(str::to_owned).collect())
}

//! `ferrule doctor`: observes the node, examines it and observes transient findings a second time.

use crate::{args::DoctorArgs, gather, output::Output, print};
use anyhow::{Context as _, Result};
use cli_doctor::{Report, examine};
use serde_json::json;
use std::{
    io::{self, Write as _},
    thread,
    time::Duration,
};

/// The exit code without faults if some checks could not run.
pub(crate) const COULD_NOT_LOOK: u8 = 2;

/// Longer than the time between two netlink messages of one ADD or DEL.
const SECOND_LOOK: Duration = Duration::from_secs(1);

/// Prints the report and returns the exit code.
///
/// # Errors
/// The report cannot be printed.
pub(crate) fn run(args: &DoctorArgs) -> Result<u8> {
    let mut seen = gather::observe(args);
    let mut report = examine(&seen);
    if report.needs_second_observation() {
        thread::sleep(SECOND_LOOK);
        seen.routing = gather::routing(&args.veth_prefix);
        report = report.confirmed_by(&seen);
    }
    let text = match args.output {
        Output::Text => print::text(&report),
        Output::Json | Output::Yaml => args.output.document(&json!(report))?,
    };
    io::stdout().write_all(text.as_bytes()).context("cannot print the report")?;
    Ok(code(&report))
}

fn code(report: &Report) -> u8 {
    match (report.needs_fix(), report.unseen.is_empty()) {
        (true, _) => 1,
        (false, true) => 0,
        (false, false) => COULD_NOT_LOOK,
    }
}

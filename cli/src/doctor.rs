//! `ferrule doctor`: look, judge, look again where it may have been a change under way, tell.

use crate::{args::DoctorArgs, gather, output::Output, print};
use anyhow::{Context as _, Result};
use cli_doctor::{Report, examine};
use std::{
    io::{self, Write as _},
    thread,
    time::Duration,
};

/// The exit code when nothing is known to be wrong, but not everything could be looked at.
pub(crate) const COULD_NOT_LOOK: u8 = 2;

/// Longer than an ADD or DEL is between two of its messages.
const SECOND_LOOK: Duration = Duration::from_secs(1);

/// Tells how the node is; the exit code.
///
/// # Errors
/// The report cannot be printed.
pub(crate) fn run(args: &DoctorArgs) -> Result<u8> {
    let mut seen = gather::observe(args);
    let mut report = examine(&seen);
    if report.wants_second_look() {
        thread::sleep(SECOND_LOOK);
        seen.routing = gather::routing(&args.veth_prefix);
        report = report.confirmed_by(&seen);
    }
    let text = match args.output {
        Output::Text => print::text(&report),
        Output::Json => serde_json::to_string_pretty(&report).context("write the report")? + "\n",
    };
    io::stdout().write_all(text.as_bytes()).context("print the report")?;
    Ok(code(&report))
}

fn code(report: &Report) -> u8 {
    match (report.needs_mending(), report.unseen.is_empty()) {
        (true, _) => 1,
        (false, true) => 0,
        (false, false) => COULD_NOT_LOOK,
    }
}

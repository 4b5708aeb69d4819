//! `ferrule status` once, repeated (`--watch`), or until no trouble remains (`--wait`).

use super::look;
use crate::{
    cluster::{
        TROUBLE,
        api::Api,
        args::{Shape, StatusArgs},
        interrupts::Interrupts,
    },
    output::{self, Output, Screen},
    progress::{Done, Progress},
};
use anyhow::{Result, anyhow};
use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::time::sleep;
use view_cluster::{StatusReport, Width};
use view_text::Text;

/// Prints the overview and returns the exit code.
pub(in crate::cluster) async fn run(args: &StatusArgs) -> Result<u8> {
    let api = Api::connect(&args.target).await?;
    if let Some(seconds) = args.watch {
        return watch(&api, args, Duration::from_secs(seconds)).await;
    }
    let mut progress = Progress::new();
    let report = match args.wait {
        Some(seconds) => {
            let give_up = Instant::now() + Duration::from_secs(seconds);
            wait(&api, args, give_up, &mut progress).await?
        }
        None => read(&api, args, &mut progress).await?,
    };
    drop(progress);
    match args.output.machine() {
        None => output::write(&text(&report, args, output::columns()))?,
        Some(format) => format.write(&json!(filtered(&report, args)))?,
    }
    Ok(code(&report))
}

async fn read(api: &Api, args: &StatusArgs, progress: &mut Progress) -> Result<StatusReport> {
    Ok(StatusReport::of(&look(api, &args.target, &args.node, progress).await?))
}

fn filtered(report: &StatusReport, args: &StatusArgs) -> StatusReport {
    let report = report.clone();
    if args.trouble { report.only_trouble() } else { report }
}

fn text(report: &StatusReport, args: &StatusArgs, columns: Option<u16>) -> Text {
    let width = if args.output == Shape::Wide { Width::Wide } else { Width::Narrow };
    filtered(report, args).text(width, columns)
}

fn code(report: &StatusReport) -> u8 {
    if report.is_good() { 0 } else { TROUBLE }
}

/// Reads until no trouble remains, or until the timeout. Returns the last report.
///
/// # Errors
/// The first read failed, or the last one before the timeout. Later reads may fail in between.
async fn wait(
    api: &Api,
    args: &StatusArgs,
    give_up: Instant,
    progress: &mut Progress,
) -> Result<StatusReport> {
    let mut last = Ok(read(api, args, progress).await?);
    loop {
        let left = give_up.saturating_duration_since(Instant::now());
        let stage = match &last {
            Ok(report) if report.is_good() => return last,
            _ if left.is_zero() => return last,
            Ok(report) => format!("waiting: {}", report.summary.text().to_string().trim()),
            Err(error) => format!("waiting: {error:#}"),
        };
        progress.show(&stage, Done::Unknown);
        sleep(left.min(LOOK_AGAIN)).await;
        last = read(api, args, &mut Progress::hidden()).await;
    }
}

/// Prints the overview again and again until an interrupt. Returns the exit code of the last one.
///
/// # Errors
/// The first read failed, or the first was interrupted. A later error is shown and does not end the command.
async fn watch(api: &Api, args: &StatusArgs, every: Duration) -> Result<u8> {
    let mut interrupts = Interrupts::listen()?;
    let mut screen = Screen::of_stdout();
    let mut progress = Progress::new();
    let mut last: Option<u8> = None;
    loop {
        let looked = tokio::select! {
            looked = read(api, args, &mut progress) => looked,
            word = interrupts.next() => return last.ok_or_else(|| anyhow!(word)),
        };
        progress = Progress::hidden();
        let is_open = match looked {
            Ok(report) => {
                last = Some(code(&report));
                show(&report, args, every, &mut screen)?
            }
            Err(error) if last.is_none() => return Err(error),
            Err(error) => {
                let mut text = heading(every);
                text.push_plain(&format!("cannot read the cluster: {error:#}\n"));
                screen.show(&text)?
            }
        };
        let code = last.unwrap_or_default();
        if !is_open {
            return Ok(code);
        }
        tokio::select! {
            () = sleep(every) => {}
            _ = interrupts.next() => return Ok(code),
        }
    }
}

/// Returns false if the reader of standard output is gone.
fn show(
    report: &StatusReport,
    args: &StatusArgs,
    every: Duration,
    screen: &mut Screen,
) -> Result<bool> {
    match args.output.machine() {
        None => {
            let mut frame = heading(every);
            frame.append(text(report, args, output::columns()));
            screen.show(&frame)
        }
        Some(format) => {
            let document = format.document(&json!(filtered(report, args)))?;
            let start = if format == Output::Yaml { "---\n" } else { "" };
            output::write_block(&format!("{start}{document}"))
        }
    }
}

fn heading(every: Duration) -> Text {
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ");
    Text::from(format!("{now}, every {} s\n", every.as_secs()).as_str())
}

const LOOK_AGAIN: Duration = Duration::from_secs(2);

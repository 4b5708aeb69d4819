//! The `ferrule-controller` binary: flags, log, signals, then [`control_controller::run`].

use anyhow::{Context as _, Result};
use clap::Parser as _;
use config_settings::LogTo;
use control_controller::{Options, run};
use std::{process::ExitCode, time::Duration};
use tokio::signal::unix::{SignalKind, signal};

/// Own crates, which log from the configured level.
const OURS: [&str; 4] = ["ferrule_controller", "control_controller", "control_rpc", "control_hub"];

fn main() -> ExitCode {
    let options = Options::parse();
    options.log(&OURS).start(&LogTo::Stderr, "standard error");
    tracing::info!(version = env!("CARGO_PKG_VERSION"), "ferrule-controller");
    runtime_process::files::raise_limit();
    match replica(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "the controller stops");
            ExitCode::FAILURE
        }
    }
}

fn replica(options: Options) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the async runtime")?;
    let outcome = runtime.block_on(async {
        let mut terminated = signal(SignalKind::terminate()).context("cannot handle SIGTERM")?;
        let mut interrupted = signal(SignalKind::interrupt()).context("cannot handle SIGINT")?;
        let stop = async move {
            tokio::select! {
                _ = terminated.recv() => {}
                _ = interrupted.recv() => {}
            }
        };
        run(options, stop).await
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
}

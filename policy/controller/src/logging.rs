//! Log lines, on standard error.

use crate::options::{LogFormat, LogLevel};
use std::io;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::{
    Layer as _, filter::Targets, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

/// Our own crates: what they say counts from the level that is set. Others are heard from warnings on, since
/// their finer lines may carry what is in requests.
const OURS: [&str; 4] = ["ferrule_controller", "policy_controller", "policy_rpc", "policy_hub"];

/// Starts to log.
pub fn start(format: LogFormat, level: LogLevel) {
    let level = match level {
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Error => LevelFilter::ERROR,
    };
    let others = Targets::new()
        .with_default(LevelFilter::WARN)
        // They warn of each attempt; we tell the outcome ourselves.
        .with_target("kube_client", LevelFilter::ERROR)
        .with_target("kube_runtime", LevelFilter::ERROR);
    let filter = OURS.iter().fold(others, |filter, target| filter.with_target(*target, level));
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    let lines = match format {
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
        LogFormat::Text => lines.with_ansi(false).boxed(),
    };
    // A second start in one process keeps the first one's log: only tests do that.
    let _ = tracing_subscriber::registry().with(lines.with_filter(filter)).try_init();
}

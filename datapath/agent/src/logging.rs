//! Log lines: one JSON object each.

use config_settings::{LogLevel, LogTo};
use std::{fs, io, path::Path, sync::Mutex};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::{
    Layer as _, filter::Targets, fmt::MakeWriter, layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

/// Our own crates: what they say counts from the level that is set. Others are heard from warnings on.
const OURS: [&str; 5] =
    ["ferrule_agent", "datapath_agent", "datapath_node", "policy_rpc", "ipamd_rpc"];

/// Starts to log. A file that cannot be had is told on standard error, which is then used.
pub fn start(to: &LogTo, level: LogLevel) {
    match to {
        LogTo::Stdout => install(level, io::stdout),
        LogTo::Stderr => install(level, io::stderr),
        LogTo::File(path) => match open(path) {
            Ok(file) => install(level, Mutex::new(file)),
            Err(error) => {
                install(level, io::stderr);
                let path = path.display();
                tracing::warn!(%error, "FERRULE_AGENT_LOG_FILE: cannot open {path}; logging to stderr");
            }
        },
    }
}

fn install<W: for<'a> MakeWriter<'a> + Send + Sync + 'static>(level: LogLevel, writer: W) {
    let level = match level {
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Error => LevelFilter::ERROR,
    };
    // kube warns of each attempt; we tell the outcome ourselves.
    let others = Targets::new()
        .with_default(LevelFilter::WARN)
        .with_target("kube_client", LevelFilter::ERROR)
        .with_target("kube_runtime", LevelFilter::ERROR);
    let filter = OURS.iter().fold(others, |filter, target| filter.with_target(*target, level));
    let lines = tracing_subscriber::fmt::layer().json().flatten_event(true).with_writer(writer);
    // A second start in one process keeps the first one's log: only tests do that.
    let _ = tracing_subscriber::registry().with(lines.with_filter(filter)).try_init();
}

fn open(path: &Path) -> io::Result<fs::File> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::OpenOptions::new().create(true).append(true).open(path)
}

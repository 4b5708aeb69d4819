//! Log lines: one JSON object each.

use config_settings::{LogLevel, LogTo};
use std::{fs, io, path::Path, sync::Mutex};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::{
    Layer as _, filter::Targets, fmt::MakeWriter, layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

/// Our own crates: what they say counts from the level that is set. Others are heard from warnings
/// on, since their finer lines may carry what is in requests.
const OURS: [&str; 7] = [
    "ferrule_ipamd",
    "ipamd_daemon",
    "ipamd_core",
    "ipamd_cloud",
    "ipamd_rpc",
    "routing_netlink",
    "routing_plan",
];

/// Starts to log. A file that cannot be had is told on standard error, which is then used.
pub fn start(to: &LogTo, level: LogLevel) {
    let filter = OURS
        .iter()
        .fold(others(), |filter, target| filter.with_target(*target, level_filter(level)));
    match to {
        LogTo::Stdout => install(filter, io::stdout),
        LogTo::Stderr => install(filter, io::stderr),
        LogTo::File(path) => match open(path) {
            Ok(file) => install(filter, Mutex::new(file)),
            Err(error) => {
                install(filter, io::stderr);
                let path = path.display();
                tracing::warn!(%error, "AWS_VPC_K8S_CNI_LOG_FILE: cannot open {path}; logging to stderr");
            }
        },
    }
}

/// The SDK and kube warn of each attempt; we tell the outcome ourselves.
fn others() -> Targets {
    Targets::new()
        .with_default(LevelFilter::WARN)
        .with_target("aws_config", LevelFilter::ERROR)
        .with_target("aws_runtime", LevelFilter::ERROR)
        .with_target("aws_smithy_runtime", LevelFilter::ERROR)
        .with_target("kube_client", LevelFilter::ERROR)
        .with_target("kube_runtime", LevelFilter::ERROR)
}

fn install<W: for<'a> MakeWriter<'a> + Send + Sync + 'static>(filter: Targets, writer: W) {
    let lines = tracing_subscriber::fmt::layer()
        .json()
        .flatten_event(true)
        .with_current_span(false)
        .with_span_list(false)
        .with_writer(writer)
        .with_filter(filter);
    // A second start in one process keeps the first one's log: only tests do that.
    let _ = tracing_subscriber::registry().with(lines).try_init();
}

fn open(path: &Path) -> io::Result<fs::File> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::OpenOptions::new().create(true).append(true).open(path)
}

fn level_filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Error => LevelFilter::ERROR,
    }
}

//! The `ferrule-agent` binary: settings and log, then [`datapath_agent::run`].

use anyhow::{Context as _, Result};
use config_settings::{Agent, LogLevel, LogTo, PolicyBackend, Settings, Warning};
use datapath_agent::{
    Options,
    command::{Command, Flags, HELP},
    retire, run, services,
};
use datapath_backend::NoBackend;
use datapath_ebpf::{Attachments, EbpfBackend, Method};
use runtime_process::log::{Form, Log};
use runtime_socket::{probe, server::HealthName};
use std::{
    process::ExitCode,
    time::{Duration, Instant},
};
use tokio::signal::unix::{SignalKind, signal};

/// The prefixes of Ferrule's own crates, whose log lines follow the configured level.
const OURS: [&str; 4] = ["ferrule_agent", "datapath_", "control_", "routing_"];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match Command::parse(&words) {
        Ok(Command::Help) => say(HELP),
        Ok(Command::Version) => say(&format!("ferrule-agent {}\n", env!("CARGO_PKG_VERSION"))),
        Ok(Command::Health(name)) => finish(health(name)),
        Ok(Command::Retire) => finish(end_enforcement()),
        Ok(Command::Run(flags)) => finish(agent(flags)),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

#[expect(clippy::print_stdout, reason = "the answer to a question on the command line")]
fn say(text: &str) -> ExitCode {
    print!("{text}");
    ExitCode::SUCCESS
}

fn finish(result: Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|error| {
        eprintln!("ferrule-agent: {error:#}");
        ExitCode::FAILURE
    })
}

/// Resolves the environment. Variables that are not text are ignored.
fn settings() -> Result<(Settings, Vec<Warning>)> {
    let pairs = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    Settings::resolve(pairs).context("cannot resolve the settings")
}

fn health(name: HealthName) -> Result<ExitCode> {
    let (settings, _) = settings()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let deadline = Instant::now() + PROBE_TIME;
    let good = runtime.block_on(probe(&settings.agent.socket, name, deadline))?;
    if !good {
        eprintln!("not {}", name.as_str());
    }
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn end_enforcement() -> Result<ExitCode> {
    let (Settings { agent, proc_sys_net, .. }, _) = settings()?;
    // Standard output has the result.
    let to = if agent.log_to == LogTo::Stdout { &LogTo::Stderr } else { &agent.log_to };
    log(agent.log_level).start(to, LOG_TO);
    let removed = retire(&agent, &proc_sys_net)?;
    if removed.is_empty() {
        return Ok(say("no programs of ferrule-agent are on this node: its pods are open\n"));
    }
    let Attachments { filters, tcx_links, folders } = removed;
    Ok(say(&format!(
        "the pods of this node are open; removed filters: {filters}, TCX links: {tcx_links}, folders of pins: {folders}\n"
    )))
}

fn agent(flags: Flags) -> Result<ExitCode> {
    let (settings, warnings) = match settings() {
        Ok(resolved) => resolved,
        Err(error) => {
            // The settings of the log are not known either, so it goes to stderr.
            log(LogLevel::Info).start(&LogTo::Stderr, LOG_TO);
            tracing::error!(error = format!("{error:#}"), "cannot use the settings");
            return Ok(ExitCode::from(2));
        }
    };
    log(settings.agent.log_level).start(&settings.agent.log_to, LOG_TO);
    tracing::info!(version = env!("CARGO_PKG_VERSION"), "ferrule-agent");
    runtime_process::files::raise_limit();
    // Before the first thread starts.
    if !runtime_process::memory::limit_arenas() {
        tracing::debug!("the allocator keeps an arena for each thread");
    }
    for warning in &warnings {
        tracing::warn!(setting = warning.setting, "{warning}");
    }
    let Some(node) = settings.node_name.clone() else {
        tracing::error!("MY_NODE_NAME is not set; set it to the node's name");
        return Ok(ExitCode::from(2));
    };
    let backend = flags.backend.unwrap_or(settings.agent.backend);
    let service = std::env::var("KUBERNETES_SERVICE_HOST").ok();
    if let Some(why) = services::refusal(&settings, backend, service.as_deref()) {
        tracing::error!("{why}");
        return Ok(ExitCode::from(2));
    }
    let has_bandwidth = settings.bandwidth;
    let Settings { agent, proc_sys_net, .. } = settings;
    let options = Options { agent, node, replicas: flags.replicas, proc_sys_net };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let ended = runtime.block_on(async {
        let mut terminated =
            signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
        let mut interrupted =
            signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
        let stop = async {
            tokio::select! {
                _ = terminated.recv() => {}
                _ = interrupted.recv() => {}
            }
        };
        match backend {
            PolicyBackend::None => run(options, NoBackend::default(), stop).await,
            PolicyBackend::Ebpf => {
                let Agent { bpf_object, bpf_pins, connections, cgroup, .. } = &options.agent;
                let method = if has_bandwidth { Method::Tcx } else { Method::Filters };
                let backend = EbpfBackend::open(bpf_object, bpf_pins, *connections, method);
                let backend = backend.and_then(|backend| backend.with_sockets(cgroup));
                let backend = backend.context("cannot start the backend ebpf")?;
                run(options, backend, stop).await
            }
        }
    });
    ended.inspect_err(|error| {
        tracing::error!(error = format!("{error:#}"), "cannot run the agent");
    })?;
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(ExitCode::SUCCESS)
}

fn log(level: LogLevel) -> Log {
    Log { ours: &OURS, level, form: Form::Json }
}

const LOG_TO: &str = "FERRULE_AGENT_LOG_FILE";
const PROBE_TIME: Duration = Duration::from_secs(5);

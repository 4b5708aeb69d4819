//! The `ferrule-ipamd` binary: settings, log, cloud and kernel, then [`ipamd_daemon::run`].

use anyhow::{Context as _, Result};
use config_model::{HostEndMode, registry};
use config_settings::Settings;
use ipamd_cloud::{CallReport, Cloud, Ec2, Options};
use ipamd_daemon::{
    Access, Connect, Daemon, Metrics, ProcSys, Trigger, clock,
    command::{Command, HELP},
    install::Order,
    logging, watch_kernel,
};
use ipamd_node::desired;
use routing_netlink::LinuxKernel;
use runtime_socket::{probe, server::HealthName};
use std::{
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    runtime::{Builder, Handle},
    signal::unix::{SignalKind, signal},
};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match Command::parse(&words) {
        Ok(Command::Help) => say(HELP),
        Ok(Command::Version) => say(&format!("ferrule-ipamd {}\n", env!("CARGO_PKG_VERSION"))),
        Ok(Command::Health(name)) => finish(health(name)),
        Ok(Command::Run) => finish(daemon()),
        Ok(Command::Install(order)) => finish(install(order)),
        Ok(Command::Uninstall { keep_programs }) => finish(uninstall(keep_programs)),
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
        eprintln!("ferrule-ipamd: {error:#}");
        ExitCode::FAILURE
    })
}

/// Resolves the environment. Variables that are not UTF-8 are ignored.
fn settings() -> Result<(Settings, Vec<config_settings::Warning>)> {
    let pairs = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    Settings::resolve(pairs).context("settings")
}

fn health(name: HealthName) -> Result<ExitCode> {
    let (settings, _) = settings()?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let deadline = Instant::now() + PROBE_TIME;
    let good = runtime.block_on(probe(&settings.socket, name, deadline))?;
    if !good {
        eprintln!("not {}", name.as_str());
    }
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn install(order: Order) -> Result<ExitCode> {
    let (settings, warnings) = settings()?;
    for warning in &warnings {
        print_line(&warning.to_string());
    }
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminated = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
        let mut interrupted = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
        ipamd_daemon::install::install(&settings, &own_folder()?, order, print_line, async {
            tokio::select! {
                _ = terminated.recv() => {}
                _ = interrupted.recv() => {}
            }
        })
        .await
    })?;
    Ok(ExitCode::SUCCESS)
}

fn uninstall(keep_programs: bool) -> Result<ExitCode> {
    let (settings, _) = settings()?;
    ipamd_daemon::install::uninstall(&settings, &own_folder()?, keep_programs, print_line)?;
    Ok(ExitCode::SUCCESS)
}

/// The folder of this program and of the programs that `install` copies.
fn own_folder() -> Result<PathBuf> {
    let own = std::env::current_exe().context("find this program's folder")?;
    Ok(own.parent().context("find this program's folder")?.to_owned())
}

fn print_line(line: &str) {
    eprintln!("ferrule-ipamd: {line}");
}

fn daemon() -> Result<ExitCode> {
    let (settings, warnings) = match settings() {
        Ok(resolved) => resolved,
        Err(error) => {
            // The settings of the log are unknown, so it goes to stderr.
            logging::start(&config_settings::LogTo::Stderr, config_settings::LogLevel::Info);
            tracing::error!(error = format!("{error:#}"), "cannot use these settings");
            return Ok(ExitCode::from(2));
        }
    };
    logging::start(&settings.log_to, settings.log_level);
    tracing::info!(version = env!("CARGO_PKG_VERSION"), "ferrule-ipamd");
    runtime_process::files::raise_limit();
    // Before the first thread starts.
    if !runtime_process::memory::limit_arenas() {
        tracing::debug!("the allocator keeps an arena for each thread");
    }
    for warning in &warnings {
        tracing::warn!(setting = warning.setting, "{warning}");
    }
    // The plugin's requests have a thread to themselves: no other task delays an ADD, and no wake-up of a second thread
    // is part of one.
    let requests = Builder::new_current_thread().enable_all().build()?;
    let background = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let running = background.spawn(run(settings, requests.handle().clone()));
    let outcome = requests.block_on(running).context("run the daemon").flatten();
    // A thread may be in a system call that does not return.
    background.shutdown_timeout(Duration::from_secs(1));
    requests.shutdown_background();
    outcome.inspect_err(|error| {
        tracing::error!(error = format!("{error:#}"), "the daemon exits");
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn run(settings: Settings, requests: Handle) -> Result<()> {
    let mut terminated = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let mut interrupted = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
    let proc_sys = ProcSys::at(&settings.proc_sys_net);
    // Pods need these sysctls. Of the others, those that the kernel has are watched.
    let demanded = desired::family(&settings).sysctls();
    let there = |name: &_| demanded.contains_key(name) || proc_sys.has(name);
    let watched = desired::sysctls(&settings).into_keys().filter(there).collect();
    let mut kernel = LinuxKernel::open(proc_sys.root(), watched).context("open the kernel")?;
    if desired::host_end(&settings) != HostEndMode::Routed {
        kernel = kernel.with_neighbors();
    }
    let changes = Trigger::default();
    tokio::spawn(watch_kernel(changes.clone()));
    let metrics = Arc::new(Metrics::new());
    let boot_id = clock::boot_id().context("read the boot id")?;
    let process = clock::process_identity(&boot_id).context("read a random ID")?;
    let daemon = Daemon {
        requests,
        connect: connect(&settings, Arc::clone(&metrics)),
        metrics,
        kernel,
        netfilter: routing_netfilter::Tools::find().await,
        changes,
        proc_sys,
        boot_id: boot_id.clone(),
        metrics_port: registry::METRICS_PORT,
        kubernetes: ipamd_daemon::kubernetes(&settings, Access::of_environment(), &process),
        settings,
    };
    ipamd_daemon::run(daemon, async {
        tokio::select! {
            _ = terminated.recv() => {}
            _ = interrupted.recv() => {}
        }
    })
    .await
}

/// Connects to the cloud; repeated while the metadata service does not answer.
fn connect(settings: &Settings, metrics: Arc<Metrics>) -> Connect {
    let call_timeout = Duration::from_millis(settings.http_timeout.0);
    Box::new(move || {
        let options = Options { call_timeout, ..Options::default() };
        let metrics = Arc::clone(&metrics);
        let observer = move |report: &CallReport<'_>| metrics.called(report);
        Box::pin(async move {
            let cloud: Arc<dyn Cloud> = Arc::new(Ec2::connect(options, observer).await?);
            Ok(cloud)
        })
    })
}

const PROBE_TIME: Duration = Duration::from_secs(5);

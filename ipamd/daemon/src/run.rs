//! The tasks of the daemon, from the start to the exit.

use crate::{
    cluster::Cluster,
    conntrack,
    egress::Translation,
    event_loop::{Deps, EventLoop},
    health::{self, HealthInputs},
    http::{self, Shown},
    inbox::Inbox,
    messages::Input,
    metrics::Metrics,
    nat::{Nat, NatReport, follow_ranges},
    pass_report::PassReport,
    policy,
    repair::{ProcSys, Repair, Tools, watch_sysctls},
    service::{PodSettings, Service},
    services,
    source_check::SourceCheck,
    sources::Sources,
    start::{Connect, Starter},
    tombstones::Tombstones,
    trigger::Trigger,
};
use anyhow::{Context as _, Result, bail};
use config_settings::{PodEniMode, Settings};
use datapath_rpc::SERVICES_SOCKET;
use ipamd_rpc::{Enforcing, server::serve};
use routing_netlink::Kernel;
use runtime_socket::server::{Health, HealthName, Incoming, listen};
use std::{
    collections::BTreeMap,
    future::Future,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    runtime::Handle,
    sync::{oneshot, watch},
    task::{JoinHandle, JoinSet},
    time::{sleep, timeout},
};

/// The parts of the daemon.
pub struct Daemon<K> {
    /// The runtime of the event loop and of the plugin's requests. All other tasks run where [`run`] runs.
    pub requests: Handle,
    pub settings: Settings,
    /// Connects to EC2 and to the instance metadata service.
    pub connect: Connect,
    /// The adapter to host networking.
    pub kernel: K,
    /// The adapter to netfilter.
    pub netfilter: routing_netfilter::Tools,
    /// Requests a repair pass when host networking changes.
    pub changes: Trigger,
    /// The folder of the host's sysctls.
    pub proc_sys: ProcSys,
    /// The kernel's ID of this boot.
    pub boot_id: String,
    /// `None` if the daemon does not connect to the API server. See [`kubernetes`](crate::kubernetes).
    pub kubernetes: Option<ipamd_kube::Options>,
    pub metrics: Arc<Metrics>,
    /// The port of `/metrics`, unless `DISABLE_METRICS` is set.
    pub metrics_port: u16,
}

/// Runs until `stop` completes. Waiting requests are then answered and all records made durable; ENIs stay
/// attached.
///
/// # Errors
/// If a task of the daemon stopped unexpectedly. Only a restart helps.
pub async fn run<K>(daemon: Daemon<K>, stop: impl Future<Output = ()>) -> Result<()>
where
    K: Kernel + Send + 'static,
{
    let Daemon { settings, connect, mut kernel, netfilter, changes, proc_sys, .. } = daemon;
    let Daemon { requests, boot_id, kubernetes, metrics, metrics_port, .. } = daemon;
    let settings = Arc::new(settings);
    let tombstones = Tombstones::within(&settings.state_dir);
    let (inbox, inputs) = Inbox::open();
    let (obstacle, starting) = watch::channel("the first step".to_owned());
    let (vpc_cidrs, known_cidrs) = watch::channel(Vec::new());
    let (reports, seen_reports) = watch::channel(PassReport::default());
    let (nat_reports, seen_nat) = watch::channel(NatReport::default());

    let (cluster, told) = Cluster::start(kubernetes, &settings);

    let deps = Deps {
        inbox: inbox.clone(),
        metrics: Arc::clone(&metrics),
        repair: changes.clone(),
        cluster: cluster.clone(),
        agent: policy::agent(&settings),
        starting,
        background: Handle::current(),
    };
    let event_loop = requests.spawn(EventLoop::new(inputs, deps).run());

    let mut tasks = JoinSet::new();
    let health = Health::starting().await;
    health.set(HealthName::PolicyAgent, settings.policy_agent).await;
    let passes_for_nat = seen_reports.clone();
    let (marks, seen_marks) = watch::channel(BTreeMap::new());
    let sources = Sources {
        tools: netfilter.clone(),
        passes: seen_reports.clone(),
        seen: marks,
        repair: changes.clone(),
    };
    tasks.spawn(sources.run());
    let (egress_trouble, seen_egress) = watch::channel(None);
    let translation = Translation {
        tools: netfilter.clone(),
        settings: Arc::clone(&settings),
        metrics: Arc::clone(&metrics),
        passes: seen_reports.clone(),
        trouble: egress_trouble,
    };
    tasks.spawn(translation.run());
    let source_check = SourceCheck {
        tools: netfilter.clone(),
        settings: Arc::clone(&settings),
        metrics: Arc::clone(&metrics),
        passes: seen_reports.clone(),
    };
    tasks.spawn(source_check.run());
    let inputs = HealthInputs {
        passes: seen_reports.clone(),
        nat: seen_nat,
        egress: seen_egress,
        settings: Arc::clone(&settings),
    };
    let (statuses, status) = watch::channel(health::starting());
    let (troubles, seen_troubles) = watch::channel(Vec::new());
    let outputs = health::HealthOutputs { statuses, troubles };
    tasks.spawn(health::report(health.clone(), inbox.clone(), cluster.clone(), inputs, outputs));
    tasks.spawn(first_address(inbox.clone(), Arc::clone(&metrics)));
    if let Some(told) = told {
        tasks.spawn(told.pass_on(inbox.clone()));
    }
    if settings.policy
        && settings.agent.connections.services
        && let Some(handle) = cluster.handle()
    {
        let socket = settings.agent.replicas.with_file_name(SERVICES_SOCKET);
        tasks.spawn(services::serve(handle, socket));
    }
    let shown = Shown {
        inbox: inbox.clone(),
        metrics: Arc::clone(&metrics),
        settings: Arc::clone(&settings),
        reports: seen_reports.clone(),
        cluster: cluster.clone(),
        troubles: seen_troubles,
        agent: policy::agent(&settings),
    };
    if settings.metrics {
        tasks.spawn(http::serve_metrics(shown.clone(), metrics_port));
    }
    if let Some(at) = settings.introspection.clone() {
        tasks.spawn(http::serve_introspection(shown, at));
    }
    if settings.agent.connections.services {
        tasks.spawn(conntrack::keep(proc_sys.clone()));
    }
    let wanted = ipamd_node::desired::sysctls(&settings);
    tasks.spawn(watch_sysctls(changes.clone(), proc_sys, wanted));

    let pod_settings = PodSettings {
        vpc_cidrs: known_cidrs.clone(),
        external_snat: settings.external_snat,
        enforcer: policy::enforcer(&settings),
        add_wait: settings.add_wait,
        multi_nic: settings.multi_nic,
        family: ipamd_node::desired::family(&settings),
        enforcing: match settings.pod_enis {
            Some(PodEniMode::Standard) => Enforcing::Standard,
            Some(PodEniMode::Strict) | None => Enforcing::Strict,
        },
        rules: settings.rules,
        host_end: ipamd_node::desired::host_end(&settings),
        passes: seen_reports.clone(),
    };
    let service = Service::new(
        inbox.clone(),
        tombstones.clone(),
        pod_settings,
        cluster.clone(),
        Arc::clone(&metrics),
        status,
    );
    let (stop_serving, stopped) = oneshot::channel::<()>();
    let agents_health = health.clone();
    let server = requests.spawn(serve_plugin(settings.socket.clone(), service, health, stopped));

    let nat = Nat {
        tools: netfilter,
        inbox: inbox.clone(),
        settings: Arc::clone(&settings),
        metrics: Arc::clone(&metrics),
        ranges: known_cidrs,
        passes: passes_for_nat,
        reports: nat_reports,
    };
    tasks.spawn(nat.run());
    let starter = Starter {
        connect,
        settings: Arc::clone(&settings),
        tombstones: tombstones.clone(),
        boot_id,
        metrics: Arc::clone(&metrics),
        obstacle,
        vpc_cidrs: vpc_cidrs.clone(),
    };
    let tools = Tools {
        inbox: inbox.clone(),
        tombstones,
        settings,
        metrics,
        trigger: changes,
        reports,
        marks: seen_marks,
    };
    let to_loop = inbox.clone();
    tasks.spawn(async move {
        let (begin, cloud) = starter.start(&mut kernel).await;
        // Not earlier: until here the amazon-vpc-cni agent could use the socket.
        let served = policy::serve(&starter.settings, &*cloud, agents_health);
        if to_loop.send(begin).await.is_ok() {
            tokio::select! {
                _ended = Repair::new(kernel, tools).run() => {}
                () = follow_ranges(Arc::clone(&cloud), vpc_cidrs) => {}
                () = served => {}
            }
        }
    });
    supervise(Essential { event_loop, server, tasks, inbox, cluster, stop_serving }, stop).await
}

struct Essential {
    event_loop: JoinHandle<()>,
    server: JoinHandle<Result<()>>,
    tasks: JoinSet<()>,
    inbox: Inbox,
    cluster: Cluster,
    stop_serving: oneshot::Sender<()>,
}

async fn supervise(essential: Essential, stop: impl Future<Output = ()>) -> Result<()> {
    let Essential { mut event_loop, mut server, mut tasks, inbox, cluster, stop_serving } =
        essential;
    tokio::select! {
        () = stop => {}
        ended = &mut event_loop => {
            ended.context("the event loop")?;
            bail!("the event loop stopped");
        }
        ended = &mut server => {
            ended.context("the server")??;
            bail!("the server stopped");
        }
        Some(ended) = tasks.join_next() => {
            ended.context("a task of the daemon")?;
            bail!("a task of the daemon stopped");
        }
    }
    tracing::info!("stopping; ENIs stay attached");
    let _ = inbox.send(Input::Stopping).await;
    let _ = stop_serving.send(());
    // The event loop still answers requests in progress.
    let (answered, ()) = tokio::join!(timeout(LAST_ANSWERS, &mut server), cluster.stop());
    if answered.is_err() {
        server.abort();
    }
    let _ = inbox.send(Input::Finish).await;
    if timeout(LAST_WRITES, event_loop).await.is_err() {
        tracing::error!("cannot complete the checkpoint: timeout");
    }
    tasks.abort_all();
    tracing::info!("stopped");
    Ok(())
}

/// Serves the plugin until `stop` completes.
async fn serve_plugin(
    socket: std::path::PathBuf,
    service: Service,
    health: Health,
    stop: oneshot::Receiver<()>,
) -> Result<()> {
    let service = Arc::new(service);
    tokio::pin!(stop);
    let incoming = tokio::select! {
        incoming = insist_on(&socket) => incoming,
        _ = &mut stop => return Ok(()),
    };
    tracing::info!(socket = %socket.display(), "listening");
    let stopped = async move {
        // A dropped sender stops the server as well.
        let _ = stop.await;
    };
    serve(incoming, service, &health, stopped).await.context("serve the plugin")
}

/// Listens on the socket. An earlier daemon may still exit, so this retries.
async fn insist_on(socket: &Path) -> Incoming {
    loop {
        match listen(socket).await {
            Ok(incoming) => return incoming,
            Err(error) => {
                let error = anyhow::Error::from(error);
                tracing::warn!(
                    error = format!("{error:#}"),
                    "cannot listen on the socket; retrying"
                );
            }
        }
        sleep(LISTEN_AGAIN).await;
    }
}

/// Measures the time from the start to the first usable address.
async fn first_address(inbox: Inbox, metrics: Arc<Metrics>) {
    let began = Instant::now();
    while let Ok(view) = inbox.view().await {
        if view.snapshot.counts.usable > 0 {
            metrics.started(began.elapsed());
            break;
        }
        sleep(LOOK_AGAIN).await;
    }
    std::future::pending().await
}

const LISTEN_AGAIN: Duration = Duration::from_millis(250);
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// The two together stay below the ten seconds that Kubernetes grants.
const LAST_ANSWERS: Duration = Duration::from_secs(3);
const LAST_WRITES: Duration = Duration::from_secs(4);

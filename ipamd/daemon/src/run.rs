//! The daemon's tasks, from the socket to the end.

use crate::{
    cluster::Cluster,
    egress::Translation,
    event_loop::{EventLoop, Surroundings},
    health::{self, Seen},
    http::{self, Shown},
    inbox::{Inbox, Input},
    metrics::Metrics,
    nat::{Nat, NatReport, follow_ranges},
    policy,
    repair::{PassReport, ProcSys, Repair, Tools, Trigger, watch_sysctls},
    service::{Service, Terms},
    sources::Sources,
    start::{Connect, Starter},
    tombstones::Tombstones,
};
use anyhow::{Context as _, Result, bail};
use config_settings::{PodEniMode, Settings};
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
    sync::{oneshot, watch},
    task::{JoinHandle, JoinSet},
    time::{sleep, timeout},
};

/// What the daemon is made of.
pub struct Daemon<K> {
    /// What it was told.
    pub settings: Settings,
    /// The way to EC2 and to the instance's metadata.
    pub connect: Connect,
    /// The host's networking.
    pub kernel: K,
    /// The host's netfilter.
    pub netfilter: routing_netfilter::Tools,
    /// Pulled when the host's networking changes.
    pub changes: Trigger,
    /// Where settings of the host are.
    pub proc_sys: ProcSys,
    /// The kernel's name for this boot.
    pub boot_id: String,
    /// What is wanted of Kubernetes; `None` if it is not spoken to. See
    /// [`kubernetes`](crate::kubernetes).
    pub kubernetes: Option<ipamd_kube::Options>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Where `/metrics` is served, unless the settings say that it is not.
    pub metrics_port: u16,
}

/// Runs until `stop` completes: then those who wait are answered, everything is made durable, and
/// nothing is detached.
///
/// # Errors
/// When a task of the daemon has ended that should not have: only a restart helps.
pub async fn run<K>(daemon: Daemon<K>, stop: impl Future<Output = ()>) -> Result<()>
where
    K: Kernel + Send + 'static,
{
    let Daemon { settings, connect, mut kernel, netfilter, changes, proc_sys, .. } = daemon;
    let Daemon { boot_id, kubernetes, metrics, metrics_port, .. } = daemon;
    let settings = Arc::new(settings);
    let tombstones = Tombstones::within(&settings.state_dir);
    let (inbox, inputs) = Inbox::open();
    let (obstacle, starting) = watch::channel("the first step".to_owned());
    let (vpc_cidrs, known_cidrs) = watch::channel(Vec::new());
    let (reports, seen_reports) = watch::channel(PassReport::default());
    let (nat_reports, seen_nat) = watch::channel(NatReport::default());

    let (cluster, told) = Cluster::start(kubernetes, &settings);

    let around = Surroundings {
        inbox: inbox.clone(),
        metrics: Arc::clone(&metrics),
        repair: changes.clone(),
        cluster: cluster.clone(),
        agent: policy::agent(&settings),
        starting,
    };
    let event_loop = tokio::spawn(EventLoop::new(inputs, around).run());

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
    let seen = Seen {
        passes: seen_reports.clone(),
        nat: seen_nat,
        egress: seen_egress,
        settings: Arc::clone(&settings),
    };
    let (statuses, status) = watch::channel(health::starting());
    let (troubles, seen_troubles) = watch::channel(Vec::new());
    let hearers = health::Told { statuses, troubles };
    tasks.spawn(health::report(health.clone(), inbox.clone(), cluster.clone(), seen, hearers));
    tasks.spawn(first_address(inbox.clone(), Arc::clone(&metrics)));
    if let Some(told) = told {
        tasks.spawn(told.pass_on(inbox.clone()));
    }
    let shown = Shown {
        inbox: inbox.clone(),
        metrics: Arc::clone(&metrics),
        settings: Arc::clone(&settings),
        reports: seen_reports.clone(),
        cluster: cluster.clone(),
        troubles: seen_troubles,
    };
    if settings.metrics {
        tasks.spawn(http::serve_metrics(shown.clone(), metrics_port));
    }
    if let Some(at) = settings.introspection.clone() {
        tasks.spawn(http::serve_introspection(shown, at));
    }
    let wanted = ipamd_node::desired::sysctls(&settings);
    tasks.spawn(watch_sysctls(changes.clone(), proc_sys, wanted));

    let terms = Terms {
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
        passes: seen_reports.clone(),
    };
    let service = Service::new(
        inbox.clone(),
        tombstones.clone(),
        terms,
        cluster.clone(),
        Arc::clone(&metrics),
        status,
    );
    let (stop_serving, stopped) = oneshot::channel::<()>();
    let agents_health = health.clone();
    let server = tokio::spawn(serve_plugin(settings.socket.clone(), service, health, stopped));

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
        // Only now: until here amazon-vpc-cni's agent might have had the socket.
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
            bail!("the event loop has ended");
        }
        ended = &mut server => {
            ended.context("the server")??;
            bail!("the server has ended");
        }
        Some(ended) = tasks.join_next() => {
            ended.context("a task of the daemon")?;
            bail!("a task of the daemon has ended");
        }
    }
    tracing::info!("stopping: nothing is detached");
    let _ = inbox.send(Input::Stopping).await;
    let _ = stop_serving.send(());
    // The loop still answers those whose requests are under way.
    let (answered, ()) = tokio::join!(timeout(LAST_ANSWERS, &mut server), cluster.stop());
    if answered.is_err() {
        server.abort();
    }
    let _ = inbox.send(Input::Finish).await;
    if timeout(LAST_WRITES, event_loop).await.is_err() {
        tracing::error!("the checkpoint could not be completed");
    }
    tasks.abort_all();
    tracing::info!("stopped");
    Ok(())
}

/// Serves the plugin until told to stop.
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
        // A sender that is gone stops the server as well.
        let _ = stop.await;
    };
    serve(incoming, service, &health, stopped).await.context("serve the plugin")
}

/// The socket, whoever has it now: a daemon of before may still be ending.
async fn insist_on(socket: &Path) -> Incoming {
    loop {
        match listen(socket).await {
            Ok(incoming) => return incoming,
            Err(error) => {
                let error = anyhow::Error::from(error);
                tracing::warn!(error = format!("{error:#}"), "cannot listen; trying again");
            }
        }
        sleep(LISTEN_AGAIN).await;
    }
}

/// Measures how long it takes from start to the first address that a pod could have.
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
/// Together less than the ten seconds that Kubernetes gives.
const LAST_ANSWERS: Duration = Duration::from_secs(3);
const LAST_WRITES: Duration = Duration::from_secs(4);

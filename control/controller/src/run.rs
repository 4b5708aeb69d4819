//! A replica from start to stop.

use crate::{
    admit::Gate,
    agents::Agents,
    api::Source,
    definitions,
    dismissals::Dismissals,
    feed::Feed,
    http::{self, Health},
    intake::Intake,
    kinds::Resource,
    lease::Elector,
    metrics::Metrics,
    options::Options,
    readiness::Readiness,
    status::{self, ReportCollector},
    tls::{self, Showing},
    view::{self, Registered, View},
};
use anyhow::{Context as _, Result, anyhow, bail};
use control_hub::{Capabilities, Hub};
use control_rpc::{Authenticated, Certificates, SharedHub, listen};
use control_wire::KINDS;
use kube::Client;
use rustls::crypto::ring::default_provider;
use std::{
    future::Future,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    net::TcpListener,
    sync::watch,
    task::{JoinHandle, JoinSet},
    time::{Instant, interval, sleep, timeout},
};
use tonic::transport::Server;

/// Keepalive interval of a silent connection. The connection is closed after the same time without a reply.
const ALIVE: Duration = Duration::from_secs(20);
/// Maximum number of concurrent calls on one connection: an agent follows, announces and reports.
const CALLS: u32 = 16;
/// Maximum number of bytes of bodies that wait for a reader on one connection. A client without a valid token fills it at
/// most once.
const WINDOW: u32 = 64 << 10;
/// Interval of the hub's cleanup.
const TIDY: Duration = Duration::from_secs(10);
/// Number of streams that are ended together at the end. Other replicas then compare the content of these nodes.
const DISMISSED: usize = 64;
/// Pause between such batches.
const BETWEEN: Duration = Duration::from_millis(50);
/// Maximum duration of the end of all streams and of the release of the Lease.
const ENDS: Duration = Duration::from_secs(10);

/// State that the parts of a replica share.
struct Replica {
    options: Arc<Options>,
    client: Client,
    hub: Arc<SharedHub>,
    metrics: Arc<Metrics>,
    readiness: Arc<Readiness>,
    agents: Arc<Agents>,
    reports: Arc<ReportCollector>,
    /// True if this replica holds the Lease.
    leads: watch::Sender<bool>,
    /// Tasks that must not end; each returns its name.
    tasks: JoinSet<&'static str>,
}

/// Runs a replica until `stop` completes, and then hands over to other replicas.
///
/// # Errors
/// Fails at the start with the name of a flag, or later if a part of the replica has ended.
pub async fn run(mut options: Options, stop: impl Future<Output = ()>) -> Result<()> {
    options.check()?;
    let endpoint = options.api_server.as_deref().filter(|of| !of.is_empty());
    let client = runtime_apiserver::client(options.kubeconfig.as_deref(), endpoint).await;
    let client = client.context("cannot create a client of the API server; check --kubeconfig")?;
    let listener = bind(options.listen, "--listen").await?;
    // With port 0 the kernel has chosen one.
    options.listen = listener.local_addr().context("--listen")?;
    let health = bind(options.health, "--health").await?;
    let view = match options.view {
        Some(at) => Some(bind(at, "--view").await?),
        None => None,
    };
    let mut hub = Hub::new(random()?, u64::from_le_bytes(random()?));
    if options.serves() {
        let capabilities = Capabilities { kinds: KINDS.into(), ..Capabilities::default() };
        hub = hub.with_capabilities(capabilities);
    }
    let hub = SharedHub::new(hub);
    let readiness = Readiness::new(Resource::all(options.serves()));
    let mut replica = Replica {
        agents: Arc::new(Agents::new(options.agents.clone())),
        options: Arc::new(options),
        client,
        reports: Arc::new(ReportCollector::new(hub.clone())),
        hub,
        metrics: Arc::new(Metrics::new().context("cannot create metrics")?),
        readiness: Arc::new(readiness),
        leads: watch::Sender::new(false),
        tasks: JoinSet::new(),
    };
    let shown = Arc::new(Certificates::default());
    let is_ending = Arc::new(AtomicBool::new(false));
    replica.show(shown.clone(), health, is_ending.clone());
    if let Some(listener) = view {
        let port = listener.local_addr().context("--view")?.port();
        replica.answer(listener, port, shown.clone());
    }
    let definitions = replica.read();
    let (end, ended) = watch::channel(false);
    let mut serving = replica.serve(listener, shown, ended.clone())?;
    let (stand_down, stood_down) = watch::channel(false);
    let mut leading = replica.lead(stood_down, definitions)?;
    let outcome = tokio::select! {
        () = stop => Ok(()),
        _ = &mut serving => Err(anyhow!("the server of streams has ended")),
        _ = &mut leading => Err(anyhow!("the leader election has ended")),
        over = replica.tasks.join_next() => Err(match over {
            Some(Ok(what)) => anyhow!("{what} has ended"),
            Some(Err(error)) => anyhow!(error).context("a part of the replica was aborted"),
            None => anyhow!("the replica has no tasks"),
        }),
    };
    is_ending.store(true, Ordering::SeqCst);
    stand_down.send_replace(true);
    replica.hand_over(&end, leading, serving).await;
    outcome
}

async fn bind(at: SocketAddr, flag: &str) -> Result<TcpListener> {
    let bound = runtime_process::listen::bind(at).await;
    let listener = bound.with_context(|| format!("cannot listen at {at}; check {flag}"))?;
    let at = listener.local_addr().with_context(|| flag.to_owned())?;
    tracing::info!(%at, "{flag}");
    Ok(listener)
}

fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    if default_provider().secure_random.fill(&mut bytes).is_err() {
        bail!("cannot get random bytes from the kernel");
    }
    Ok(bytes)
}

impl Replica {
    /// Starts the tasks of health, metrics and certificates.
    fn show(
        &mut self,
        shown: Arc<Certificates>,
        listener: TcpListener,
        is_ending: Arc<AtomicBool>,
    ) {
        let (showing, lacks) = Showing::new(shown, self.metrics.clone());
        let (hub, readiness) = (self.hub.clone(), self.readiness.clone());
        let health = Health { hub, readiness, metrics: self.metrics.clone(), lacks, is_ending };
        self.tasks.spawn(async move { match http::serve(listener, health).await {} });
        let (client, options) = (self.client.clone(), self.options.clone());
        self.tasks.spawn(async move {
            tls::keep(client, options, showing).await;
            "the certificate keeper"
        });
        let hub = self.hub.clone();
        self.tasks.spawn(async move {
            let mut ticks = interval(TIDY);
            loop {
                ticks.tick().await;
                hub.tidy();
            }
        });
    }

    /// Starts the aggregated API.
    fn answer(&mut self, listener: TcpListener, port: u16, shown: Arc<Certificates>) {
        let view = View { hub: self.hub.clone(), reports: self.reports.clone() };
        let client = self.client.clone();
        self.tasks.spawn(async move {
            view::serve(listener, view, client, shown).await;
            "the aggregated API"
        });
        let authority = self.options.tls_dir.is_none().then(|| self.options.ca_configmap.clone());
        let registered = Registered {
            client: self.client.clone(),
            metrics: self.metrics.clone(),
            namespace: self.options.namespace.clone(),
            service: self.options.view_service.clone(),
            authority,
            at: self.options.view_at(port),
        };
        let leads = self.leads.subscribe();
        self.tasks.spawn(async move {
            registered.keep(leads).await;
            "the registration of the aggregated API"
        });
    }

    /// Starts a feed for every kind that policy reads. Returns the counter of changed definitions.
    fn read(&mut self) -> watch::Receiver<u64> {
        let (changes, definitions) = watch::channel(0);
        let setbacks = watch::Sender::new(0);
        let client = self.client.clone();
        self.tasks.spawn(async move {
            definitions::count(client, changes).await;
            "the watch of definitions"
        });
        let Options { page, watch_silence, .. } = *self.options;
        for kind in Resource::all(self.options.serves()) {
            let source = Source::new(self.client.clone(), kind, page, watch_silence);
            let intake = Intake {
                hub: self.hub.clone(),
                agents: self.agents.clone(),
                reports: self.reports.clone(),
                metrics: self.metrics.clone(),
                serves: self.options.serves(),
            };
            let feed = Feed::new(
                source,
                intake,
                self.readiness.clone(),
                definitions.clone(),
                setbacks.clone(),
            );
            self.tasks.spawn(async move {
                feed.run().await;
                "the feed of a kind"
            });
        }
        definitions
    }

    /// Starts the server of the nodes' streams.
    fn serve(
        &self,
        listener: TcpListener,
        shown: Arc<Certificates>,
        mut ended: watch::Receiver<bool>,
    ) -> Result<JoinHandle<()>> {
        let (client, agents) = (self.client.clone(), self.agents.clone());
        let audience = self.options.audience.clone();
        let gate = Gate::new(
            self.hub.clone(),
            self.reports.clone(),
            client,
            audience,
            agents,
            self.metrics.clone(),
        );
        let service = Authenticated::new(self.hub.clone(), Arc::new(gate));
        let inside = listen(listener, shown).context("cannot configure TLS for --listen")?;
        let server = Server::builder()
            .http2_keepalive_interval(Some(ALIVE))
            .http2_keepalive_timeout(Some(ALIVE))
            .max_concurrent_streams(CALLS)
            .initial_connection_window_size(WINDOW)
            .initial_stream_window_size(WINDOW)
            .add_service(service);
        Ok(tokio::spawn(async move {
            let end = async move {
                // An error means that the replica has ended.
                let _ = ended.wait_for(|ended| *ended).await;
            };
            if let Err(error) = server.serve_with_incoming_shutdown(inside, end).await {
                tracing::error!(%error, "cannot serve nodes");
            }
        }))
    }

    /// Starts the leader election and the writer of status.
    fn lead(
        &mut self,
        ended: watch::Receiver<bool>,
        definitions: watch::Receiver<u64>,
    ) -> Result<JoinHandle<()>> {
        let options = self.options.clone();
        let reports_to = options.reports_to().map(|at| at.to_string());
        if reports_to.is_none() {
            tracing::warn!("this replica has no address for reports; set --advertise");
        }
        let identity = match &options.identity {
            Some(identity) => identity.clone(),
            None => format!("ferrule-controller-{:016x}", u64::from_le_bytes(random()?)),
        };
        let led = self.leads.subscribe();
        let (client, reports, metrics) =
            (self.client.clone(), self.reports.clone(), self.metrics.clone());
        self.tasks.spawn(async move {
            status::keep(client, reports, metrics, led, definitions).await;
            // The election ends first when the replica stops. That is no failure of this task.
            std::future::pending::<()>().await;
            "the status writer"
        });
        let elector = Elector {
            api: Elector::api(self.client.clone(), &options.namespace),
            name: options.lease.clone(),
            identity,
            lasts: options.lease_lasts,
            reports_to: reports_to.unwrap_or_default(),
            hub: self.hub.clone(),
            reports: self.reports.clone(),
            metrics: self.metrics.clone(),
            leads: self.leads.clone(),
        };
        Ok(tokio::spawn(elector.run(ended)))
    }

    /// Hands over: another replica takes the Lease at once. Nodes move after the grace period, in batches.
    async fn hand_over(
        mut self,
        end: &watch::Sender<bool>,
        leading: JoinHandle<()>,
        serving: JoinHandle<()>,
    ) {
        tracing::info!(grace = ?self.options.grace, "replica stopping; other replicas take over");
        let streams = self.hub.followers().len();
        sleep(self.options.grace).await;
        self.hub.close();
        let (until, mut dismissals) = (Instant::now() + ENDS, Dismissals::default());
        loop {
            let followers = self.hub.followers();
            if followers.is_empty() || Instant::now() >= until {
                break;
            }
            let next = dismissals.next(followers, DISMISSED);
            next.iter().for_each(|node| self.hub.dismiss(node));
            sleep(BETWEEN).await;
        }
        end.send_replace(true);
        let left = until.saturating_duration_since(Instant::now());
        // A handle that has completed must not be polled again.
        let ended = async |part: JoinHandle<()>| {
            if !part.is_finished() {
                drop(part.await)
            }
        };
        let ends = async { tokio::join!(ended(leading), ended(serving)) };
        if timeout(left.max(BETWEEN), ends).await.is_err() {
            tracing::warn!("some streams did not end in time");
        }
        self.tasks.shutdown().await;
        tracing::info!(streams, "replica stopped");
    }
}

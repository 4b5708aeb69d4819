//! A replica, from its start to its end.

use crate::{
    admit::Gate,
    agents::Agents,
    api::Source,
    definitions,
    dismissals::Dismissals,
    feed::Feed,
    http::{self, Health},
    intake::Intake,
    lease::Elector,
    metrics::Metrics,
    options::Options,
    readiness::Readiness,
    status::{self, ReportCollector},
    tls::{self, Showing},
    view::{self, Registered, View},
};
use anyhow::{Context as _, Result, anyhow, bail};
use control_hub::Hub;
use control_rpc::{Certificates, DistributionService, SharedHub, listen};
use kube::Client;
use policy_objects::Kind;
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

/// A connection of which nothing is heard is asked so often, and given up after as long again.
const ALIVE: Duration = Duration::from_secs(20);
/// As many calls may be under way on one connection: an agent follows, announces and reports.
const CALLS: u32 = 64;
/// How often what nobody needs is forgotten.
const TIDY: Duration = Duration::from_secs(10);
/// As many streams are ended at once, at the end: other replicas compare what each node holds.
const DISMISSED: usize = 64;
/// And then so long none.
const BETWEEN: Duration = Duration::from_millis(50);
/// How long the ends of all streams and of the Lease may take.
const ENDS: Duration = Duration::from_secs(10);

/// What the parts of a replica share.
struct Replica {
    options: Arc<Options>,
    client: Client,
    office: Arc<SharedHub>,
    metrics: Arc<Metrics>,
    board: Arc<Readiness>,
    agents: Arc<Agents>,
    desk: Arc<ReportCollector>,
    /// True if this replica holds the Lease.
    leads: watch::Sender<bool>,
    /// What ends none of these should.
    tasks: JoinSet<&'static str>,
}

/// Runs a replica until it is told to stop; then it hands over.
///
/// # Errors
/// What cannot be had at the start, by its flag; or which part of it has ended.
pub async fn run(mut options: Options, stop: impl Future<Output = ()>) -> Result<()> {
    options.check()?;
    let client = runtime_apiserver::client(options.kubeconfig.as_deref(), None).await;
    let client = client.context("reach the API server; --kubeconfig says by which file")?;
    let listener = bind(options.listen, "--listen").await?;
    // The port may have been left to the kernel.
    options.listen = listener.local_addr().context("--listen")?;
    let health = bind(options.health, "--health").await?;
    let view = match options.view {
        Some(at) => Some(bind(at, "--view").await?),
        None => None,
    };
    let hub = Hub::new(random()?, u64::from_le_bytes(random()?));
    let office = SharedHub::new(hub);
    let mut replica = Replica {
        agents: Arc::new(Agents::new(options.agents.clone())),
        options: Arc::new(options),
        client,
        desk: Arc::new(ReportCollector::new(office.clone())),
        office,
        metrics: Arc::new(Metrics::new().context("make the metrics")?),
        board: Arc::new(Readiness::new()),
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
        _ = &mut serving => Err(anyhow!("nobody takes nodes in any more")),
        _ = &mut leading => Err(anyhow!("nobody stands for the Lease any more")),
        over = replica.tasks.join_next() => Err(match over {
            Some(Ok(what)) => anyhow!("{what} has ended"),
            Some(Err(error)) => anyhow!(error).context("a part of the replica broke off"),
            None => anyhow!("there is nothing left to do"),
        }),
    };
    is_ending.store(true, Ordering::SeqCst);
    stand_down.send_replace(true);
    replica.hand_over(&end, leading, serving).await;
    outcome
}

async fn bind(at: SocketAddr, flag: &str) -> Result<TcpListener> {
    let bound = runtime_process::listen::bind(at).await;
    let listener = bound.with_context(|| format!("{flag} {at}: cannot listen there"))?;
    let at = listener.local_addr().with_context(|| flag.to_owned())?;
    tracing::info!(%at, "{flag}");
    Ok(listener)
}

/// Random bytes.
fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    if default_provider().secure_random.fill(&mut bytes).is_err() {
        bail!("the kernel gives no random bytes");
    }
    Ok(bytes)
}

impl Replica {
    /// Health, metrics, and certificates.
    fn show(
        &mut self,
        shown: Arc<Certificates>,
        listener: TcpListener,
        is_ending: Arc<AtomicBool>,
    ) {
        let (showing, lacks) = Showing::new(shown, self.metrics.clone());
        let (office, board) = (self.office.clone(), self.board.clone());
        let health = Health { office, board, metrics: self.metrics.clone(), lacks, is_ending };
        self.tasks.spawn(async move {
            if let Err(error) = http::serve(listener, health).await {
                tracing::error!(%error, "health is not served");
            }
            "the service of health"
        });
        let (client, options) = (self.client.clone(), self.options.clone());
        self.tasks.spawn(async move {
            tls::keep(client, options, showing).await;
            "the keeping of certificates"
        });
        let office = self.office.clone();
        self.tasks.spawn(async move {
            let mut ticks = interval(TIDY);
            loop {
                ticks.tick().await;
                office.tidy();
            }
        });
    }

    /// People, by way of the API server.
    fn answer(&mut self, listener: TcpListener, port: u16, shown: Arc<Certificates>) {
        let view = View { office: self.office.clone(), desk: self.desk.clone() };
        let client = self.client.clone();
        self.tasks.spawn(async move {
            view::serve(listener, view, client, shown).await;
            "the answering of people"
        });
        let authority = self.options.tls_dir.is_none().then(|| self.options.ca_configmap.clone());
        let registered = Registered {
            client: self.client.clone(),
            namespace: self.options.namespace.clone(),
            service: self.options.view_service.clone(),
            port: self.options.view_service_port,
            authority,
            at: self.options.view_at(port),
        };
        let leads = self.leads.subscribe();
        self.tasks.spawn(async move {
            registered.keep(leads).await;
            "the registering of the API for people"
        });
    }

    /// Every kind that policy reads. What counts the changes of definitions.
    fn read(&mut self) -> watch::Receiver<u64> {
        let (changes, definitions) = watch::channel(0);
        let setbacks = watch::Sender::new(0);
        let client = self.client.clone();
        self.tasks.spawn(async move {
            definitions::count(client, changes).await;
            "the watch of definitions"
        });
        let Options { page, watch_silence, .. } = *self.options;
        for kind in Kind::ALL {
            let source = Source::new(self.client.clone(), kind, page, watch_silence);
            let intake = Intake {
                office: self.office.clone(),
                agents: self.agents.clone(),
                desk: self.desk.clone(),
                metrics: self.metrics.clone(),
            };
            let feed = Feed::new(
                source,
                intake,
                self.board.clone(),
                definitions.clone(),
                setbacks.clone(),
            );
            self.tasks.spawn(async move {
                feed.run().await;
                "the reading of a kind"
            });
        }
        definitions
    }

    /// The nodes' streams.
    fn serve(
        &self,
        listener: TcpListener,
        shown: Arc<Certificates>,
        mut ended: watch::Receiver<bool>,
    ) -> Result<JoinHandle<()>> {
        let (client, agents) = (self.client.clone(), self.agents.clone());
        let audience = self.options.audience.clone();
        let gate = Gate::new(
            self.office.clone(),
            self.desk.clone(),
            client,
            audience,
            agents,
            self.metrics.clone(),
        );
        let service = DistributionService::new(self.office.clone(), Arc::new(gate));
        let inside = listen(listener, shown).context("--listen: make TLS")?;
        let server = Server::builder()
            .http2_keepalive_interval(Some(ALIVE))
            .http2_keepalive_timeout(Some(ALIVE))
            .max_concurrent_streams(CALLS)
            .add_service(service);
        Ok(tokio::spawn(async move {
            let end = async move {
                // An error means that nobody can end it any more, so it ends.
                let _ = ended.wait_for(|ended| *ended).await;
            };
            if let Err(error) = server.serve_with_incoming_shutdown(inside, end).await {
                tracing::error!(%error, "nodes are not served");
            }
        }))
    }

    /// The Lease.
    fn lead(
        &mut self,
        ended: watch::Receiver<bool>,
        definitions: watch::Receiver<u64>,
    ) -> Result<JoinHandle<()>> {
        let options = self.options.clone();
        let reports_to = options.reports_to().map(|at| at.to_string());
        if reports_to.is_none() {
            tracing::warn!(
                "--advertise: nodes find no place for reports while this replica holds the Lease"
            );
        }
        let identity = match &options.identity {
            Some(identity) => identity.clone(),
            None => format!("ferrule-controller-{:016x}", u64::from_le_bytes(random()?)),
        };
        let led = self.leads.subscribe();
        let (client, desk, metrics) =
            (self.client.clone(), self.desk.clone(), self.metrics.clone());
        self.tasks.spawn(async move {
            status::keep(client, desk, metrics, led, definitions).await;
            // Nobody stands for election at the end, and that is no fault of this one.
            std::future::pending::<()>().await;
            "the writing of status"
        });
        let elector = Elector {
            api: Elector::api(self.client.clone(), &options.namespace),
            name: options.lease.clone(),
            identity,
            lasts: options.lease_lasts,
            reports_to: reports_to.unwrap_or_default(),
            office: self.office.clone(),
            desk: self.desk.clone(),
            metrics: self.metrics.clone(),
            leads: self.leads.clone(),
        };
        Ok(tokio::spawn(elector.run(ended)))
    }

    /// Another takes the Lease at once; nodes go elsewhere after a grace, not all in one moment.
    async fn hand_over(
        mut self,
        end: &watch::Sender<bool>,
        leading: JoinHandle<()>,
        serving: JoinHandle<()>,
    ) {
        tracing::info!(grace = ?self.options.grace, "this replica ends: others take over");
        let streams = self.office.followers().len();
        sleep(self.options.grace).await;
        self.office.close();
        let (until, mut dismissals) = (Instant::now() + ENDS, Dismissals::default());
        loop {
            let followers = self.office.followers();
            if followers.is_empty() || Instant::now() >= until {
                break;
            }
            let next = dismissals.next(followers, DISMISSED);
            next.iter().for_each(|node| self.office.dismiss(node));
            sleep(BETWEEN).await;
        }
        end.send_replace(true);
        let left = until.saturating_duration_since(Instant::now());
        // One that has ended already is not to be waited for again.
        let ended = async |part: JoinHandle<()>| {
            if !part.is_finished() {
                drop(part.await)
            }
        };
        let ends = async { tokio::join!(ended(leading), ended(serving)) };
        if timeout(left.max(BETWEEN), ends).await.is_err() {
            tracing::warn!("some nodes did not take the end of their stream");
        }
        self.tasks.shutdown().await;
        tracing::info!(streams, "this replica has ended");
    }
}

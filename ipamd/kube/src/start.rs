//! Starts all tasks. Each has one purpose and does not block the others.

use crate::{
    ClusterFact, Concern, Handle, Options, Report, ReportLevel, cni_node, condition,
    election::Elector,
    eni_config,
    event_queue::{EventRequest, EventSender},
    events::Writer,
    handle::Inner,
    node,
    pod_ips::{AnnotationRequest, Annotator},
    pods::{Pods, Watcher},
    replicas, request, services,
    status_reporter::StatusReporter,
    taint,
};
use config_model::{PodName, causes};
use kube::Client;
use runtime_apiserver::client;
use std::sync::Arc;
use tokio::{
    sync::{Mutex, mpsc, watch},
    task::JoinSet,
    time::sleep,
};

/// Starts the connection and returns at once. The receiver yields facts for the pool. Reports for people go to
/// `reports` as far as it has room.
///
/// # Panics
/// Outside a tokio runtime.
pub fn start(
    options: Options,
    reports: mpsc::Sender<Report>,
) -> (Handle, mpsc::Receiver<ClusterFact>) {
    let (facts, told) = mpsc::channel(FACTS);
    let (status, concern_states) = StatusReporter::new(reports);
    let pods = Pods::new();
    let (events, asked) = EventSender::open();
    let (pod_ips, requests) = mpsc::channel(WISHES);
    let (health, trunk, stop) =
        (watch::Sender::new(None), watch::Sender::new(false), watch::Sender::new(false));
    let (connected, client) = watch::channel(None);
    let services = services::Access { client, status: status.clone() };
    let work = Work {
        options,
        facts,
        status,
        pods: pods.clone(),
        events: events.clone(),
        health: health.subscribe(),
        trunk: trunk.subscribe(),
        stop: stop.subscribe(),
        connected,
    };
    let mut tasks = JoinSet::new();
    tasks.spawn(work.run(asked, requests));
    let inner = Inner {
        pods,
        events,
        pod_ips,
        health,
        trunk,
        concern_states,
        services,
        stop,
        tasks: Mutex::new(tasks),
    };
    (Handle { inner: Arc::new(inner) }, told)
}

struct Work {
    options: Options,
    facts: mpsc::Sender<ClusterFact>,
    status: StatusReporter,
    pods: Pods,
    events: EventSender,
    health: watch::Receiver<Option<crate::PoolHealth>>,
    trunk: watch::Receiver<bool>,
    stop: watch::Receiver<bool>,
    connected: watch::Sender<Option<Client>>,
}

impl Work {
    async fn run(
        mut self,
        asked: mpsc::Receiver<EventRequest>,
        requests: mpsc::Receiver<AnnotationRequest>,
    ) {
        let mut stop = self.stop.clone();
        let client = tokio::select! {
            client = self.connect() => client,
            _ = stop.wait_for(|stop| *stop) => return,
        };
        self.connected.send_replace(Some(client.clone()));
        let mut tasks = JoinSet::new();
        let elector = self.elector(&client);
        self.spawn(&mut tasks, client, asked, requests);
        let elected = async {
            match elector {
                Some(elector) => elector.run(self.stop.clone()).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(elected);
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => {}
            () = &mut elected => return,
        }
        // The election releases the Lease before it stops.
        if self.options.election.is_some() {
            elected.await;
        }
    }

    /// Retries until there is a client.
    async fn connect(&self) -> Client {
        let mut backoff = request::backoff();
        let mut said = None;
        loop {
            self.status.waiting(Concern::Api, ACCESS);
            match client(self.options.kubeconfig.as_deref(), self.options.endpoint.as_deref()).await
            {
                Ok(client) => {
                    self.status.good(Concern::Api, ACCESS);
                    return client;
                }
                Err(unusable) => {
                    let cause = causes(&unusable);
                    if said.as_ref() != Some(&cause) {
                        self.status.report(Report {
                            level: ReportLevel::Warning,
                            concern: Concern::Api,
                            object: ACCESS.to_owned(),
                            cause: cause.clone(),
                            next_step: "mount a service account's token, or set KUBECONFIG".into(),
                        });
                        said = Some(cause);
                    }
                    sleep(backoff.pause()).await;
                }
            }
        }
    }

    fn namespace(&self, client: &Client) -> String {
        self.options.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned())
    }

    fn elector(&self, client: &Client) -> Option<Elector> {
        Some(Elector {
            client: client.clone(),
            namespace: self.namespace(client),
            election: self.options.election.clone()?,
            facts: self.facts.clone(),
            status: self.status.clone(),
        })
    }

    fn spawn(
        &mut self,
        tasks: &mut JoinSet<()>,
        client: Client,
        asked: mpsc::Receiver<EventRequest>,
        requests: mpsc::Receiver<AnnotationRequest>,
    ) {
        let options = &self.options;
        let name = options.node.clone();
        let (seen, node) = watch::channel(None);
        let (facts, status) = (self.facts.clone(), self.status.clone());
        tasks.spawn(node::run(client.clone(), name.clone(), seen, facts, status));
        if options.pods || options.branches || options.annotate_pod_ip {
            let watcher = Watcher {
                pods: self.pods.clone(),
                branches: options.branches,
                facts: self.facts.clone(),
                events: self.events.clone(),
                status: self.status.clone(),
            };
            tasks.spawn(watcher.run(client.clone(), name.clone()));
        }
        let writer = Writer {
            client: client.clone(),
            node: name.clone(),
            daemon: options
                .daemon_pod
                .clone()
                .map(|name| PodName { namespace: self.namespace(&client), name }),
            spacing: options.event_spacing,
            pods: self.pods.clone(),
            status: self.status.clone(),
        };
        tasks.spawn(writer.run(asked));
        if let Some(wanted) = options.replicas.clone() {
            tasks.spawn(replicas::run(client.clone(), wanted, self.status.clone()));
        }
        let eni_config = options.eni_config.clone().map(|keys| {
            let (own, name) = watch::channel(None);
            let (facts, status) = (self.facts.clone(), self.status.clone());
            tasks.spawn(eni_config::run(client.clone(), keys, node.clone(), own, facts, status));
            name
        });
        if options.branches {
            let wanted = cni_node::Wanted { trunk: self.trunk.clone(), eni_config };
            tasks.spawn(cni_node::run(client.clone(), name.clone(), wanted, self.status.clone()));
        }
        if options.annotate_pod_ip {
            let (pods, status) = (self.pods.clone(), self.status.clone());
            tasks.spawn(Annotator { client: client.clone(), pods, status }.run(requests));
        }
        if options.condition {
            let (health, status) = (self.health.clone(), self.status.clone());
            let (client, node) = (client.clone(), node.clone());
            let beat = options.condition_beat;
            tasks.spawn(condition::run(client, name.clone(), node, health, beat, status));
        }
        if let Some(key) = options.startup_taint.clone() {
            let (health, status) = (self.health.clone(), self.status.clone());
            tasks.spawn(taint::run(client, name, key, node, health, status));
        }
    }
}

const ACCESS: &str = "address and credentials of the API server";
/// Facts that wait for the pool; if the queue is full, the watches wait.
const FACTS: usize = 256;
/// Annotations that wait for the API server.
const WISHES: usize = 1024;

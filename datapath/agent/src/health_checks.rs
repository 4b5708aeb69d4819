//! HTTP for load balancers: a listener for each health check of a Service, and one for the node.
//!
//! The answers are decided in [`service_core`]. This task opens and closes listeners.

use crate::{clock::Clock, metrics::Metrics};
use axum::{
    Router,
    extract::State,
    http::{HeaderName, StatusCode, header},
    response::{IntoResponse, Response},
    routing::any,
};
use config_model::Time;
use runtime_process::listen::{BOUNDS, bind, bind_family, serve_on};
use service_core::{HealthAnswer, HealthChecks, HealthPort, ProxyHealth};
use service_objects::{Family, ObjectName};
use std::{
    collections::BTreeMap,
    convert::Infallible,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::{net::TcpListener, sync::watch, task::JoinSet, time::sleep};

/// The basis of the answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServiceHealth {
    pub(crate) checks: Arc<HealthChecks>,
    pub(crate) proxy: ProxyHealth,
}

impl ServiceHealth {
    /// The backend has applied a state. Without `checks` its Services are not in force, and the earlier checks stay.
    /// Returns true if listeners may change.
    pub(crate) fn finish(&mut self, checks: Option<Arc<HealthChecks>>, now: Time) -> bool {
        let Some(checks) = checks else { return false };
        self.proxy.finish(now);
        let is_changed = self.checks != checks;
        self.checks = checks;
        is_changed
    }
}

/// The task that listens.
pub(crate) struct HealthServer {
    pub(crate) health: watch::Receiver<ServiceHealth>,
    pub(crate) clock: Clock,
    /// The address of the node's own health; `None`: not served.
    pub(crate) at: Option<SocketAddr>,
    /// The addresses of the Services' health.
    pub(crate) hosts: Hosts,
    pub(crate) metrics: Arc<Metrics>,
    /// The pause before a listener that cannot be opened is tried again.
    pub(crate) pause: Duration,
}

/// The addresses at which the health of Services is served, by family.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hosts {
    pub(crate) v4: Ipv4Addr,
    pub(crate) v6: Ipv6Addr,
}

impl Hosts {
    /// All addresses of the node.
    pub(crate) const ALL: Self = Self { v4: Ipv4Addr::UNSPECIFIED, v6: Ipv6Addr::UNSPECIFIED };

    fn at(self, HealthPort { family, port }: HealthPort) -> SocketAddr {
        let host = match family {
            Family::V4 => IpAddr::V4(self.v4),
            Family::V6 => IpAddr::V6(self.v6),
        };
        SocketAddr::new(host, port)
    }
}

/// A listener that should exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Listening {
    Node(SocketAddr),
    Service(HealthPort),
}

/// The listeners that exist, and those that cannot be opened, each with the cause that was logged.
#[derive(Debug, Default)]
struct Listeners {
    /// A listener ends with its set.
    open: BTreeMap<Listening, JoinSet<Infallible>>,
    failing: BTreeMap<Listening, String>,
    /// The Services without a port of their own that were logged.
    refused: BTreeMap<ObjectName, u16>,
}

impl HealthServer {
    /// Runs until the agent ends.
    pub(crate) async fn run(mut self) {
        let mut listeners = Listeners::default();
        loop {
            let checks = Arc::clone(&self.health.borrow_and_update().checks);
            self.follow(&mut listeners, &checks).await;
            self.metrics.failing_health_ports(listeners.failing.len() + listeners.refused.len());
            tokio::select! {
                changed = self.health.changed() => if changed.is_err() { return },
                () = sleep(self.pause), if !listeners.failing.is_empty() => {}
            }
        }
    }

    /// Closes and opens listeners, and tries those again that could not be opened.
    async fn follow(&self, listeners: &mut Listeners, checks: &HealthChecks) {
        let node = self.at.map(Listening::Node);
        let services = checks.by_port.keys().copied().map(Listening::Service);
        let wanted: Vec<Listening> = node.into_iter().chain(services).collect();
        let ended = listeners.open.extract_if(.., |of, _| !wanted.contains(of));
        for (_, mut listener) in ended.collect::<Vec<_>>() {
            // The port is free afterwards. Connections that are open still get their answer.
            listener.shutdown().await;
        }
        listeners.failing.retain(|of, _| wanted.contains(of));
        for of in wanted {
            if listeners.open.contains_key(&of) {
                continue;
            }
            match self.open(of).await {
                Ok(listener) => {
                    let mut set = JoinSet::new();
                    set.spawn(serve_on(listener, self.router(of), BOUNDS));
                    listeners.open.insert(of, set);
                    if listeners.failing.remove(&of).is_some() {
                        tracing::info!(
                            port = self.address(of).port(),
                            "health checks are answered now"
                        );
                    }
                }
                Err(error) => {
                    let why = error.to_string();
                    if listeners.failing.get(&of) != Some(&why) {
                        self.log(of, checks, &why);
                        listeners.failing.insert(of, why);
                    }
                }
            }
        }
        for (service, port) in &checks.refused {
            if listeners.refused.get(service) != Some(port) {
                tracing::error!(
                    %service,
                    port,
                    "cannot answer health checks of the Service: an older Service has the same healthCheckNodePort; \
                     create one of the two Services again"
                );
            }
        }
        listeners.refused.clone_from(&checks.refused);
    }

    fn address(&self, of: Listening) -> SocketAddr {
        match of {
            Listening::Node(at) => at,
            Listening::Service(port) => self.hosts.at(port),
        }
    }

    async fn open(&self, of: Listening) -> io::Result<TcpListener> {
        match of {
            Listening::Node(at) => bind(at).await,
            Listening::Service(port) => bind_family(self.hosts.at(port)),
        }
    }

    fn log(&self, of: Listening, checks: &HealthChecks, why: &str) {
        let at = self.address(of);
        let retry_seconds = self.pause.as_secs();
        match of {
            Listening::Node(_) => tracing::warn!(
                why,
                %at,
                retry_seconds,
                "cannot answer health checks of the node: the address is not usable; remove kube-proxy, or set \
                 FERRULE_AGENT_HEALTHZ to another address"
            ),
            Listening::Service(port) => {
                let check = checks.by_port.get(&port);
                tracing::warn!(
                    why,
                    %at,
                    service = check.map(|check| check.service.to_string()),
                    retry_seconds,
                    "cannot answer health checks of the Service: its healthCheckNodePort is not usable; remove \
                     kube-proxy, or stop the process that listens there"
                );
            }
        }
    }

    fn router(&self, of: Listening) -> Router {
        let source = Source { health: self.health.clone(), clock: self.clock };
        match of {
            Listening::Node(_) => {
                Router::new().route("/healthz", any(healthz)).route("/livez", any(livez))
            }
            // As kube-proxy, at each path.
            Listening::Service(port) => Router::new()
                .fallback(async move |State(source): State<Source>| source.service(port)),
        }
        .with_state(source)
    }
}

/// State of the handlers.
#[derive(Clone)]
struct Source {
    health: watch::Receiver<ServiceHealth>,
    clock: Clock,
}

impl Source {
    fn service(&self, port: HealthPort) -> Response {
        let health = self.health.borrow();
        let is_healthy = health.proxy.is_healthy(self.clock.now());
        match health.checks.by_port.get(&port) {
            Some(check) => written(check.answer(is_healthy)),
            // The listener is about to end.
            None => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        }
    }
}

async fn healthz(State(source): State<Source>) -> Response {
    written(source.health.borrow().proxy.healthz(source.clock.now(), unix_ms()))
}

async fn livez(State(source): State<Source>) -> Response {
    written(source.health.borrow().proxy.livez(source.clock.now(), unix_ms()))
}

fn written(HealthAnswer { is_good, weight, body }: HealthAnswer) -> Response {
    let status = if is_good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let headers =
        [(header::CONTENT_TYPE, "application/json"), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")];
    match weight {
        Some(weight) => (status, headers, [(WEIGHT, weight.to_string())], body).into_response(),
        None => (status, headers, body).into_response(),
    }
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The pause before a listener is tried again.
pub(crate) const PAUSE: Duration = Duration::from_secs(5);
const WEIGHT: HeaderName = HeaderName::from_static("x-load-balancing-endpoint-weight");

#[cfg(test)]
mod tests;

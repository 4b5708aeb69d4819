//! `/livez`, `/readyz` and `/metrics`.

use crate::{metrics::Metrics, readiness::Readiness};
use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use control_rpc::{Bounds, Leave, Place, PreauthLimiter, SharedHub};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    time::{sleep, timeout},
};

/// Timeout of a request's header.
const HEAD: Duration = Duration::from_secs(5);
/// Maximum duration of a connection, which carries one request.
const TALK: Duration = Duration::from_secs(10);
/// Limits on connections. The kubelet and Prometheus have one or two each.
const CONNECTIONS: Bounds =
    Bounds { preauth: 128, share: 8, within: TALK, fair: Duration::from_secs(1) };

/// Sources of the answers.
#[derive(Clone)]
pub(crate) struct Health {
    pub(crate) hub: Arc<SharedHub>,
    pub(crate) readiness: Arc<Readiness>,
    pub(crate) metrics: Arc<Metrics>,
    /// The reason why there is no certificate.
    pub(crate) lacks: watch::Receiver<Option<String>>,
    pub(crate) is_ending: Arc<AtomicBool>,
}

/// Serves forever. An address with many connections does not block other addresses.
pub(crate) async fn serve(listener: TcpListener, health: Health) -> io::Result<()> {
    let router = Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(health);
    let preauth = PreauthLimiter::new(CONNECTIONS);
    loop {
        match listener.accept().await {
            Ok((tcp, from)) => {
                // If the address has too many connections, this one is closed.
                if let Some(entered) = preauth.enter(from.ip()).await {
                    tokio::spawn(answer(tcp, router.clone(), entered));
                }
            }
            Err(error) => {
                // For example, no file descriptor is free: other connections may end meanwhile.
                tracing::debug!(%error, "cannot accept connection");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn answer(tcp: TcpStream, router: Router, (_place, leave): (Place, Leave)) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD).keep_alive(false);
    let talk = http.serve_connection(TokioIo::new(tcp), TowerToHyperService::new(router));
    tokio::select! {
        talk = timeout(TALK, talk) => {
            if let Ok(Err(error)) = talk {
                tracing::debug!(%error, "cannot answer request");
            }
        }
        // The limiter evicts this connection.
        _ = leave => {}
    }
}

impl Health {
    /// Returns the reasons why this replica is not ready; empty if it is.
    fn lacks(&self) -> Vec<String> {
        let mut lacks = Vec::new();
        if self.is_ending.load(Ordering::SeqCst) {
            lacks.push("this replica stops".to_owned());
        }
        lacks.extend(self.lacks.borrow().as_ref().map(|why| format!("certificate: {why}")));
        lacks.extend(
            self.readiness.waits_for().into_iter().map(|kind| format!("waiting for {kind}")),
        );
        lacks
    }
}

/// Proves that the runtime runs and that no task holds the hub's lock forever.
async fn livez(State(health): State<Health>) -> Response {
    let generation = health.hub.with(|hub| hub.generation());
    format!("alive, at generation {generation}\n").into_response()
}

async fn readyz(State(health): State<Health>) -> Response {
    let lacks = health.lacks();
    let status = if lacks.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let mut text = if lacks.is_empty() { "ready\n".to_owned() } else { "not ready\n".to_owned() };
    let mut line = |line: &str| text.push_str(&format!("{line}\n"));
    lacks.iter().for_each(|lack| line(lack));
    line("");
    health.readiness.lines().iter().for_each(|kind| line(kind));
    (status, text).into_response()
}

async fn metrics(State(health): State<Health>) -> Response {
    let (measures, reached, is_loaded) =
        health.hub.with(|hub| (hub.measures(), hub.reached().clone(), hub.is_loaded()));
    health.metrics.hub(&measures, &reached, is_loaded);
    health.metrics.readiness(&health.readiness);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], health.metrics.page()).into_response()
}

#[cfg(test)]
mod tests;

//! `/livez`, `/readyz` and `/metrics`.

use crate::{metrics::Metrics, readiness::Readiness};
use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use control_rpc::{Bounds, SharedHub};
use runtime_process::listen::{BOUNDS, serve_on};
use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::{net::TcpListener, sync::watch};

/// Limits on connections: those of the other metrics ports, with more places.
const CONNECTIONS: Bounds = Bounds { preauth: 128, ..BOUNDS };

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
pub(crate) async fn serve(listener: TcpListener, health: Health) -> Infallible {
    let router = Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(health);
    match serve_on(listener, router, CONNECTIONS).await {}
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

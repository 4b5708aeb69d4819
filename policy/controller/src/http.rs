//! `/livez`, `/readyz` and `/metrics`.

use crate::{board::Board, metrics::Metrics};
use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use policy_rpc::Office;
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::{net::TcpListener, sync::watch};

/// What is shown, and where it comes from.
#[derive(Clone)]
pub(crate) struct Health {
    pub(crate) office: Arc<Office>,
    pub(crate) board: Arc<Board>,
    pub(crate) metrics: Arc<Metrics>,
    /// Why there is no certificate.
    pub(crate) lacks: watch::Receiver<Option<String>>,
    pub(crate) is_ending: Arc<AtomicBool>,
}

/// Serves, for ever.
pub(crate) async fn serve(listener: TcpListener, health: Health) -> io::Result<()> {
    let router = Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(health);
    axum::serve(listener, router).await
}

impl Health {
    /// Why nodes should go elsewhere; nothing if they are served here.
    fn lacks(&self) -> Vec<String> {
        let mut lacks = Vec::new();
        if self.is_ending.load(Ordering::SeqCst) {
            lacks.push("this replica ends".to_owned());
        }
        lacks.extend(self.lacks.borrow().as_ref().map(|why| format!("certificate: {why}")));
        lacks.extend(self.board.waits_for().into_iter().map(|kind| format!("waits for {kind}")));
        lacks
    }
}

/// It answers: the runtime runs, and nobody holds the hub for ever.
async fn livez(State(health): State<Health>) -> Response {
    let generation = health.office.with(|hub| hub.generation());
    format!("alive, at generation {generation}\n").into_response()
}

async fn readyz(State(health): State<Health>) -> Response {
    let lacks = health.lacks();
    let status = if lacks.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let mut text = if lacks.is_empty() { "ready\n".to_owned() } else { "not ready\n".to_owned() };
    let mut line = |line: &str| text.push_str(&format!("{line}\n"));
    lacks.iter().for_each(|lack| line(lack));
    line("");
    health.board.lines().iter().for_each(|kind| line(kind));
    (status, text).into_response()
}

async fn metrics(State(health): State<Health>) -> Response {
    let (measures, reached, is_loaded) =
        health.office.with(|hub| (hub.measures(), hub.reached().clone(), hub.is_loaded()));
    health.metrics.hub(&measures, &reached, is_loaded);
    health.metrics.board(&health.board);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], health.metrics.page()).into_response()
}

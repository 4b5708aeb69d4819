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

/// How long it may take to say what is asked.
const HEAD: Duration = Duration::from_secs(5);
/// How long a connection may take in all: each is for one answer.
const TALK: Duration = Duration::from_secs(10);
/// As many connections at once. The kubelet and what scrapes have one or two each.
const CONNECTIONS: Bounds =
    Bounds { strangers: 128, share: 8, within: TALK, fair: Duration::from_secs(1) };

/// What is shown, and where it comes from.
#[derive(Clone)]
pub(crate) struct Health {
    pub(crate) office: Arc<SharedHub>,
    pub(crate) board: Arc<Readiness>,
    pub(crate) metrics: Arc<Metrics>,
    /// Why there is no certificate.
    pub(crate) lacks: watch::Receiver<Option<String>>,
    pub(crate) is_ending: Arc<AtomicBool>,
}

/// Serves, for ever. Whoever opens many connections keeps nobody at another address from an answer.
pub(crate) async fn serve(listener: TcpListener, health: Health) -> io::Result<()> {
    let router = Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(health);
    let strangers = PreauthLimiter::new(CONNECTIONS);
    loop {
        match listener.accept().await {
            Ok((tcp, from)) => {
                // If its address has too many it is closed.
                if let Some(entered) = strangers.enter(from.ip()).await {
                    tokio::spawn(answer(tcp, router.clone(), entered));
                }
            }
            Err(error) => {
                // Out of descriptors, for one: others may end meanwhile.
                tracing::debug!(%error, "a connection cannot be taken");
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
                tracing::debug!(%error, "who looks is not answered");
            }
        }
        // There are too many.
        _ = leave => {}
    }
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

#[cfg(test)]
mod tests;

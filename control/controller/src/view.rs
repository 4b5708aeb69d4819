//! The aggregated API of policies, groups and nodes.
//!
//! The API server authenticates and authorizes users. It connects with a client certificate, and the replica answers no
//! other client.

mod front;
mod registered;

pub(crate) use registered::Registered;

use crate::status::ReportCollector;
use anyhow::{Context as _, Result};
use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{Method, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use control_rpc::{Bounds, Certificates, SharedHub};
use front::Front;
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use kube::Client;
use runtime_limiter::PreauthLimiter;
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::{sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use view_policy::{Answer, Query, answer};

/// Maximum number of connections of the API server, which keeps a few.
const CONNECTIONS: usize = 64;
/// Timeout of a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Limits on concurrent handshakes.
const HANDSHAKES: Bounds = Bounds {
    preauth: 128,
    share: 8,
    v6_prefix: 80,
    within: HANDSHAKE,
    fair: Duration::from_secs(1),
};
/// Maximum duration of a connection.
const IDLE: Duration = Duration::from_secs(600);
/// Interval at which the API server's client authority is read.
const LOOK: Duration = Duration::from_secs(60);

/// Sources of the answers.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) hub: Arc<SharedHub>,
    pub(crate) reports: Arc<ReportCollector>,
}

/// Serves forever.
pub(crate) async fn serve(
    listener: TcpListener,
    view: View,
    client: Client,
    shown: Arc<Certificates>,
) {
    let (found, front) = watch::channel(None);
    let look = keep_looking(client, shown, found);
    let accept = accept(listener, view, front);
    tokio::join!(look, accept);
}

/// Keeps the API server's client authority up to date.
async fn keep_looking(
    client: Client,
    shown: Arc<Certificates>,
    found: watch::Sender<Option<TlsAcceptor>>,
) {
    let mut known = None;
    let mut backoff = crate::api::backoff();
    loop {
        match Front::look(&client).await {
            Ok(front) if known.as_ref() != Some(&front) => match front.acceptor(shown.clone()) {
                Ok(acceptor) => {
                    tracing::info!("serving the aggregated API");
                    found.send_replace(Some(acceptor));
                    known = Some(front);
                }
                Err(error) => {
                    let error = format!("{error:#}");
                    tracing::warn!(
                        error,
                        "cannot use the API server's client authority; {}",
                        front::WHERE
                    );
                }
            },
            Ok(_) => backoff.reset(),
            Err(error) => {
                let error = format!("{error:#}");
                tracing::warn!(
                    error,
                    "cannot read the API server's client authority; {}",
                    front::WHERE
                );
                sleep(backoff.pause()).await;
                continue;
            }
        }
        sleep(LOOK).await;
    }
}

async fn accept(
    listener: TcpListener,
    view: View,
    mut front: watch::Receiver<Option<TlsAcceptor>>,
) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let preauth = PreauthLimiter::new(HANDSHAKES);
    loop {
        // Without the client authority, connections wait in the kernel's backlog.
        let acceptor = match front.wait_for(Option::is_some).await {
            Ok(acceptor) => acceptor.clone(),
            Err(_) => return,
        };
        let Some(acceptor) = acceptor else { return };
        match listener.accept().await {
            Ok((tcp, from)) => {
                // If the address has too many connections, this one is closed.
                let Some((place, leave)) = preauth.enter(from.ip()).await else { continue };
                let (view, room) = (view.clone(), room.clone());
                tokio::spawn(async move {
                    let entered = tokio::select! {
                        entered = timeout(HANDSHAKE, enter(tcp, acceptor, room)) => entered,
                        // The limiter evicts this connection.
                        _ = leave => return,
                    };
                    drop(place);
                    let talk = async {
                        let (tls, _permit) = entered.context("TLS handshake timed out")??;
                        converse(tls, view).await
                    };
                    if let Err(error) = talk.await {
                        tracing::debug!(
                            error = format!("{error:#}"),
                            "connection of the aggregated API failed"
                        );
                    }
                });
            }
            Err(error) => {
                tracing::debug!(%error, "cannot accept connection");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Completes the handshake, which only the API server can, and takes a place among its connections.
async fn enter(
    tcp: TcpStream,
    acceptor: TlsAcceptor,
    room: Arc<Semaphore>,
) -> Result<(TlsStream<TcpStream>, OwnedSemaphorePermit)> {
    let tls = acceptor.accept(tcp).await?;
    Ok((tls, room.acquire_owned().await?))
}

async fn converse(tls: TlsStream<TcpStream>, view: View) -> Result<()> {
    let router = Router::new().fallback(ask).with_state(view);
    let service = TowerToHyperService::new(router);
    let talk =
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(tls), service);
    timeout(IDLE, talk).await.context("connection too old")?.context("connection failed")
}

async fn ask(State(view): State<View>, request: Request<Body>) -> Response {
    if request.method() != Method::GET {
        let text = "this API is read-only\n";
        return (StatusCode::METHOD_NOT_ALLOWED, text).into_response();
    }
    let query = request.uri().query().unwrap_or_default();
    let given = |key: &str| {
        let mut pairs = form_urlencoded::parse(query.as_bytes());
        pairs.find(|(name, _)| name == key).map(|(_, value)| value.into_owned())
    };
    let behind = given("continue").unwrap_or_default();
    let limit = given("limit").and_then(|limit| limit.parse().ok());
    let asked = Query { path: request.uri().path(), limit, behind: &behind };
    let Answer { code, document } = view.answer(&asked);
    let code = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let json = [(header::CONTENT_TYPE, "application/json")];
    (code, json, document.to_string()).into_response()
}

impl View {
    fn answer(&self, asked: &Query<'_>) -> Answer {
        let now_ms = self.hub.now_ms();
        self.hub.with(|hub| {
            // Locked after the hub, in the same order as at a node's removal, so that there is no deadlock.
            let reports = self.reports.reports();
            let reporting: BTreeSet<String> = reports.nodes().map(str::to_owned).collect();
            let realized = |node: &str| reports.realized(node, now_ms);
            answer(hub, asked, &realized, &reporting)
        })
    }
}

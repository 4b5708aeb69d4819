//! Authentication of calls by their head. No part of a body is read before the token is valid.

use crate::{
    Caller, Gatekeeper, SharedHub,
    caller_limits::{CallerLimits, Method},
    generated::distribution_server::DistributionServer,
    server::DistributionService,
};
use http::{HeaderMap, Request, Response};
use runtime_limiter::Connection;
use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};
use tonic::{Status, body::Body, server::NamedService};
use tower::Service;

/// Maximum time for which a node takes no data or acknowledges nothing. The node receives the missing content when
/// it reconnects.
const PATIENCE: Duration = Duration::from_secs(120);
/// Maximum size of an announcement in bytes: names, a UID and a few addresses.
const ANNOUNCE_BYTES: usize = 4 << 10;
/// Maximum size of a report in bytes. A policy takes about 60 bytes, and up to 570 with an error. A report is not split.
const REPORT_BYTES: usize = 8 << 20;
/// Maximum size of a message on the stream in bytes. The content of a node takes about 40 bytes per object.
const FOLLOW_BYTES: usize = 8 << 20;

/// The service behind authentication, with a limit on the size of messages for each method.
#[derive(Clone)]
pub struct Authenticated {
    follow: DistributionServer<DistributionService>,
    announce: DistributionServer<DistributionService>,
    report: DistributionServer<DistributionService>,
    admit: Arc<dyn Gatekeeper>,
    limits: Arc<CallerLimits>,
}

impl Authenticated {
    /// The service of one replica.
    pub fn new(hub: Arc<SharedHub>, admit: Arc<dyn Gatekeeper>) -> Self {
        Self::patient(hub, admit, PATIENCE)
    }

    /// Like [`new`](Self::new), with another limit for nodes that take or acknowledge nothing.
    pub fn patient(hub: Arc<SharedHub>, admit: Arc<dyn Gatekeeper>, patience: Duration) -> Self {
        let service = Arc::new(DistributionService::new(hub, admit.clone(), patience));
        let within =
            |bytes| DistributionServer::from_arc(service.clone()).max_decoding_message_size(bytes);
        Self {
            follow: within(FOLLOW_BYTES),
            announce: within(ANNOUNCE_BYTES),
            report: within(REPORT_BYTES),
            admit,
            limits: Arc::default(),
        }
    }
}

impl NamedService for Authenticated {
    const NAME: &'static str = <DistributionServer<DistributionService> as NamedService>::NAME;
}

impl Service<Request<Body>> for Authenticated {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let (method, mut server) = match request.uri().path().rsplit('/').next() {
            Some("Announce") => (Method::Announce, self.announce.clone()),
            Some("Report") => (Method::Report, self.report.clone()),
            // The server refuses other paths.
            Some(_) | None => (Method::Follow, self.follow.clone()),
        };
        let (admit, limits) = (self.admit.clone(), self.limits.clone());
        let (head, connection) = (request.headers().clone(), request.extensions().get().cloned());
        Box::pin(async move {
            let caller = match caller(&*admit, &head, connection.as_ref()).await {
                Ok(caller) => caller,
                Err(status) => return Ok(status.into_http()),
            };
            if let Some(connection) = &connection {
                limits.keep(&caller, connection, Instant::now());
            }
            let permit = match limits.admit(&caller, method, Instant::now()) {
                Ok(permit) => permit,
                Err(status) => {
                    admit.limited(&caller, method.name());
                    return Ok(status.into_http());
                }
            };
            request.extensions_mut().insert(caller);
            let response = server.call(request).await;
            drop(permit);
            response
        })
    }
}

/// Identifies the caller by its token. The connection is authenticated by its first valid token.
async fn caller(
    admit: &dyn Gatekeeper,
    head: &HeaderMap,
    connection: Option<&Connection>,
) -> Result<Caller, Status> {
    let text = head.get("authorization").and_then(|value| value.to_str().ok());
    let token = text.and_then(|text| text.strip_prefix("Bearer "));
    let token = token.ok_or_else(|| Status::unauthenticated("no bearer token"))?;
    let _review = connection.map(Connection::review);
    let caller = admit.admit(token).await;
    match (&caller, connection) {
        (Ok(_), Some(connection)) => connection.authenticated(),
        (Err(_), Some(connection)) => connection.refused(),
        (_, None) => {}
    }
    caller
}

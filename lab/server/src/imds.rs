//! The instance metadata service, version 2: a session token first, then plain GETs.

mod tokens;

use crate::{
    http::{FullRequest, HttpService, Reply, plain},
    live::{LiveCloud, Source},
};
use bytes::Bytes;
use config_model::InstanceId;
use http_body_util::Full;
use hyper::{HeaderMap, Method, Response, header::HeaderValue};
use std::{
    net::{IpAddr, SocketAddr},
    time::Instant,
};
use tokens::Tokens;
use tokio::net::TcpStream;

/// The metadata service of all instances of a cloud; the source address identifies the caller.
pub(crate) struct Metadata {
    cloud: LiveCloud,
    tokens: Tokens,
    callers: Callers,
}

/// Identification of the instance that calls.
pub(crate) enum Callers {
    /// By the source address of the connection, as within a VPC.
    BySource,
    /// Always this instance: for tests on loopback.
    Fixed(InstanceId),
}

impl Metadata {
    pub(crate) fn new(cloud: LiveCloud, callers: Callers) -> Self {
        Self { cloud, tokens: Tokens::default(), callers }
    }

    fn source(&self, peer: SocketAddr) -> Option<Source> {
        match (&self.callers, peer.ip()) {
            (Callers::Fixed(instance), _) => {
                Some(Source { instance: instance.clone(), hop_limit: LOOPBACK_HOPS })
            }
            (Callers::BySource, IpAddr::V4(address)) => self.cloud.source(address),
            (Callers::BySource, IpAddr::V6(_)) => None,
        }
    }

    fn respond(&self, request: &FullRequest, instance: &InstanceId) -> Response<Full<Bytes>> {
        if let Some(status) = self.cloud.with(|cloud, _| cloud.imds_outage(instance)) {
            return page(status);
        }
        match *request.method() {
            Method::PUT if request.uri().path() == TOKEN_PATH => {
                self.hand_out(request.headers(), instance)
            }
            Method::GET | Method::HEAD => self.read(request, instance),
            _ => page(405),
        }
    }

    fn hand_out(&self, headers: &HeaderMap, instance: &InstanceId) -> Response<Full<Bytes>> {
        if headers.contains_key("x-forwarded-for") {
            return page(403);
        }
        let ttl = headers.get(TTL_HEADER).and_then(|value| value.to_str().ok()?.parse().ok());
        let Some(ttl) = ttl.filter(|ttl| (1..=TTL_MAX_SECONDS).contains(ttl)) else {
            return page(400);
        };
        let Ok(token) = self.tokens.make(instance, ttl, Instant::now()) else {
            return page(500);
        };
        let mut response = plain(200, token);
        response.headers_mut().insert(TTL_HEADER, HeaderValue::from(ttl));
        response
    }

    fn read(&self, request: &FullRequest, instance: &InstanceId) -> Response<Full<Bytes>> {
        let token = request.headers().get(TOKEN_HEADER).and_then(|value| value.to_str().ok());
        let valid = token.is_some_and(|token| self.tokens.fits(token, instance, Instant::now()));
        if !valid {
            return page(401);
        }
        let path = request.uri().path();
        match self.cloud.with(|cloud, now| cloud.imds(now, instance, path)) {
            Some(text) => plain(200, text),
            None => page(404),
        }
    }
}

impl HttpService for Metadata {
    fn accepted(&self, stream: &TcpStream, peer: SocketAddr) {
        let _ = stream.set_nodelay(true);
        if let Some(source) = self.source(peer)
            && let Err(err) = stream.set_ttl(u32::from(source.hop_limit))
        {
            tracing::warn!(%err, %peer, "the hop limit was not set");
        }
    }

    async fn answer(&self, request: FullRequest, peer: SocketAddr) -> Reply {
        let response = match self.source(peer) {
            Some(source) => self.respond(&request, &source.instance),
            None => page(404),
        };
        let (method, path, status) = (request.method(), request.uri().path(), response.status());
        tracing::debug!(%method, path, status = status.as_u16(), %peer, "IMDS");
        Reply::Answer(response)
    }
}

/// The page that the real service shows beside a status.
fn page(status: u16) -> Response<Full<Bytes>> {
    let code = hyper::StatusCode::from_u16(status).unwrap_or_default();
    let reason = code.canonical_reason().unwrap_or_default();
    let html = format!(
        "<?xml version=\"1.0\" encoding=\"iso-8859-1\"?>\n<html><head><title>{status} - {reason}\
         </title></head><body><h1>{status} - {reason}</h1></body></html>\n"
    );
    crate::http::typed(status, "text/html", html)
}

const TOKEN_PATH: &str = "/latest/api/token";
const TOKEN_HEADER: &str = "x-aws-ec2-metadata-token";
const TTL_HEADER: &str = "x-aws-ec2-metadata-token-ttl-seconds";
/// Six hours, the longest that EC2 allows.
const TTL_MAX_SECONDS: u32 = 21_600;
const LOOPBACK_HOPS: u8 = 64;

//! `ferrule probe`: the program of the pods of `ferrule check`. It answers over TCP, UDP and HTTP and runs tests on
//! request.

mod answer;
mod attempt;
mod datagram;

use anyhow::{Context as _, Result};
use clap::Subcommand;
use http_body_util::Full;
use hyper::{
    Request, Response, body::Bytes, body::Incoming, server::conn::http1, service::service_fn,
};
use hyper_util::rt::TokioIo;
use std::{convert::Infallible, net::Ipv6Addr, time::Duration};
use tokio::{
    net::{TcpListener, UdpSocket},
    task::JoinSet,
};
use view_cluster::Try;

#[derive(Debug, Subcommand)]
pub(crate) enum ProbeVerb {
    /// Answer and run tests on request until stopped
    Serve {
        /// The TCP and UDP port
        #[arg(long, default_value_t = PORT)]
        port: u16,
    },
}

/// Serves until the process is stopped.
///
/// # Errors
/// The port is in use.
pub(crate) fn run(verb: &ProbeVerb) -> Result<u8> {
    let ProbeVerb::Serve { port } = verb;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start the async runtime")?.block_on(serve(*port))
}

async fn serve(port: u16) -> Result<u8> {
    // The socket serves both families if the pod has both.
    let (listener, datagrams) = match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
        Ok(listener) => (listener, UdpSocket::bind((Ipv6Addr::UNSPECIFIED, port)).await),
        Err(_) => {
            let listener = TcpListener::bind(("0.0.0.0", port)).await;
            let listener = listener.with_context(|| format!("cannot listen on TCP port {port}"))?;
            (listener, UdpSocket::bind(("0.0.0.0", port)).await)
        }
    };
    let datagrams = datagrams.with_context(|| format!("cannot listen on UDP port {port}"))?;
    let mut tasks = JoinSet::new();
    tasks.spawn(echo(datagrams));
    let mut ended = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
        .context("cannot listen for signals")?;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = ended.recv() => return Ok(0),
            Some(_) = tasks.join_next() => continue,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(BREATH).await;
            continue;
        };
        tasks.spawn(async move {
            let connection =
                http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer));
            // A client that closes early is no error.
            let _ = connection.await;
        });
    }
}

async fn echo(socket: UdpSocket) {
    let mut datagram = vec![0; DATAGRAM_MAX];
    loop {
        match socket.recv_from(&mut datagram).await {
            Ok((length, from)) => {
                // A short answer, so that a test of large packets is about one direction.
                let said = datagram.get(..length.min(ANSWER_MAX)).unwrap_or_default();
                // A lost datagram is no error.
                let _ = socket.send_to(said, from).await;
            }
            Err(_) => tokio::time::sleep(BREATH).await,
        }
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = match request.uri().query() {
        Some(query) if request.uri().path() == TRIES => {
            let asked = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "of");
            let asked: Option<Vec<Try>> =
                asked.and_then(|(_, text)| serde_json::from_str(&text).ok());
            let outcomes = attempt::all(asked.unwrap_or_default()).await;
            serde_json::to_vec(&outcomes).unwrap_or_default()
        }
        Some(_) | None => answer::GREETING.as_bytes().to_vec(),
    };
    Ok(Response::new(Full::new(Bytes::from(body))))
}

/// The probes' port.
pub(crate) const PORT: u16 = 7777;
/// The path of test requests.
pub(crate) const TRIES: &str = "/tries";
const DATAGRAM_MAX: usize = 65_536;
const ANSWER_MAX: usize = 64;
const BREATH: Duration = Duration::from_millis(100);

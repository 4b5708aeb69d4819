use super::*;
use control_hub::Hub;
use std::net::SocketAddr;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpSocket,
    task::JoinSet,
    time::Instant,
};

const PATIENCE: Duration = Duration::from_secs(60);

async fn connect(from: &str, to: SocketAddr) -> Option<TcpStream> {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(SocketAddr::new(from.parse().expect("an address"), 0)).expect("one of ours");
    socket.connect(to).await.ok()
}

/// An answer, head and all.
async fn get(at: SocketAddr, path: &str) -> Option<String> {
    let mut stream = connect("127.0.0.1", at).await?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    Some(answer)
}

async fn health() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let at = listener.local_addr().expect("its address");
    let health = Health {
        hub: SharedHub::new(Hub::new([7; 16], 0)),
        readiness: Arc::new(Readiness::new()),
        metrics: Arc::new(Metrics::new().expect("metrics")),
        lacks: watch::Sender::new(None).subscribe(),
        is_ending: Arc::default(),
    };
    tokio::spawn(serve(listener, health));
    at
}

#[tokio::test]
async fn idle_connections_block_no_request() {
    let at = health().await;
    let (ends, mut ended) = tokio::sync::mpsc::unbounded_channel();
    let flooding = tokio::spawn(async move {
        let mut open = JoinSet::new();
        loop {
            if let Some(mut idle) = connect("127.0.0.2", at).await {
                let ends = ends.clone();
                open.spawn(async move {
                    // The connection ends, with or without an error.
                    let _ = idle.read_to_end(&mut Vec::new()).await;
                    let _ = ends.send(());
                });
            }
            while open.try_join_next().is_some() {}
            sleep(Duration::from_millis(2)).await;
        }
    });
    for _ in 0..20 {
        // The limiter evicts connections while the flood continues.
        timeout(PATIENCE, ended.recv()).await.expect("nothing floods").expect("nothing floods");
        let answer = timeout(PATIENCE, get(at, "/livez")).await.expect("an answer");
        let answer = answer.expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("alive"), "{answer}");
    }
    assert!(!flooding.is_finished());
    flooding.abort();
}

#[tokio::test]
async fn a_connection_without_a_request_ends() {
    let at = health().await;
    let mut idle = connect("127.0.0.1", at).await.expect("a connection");
    idle.write_all(b"GET /livez HTT").await.expect("it is taken");
    let last = Instant::now() + PATIENCE;
    let ended = tokio::time::timeout_at(last, idle.read_to_end(&mut Vec::new())).await;
    assert!(ended.is_ok(), "it does not end");
}

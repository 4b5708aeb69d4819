//! Cost of unauthenticated clients, slow nodes and nodes whose pods are gone, and their effect on others.

use crate::{
    NAME, PATIENCE, Replica, begin, catch_up, hello, hub, policy, read, replica, replica_with,
    replica_within,
};
use bytes::Bytes;
use control_rpc::{Bounds, Follow, FollowError, ReplicaClient};
use control_wire::{
    NodeSnapshot,
    proto::{AnnounceRequest, Digest, Realized, ReportRequest},
};
use h2::client::SendRequest;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    net::{TcpSocket, TcpStream},
    task::{JoinHandle, JoinSet},
    time::timeout,
};
use tokio_rustls::TlsConnector;
use tonic::Code;

/// Opens connections that send nothing: every other one completes the TLS handshake first.
async fn idle(replica: &Replica, pem: &str, many: usize) -> Vec<Box<dyn AsyncRead + Unpin + Send>> {
    let connector = connector(pem);
    let mut idle: Vec<Box<dyn AsyncRead + Unpin + Send>> = Vec::new();
    for at in 0..many {
        let tcp = TcpStream::connect(replica.at).await.expect("a connection");
        if at % 2 == 0 {
            idle.push(Box::new(tcp));
            continue;
        }
        let name = NAME.try_into().expect("a name");
        // It may be evicted before its handshake completes.
        if let Ok(tls) = connector.connect(name, tcp).await {
            idle.push(Box::new(tls));
        }
    }
    idle
}

fn connector(pem: &str) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate");
    roots.add(authority).expect("an authority");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().expect("versions of TLS");
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    TlsConnector::from(Arc::new(config))
}

#[tokio::test]
async fn connections_without_a_token_end_and_block_no_node() {
    let (within, fair) = (Duration::from_secs(3), Duration::from_millis(200));
    let replica =
        replica_within(hub(), Bounds { preauth: 4, share: 16, within, fair, ..Bounds::default() })
            .await;
    let mut held = NodeSnapshot::default();
    let mut follow = begin(&replica, "n1", &mut held).await;
    catch_up(&replica, &mut follow, &mut held).await;
    let mut idle = idle(&replica, &replica.pem, 40).await;
    let last = Instant::now() + PATIENCE;
    let mut other = NodeSnapshot::default();
    let mut following = loop {
        let hello = hello(&other);
        match Follow::begin(replica.at, &replica.trust, "node:n2", hello).await {
            Ok(follow) => break follow,
            // The client was slower than the short limits of this listener.
            Err(error) => assert!(Instant::now() < last, "{error}"),
        }
    };
    other.start_stream(&following.welcome().epoch);
    catch_up(&replica, &mut following, &mut other).await;
    for connection in &mut idle {
        let mut rest = Vec::new();
        // The connection ends, with or without an error.
        let ended = timeout(PATIENCE, connection.read_to_end(&mut rest)).await;
        assert!(ended.is_ok(), "a connection without a token does not end");
    }
    // A client that has shown a token stays.
    replica.hub.with(|hub| policy(hub, "q", "a"));
    catch_up(&replica, &mut follow, &mut held).await;
    catch_up(&replica, &mut following, &mut other).await;
    assert_eq!((held.policies.len(), other.policies.len()), (2, 2));
}

/// Opens silent connections from an address forever, and keeps those that the server does not close.
async fn flood(from: &str, to: SocketAddr, ended: Arc<AtomicUsize>) {
    let from = SocketAddr::new(from.parse().expect("an address"), 0);
    let mut open = JoinSet::new();
    loop {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(from).expect("an address of ours");
        // It may be evicted at once.
        if let Ok(mut tcp) = socket.connect(to).await {
            let ended = ended.clone();
            open.spawn(async move {
                // The connection ends, with or without an error.
                let _ = tcp.read_to_end(&mut Vec::new()).await;
                ended.fetch_add(1, Ordering::SeqCst);
            });
        }
        while open.try_join_next().is_some() {}
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
}

/// Waits until so many more connections of a flood have ended.
async fn flooded(ended: &AtomicUsize, more: usize) {
    let until = ended.load(Ordering::SeqCst) + more;
    let last = Instant::now() + 3 * PATIENCE;
    while ended.load(Ordering::SeqCst) < until {
        assert!(Instant::now() < last, "nothing floods");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_flood_from_one_address_blocks_no_node_at_another() {
    // Places become free by age only much later.
    let (within, fair) = (100 * PATIENCE, 100 * PATIENCE);
    let bounds = Bounds { preauth: 16, share: 4, within, fair, ..Bounds::default() };
    let replica = replica_within(hub(), bounds).await;
    let ended = Arc::<AtomicUsize>::default();
    let flooding = tokio::spawn(flood("127.0.0.2", replica.at, ended.clone()));
    flooded(&ended, 16).await;
    let mut follows = Vec::new();
    for node in ["n1", "n2", "n3"] {
        let mut held = NodeSnapshot::default();
        let mut follow = begin(&replica, node, &mut held).await;
        catch_up(&replica, &mut follow, &mut held).await;
        follows.push((follow, held));
    }
    flooded(&ended, 16).await;
    replica.hub.with(|hub| policy(hub, "q", "a"));
    for (follow, held) in &mut follows {
        catch_up(&replica, follow, held).await;
        assert_eq!(held.policies.len(), 2);
    }
    assert!(!flooding.is_finished());
    flooding.abort();
}

#[tokio::test]
async fn nodes_are_admitted_though_their_reviews_take_longer_than_the_maximum_age() {
    let (within, fair) = (Duration::from_secs(2), Duration::from_secs(2));
    let bounds = Bounds { preauth: NODES / 2, share: NODES, within, fair, ..Bounds::default() };
    let replica = replica_within(hub(), bounds).await;
    let begin = |node: usize| {
        let (at, trust, hello) =
            (replica.at, replica.trust.clone(), hello(&NodeSnapshot::default()));
        tokio::spawn(async move {
            let token = format!("slow:n{node}");
            let last = Instant::now() + 3 * PATIENCE;
            loop {
                match Follow::begin(at, &trust, &token, hello.clone()).await {
                    Ok(follow) => break follow,
                    // The client was slower than the short limits of this listener, or than its own timeout.
                    Err(error) => assert!(Instant::now() < last, "{error}"),
                }
            }
        })
    };
    let beginning: Vec<_> = (0..NODES).map(begin).collect();
    let mut follows = Vec::new();
    for begun in beginning {
        follows.push(begun.await.expect("a stream"));
    }
    assert_eq!(replica.hub.followers().len(), NODES);
}

const NODES: usize = 40;

/// Reads a stream up to its end and returns the error.
async fn over(follow: &mut Follow) -> FollowError {
    loop {
        if let Err(over) = timeout(PATIENCE, follow.receive()).await.expect("an end") {
            return over;
        }
    }
}

#[tokio::test]
async fn a_stream_whose_pod_is_gone_ends_with_the_reason() {
    let replica = replica(hub()).await;
    let (mut held, mut other) = (NodeSnapshot::default(), NodeSnapshot::default());
    let mut follow = begin(&replica, "n1", &mut held).await;
    catch_up(&replica, &mut follow, &mut held).await;
    let mut stays = begin(&replica, "n2", &mut other).await;
    replica.admit.gone.lock().expect("no panic").push("n1".to_owned());
    replica.hub.look_again("n1");
    let ended = over(&mut follow).await;
    assert!(ended.to_string().contains("its pod is gone"), "{ended}");
    replica.hub.look_again("n2");
    catch_up(&replica, &mut stays, &mut other).await;
}

#[tokio::test]
async fn a_node_without_acks_loses_its_stream_and_reconnects() {
    let mut replica = replica_with(hub(), Bounds::default(), Duration::from_secs(2)).await;
    let mut held = NodeSnapshot::default();
    let mut follow = begin(&replica, "n1", &mut held).await;
    let ended = over(&mut follow).await;
    let FollowError::Refused { status, .. } = ended else { panic!("{ended:?}") };
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    assert_eq!(replica.admit.stuck.load(Ordering::SeqCst), 1);
    replica.use_default_limits().await;
    let mut follow = begin(&replica, "n1", &mut held).await;
    catch_up(&replica, &mut follow, &mut held).await;
    assert_eq!((held.pods.len(), held.policies.len()), (10, 1));
}

/// More data than the buffers between replica and node take.
const MUCH: usize = 12;

#[tokio::test]
async fn a_node_that_reads_nothing_loses_its_connection_and_reconnects() {
    let mut hub = hub();
    for at in 0..MUCH {
        let blocks = (0..20_000_u32).map(|block| {
            let [_, high, mid, low] = block.to_be_bytes();
            serde_json::json!({"ipBlock": {"cidr": format!("10.{high}.{mid}.{low}/32")}})
        });
        let metadata = serde_json::json!({"namespace": "x", "name": format!("much-{at}"),
            "uid": format!("much-{at}")});
        let object = read(&serde_json::json!({"apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy", "metadata": metadata, "spec": {"podSelector": {},
            "ingress": [{"from": blocks.collect::<Vec<_>>()}]}}));
        hub.policy(&policy_core::compile(&object).expect("a policy"), 1);
    }
    let mut replica = replica_with(hub, Bounds::default(), Duration::from_secs(2)).await;
    let mut held = NodeSnapshot::default();
    let mut follow = begin(&replica, "n1", &mut held).await;
    let last = Instant::now() + 3 * PATIENCE;
    while replica.admit.stuck.load(Ordering::SeqCst) == 0 {
        assert!(Instant::now() < last, "the server does not detect the blocked reader");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    over(&mut follow).await;
    replica.use_default_limits().await;
    let mut follow = begin(&replica, "n1", &mut held).await;
    catch_up(&replica, &mut follow, &mut held).await;
    assert_eq!(held.policies.len(), 1 + MUCH);
}

/// Connects without a token.
async fn unauthenticated(replica: &Replica) -> SendRequest<Bytes> {
    let tls = connector(&replica.pem);
    let tcp = TcpStream::connect(replica.at).await.expect("a connection");
    let tls = tls.connect(NAME.try_into().expect("a name"), tcp).await.expect("TLS");
    let (client, connection) = h2::client::handshake(tls).await.expect("HTTP/2");
    tokio::spawn(connection);
    client.ready().await.expect("a ready connection")
}

fn post(method: &str) -> http::Request<()> {
    let uri = format!("https://{NAME}/ferrule.node.v1.Distribution/{method}");
    let request = http::Request::post(uri).header("content-type", "application/grpc");
    request.body(()).expect("a request")
}

#[tokio::test]
async fn a_call_without_a_token_is_refused_before_its_body() {
    let replica = replica(hub()).await;
    let mut client = unauthenticated(&replica).await;
    for method in ["Follow", "Announce", "Report", "Other"] {
        // The body never ends.
        let (answer, _body) = client.send_request(post(method), false).expect("a call");
        let answer = timeout(PATIENCE, answer).await.expect("an answer").expect("an answer");
        assert_eq!(answer.headers()["grpc-status"], "16", "{method}");
    }
}

#[tokio::test]
async fn a_message_with_too_many_elements_is_refused_before_it_is_decoded() {
    let replica = replica(hub()).await;
    let client = ReplicaClient::open(replica.at, &replica.trust).await.expect("a connection");
    let report =
        |many| ReportRequest { realized: vec![Realized::default(); many], ..Default::default() };
    client.report("node:n1", report(90_000)).await.expect("a report");
    let refused = client.report("node:n1", report(110_000)).await.expect_err("too many");
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.message().contains("100000"), "{refused}");
    let announce = AnnounceRequest { name: "n1".repeat(3_000), ..Default::default() };
    let refused = client.announce("node:n1", announce).await.expect_err("too large");
    assert_eq!(refused.code(), Code::OutOfRange, "{refused}");
    let mut held = NodeSnapshot::default();
    let mut hello = hello(&held);
    hello.holds = vec![Digest::default(); 110_000];
    let refused = Follow::begin(replica.at, &replica.trust, "node:n1", hello).await;
    let Err(FollowError::Refused { status, .. }) = refused else { panic!("it follows") };
    assert_eq!(status.code(), Code::ResourceExhausted);
    let mut follow = begin(&replica, "n1", &mut held).await;
    catch_up(&replica, &mut follow, &mut held).await;
}

#[tokio::test]
async fn a_node_with_too_many_calls_is_refused_and_others_are_served() {
    let replica = replica(hub()).await;
    let client = ReplicaClient::open(replica.at, &replica.trust).await.expect("a connection");
    let announce = |node: &str| AnnounceRequest { name: node.to_owned(), ..Default::default() };
    let mut refused = None;
    for _ in 0..2_000 {
        if let Err(status) = client.announce("node:n1", announce("n1")).await {
            refused = Some(status);
            break;
        }
    }
    let refused = refused.expect("a refusal");
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.message().contains("node n1"), "{refused}");
    client.announce("node:n2", announce("n2")).await.expect("another node");
}

/// Opens a connection and makes one call of the node. The task ends with the connection.
async fn authenticated(replica: &Replica, node: &str) -> JoinHandle<Result<(), h2::Error>> {
    let tls = connector(&replica.pem);
    let tcp = TcpStream::connect(replica.at).await.expect("a connection");
    let tls = tls.connect(NAME.try_into().expect("a name"), tcp).await.expect("TLS");
    let (client, connection) = h2::client::handshake(tls).await.expect("HTTP/2");
    let ended = tokio::spawn(connection);
    let mut client = client.ready().await.expect("a ready connection");
    let mut request = post("Report");
    let token = format!("Bearer node:{node}").parse().expect("a header");
    request.headers_mut().insert("authorization", token);
    let (answer, _) = client.send_request(request, true).expect("a call");
    let answer = timeout(PATIENCE, answer).await.expect("an answer").expect("an answer");
    let status = answer.headers().get("grpc-status");
    assert!(status.is_none_or(|status| status != "16"), "the token is refused");
    // The client keeps the connection.
    tokio::spawn(async move {
        let _client = client;
        std::future::pending::<()>().await;
    });
    ended
}

#[tokio::test]
async fn a_node_with_too_many_connections_loses_the_oldest_and_others_keep_theirs() {
    let replica = replica(hub()).await;
    let other = authenticated(&replica, "n2").await;
    let mut of_node = Vec::new();
    for _ in 0..6 {
        of_node.push(authenticated(&replica, "n1").await);
    }
    for oldest in of_node.drain(..2) {
        let _closed = timeout(PATIENCE, oldest).await.expect("an end of the connection");
    }
    assert!(of_node.iter().chain([&other]).all(|connection| !connection.is_finished()));
}

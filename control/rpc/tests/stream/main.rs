//! Real streams over TLS on loopback, between the service and the nodes' client.

mod bounds;

use control_hub::Hub;
use control_rpc::{
    Authenticated, Bounds, Caller, Certificates, Follow, FollowError, Gatekeeper, SharedHub,
    StreamEvent, Trust, listen_within,
};
use control_wire::{
    NodeSnapshot, Progress,
    proto::{AnnounceRequest, Hello, ReportRequest},
};
use policy_core::index::Event;
use policy_objects::Object;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{
    crypto::ring::sign::any_supported_type,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    sign::CertifiedKey,
};
use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{net::TcpListener, time::timeout};
use tonic::{Code, Status, transport::Server};

const NAME: &str = "ferrule-controller";
const PATIENCE: Duration = Duration::from_secs(20);

/// Admits clients with a token `node:NAME`; `short:NAME` ends soon, and the check of `slow:NAME` takes long.
#[derive(Default)]
struct ByName {
    /// The nodes whose pods are gone.
    gone: Mutex<Vec<String>>,
    stuck: AtomicUsize,
}

#[tonic::async_trait]
impl Gatekeeper for ByName {
    async fn admit(&self, token: &str) -> Result<Caller, Status> {
        let caller =
            |node: &str, until| Caller { node: node.to_owned(), until, ..Caller::default() };
        match token.split_once(':') {
            Some(("node", node)) => Ok(caller(node, None)),
            // The check takes longer than the maximum age of an unauthenticated connection.
            Some(("slow", node)) => {
                tokio::time::sleep(Duration::from_secs(4)).await;
                Ok(caller(node, None))
            }
            Some(("short", node)) => {
                Ok(caller(node, Some(Instant::now() + Duration::from_millis(300))))
            }
            _ => Err(Status::unauthenticated("no such token")),
        }
    }

    async fn announce(&self, caller: &Caller, announce: AnnounceRequest) -> Result<(), Status> {
        match caller.node == announce.name {
            true => Ok(()),
            false => Err(Status::permission_denied("it is not on that node")),
        }
    }

    async fn report(&self, _: &Caller, _: ReportRequest) -> Result<(), Status> {
        Ok(())
    }

    fn still(&self, caller: &Caller) -> Result<(), Status> {
        match self.gone.lock().expect("no panic").contains(&caller.node) {
            true => Err(Status::unavailable("its pod is gone")),
            false => Ok(()),
        }
    }

    fn stuck(&self, _: &str) {
        self.stuck.fetch_add(1, Ordering::SeqCst);
    }
}

struct Replica {
    at: SocketAddr,
    hub: Arc<SharedHub>,
    admit: Arc<ByName>,
    trust: Trust,
    pem: String,
    shown: Arc<Certificates>,
    authority: Issuer<'static, KeyPair>,
}

fn authority() -> (Issuer<'static, KeyPair>, String) {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let pem = params.self_signed(&key).expect("an authority").pem();
    (Issuer::new(params, key), pem)
}

fn certified(authority: &Issuer<'_, KeyPair>) -> CertifiedKey {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec![NAME.to_owned()]).expect("parameters");
    let certificate = params.signed_by(&key, authority).expect("a certificate");
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let signing = any_supported_type(&private).expect("a key that signs");
    CertifiedKey::new(vec![certificate.der().clone()], signing)
}

async fn replica(hub: Hub) -> Replica {
    replica_within(hub, Bounds::default()).await
}

async fn replica_within(hub: Hub, bounds: Bounds) -> Replica {
    replica_with(hub, bounds, 6 * PATIENCE).await
}

async fn replica_with(hub: Hub, bounds: Bounds, patience: Duration) -> Replica {
    let (authority, pem) = authority();
    let shown = Arc::new(Certificates::default());
    shown.show(certified(&authority));
    let hub = SharedHub::new(hub);
    let admit = Arc::<ByName>::default();
    let at = serve(&hub, &admit, &shown, bounds, patience).await;
    let trust = Trust::new(pem.as_bytes(), NAME).expect("the authority");
    Replica { at, hub, admit, trust, pem, shown, authority }
}

async fn serve(
    hub: &Arc<SharedHub>,
    admit: &Arc<ByName>,
    shown: &Arc<Certificates>,
    bounds: Bounds,
    patience: Duration,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let at = listener.local_addr().expect("its address");
    let service = Authenticated::patient(hub.clone(), admit.clone(), patience);
    let inside = listen_within(listener, shown.clone(), bounds).expect("TLS");
    tokio::spawn(Server::builder().add_service(service).serve_with_incoming(inside));
    at
}

impl Replica {
    /// Restarts the service with the production limits, as this machine may be slow.
    async fn use_default_limits(&mut self) {
        let Self { hub, admit, shown, .. } = self;
        self.at = serve(hub, admit, shown, Bounds::default(), 6 * PATIENCE).await;
    }
}

fn hub() -> Hub {
    let mut hub = Hub::new([7; 16], 0);
    hub.reach("Pod", 100);
    for at in 0..40 {
        pod(&mut hub, at, "a");
    }
    policy(&mut hub, "p", "a");
    hub.loaded();
    hub
}

fn read(object: &serde_json::Value) -> Object {
    Object::read_value(object).expect("an object").object
}

fn pod(hub: &mut Hub, at: u32, app: &str) {
    let (name, node) = (format!("p{at}"), format!("n{}", at % 4));
    let metadata = serde_json::json!({"namespace": "x", "name": name, "uid": format!("uid-{at}"),
        "labels": {"app": app}});
    let object = read(&serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
        "spec": {"nodeName": node}, "status": {"podIPs": [{"ip": format!("10.0.0.{at}")}]}}));
    let Object::Pod(pod) = object else { panic!("a pod") };
    hub.apply(Event::Pod(&pod));
}

fn policy(hub: &mut Hub, name: &str, app: &str) {
    let selector = serde_json::json!({"matchLabels": {"app": app}});
    let metadata = serde_json::json!({"namespace": "x", "name": name, "uid": name});
    let object = read(&serde_json::json!({"apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy", "metadata": metadata, "spec": {"podSelector": selector,
        "ingress": [{"from": [{"podSelector": selector}]}]}}));
    hub.policy(&policy_core::compile(&object).expect("a policy"), 1);
}

fn hello(held: &NodeSnapshot) -> Hello {
    held.hello(false, false)
}

async fn begin(replica: &Replica, node: &str, held: &mut NodeSnapshot) -> Follow {
    let token = format!("node:{node}");
    let follow = Follow::begin(replica.at, &replica.trust, &token, hello(held)).await;
    let follow = follow.expect("a stream");
    held.start_stream(&follow.welcome().epoch);
    follow
}

/// Applies updates until the node holds the newest generation.
async fn catch_up(replica: &Replica, follow: &mut Follow, held: &mut NodeSnapshot) {
    let newest = replica.hub.with(|hub| hub.measures().generation);
    loop {
        match timeout(PATIENCE, follow.receive())
            .await
            .expect("an event in time")
            .expect("an event")
        {
            StreamEvent::Part(part) => {
                if let Progress::Applied(_) = held.receive(part).expect("a generation") {
                    follow.acknowledge(held.generation).await.expect("it listens");
                }
            }
            StreamEvent::Bookmark(bookmark) => {
                held.apply_bookmark(&bookmark);
                if held.generation >= newest {
                    return;
                }
            }
        }
    }
}

#[tokio::test]
async fn a_node_receives_its_part_and_then_its_changes() {
    let replica = replica(hub()).await;
    let mut held = NodeSnapshot::default();
    let mut follow = begin(&replica, "n1", &mut held).await;
    catch_up(&replica, &mut follow, &mut held).await;
    assert_eq!((held.pods.len(), held.policies.len()), (10, 1));
    let members = |held: &NodeSnapshot| {
        held.addresses.values().map(|group| group.members.len()).sum::<usize>()
    };
    assert_eq!(members(&held), 40);
    assert_eq!(held.reached["Pod"], 100);
    replica.hub.with(|hub| pod(hub, 40, "a"));
    catch_up(&replica, &mut follow, &mut held).await;
    assert_eq!((held.pods.len(), members(&held)), (10, 41));
    // Only the nodes concerned receive an update.
    replica.hub.with(|hub| pod(hub, 42, "b"));
    replica.hub.with(|hub| pod(hub, 41, "b"));
    catch_up(&replica, &mut follow, &mut held).await;
    assert_eq!((held.pods.len(), members(&held)), (11, 41));
}

#[tokio::test]
async fn a_node_resumes_after_its_stream_broke_off() {
    let replica = replica(hub()).await;
    let mut held = NodeSnapshot::default();
    let mut follow = begin(&replica, "n1", &mut held).await;
    catch_up(&replica, &mut follow, &mut held).await;
    drop(follow);
    replica.hub.with(|hub| policy(hub, "q", "a"));
    let mut follow = begin(&replica, "n1", &mut held).await;
    assert_eq!(follow.welcome().how(), control_wire::proto::How::Kept);
    catch_up(&replica, &mut follow, &mut held).await;
    assert_eq!(held.policies.len(), 2);
}

#[tokio::test]
async fn a_new_stream_of_a_node_ends_the_previous_one() {
    let replica = replica(hub()).await;
    let (mut one, mut other) = (NodeSnapshot::default(), NodeSnapshot::default());
    let mut first = begin(&replica, "n1", &mut one).await;
    catch_up(&replica, &mut first, &mut one).await;
    let mut second = begin(&replica, "n1", &mut other).await;
    catch_up(&replica, &mut second, &mut other).await;
    let over = timeout(PATIENCE, first.receive()).await.expect("an end");
    let Err(FollowError::Refused { status, .. }) = over else { panic!("{over:?}") };
    assert_eq!(status.code(), Code::Aborted);
    replica.hub.with(|hub| pod(hub, 40, "a"));
    catch_up(&replica, &mut second, &mut other).await;
}

#[tokio::test]
async fn a_missing_or_expired_token_is_reported() {
    let replica = replica(hub()).await;
    let hello = hello(&NodeSnapshot::default());
    let begun = Follow::begin(replica.at, &replica.trust, "stranger", hello.clone()).await;
    let Err(FollowError::Refused { status, .. }) = begun else { panic!("{begun:?}") };
    assert_eq!(status.code(), Code::Unauthenticated);
    let begun = Follow::begin(replica.at, &replica.trust, "short:n1", hello).await;
    let mut follow = begun.expect("a stream");
    let over = loop {
        match timeout(PATIENCE, follow.receive()).await.expect("an end") {
            Ok(_) => {}
            Err(over) => break over,
        }
    };
    assert!(over.to_string().contains("the token has expired"), "{over}");
    let announce = |name: &str| AnnounceRequest { name: name.to_owned(), ..Default::default() };
    let mut held = NodeSnapshot::default();
    let mut follow = begin(&replica, "n1", &mut held).await;
    follow.announce(announce("n1")).await.expect("its own");
    let refused = follow.announce(announce("n2")).await.expect_err("another's");
    assert_eq!(refused.code(), Code::PermissionDenied);
}

#[tokio::test]
async fn a_replica_that_has_read_less_answers_behind_unless_the_node_accepts_it() {
    let replica = replica(hub()).await;
    let mut held = NodeSnapshot::default();
    held.reached.insert("Pod".to_owned(), 101);
    let begun = Follow::begin(replica.at, &replica.trust, "node:n1", hello(&held)).await;
    assert!(matches!(begun, Err(FollowError::Behind { .. })), "{begun:?}");
    let take = Hello { take_behind: true, ..hello(&held) };
    Follow::begin(replica.at, &replica.trust, "node:n1", take).await.expect("a stream");
    let unread = self::replica(Hub::new([1; 16], 0)).await;
    let begun = Follow::begin(unread.at, &unread.trust, "node:n1", hello(&held)).await;
    let Err(FollowError::Refused { status, .. }) = begun else { panic!("{begun:?}") };
    assert_eq!(status.code(), Code::Unavailable);
}

#[tokio::test]
async fn a_replica_of_another_authority_is_refused_and_certificates_are_replaced_live() {
    let replica = replica(hub()).await;
    let (_, strange) = authority();
    let strange = Trust::new(strange.as_bytes(), NAME).expect("an authority");
    let begun =
        Follow::begin(replica.at, &strange, "node:n1", hello(&NodeSnapshot::default())).await;
    let Err(FollowError::Unreachable { why, .. }) = begun else { panic!("{begun:?}") };
    assert!(why.to_lowercase().contains("certificate"), "{why}");
    let mut held = NodeSnapshot::default();
    let mut follow = begin(&replica, "n1", &mut held).await;
    replica.shown.show(certified(&replica.authority));
    catch_up(&replica, &mut follow, &mut held).await;
    begin(&replica, "n2", &mut NodeSnapshot::default()).await;
}

#[tokio::test]
async fn a_node_without_acks_costs_its_pending_objects_only() {
    let replica = replica(hub()).await;
    let mut held = NodeSnapshot::default();
    let mut follow = begin(&replica, "n1", &mut held).await;
    catch_up(&replica, &mut follow, &mut held).await;
    // The node acknowledges nothing, so the server soon stops to send.
    for turn in 0..5_000_u32 {
        replica.hub.with(|hub| pod(hub, 200, if turn % 2 == 0 { "a" } else { "b" }));
        tokio::task::yield_now().await;
    }
    let pending = replica.hub.with(|hub| hub.measures().pending);
    assert!(pending < 100, "{pending}");
    catch_up(&replica, &mut follow, &mut held).await;
    let fresh = &mut NodeSnapshot::default();
    let mut other = begin(&replica, "n1", fresh).await;
    catch_up(&replica, &mut other, fresh).await;
    assert_eq!(held.objects().collect::<Vec<_>>(), fresh.objects().collect::<Vec<_>>());
}

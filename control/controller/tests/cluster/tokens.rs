//! Admission of agents by their tokens.

use crate::{
    agent::{Agent, hello, trust},
    replica::Replica,
    world::{AGENT, PATIENCE, SYSTEM, World},
};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use control_rpc::{Follow, FollowError};
use control_wire::NodeSnapshot;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::Api;
use rcgen::{KeyPair, SigningKey as _};
use serde_json::json;
use std::{
    fs,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tests_eventually::eventually_async;
use tokio::{task::JoinSet, time::sleep};
use tonic::Code;

const AUDIENCE: &str = "ferrule-controller";

#[tokio::test]
async fn agents_are_admitted_for_their_own_nodes_and_all_others_are_refused() {
    let world = World::new().await;
    let pod = world.node("n1").await;
    let replica = Replica::start(&world.kubeconfig, &[]).await;
    replica.ready().await;
    let bundle = world.bundle().await;
    let mut agent = Agent::new(world.token(&pod, AUDIENCE).await, &bundle);
    agent.begins(replica.at).await;
    agent.until("what there is", |agent| agent.held.node.is_some()).await;
    let other = world.agent("other", "n1", "other").await;
    let unbound = world.agent("nowhere", "", AGENT).await;
    let token = world.token(&pod, AUDIENCE).await;
    let rows = [
        ("no token", "no token".to_owned(), Code::Unauthenticated, "token"),
        ("cut off", token[..token.len() - 9].to_owned(), Code::Unauthenticated, "token"),
        (
            "another audience",
            world.token(&pod, "elsewhere").await,
            Code::Unauthenticated,
            "audience",
        ),
        ("the API server's", world.token(&pod, API).await, Code::Unauthenticated, "audience"),
        ("another account", world.token(&other, AUDIENCE).await, Code::PermissionDenied, "account"),
        ("no pod", world.token_of(AGENT, AUDIENCE, None).await, Code::PermissionDenied, "unbound"),
        ("no node", world.token(&unbound, AUDIENCE).await, Code::PermissionDenied, "unbound"),
        ("expired", signed(&world, &pod, "n1", -60).await, Code::Unauthenticated, "token"),
        ("another node", signed(&world, &pod, "n2", 600).await, Code::PermissionDenied, "node"),
    ];
    for (what, token, code, reason) in rows {
        let label = format!("reason=\"{reason}\"");
        let count = || replica.metric("ferrule_controller_refused_total", &label);
        let before = count().await;
        let begun =
            Follow::begin(replica.at, &trust(&bundle), &token, hello(&NodeSnapshot::default()))
                .await;
        let Err(FollowError::Refused { status, .. }) = begun else { panic!("{what}: {begun:?}") };
        assert_eq!(status.code(), code, "{what}: {status}");
        assert!(count().await > before, "{what}: not counted as {reason}");
    }
    eventually_async("the refusal is logged", PATIENCE, || async {
        replica.has_logged("client refused").then_some(())
    })
    .await;
    // Each forged token is refused for its difference alone.
    let good = signed(&world, &pod, "n1", 600).await;
    Agent::new(good, &bundle).begin(replica.at).await.unwrap();
}

#[tokio::test]
async fn a_removed_pod_loses_its_stream_and_its_rights_even_with_a_cached_review() {
    let world = World::new().await;
    let pod = world.node("n1").await;
    let replica = Replica::start(&world.kubeconfig, &[]).await;
    replica.ready().await;
    let mut agent = Agent::new(world.token(&pod, AUDIENCE).await, &world.bundle().await);
    agent.begins(replica.at).await;
    world.delete(&crate::world::pod(SYSTEM, "agent-n1", "n1", "agent")).await;
    let FollowError::Refused { status, .. } = agent.over().await else { panic!("no reason") };
    assert!(status.message().contains("does not know the pod agent-n1"), "{status}");
    let refusal = async || agent.begin(replica.at).await.err();
    let error = eventually_async("the stream to be refused", PATIENCE, refusal).await;
    assert!(matches!(error, FollowError::Refused { .. }), "{error}");
    // A new pod of the same name is admitted with its own token.
    let next = world.agent("agent-n1", "n1", AGENT).await;
    agent.token = world.token(&next, AUDIENCE).await;
    agent.begins(replica.at).await;
    eventually_async("it is counted", PATIENCE, || async {
        let refused = replica.metric("ferrule_controller_refused_total", "").await;
        (refused >= 1.0).then_some(())
    })
    .await;
}

/// Any client that reaches the port can forge tokens. A token without an agent's pod is never reviewed, and a token with
/// one delays only that pod.
#[tokio::test]
async fn forged_tokens_are_not_reviewed_and_delay_no_other_node() {
    let world = World::new().await;
    let (pod, other) = (world.node("n1").await, world.node("n2").await);
    let replica = Replica::start(&world.kubeconfig, &[]).await;
    replica.ready().await;
    let bundle = world.bundle().await;
    let good = world.token(&pod, AUDIENCE).await;
    Agent::new(good.clone(), &bundle).begins(replica.at).await;
    // The replica knows the pod from here on.
    Agent::new(world.token(&other, AUDIENCE).await, &bundle).begins(replica.at).await;
    let reviews = || replica.metric(REVIEWS, "");
    let before = reviews().await;
    let mut unknown = pod.clone();
    unknown.metadata.uid = Some("made-up".to_owned());
    for number in 0..FORGERS {
        for token in [format!("made.up.{number}"), signed(&world, &unknown, "n1", 600).await] {
            let begun =
                Follow::begin(replica.at, &trust(&bundle), &token, hello(&NodeSnapshot::default()))
                    .await;
            assert!(matches!(begun, Err(FollowError::Refused { .. })), "{begun:?}");
        }
    }
    assert_eq!(reviews().await, before, "made-up tokens were shown to the API server");
    // The attacker knows the UID of an agent's pod.
    let flood = Flood::begin(replica.at, &bundle, &good);
    eventually_async("most are turned away", PATIENCE, || async {
        (flood.turned_away() >= FORGERS).then_some(())
    })
    .await;
    // A token of another pod is reviewed at once. So is a call with the last accepted token of the attacked pod.
    Agent::new(world.token(&other, AUDIENCE).await, &bundle).begin(replica.at).await.unwrap();
    Agent::new(good, &bundle).begin(replica.at).await.unwrap();
    // Those reviews are still pending. A rejected connection caused no review.
    let shown = flood.end().await;
    let refused = replica.metric(REVIEWS, "result=\"refused\"").await;
    assert!(refused <= f64::from(shown), "{refused} were shown, and {shown} not turned away");
    // The attacked pod is also admitted with its next token.
    Agent::new(world.token(&pod, AUDIENCE).await, &bundle).begins(replica.at).await;
}

/// Clients that connect again and again, each time with another forged token of one pod.
struct Flood {
    attempts: Arc<Attempts>,
    all: JoinSet<()>,
}

#[derive(Default)]
struct Attempts {
    tried: AtomicU32,
    turned_away: AtomicU32,
    is_over: AtomicBool,
}

impl Flood {
    fn begin(at: SocketAddr, bundle: &str, good: &str) -> Self {
        let (attempts, mut all) = (Arc::<Attempts>::default(), JoinSet::new());
        for _ in 0..FORGERS {
            let (attempts, trust) = (attempts.clone(), trust(bundle));
            let stem = good[..good.len() - 8].to_owned();
            all.spawn(async move {
                while !attempts.is_over.load(Ordering::SeqCst) {
                    let number = attempts.tried.fetch_add(1, Ordering::SeqCst);
                    let forged = format!("{stem}{number:08}");
                    let begun =
                        Follow::begin(at, &trust, &forged, hello(&NodeSnapshot::default())).await;
                    let error = begun.expect_err("what is forged is refused");
                    if error.to_string().contains("too many tokens of its pod wait for a review") {
                        attempts.turned_away.fetch_add(1, Ordering::SeqCst);
                    }
                    sleep(Duration::from_millis(50)).await;
                }
            });
        }
        Self { attempts, all }
    }

    fn turned_away(&self) -> u32 {
        self.attempts.turned_away.load(Ordering::SeqCst)
    }

    /// Stops the clients. Returns the maximum number of reviews that they may have caused.
    async fn end(self) -> u32 {
        self.attempts.is_over.store(true, Ordering::SeqCst);
        self.all.join_all().await;
        let turned_away = self.attempts.turned_away.load(Ordering::SeqCst);
        self.attempts.tried.load(Ordering::SeqCst) - turned_away
    }
}

const FORGERS: u32 = 20;
const REVIEWS: &str = "ferrule_controller_token_reviews_total";

/// Signs a token with the API server's key. The API server itself issues no token that ends within ten minutes, and
/// none for another node.
async fn signed(world: &World, pod: &Pod, node: &str, seconds: i64) -> String {
    let file = world.cluster.kubeconfig().with_file_name("accounts.key");
    let key = KeyPair::from_pem(&fs::read_to_string(file).unwrap()).unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let now = i64::try_from(now.as_secs()).unwrap();
    let claims = json!({
        "aud": [AUDIENCE], "iss": "https://kubernetes.default.svc",
        "sub": format!("system:serviceaccount:{SYSTEM}:{AGENT}"),
        "iat": now - 120, "nbf": now - 120, "exp": now + seconds,
        "kubernetes.io": {
            "namespace": SYSTEM,
            "node": {"name": node, "uid": "made-up"},
            "pod": {"name": pod.metadata.name, "uid": pod.metadata.uid},
            "serviceaccount": {"name": AGENT, "uid": account(world).await},
        },
    });
    let text = |value: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(value);
    let signed = format!("{}.{}", text(br#"{"alg":"ES256"}"#), text(claims.to_string().as_bytes()));
    let signature = raw(&key.sign(signed.as_bytes()).unwrap());
    format!("{signed}.{}", text(&signature))
}

async fn account(world: &World) -> String {
    let accounts: Api<ServiceAccount> = Api::namespaced(world.client.clone(), SYSTEM);
    accounts.get(AGENT).await.unwrap().metadata.uid.unwrap()
}

/// Returns the two numbers of a DER-encoded ECDSA signature, 32 bytes each.
fn raw(der: &[u8]) -> Vec<u8> {
    let number = |at: usize| {
        let length = usize::from(der[at + 1]);
        let bytes = &der[at + 2..at + 2 + length];
        let bytes = &bytes[bytes.len().saturating_sub(32)..];
        ([vec![0; 32 - bytes.len()], bytes.to_vec()].concat(), at + 2 + length)
    };
    let (r, next) = number(2);
    [r, number(next).0].concat()
}

const API: &str = "https://kubernetes.default.svc";

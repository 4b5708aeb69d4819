//! A cluster that fills while replicas die, the leader changes and the API server is away: every node ends with
//! what a fresh reading of all objects says that it is to hold.

use crate::{
    agent::{hello, trust},
    replica::Replica,
    world::{PATIENCE, World, antrea_policy, cluster_policy, network_policy, pod},
};
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use policy_core::{compile, index::Event};
use policy_hub::{Begun, Hub, Says};
use policy_kube::Cluster;
use policy_objects::Object;
use policy_rpc::{Follow, Heard, Trust};
use policy_wire::{Held, Progress};
use serde_json::{Value, json};
use std::{
    net::SocketAddr,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep},
};

const NODES: usize = 50;
const PODS: usize = 2_000;
const POLICIES: usize = 500;
/// How many write side by side.
const WRITERS: usize = 16;
/// How long the API server is away.
const AWAY: Duration = Duration::from_secs(60);
const GROUPS: [&str; 2] = ["crd.antrea.io", "policy.networking.k8s.io"];

/// A node that follows whichever replica lets it, and what it holds.
struct Follower {
    name: String,
    token: String,
    held: Mutex<Held>,
    applied: AtomicUsize,
}

impl Follower {
    async fn run(self: Arc<Self>, trust: Trust, replicas: watch::Receiver<Vec<SocketAddr>>) {
        let mut turn = self.name.len() + self.token.len();
        loop {
            turn += 1;
            let at = {
                let replicas = replicas.borrow();
                replicas[turn % replicas.len()]
            };
            let hello = hello(&self.held.lock().unwrap());
            if let Ok(follow) = Follow::begin(at, &trust, &self.token, hello).await {
                self.held.lock().unwrap().begin(&follow.welcome().epoch);
                self.hear(follow).await;
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Until the stream is over.
    async fn hear(&self, mut follow: Follow) {
        loop {
            let holds = match follow.heard().await {
                Ok(Heard::Part(part)) => {
                    let mut held = self.held.lock().unwrap();
                    // What does not fit to what is held would be a lost or a doubled change.
                    match held.take(part).unwrap() {
                        Progress::Holds(_) => Some(held.generation),
                        _ => None,
                    }
                }
                Ok(Heard::Bookmark(bookmark)) => {
                    let mut held = self.held.lock().unwrap();
                    let before = held.reached.clone();
                    held.mark(&bookmark);
                    let back = before.iter().find(|(kind, version)| {
                        held.reached.get(*kind).is_none_or(|reached| reached < version)
                    });
                    assert_eq!(back, None, "{} was taken back: {:?}", self.name, held.reached);
                    None
                }
                Err(_) => return,
            };
            if let Some(generation) = holds {
                self.applied.fetch_add(1, Ordering::Relaxed);
                if follow.holds(generation).await.is_err() {
                    return;
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_fills_while_everything_breaks_and_each_node_ends_with_what_it_is_to_hold() {
    let mut world = World::alone().await;
    for group in GROUPS {
        world.define(group).await;
    }
    let mut tokens = Vec::new();
    for number in 0..NODES {
        let agent = world.node(&node(number)).await;
        tokens.push(world.token(&agent, "ferrule-controller").await);
    }
    let mut replicas = vec![
        Replica::start(&world.kubeconfig, &[]).await,
        Replica::start(&world.kubeconfig, &[]).await,
    ];
    for replica in &replicas {
        replica.ready().await;
    }
    let at = |replicas: &[Replica]| replicas.iter().map(|replica| replica.at).collect::<Vec<_>>();
    let (known, seen) = watch::channel(at(&replicas));
    let trust = trust(&world.bundle().await);
    let mut running = JoinSet::new();
    let mut followers = Vec::new();
    for (number, token) in tokens.into_iter().enumerate() {
        let (held, applied) = (Mutex::default(), AtomicUsize::new(0));
        let follower = Arc::new(Follower { name: node(number), token, held, applied });
        running.spawn(follower.clone().run(trust.clone(), seen.clone()));
        followers.push(follower);
    }
    let writing = Writing::begin(&world.client);
    writing.reaches((PODS + POLICIES) / 4).await;
    // The leader dies, and another comes for it.
    drop(replicas.remove(0));
    replicas.push(Replica::start(&world.kubeconfig, &[]).await);
    known.send_replace(at(&replicas));
    writing.reaches((PODS + POLICIES) / 2).await;
    world.cluster.stop_api_server();
    sleep(AWAY).await;
    world.cluster.start_api_server().unwrap();
    writing.reaches((PODS + POLICIES) * 3 / 4).await;
    drop(replicas.remove(0));
    known.send_replace(at(&replicas));
    replicas[0].ready().await;
    writing.end().await;
    alike(world.cluster.kubeconfig(), &followers).await;
    let told: usize = followers.iter().map(|it| it.applied.load(Ordering::Relaxed)).sum();
    assert!(told > NODES, "{told} generations were told");
    assert!(running.try_join_next().is_none(), "a node has ended");
}

fn node(number: usize) -> String {
    format!("n{number}")
}

/// What is written, and how far it is.
struct Writing {
    done: Arc<AtomicUsize>,
    tasks: JoinSet<()>,
}

impl Writing {
    fn begin(client: &Client) -> Self {
        let (done, next) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let mut tasks = JoinSet::new();
        for _ in 0..WRITERS {
            let (client, done, next) = (client.clone(), done.clone(), next.clone());
            tasks.spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= PODS + POLICIES {
                        return;
                    }
                    write(&client, number).await;
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        Self { done, tasks }
    }

    async fn reaches(&self, wanted: usize) {
        let last = Instant::now() + 4 * PATIENCE;
        while self.done.load(Ordering::Relaxed) < wanted {
            assert!(Instant::now() < last, "{wanted} objects are not written");
            sleep(Duration::from_millis(100)).await;
        }
    }

    async fn end(mut self) {
        self.reaches(PODS + POLICIES).await;
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
    }
}

/// Every fifth object is a policy; some of each are deleted again.
async fn write(client: &Client, number: usize) {
    let ratio = (PODS + POLICIES) / POLICIES;
    let (app, other) = (format!("app-{}", number % 40), format!("app-{}", number % 37));
    if number.is_multiple_of(ratio) {
        let name = format!("policy-{number}");
        let policy = match number / ratio % 4 {
            0 | 1 => network_policy(&name, &app, &other),
            2 => antrea_policy(&name, &app),
            _ => {
                let mut policy = cluster_policy(&name);
                let labels = json!({ "app": app });
                policy["spec"]["subject"]["pods"]["podSelector"]["matchLabels"] = labels;
                policy["spec"]["priority"] = json!(number % 1_000);
                policy
            }
        };
        create(client, &policy).await;
        if number.is_multiple_of(9) {
            delete(client, &policy).await;
        }
        return;
    }
    let name = format!("pod-{number}");
    let made = pod("default", &name, &node(number % NODES), &app);
    create(client, &made).await;
    let address = format!("10.1.{}.{}", number / 250, number % 250 + 1);
    let status = json!({ "status": {
        "phase": "Running", "podIP": address, "podIPs": [{ "ip": address }],
    } });
    let (params, patch) = (PatchParams::default(), Patch::Merge(status));
    again(|| async { api(client, &made).patch_status(&name, &params, &patch).await.map(drop) })
        .await;
    if number.is_multiple_of(11) {
        delete(client, &made).await;
    }
}

async fn create(client: &Client, object: &Value) {
    let wanted: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    again(|| async {
        match api(client, object).create(&PostParams::default(), &wanted).await {
            // An earlier attempt came through, and its answer did not.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            other => other.map(drop),
        }
    })
    .await;
}

async fn delete(client: &Client, object: &Value) {
    let name = object["metadata"]["name"].as_str().unwrap();
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    again(|| async {
        match api(client, object).delete(name, &now).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            other => other.map(drop),
        }
    })
    .await;
}

/// Tries until the API server does it: it is away for a while.
async fn again<F>(what: impl Fn() -> F)
where
    F: Future<Output = kube::Result<()>>,
{
    let last = Instant::now() + AWAY + PATIENCE;
    while let Err(error) = what().await {
        assert!(Instant::now() < last, "{error}");
        sleep(Duration::from_millis(250)).await;
    }
}

fn api(client: &Client, object: &Value) -> Api<DynamicObject> {
    let version = object["apiVersion"].as_str().unwrap();
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let kind = GroupVersionKind::gvk(group, version, object["kind"].as_str().unwrap());
    let resource = ApiResource::from_gvk(&kind);
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

/// Waits until each node holds what a hub that has read all objects anew would tell it.
async fn alike(kubeconfig: &Path, followers: &[Arc<Follower>]) {
    let mut hub = fresh(kubeconfig).await;
    let pods: usize = (0..NODES).map(|it| hub.index().node_state(&node(it)).pods.len()).sum();
    assert!(pods > PODS * 4 / 5 && hub.measures().policies > POLICIES / 2, "{:?}", hub.measures());
    let last = Instant::now() + 2 * PATIENCE;
    for follower in followers {
        loop {
            let digests = follower.held.lock().unwrap().digests().into_iter().collect();
            let lacks = lacks(&mut hub, &follower.name, digests);
            if lacks == 0 {
                break;
            }
            assert!(Instant::now() < last, "{} lacks {lacks} objects", follower.name);
            sleep(Duration::from_millis(500)).await;
        }
    }
}

/// How many objects a node that holds these would be told of.
fn lacks(
    hub: &mut Hub,
    node: &str,
    holds: std::collections::BTreeMap<policy_wire::ObjectId, policy_wire::Digest>,
) -> usize {
    let Begun::Compared(stream) = hub.begin(node, &Says { holds, ..Says::default() }) else {
        panic!("the hub has no other stream");
    };
    let lacks = hub.tell(&stream).map_or(0, |telling| telling.changes.len());
    hub.end(&stream, 0);
    lacks
}

async fn fresh(kubeconfig: &Path) -> Hub {
    let cluster = Cluster::connect(Some(kubeconfig), None).await.unwrap();
    let mut hub = Hub::new([9; 16], 9);
    for resource in cluster.served().await.unwrap() {
        for item in cluster.list(&resource, |_| ()).await.unwrap().items {
            let object = item.read.unwrap().object;
            match &object {
                Object::Pod(pod) => hub.apply(Event::Pod(pod)),
                Object::Namespace(namespace) => hub.apply(Event::Namespace(namespace)),
                Object::Node(node) => hub.apply(Event::Node(node)),
                Object::Service(service) => hub.apply(Event::Service(service)),
                Object::Tier(tier) => hub.apply(Event::Tier(tier)),
                Object::Group(group) => hub.apply(Event::Group(group)),
                Object::NetworkPolicy(_) | Object::ClusterPolicy(_) | Object::AntreaPolicy(_) => {
                    hub.policy(&compile(&object).unwrap(), object.meta().generation);
                }
            }
        }
    }
    hub.loaded();
    hub
}

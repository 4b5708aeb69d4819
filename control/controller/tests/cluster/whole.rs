//! A cluster that fills while replicas die, the leader changes, watches are cut and the API server is away.
//!
//! No node ever holds an object that neither the cluster before nor the one after has. No node ever lacks an object that
//! both have. Each node ends with the content that a new hub computes from all objects.

mod bounds;
mod follower;
mod plan;
mod production;
mod writing;

use crate::{
    agent::trust,
    between::Between,
    replica::Replica,
    world::{PATIENCE, World},
};
use bounds::{Bounds, content_of, hub};
use control_hub::Hub;
use control_wire::{Digest, ObjectId};
use follower::Follower;
use plan::{NODES, PODS, POLICIES, Phase, node, phases};
use policy_kube::{Access, Cluster};
use policy_objects::Object;
use production::Production;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tests_cluster::free_ports;
use tokio::{
    task::{JoinSet, spawn_blocking},
    time::{Instant, sleep},
};
use writing::Writing;

/// Number of nodes with the production agent.
const PRODUCTION: usize = 3;
/// Duration of the API server's outage.
const AWAY: Duration = Duration::from_secs(60);
/// Interval at which all connections of the replicas to the API server are cut in the first phase.
const CUTS: Duration = Duration::from_secs(4);
const GROUPS: [&str; 3] = ["crd.antrea.io", "networking.k8s.aws", "policy.networking.k8s.io"];

/// All nodes of the test, with model clients and with production agents.
struct Nodes {
    followers: Vec<Arc<Follower>>,
    agents: Vec<Arc<Production>>,
    running: JoinSet<()>,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_fills_during_failures_and_no_node_holds_too_much_or_too_little() {
    spawn_blocking(production::program).await.unwrap();
    let mut world = World::alone().await;
    for group in GROUPS {
        world.define(group).await;
    }
    let mut tokens = Vec::new();
    for number in 0..NODES {
        let agent = world.node(&node(number)).await;
        tokens.push(world.token(&agent, "ferrule-controller").await);
    }
    let there = read(world.cluster.kubeconfig()).await;
    let bounds = spawn_blocking(move || bounds_of(&there)).await.unwrap();
    let [first, second, third] = &phases()[..] else { panic!("three phases") };
    let between = Between::to(world.cluster.port()).await;
    let at = free();
    let kubeconfig = world.kubeconfig_by(&between);
    let start = |slot: usize| {
        let (kubeconfig, at) = (kubeconfig.clone(), at[slot].to_string());
        async move { Replica::start(&kubeconfig, &["--listen", &at]).await }
    };
    let mut replicas = vec![start(0).await, start(1).await];
    for replica in &replicas {
        replica.ready().await;
    }
    let mut nodes = Nodes::start(&world.bundle().await, tokens, at);

    // The leader dies and another replica starts; an agent dies; watches are cut.
    nodes.may_hold(&bounds[0]);
    let writing = Writing::begin(&world.client, first);
    writing.reaches(first.steps.len() / 3).await;
    drop(replicas.remove(0));
    nodes.agents[0].kill_and_restart();
    replicas.push(start(0).await);
    while !writing.is_done() {
        between.cut();
        sleep(CUTS).await;
    }
    writing.end().await;
    nodes.alike(world.cluster.kubeconfig()).await;

    // The API server continues without a connection to the replicas. Then it restarts and loses the watch positions.
    nodes.may_hold(&bounds[1]);
    let writing = Writing::begin(&world.client, second);
    writing.reaches(second.steps.len() / 4).await;
    between.shut();
    writing.reaches(second.steps.len() / 2).await;
    world.cluster.stop_api_server();
    nodes.agents[1].kill_and_restart();
    sleep(AWAY).await;
    world.cluster.start_api_server().unwrap();
    between.open();
    writing.reaches(second.steps.len() * 3 / 4).await;
    between.cut();
    drop(replicas.remove(0));
    writing.end().await;
    replicas[0].ready().await;
    nodes.alike(world.cluster.kubeconfig()).await;
    let relists = replicas[0].metric("ferrule_controller_relists_total", "").await;
    assert!(relists >= 1.0, "no watch has lost its place");

    // Pods change from group to group, with one replica.
    nodes.may_hold(&bounds[2]);
    let writing = Writing::begin(&world.client, third);
    writing.reaches(third.steps.len() / 2).await;
    between.cut();
    replicas.push(start(1).await);
    writing.end().await;
    let hub = nodes.alike(world.cluster.kubeconfig()).await;
    let pods: usize = (0..NODES).map(|it| hub.index().node_state(&node(it)).pods.len()).sum();
    assert!(pods > PODS * 4 / 5 && hub.measures().policies > POLICIES * 3 / 4, "{pods} pods");
    let taken = nodes.followers.iter().map(|it| it.applied.load(Ordering::Relaxed));
    assert!(taken.sum::<usize>() > NODES, "no content was sent");
}

impl Nodes {
    fn start(bundle: &str, tokens: Vec<String>, replicas: [SocketAddr; 2]) -> Self {
        let (mut followers, mut agents) = (Vec::new(), Vec::new());
        let mut running = JoinSet::new();
        let trust = trust(bundle);
        for (number, token) in tokens.into_iter().enumerate() {
            if number < PRODUCTION {
                let agent = Production::start(&node(number), &token, bundle, replicas);
                agents.push(Arc::new(agent));
                continue;
            }
            let follower = Arc::new(Follower::new(node(number), token));
            running.spawn(follower.clone().run(trust.clone(), replicas));
            followers.push(follower);
        }
        Self { followers, agents, running }
    }

    /// The cluster is quiet; from now on each node must hold exactly its own content.
    fn may_hold(&mut self, bounds: &BTreeMap<String, Arc<Bounds>>) {
        for follower in &self.followers {
            follower.may_hold(bounds[&follower.name].clone());
        }
        let watched = self.running.len() > self.followers.len();
        for agent in &self.agents {
            agent.may_hold(bounds[&agent.name].clone());
            if !watched {
                self.running.spawn(agent.clone().watch());
            }
        }
    }

    /// Waits until each node holds the content that a hub with all objects computes.
    async fn alike(&mut self, kubeconfig: &Path) -> Hub {
        let objects = read(kubeconfig).await;
        let mut hub = hub(&objects);
        let last = Instant::now() + 2 * PATIENCE;
        let names = self.followers.iter().map(|it| it.name.clone());
        for name in names.chain(self.agents.iter().map(|it| it.name.clone())).collect::<Vec<_>>() {
            let wanted: BTreeMap<ObjectId, Digest> =
                content_of(&mut hub, &name).digests().into_iter().collect();
            assert!(wanted.len() > POLICIES / 3, "{name} is to hold {} objects", wanted.len());
            loop {
                let is = self.holds(&name);
                if is == wanted {
                    break;
                }
                let lacks = wanted.iter().filter(|(id, digest)| is.get(id) != Some(digest)).count();
                let extra = is.keys().filter(|id| !wanted.contains_key(id)).count();
                assert!(Instant::now() < last, "{name} lacks {lacks}, and has {extra} too many");
                sleep(Duration::from_millis(500)).await;
            }
        }
        if let Some(ended) = self.running.try_join_next() {
            ended.unwrap();
            panic!("a node has ended");
        }
        hub
    }

    fn holds(&self, name: &str) -> BTreeMap<ObjectId, Digest> {
        let of_agent = || self.agents.iter().find(|it| it.name == name).unwrap().held().digests();
        match self.followers.iter().find(|it| it.name == name) {
            Some(follower) => follower.held.lock().unwrap().digests().into_iter().collect(),
            None => of_agent().into_iter().collect(),
        }
    }
}

/// Bounds of each phase, by node.
fn bounds_of(there: &[Object]) -> Vec<BTreeMap<String, Arc<Bounds>>> {
    let read = |world: &plan::World| -> Hub {
        let made = world.values().map(|object| {
            let mut object = object.clone();
            object["metadata"]["uid"] = plan::key(&object).into();
            Object::read_value(&object).unwrap().object
        });
        let made: Vec<Object> = made.collect();
        hub(there.iter().chain(&made))
    };
    let of = |phase: &Phase| {
        let (mut least, most) = (read(&phase.least()), phase.most());
        let mut most: Vec<Hub> = most.iter().map(read).collect();
        let names = (0..NODES).map(node);
        names
            .map(|name| (name.clone(), Arc::new(Bounds::of(&mut least, &mut most, &name))))
            .collect()
    };
    phases().iter().map(of).collect()
}

/// Lists all objects that policy reads.
async fn read(kubeconfig: &Path) -> Vec<Object> {
    let cluster = Cluster::connect(&Access::of_file(kubeconfig)).await.unwrap();
    let mut objects = Vec::new();
    for resource in cluster.served().await.unwrap() {
        let items = cluster.list(&resource, |_| ()).await.unwrap().items;
        objects.extend(items.into_iter().map(|item| item.read.unwrap().object));
    }
    objects
}

/// Addresses of replicas, one after the other.
fn free() -> [SocketAddr; 2] {
    free_ports().unwrap().map(|port| (Ipv4Addr::LOCALHOST, port).into())
}

/// The judge of the test above detects violations.
#[test]
fn the_judge_detects_objects_of_neither_world_and_missing_objects_of_both() {
    let phases = phases();
    let read = |world: &plan::World| -> Vec<Object> {
        let nodes = (0..NODES).map(|number| {
            serde_json::json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node(number)}})
        });
        let space = serde_json::json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"},
        });
        let all = nodes.chain([space]).chain(world.values().cloned());
        let all = all.map(|mut object| {
            object["metadata"]["uid"] = plan::key(&object).into();
            Object::read_value(&object).unwrap().object
        });
        all.collect()
    };
    let phase = &phases[1];
    let (least, most) = (read(&phase.least()), phase.most());
    let mut most: Vec<Hub> = most.iter().map(|world| hub(&read(world))).collect();
    let bounds = Bounds::of(&mut hub(&least), &mut most, "n7");
    let from = content_of(&mut hub(&read(&phase.after)), "n7");
    let kinds: BTreeSet<_> = from.policies.values().map(|policy| policy.key.kind).collect();
    assert_eq!(kinds.len(), 6, "not of all kinds: {kinds:?}");
    assert!(from.applied.len() > 10 && from.addresses.len() > 10, "{from:?}");
    let ids = |held: &control_wire::NodeSnapshot| {
        held.objects().map(|(id, _)| id).collect::<BTreeSet<_>>()
    };
    let wrong = |world: &plan::World| {
        let held = content_of(&mut hub(&read(world)), "n7");
        let mut names = BTreeMap::new();
        assert_eq!(bounds.wrong_of(&from, &ids(&from), &mut names), None);
        // The node moves from the one content to the other.
        let touched = ids(&from).union(&ids(&held)).cloned().collect();
        (bounds.wrong(&held), bounds.wrong_of(&held, &touched, &mut names))
    };
    for world in [&phase.before, &phase.after] {
        assert_eq!(wrong(world), (None, None));
    }
    // Some objects are created, some deleted, in no particular order.
    let mut mixed = phase.before.clone();
    for (number, (key, object)) in phase.after.iter().enumerate() {
        if number % 3 == 0 {
            mixed.insert(key.clone(), object.clone());
        }
    }
    assert_eq!(wrong(&mixed), (None, None));
    let stays = |kind: &str, count: usize| {
        let all = phase.least();
        let of_kind = |(_, object): &(&String, &serde_json::Value)| object["kind"] == kind;
        let found = all.iter().filter(of_kind).nth(count).unwrap();
        (found.0.clone(), found.1.clone())
    };
    let with = |key: &str, object: serde_json::Value| {
        let mut world = phase.after.clone();
        world.insert(key.to_owned(), object);
        wrong(&world)
    };
    let without = |key: &str| {
        let mut world = phase.after.clone();
        world.remove(key);
        wrong(&world)
    };
    let of_node = |(_, pod): &(String, serde_json::Value)| pod["spec"]["nodeName"] == "n7";
    let (key, pod) = (0..PODS).map(|count| stays("Pod", count)).find(of_node).unwrap();
    let mut extra = pod.clone();
    extra["metadata"]["name"] = "one-more".into();
    extra["status"]["podIPs"][0]["ip"] = "10.8.8.8".into();
    let (whole, part) = with("one more", extra);
    assert!(whole.unwrap().contains("one-more") && part.unwrap().contains("one-more"));
    let mut moved = pod.clone();
    moved["status"]["podIPs"][0]["ip"] = "10.9.9.9".into();
    let (whole, part) = with(&key, moved);
    assert!(whole.unwrap().contains("10.9.9.9") && part.unwrap().contains("10.9.9.9"));
    let (whole, part) = without(&key);
    assert!(whole.unwrap().contains("it lacks") && part.unwrap().contains("it lacks"));
    for kind in ["NetworkPolicy", "ApplicationNetworkPolicy", "ClusterNetworkPolicy"] {
        // One of the policies that apply to pods of this node.
        let found =
            (0..40).map(|count| stays(kind, count)).find(|(key, _)| without(key).0.is_some());
        let (key, mut policy) = found.unwrap();
        assert!(without(&key).0.unwrap().contains("it lacks"), "{key}");
        policy["spec"]["egress"] = serde_json::json!([]);
        policy["spec"]["ingress"] = serde_json::json!([]);
        assert!(with(&key, policy).0.is_some(), "{key}");
    }
}

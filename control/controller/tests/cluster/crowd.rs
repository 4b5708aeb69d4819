//! A replica that serves 5,000 agents, beside the memory limit of the chart.

use crate::{
    agent::Agent,
    replica::Replica,
    world::{PATIENCE, World, network_policy, pod},
};
use futures::{StreamExt as _, future::join_all, stream};
use runtime_process::files;
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::Semaphore,
    task::JoinHandle,
    time::{Instant, sleep},
};

const NODES: usize = 5_000;
/// Number of nodes with a peer that every policy selects.
const PEERS: usize = 200;
const POLICIES: usize = 20;
/// Number of concurrent calls at the API server.
const CALLS: usize = 32;
/// Number of agents that connect or report at the same time. Production agents spread their attempts over time.
const AT_ONCE: usize = 64;
/// The interval between two attempts of an agent.
const AGAIN: Duration = Duration::from_millis(500);

#[tokio::test(flavor = "multi_thread")]
async fn five_thousand_agents_fit_twice_into_the_memory_limit_of_the_chart() {
    files::raise_limit();
    let world = World::without_others().await;
    for number in 0..POLICIES {
        world.make(network_policy(&policy(number), "web", "db")).await;
    }
    let nodes = stream::iter(0..NODES).map(|number| node(&world, number)).buffer_unordered(CALLS);
    let tokens: Vec<String> = nodes.collect().await;
    let replica = Replica::start(&world.kubeconfig, &[]).await;
    replica.ready().await;
    let bundle = world.bundle().await;

    let room = Arc::new(Semaphore::new(AT_ONCE));
    let agents = tokens.into_iter().map(|token| Agent::new(token, &bundle));
    let agents = all(agents.map(|agent| connect(agent, replica.at, room.clone()))).await;
    let connected = replica.peak_memory();

    // One event reaches every agent, and each reports it.
    let last = policy(POLICIES);
    world.make(network_policy(&last, "web", "db")).await;
    let agents =
        all(agents.into_iter().map(|agent| follow(agent, last.clone(), room.clone()))).await;
    assert_eq!(agents.len(), NODES);
    let streams = replica.metric("ferrule_controller_streams", "").await;
    assert!(streams >= NODES as f64, "{streams} streams are open");

    let (peak, limit) = (replica.peak_memory(), limit());
    eprintln!(
        "peak memory: {connected} MiB with all agents, {peak} MiB after an event for all; limit: {limit} MiB"
    );
    assert!(2 * peak <= limit, "the peak is {peak} MiB, the limit {limit} MiB");
}

/// Opens the agent's stream, waits for the policies, and reports them.
async fn connect(mut agent: Agent, at: SocketAddr, room: Arc<Semaphore>) -> Agent {
    let _permit = room.acquire().await.unwrap();
    let last = Instant::now() + PATIENCE;
    while let Err(error) = agent.begin(at).await {
        assert!(Instant::now() < last, "the stream does not start: {error}");
        sleep(AGAIN).await;
    }
    agent.until("the policies and their peers", holds_all).await;
    report(&mut agent, true, &(0..POLICIES).map(policy).collect::<Vec<_>>()).await;
    agent
}

/// Receives the last policy and reports it.
async fn follow(mut agent: Agent, last: String, room: Arc<Semaphore>) -> Agent {
    let _permit = room.acquire().await.unwrap();
    agent.until("the last policy", |agent| agent.policies().contains(&last)).await;
    report(&mut agent, false, &[last]).await;
    agent
}

async fn report(agent: &mut Agent, full: bool, policies: &[String]) {
    let realized: Vec<(&str, &str)> = policies.iter().map(|name| (&**name, "")).collect();
    let last = Instant::now() + PATIENCE;
    while let Err(error) = agent.report(full, &realized).await {
        assert!(Instant::now() < last, "no report is accepted: {error}");
        sleep(AGAIN).await;
    }
}

/// Runs each agent in a task of its own.
async fn all(
    agents: impl Iterator<Item = impl Future<Output = Agent> + Send + 'static>,
) -> Vec<Agent> {
    let tasks: Vec<JoinHandle<Agent>> = agents.map(tokio::spawn).collect();
    join_all(tasks).await.into_iter().map(Result::unwrap).collect()
}

/// Creates a node with its agent and its pods. Returns the agent's token.
async fn node(world: &World, number: usize) -> String {
    let name = format!("node-{number}");
    let agent = world.node(&name).await;
    let address = u32::from(Ipv4Addr::new(10, 64, 0, 0)) + u32::try_from(2 * number).unwrap();
    running(world, pod("default", &format!("web-{number}"), &name, "web"), address).await;
    if number < PEERS {
        running(world, pod("default", &format!("db-{number}"), &name, "db"), address + 1).await;
    }
    world.token(&agent, "ferrule-controller").await
}

async fn running(world: &World, pod: Value, address: u32) {
    let ip = Ipv4Addr::from(address).to_string();
    world.make(pod.clone()).await;
    let status = json!({"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]});
    world.status(&pod, status).await;
}

fn policy(number: usize) -> String {
    format!("web-{number}")
}

fn holds_all(agent: &Agent) -> bool {
    let groups = agent.held.addresses.values();
    let peers: BTreeSet<_> = groups.flat_map(|group| group.members.keys()).collect();
    agent.policies().len() == POLICIES && peers.len() >= PEERS
}

/// The default memory limit of a replica, in MiB.
fn limit() -> u64 {
    let path = format!("{}/../../charts/ferrule/values.yaml", env!("CARGO_MANIFEST_DIR"));
    let values: Value = serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let limit = values["controller"]["resources"]["limits"]["memory"].as_str().unwrap();
    limit.strip_suffix("Mi").unwrap().parse().unwrap()
}

//! A replica that serves 5,000 agents, beside the memory limit of the chart.

use crate::{
    agent::Agent,
    replica::Replica,
    world::{World, network_policy, pod},
};
use futures::{StreamExt as _, future::join_all, stream};
use runtime_process::files;
use serde_json::{Value, json};
use std::{collections::BTreeSet, net::Ipv4Addr, time::Duration};
use tests_eventually::eventually_async;
use tokio::sync::Semaphore;

const NODES: usize = 5_000;
/// Number of nodes with a peer that every policy selects.
const PEERS: usize = 200;
const POLICIES: usize = 20;
/// Number of concurrent calls at the API server.
const CALLS: usize = 64;
/// Number of agents that connect at the same time. Production agents spread their attempts over time.
const CONNECT: usize = 256;
/// Maximum wait for all agents, on a machine that runs all of them and an API server.
const ALL: Duration = Duration::from_secs(600);

#[tokio::test(flavor = "multi_thread")]
async fn five_thousand_agents_fit_twice_into_the_memory_limit_of_the_chart() {
    files::raise_limit();
    let world = World::alone().await;
    for number in 0..POLICIES {
        world.make(network_policy(&policy(number), "web", "db")).await;
    }
    let nodes = stream::iter(0..NODES).map(|number| node(&world, number)).buffer_unordered(CALLS);
    let tokens: Vec<String> = nodes.collect().await;
    let replica = Replica::start(&world.kubeconfig, &[]).await;
    replica.ready().await;
    let bundle = world.bundle().await;

    let room = Semaphore::new(CONNECT);
    let names: Vec<String> = (0..POLICIES).map(policy).collect();
    let realized: Vec<(&str, &str)> = names.iter().map(|name| (&**name, "")).collect();
    let agents = join_all(tokens.into_iter().map(async |token| {
        let mut agent = Agent::new(token, &bundle);
        let permit = room.acquire().await.unwrap();
        eventually_async("the stream to start", ALL, async || agent.begin(replica.at).await).await;
        drop(permit);
        agent.until("the policies and their peers", holds_all).await;
        agent.reports(true, &realized).await;
        agent
    }))
    .await;
    let connected = replica.peak_memory();

    // One event reaches every agent, and each reports it.
    let last = policy(POLICIES);
    world.make(network_policy(&last, "web", "db")).await;
    let agents = join_all(agents.into_iter().map(async |mut agent| {
        agent.until("the last policy", |agent| agent.policies().contains(&last)).await;
        agent.reports(false, &[(&last, "")]).await;
        agent
    }))
    .await;
    assert_eq!(agents.len(), NODES);
    let streams = replica.metric("ferrule_controller_streams", "").await;
    assert!(streams >= NODES as f64, "{streams} streams are open");

    let (peak, limit) = (replica.peak_memory(), limit());
    eprintln!(
        "peak memory: {connected} MiB with all agents, {peak} MiB after an event for all; limit: {limit} MiB"
    );
    assert!(2 * peak <= limit, "the peak is {peak} MiB, the limit {limit} MiB");
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

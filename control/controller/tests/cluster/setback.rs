//! A cluster whose etcd is restored from an older backup.

use crate::{
    agent::Agent,
    replica::Replica,
    world::{PATIENCE, World, network_policy, pod},
};
use control_rpc::FollowError;
use serde_json::json;
use std::net::SocketAddr;
use tests_eventually::eventually_async;
use tokio::time::Instant;

/// Number of lost writes. It exceeds the writes of replicas and API server during the rest of the test.
const LOST: usize = 500;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_receive_the_restored_cluster_and_replicas_are_no_longer_behind() {
    let mut world = World::alone().await;
    let node = world.node("n1").await;
    let old = network_policy("old", "web", "db");
    for object in [&old, &network_policy("kept", "web", "db")] {
        world.make(object.clone()).await;
    }
    for name in ["web-1", "web-2"] {
        world.make(pod("default", name, "n1", "web")).await;
    }
    let replica = Replica::start(&world.kubeconfig, &[]).await;
    replica.ready().await;
    let token = world.token(&node, "ferrule-controller").await;
    let bundle = world.bundle().await;
    // The objects of the replica are in the backup.
    world.cluster.save().unwrap();
    let mut agent = Agent::new(token.clone(), &bundle);
    agent.begins(replica.at).await;
    agent.until("what there is", |agent| agent.policies() == ["kept", "old"]).await;

    for number in 0..LOST {
        let metadata = json!({"name": format!("lost-{number}"), "namespace": "default"});
        world.make(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})).await;
    }
    world.delete(&old).await;
    world.delete(&pod("default", "web-2", "n1", "web")).await;
    world.make(network_policy("new", "web", "db")).await;
    let last = world.make(pod("default", "web-3", "n1", "web")).await;
    let last: u64 = last.metadata.resource_version.unwrap().parse().unwrap();
    let before =
        |agent: &Agent| agent.policies() == ["kept", "new"] && agent.pods() == ["web-1", "web-3"];
    agent.until("what there is before the end", before).await;
    let pods = |agent: &Agent| agent.held.reached.get("Pod").copied();
    agent.until("how far that is", |agent| pods(agent) >= Some(last)).await;
    let far = agent.held.clone();

    world.cluster.put_back().unwrap();
    let after =
        |agent: &Agent| agent.policies() == ["kept", "old"] && agent.pods() == ["web-1", "web-2"];
    agent.until("what there is now", after).await;
    agent.until("how far that is", |agent| pods(agent) < Some(last)).await;
    assert!(replica.has_logged("cluster restored from a backup; every kind is listed again"));
    // A node that was offline holds deleted objects until it accepts a replica that has read less.
    let mut away = Agent::new(token, &bundle);
    away.held = far;
    let refused = away.begin(replica.at).await.unwrap_err();
    assert!(matches!(refused, FollowError::Behind { .. }), "{refused}");
    away.begin_behind(replica.at).await.unwrap();
    away.until("what there is now", after).await;
    away.until("how far that is", |agent| pods(agent) < Some(last)).await;
    // From then on all nodes and replicas agree, also a replica that has started since.
    let another = Replica::start(&world.kubeconfig, &[]).await;
    another.ready().await;
    moves(&mut agent, replica.at, another.at).await;
    moves(&mut away, another.at, replica.at).await;
    world.make(network_policy("newer", "web", "db")).await;
    for agent in [&mut agent, &mut away] {
        let newer = |agent: &Agent| agent.policies() == ["kept", "newer", "old"];
        agent.until("the watches go on", newer).await;
    }
    eventually_async("all is read", PATIENCE, || async {
        let shown = replica.get("/readyz").await?;
        (!shown.contains("failing")).then_some(())
    })
    .await;
}

/// Moves from one replica to the other as soon as that one accepts. Each kind detects the restore separately, so the
/// content from the first replica may be partly older.
async fn moves(agent: &mut Agent, from: SocketAddr, to: SocketAddr) {
    let last = Instant::now() + PATIENCE;
    while let Err(error) = agent.begin(to).await {
        assert!(matches!(error, FollowError::Behind { .. }), "{error}");
        assert!(Instant::now() < last, "{error}");
        agent.held.reached.clear();
        agent.begin_behind(from).await.unwrap();
        agent.until("how far each kind is", |agent| !agent.held.reached.is_empty()).await;
    }
}

//! An API server that is unreachable for a time and loses its watch history.

use crate::{
    agent::Agent,
    between::Between,
    replica::Replica,
    world::{PATIENCE, World, network_policy, pod},
};
use tests_eventually::eventually_async;

/// The API server has dropped the position of the watch. A new list reveals the objects that were deleted meanwhile.
#[tokio::test]
async fn objects_deleted_during_an_outage_are_removed_and_the_rest_stays() {
    let mut world = World::alone().await;
    let node = world.node("n1").await;
    let (old, kept) = (network_policy("old", "web", "db"), network_policy("kept", "web", "db"));
    for object in
        [&old, &kept, &pod("default", "web-1", "n1", "web"), &pod("default", "web-2", "n1", "web")]
    {
        world.make(object.clone()).await;
    }
    let between = Between::to(world.cluster.port()).await;
    let kubeconfig = world.kubeconfig_by(&between);
    let replica = Replica::start(&kubeconfig, &[]).await;
    replica.ready().await;
    let token = world.token(&node, "ferrule-controller").await;
    let mut agent = Agent::new(token.clone(), &world.bundle().await);
    agent.begins(replica.at).await;
    let begun =
        |agent: &Agent| agent.policies() == ["kept", "old"] && agent.pods() == ["web-1", "web-2"];
    agent.until("what there is", begun).await;
    between.shut();
    eventually_async("it says that pods are not read", PATIENCE, || async {
        let shown = replica.get("/readyz").await?;
        shown.contains("Pod: failing").then_some(())
    })
    .await;
    world.delete(&old).await;
    world.delete(&pod("default", "web-2", "n1", "web")).await;
    world.make(network_policy("new", "web", "db")).await;
    world.cluster.stop_api_server();
    // The replica still serves its content to an agent with a cached token review.
    assert!(replica.get("/readyz").await.unwrap().starts_with("HTTP/1.0 200"));
    assert!(begun(&agent));
    world.cluster.start_api_server().unwrap();
    between.open();
    let ended = |agent: &Agent| agent.policies() == ["kept", "new"] && agent.pods() == ["web-1"];
    agent.until("what there is now", ended).await;
    eventually_async("all is read again", PATIENCE, || async {
        let shown = replica.get("/readyz").await?;
        (!shown.contains("failing")).then_some(())
    })
    .await;
    let relists = replica.metric("ferrule_controller_relists_total", "").await;
    assert!(relists >= 1.0, "no kind was listed again");
    world.make(pod("default", "web-3", "n1", "web")).await;
    agent.until("the watch goes on", |agent| agent.pods() == ["web-1", "web-3"]).await;
}

/// A middlebox that forgets the connection: no data arrives, and no end.
#[tokio::test]
async fn a_silent_connection_is_closed_and_the_watch_continues() {
    let world = World::new().await;
    let node = world.node("n1").await;
    world.make(network_policy("old", "web", "db")).await;
    world.make(pod("default", "web-1", "n1", "web")).await;
    let between = Between::to(world.cluster.port()).await;
    let kubeconfig = world.kubeconfig_by(&between);
    let replica = Replica::start(&kubeconfig, &["--watch-silence", "5s"]).await;
    replica.ready().await;
    let token = world.token(&node, "ferrule-controller").await;
    let mut agent = Agent::new(token, &world.bundle().await);
    agent.begins(replica.at).await;
    agent.until("what there is", |agent| agent.policies() == ["old"]).await;
    between.stall();
    world.make(network_policy("new", "web", "db")).await;
    world.make(pod("default", "web-2", "n1", "web")).await;
    let ended =
        |agent: &Agent| agent.policies() == ["new", "old"] && agent.pods() == ["web-1", "web-2"];
    agent.until("what has come since", ended).await;
    let relists = replica.metric("ferrule_controller_relists_total", "").await;
    assert_eq!(relists, 0.0, "the watches continue at their positions");
}

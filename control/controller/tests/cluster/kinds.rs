//! Kinds that are installed after the start of the replica, and removed.

use crate::{
    agent::Agent,
    replica::Replica,
    world::{PATIENCE, World, antrea_policy, definitions, network_policy, pod},
};
use tests_eventually::eventually_async;

#[tokio::test]
async fn a_kind_that_is_installed_later_is_read_and_a_removed_kind_leaves_no_objects() {
    let world = World::new().await;
    let node = world.node("n1").await;
    world.make(pod("default", "web-1", "n1", "web")).await;
    world.make(network_policy("web", "web", "db")).await;
    let replica = Replica::start(&world.kubeconfig, &[]).await;
    replica.ready().await;
    let shown = replica.get("/readyz").await.unwrap();
    assert!(shown.contains("ClusterNetworkPolicy.crd.antrea.io: absent"), "{shown}");
    let token = world.token(&node, "ferrule-controller").await;
    let mut agent = Agent::new(token, &world.bundle().await);
    agent.begins(replica.at).await;
    agent.until("what there is", |agent| agent.policies() == ["web"]).await;
    world.define("crd.antrea.io").await;
    world.make(antrea_policy("later", "web")).await;
    agent.until("the later kind", |agent| agent.policies() == ["later", "web"]).await;
    let policies = definitions("crd.antrea.io").into_iter();
    let mut policies =
        policies.filter(|definition| definition["spec"]["names"]["kind"] == "ClusterNetworkPolicy");
    world.delete(&policies.next().unwrap()).await;
    agent.until("it is gone", |agent| agent.policies() == ["web"]).await;
    eventually_async("it is absent again", PATIENCE, || async {
        let shown = replica.get("/readyz").await?;
        shown.contains("ClusterNetworkPolicy.crd.antrea.io: absent").then_some(())
    })
    .await;
    // The kind is installed once more.
    let definition = definitions("crd.antrea.io").into_iter();
    let again = definition
        .filter(|definition| definition["spec"]["names"]["kind"] == "ClusterNetworkPolicy");
    for definition in again {
        world.make(definition).await;
    }
    world.make(antrea_policy("again", "web")).await;
    agent.until("the kind is back", |agent| agent.policies() == ["again", "web"]).await;
}

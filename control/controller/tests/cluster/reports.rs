//! Messages of agents: addresses of their pods, and the state of policies.

use crate::{
    agent::Agent,
    replica::Replica,
    world::{PATIENCE, World, antrea_policy, cluster_policy, network_policy, pod},
};
use serde_json::{Value, json};
use std::net::IpAddr;
use tests_eventually::eventually_async;
use tonic::Code;

const AUDIENCE: &str = "ferrule-controller";

#[tokio::test]
async fn an_announced_address_reaches_other_nodes_at_once() {
    let world = World::new().await;
    let (one, two) = (world.node("n1").await, world.node("n2").await);
    world.make(network_policy("web", "web", "db")).await;
    let web = world.make(pod("default", "web-1", "n1", "web")).await;
    let db = world.make(pod("default", "db-1", "n2", "db")).await;
    let replica = Replica::start(&world.kubeconfig, &[]).await;
    replica.ready().await;
    let bundle = world.bundle().await;
    let mut one = Agent::new(world.token(&one, AUDIENCE).await, &bundle);
    let mut two = Agent::new(world.token(&two, AUDIENCE).await, &bundle);
    one.begins(replica.at).await;
    two.begins(replica.at).await;
    one.until("its pod", |agent| agent.pods() == ["web-1"]).await;
    let knows = |agent: &Agent, address: [u8; 4]| {
        let groups = agent.held.addresses.values();
        let mut members = groups.flat_map(|group| group.members.values());
        members.any(|member| member.addresses.contains(&IpAddr::from(address)))
    };
    // An agent must not announce a pod of another node.
    let refused = one.announce(&db, [10, 0, 0, 9]).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    let refused = two.announce(&db, [127, 0, 0, 1]).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    two.announce(&db, [10, 0, 0, 2]).await.unwrap();
    one.until("the peer's address", |agent| knows(agent, [10, 0, 0, 2])).await;
    assert!(!knows(&one, [10, 0, 0, 9]));
    // It must not announce the address of another pod either.
    let refused = one.announce(&web, [10, 0, 0, 2]).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    let counted = |reason: &str| {
        let label = format!("reason=\"{reason}\"");
        let replica = &replica;
        async move { replica.metric("ferrule_controller_refused_announcements_total", &label).await }
    };
    assert!(counted("other_node").await >= 1.0);
    assert!(counted("unusable_address").await >= 1.0);
    assert!(counted("address_in_use").await >= 1.0);
}

/// Returns our object of a NetworkPolicy.
fn realization(name: &str) -> Value {
    json!({
        "apiVersion": "policy.ferrule.io/v1alpha1", "kind": "NetworkPolicyRealization",
        "metadata": {"name": name, "namespace": "default"},
    })
}

#[tokio::test]
async fn the_lease_holder_and_its_successor_write_status_from_reports() {
    let world = World::new().await;
    world.define("policy.networking.k8s.io").await;
    world.define("crd.antrea.io").await;
    world.make(config_crds::realization_crd()).await;
    let node = world.node("n1").await;
    let (antrea, admin) = (antrea_policy("antrea", "web"), cluster_policy("admin"));
    for object in [&network_policy("web", "web", "db"), &antrea, &admin] {
        world.make(object.clone()).await;
    }
    world.make(pod("default", "web-1", "n1", "web")).await;
    let mut first = Replica::start(&world.kubeconfig, &["--identity", "first"]).await;
    first.ready().await;
    let token = world.token(&node, AUDIENCE).await;
    let bundle = world.bundle().await;
    let mut agent = Agent::new(token, &bundle);
    agent.begins(first.at).await;
    let at_first = first.at.to_string();
    agent.until("reports go to the first", |agent| agent.reports_to == at_first).await;
    agent.until("all policies", |agent| agent.policies() == ["admin", "antrea", "web"]).await;
    // The other replica does not accept reports.
    let second = Replica::start(&world.kubeconfig, &["--identity", "second"]).await;
    second.ready().await;
    let mut other = Agent::new(agent.token.clone(), &bundle);
    other.begins(second.at).await;
    other.until("all policies", |agent| agent.policies().len() == 3).await;
    let refused = other.report(true, &[]).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    agent.begins(first.at).await;
    agent.report(true, &[("admin", ""), ("antrea", ""), ("web", "no room")]).await.unwrap();
    eventually_async("Antrea's is realized", PATIENCE, || async {
        let status = world.get(&antrea).await?["status"].clone();
        (status["phase"] == "Realized" && status["currentNodesRealized"] == 1).then_some(())
    })
    .await;
    eventually_async("upstream's is realized", PATIENCE, || async {
        let status = world.get(&admin).await?["status"].clone();
        let conditions = status["conditions"].as_array()?.clone();
        let mut all = conditions.iter();
        all.any(|it| it["type"] == "Realized" && it["status"] == "True").then_some(())
    })
    .await;
    eventually_async("the NetworkPolicy has failed on its node", PATIENCE, || async {
        let status = world.get(&realization("web")).await?["status"].clone();
        let failure = &status["failures"][0];
        (failure["node"] == "n1" && failure["why"] == "no room").then_some(())
    })
    .await;
    first.terminate();
    assert!(first.ended().await.success());
    let at_second = second.at.to_string();
    let mut agent = Agent::new(agent.token, &bundle);
    agent.begins(second.at).await;
    agent.until("reports go to the second", |agent| agent.reports_to == at_second).await;
    agent.until("all policies", |agent| agent.policies().len() == 3).await;
    agent.report(true, &[("admin", ""), ("antrea", "broken"), ("web", "")]).await.unwrap();
    eventually_async(
        "the NetworkPolicy is in force, and no object of ours exists",
        PATIENCE,
        || async { world.get(&realization("web")).await.is_none().then_some(()) },
    )
    .await;
    eventually_async("Antrea's has failed", PATIENCE, || async {
        let status = world.get(&antrea).await?["status"].clone();
        (status["currentNodesRealized"] == 0 && status["phase"] != "Realized").then_some(())
    })
    .await;
}

/// The CustomResourceDefinition of our objects is installed after the Lease was taken and after a write was due.
#[tokio::test]
async fn a_status_is_written_once_its_definition_is_installed() {
    let world = World::new().await;
    let node = world.node("n1").await;
    world.make(network_policy("web", "web", "db")).await;
    world.make(pod("default", "web-1", "n1", "web")).await;
    let replica = Replica::start(&world.kubeconfig, &[]).await;
    replica.ready().await;
    let token = world.token(&node, AUDIENCE).await;
    let mut agent = Agent::new(token, &world.bundle().await);
    agent.begins(replica.at).await;
    let here = replica.at.to_string();
    agent.until("reports come here", |agent| agent.reports_to == here).await;
    agent.until("the policy", |agent| agent.policies() == ["web"]).await;
    agent.reports(true, &[("web", "no room")]).await;
    eventually_async("there is no place for it", PATIENCE, || async {
        let nowhere = "outcome=\"nowhere\"";
        let count = replica.metric("ferrule_controller_statuses_total", nowhere).await;
        (count >= 1.0).then_some(())
    })
    .await;
    let definition = config_crds::realization_crd();
    world.make(definition.clone()).await;
    let is_said = || async {
        let status = world.get(&realization("web")).await?["status"].clone();
        (status["failures"][0]["why"] == "no room").then_some(())
    };
    eventually_async("it has failed on its node", PATIENCE, is_said).await;
    // All objects are removed with their definition, which is then installed once more.
    world.delete(&definition).await;
    eventually_async("the kind is gone", PATIENCE, || async {
        world.get(&definition).await.is_none().then_some(())
    })
    .await;
    agent.reports(true, &[("web", "no memory")]).await;
    eventually_async("there is no place for it again", PATIENCE, || async {
        let nowhere = "outcome=\"nowhere\"";
        let count = replica.metric("ferrule_controller_statuses_total", nowhere).await;
        (count >= 2.0).then_some(())
    })
    .await;
    world.make(definition).await;
    eventually_async("the status is written again", PATIENCE, || async {
        let status = world.get(&realization("web")).await?["status"].clone();
        (status["failures"][0]["why"] == "no memory").then_some(())
    })
    .await;
}

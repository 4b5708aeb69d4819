//! Streams from running and stopping replicas.

use crate::{
    agent::Agent,
    replica::Replica,
    world::{PATIENCE, World, antrea_policy, cluster_policy, network_policy, pod},
};
use control_rpc::FollowError;
use control_wire::proto::How;
use tests_eventually::eventually_async;
use tonic::Code;

const ALL: [&str; 3] = ["admin", "antrea", "web"];

/// A cluster with policies of three kinds, which all apply to one pod of n1.
async fn world() -> std::sync::Arc<World> {
    let world = World::new().await;
    world.define("policy.networking.k8s.io").await;
    world.define("crd.antrea.io").await;
    world.make(network_policy("web", "web", "db")).await;
    world.make(antrea_policy("antrea", "web")).await;
    world.make(cluster_policy("admin")).await;
    world
}

#[tokio::test]
async fn two_replicas_send_the_same_content_and_a_stopping_one_hands_over() {
    let world = world().await;
    let agent = world.node("n1").await;
    world.make(pod("default", "web-1", "n1", "web")).await;
    world.make(pod("default", "db-1", "n1", "db")).await;
    world.make(pod("default", "other", "", "db")).await;
    let kubeconfig = &world.kubeconfig;
    let mut first = Replica::start(kubeconfig, &["--identity", "first"]).await;
    first.ready().await;
    // It serves also without the Lease.
    eventually_async("the first has the Lease", PATIENCE, || async {
        first.has_logged("leadership changed").then_some(())
    })
    .await;
    let second = Replica::start(kubeconfig, &["--identity", "second"]).await;
    second.ready().await;
    let token = world.token(&agent, "ferrule-controller").await;
    let bundle = world.bundle().await;
    let mut one = Agent::new(token.clone(), &bundle);
    assert_eq!(one.begins(first.at).await, How::Compared);
    one.until("all policies", |agent| agent.policies() == ALL && !agent.held.reached.is_empty())
        .await;
    assert_eq!(one.pods(), ["db-1", "web-1"]);
    let mut other = Agent::new(token, &bundle);
    other.begins(second.at).await;
    other
        .until("all policies", |agent| agent.policies() == ALL && !agent.held.reached.is_empty())
        .await;
    assert_eq!(one.held.objects().collect::<Vec<_>>(), other.held.objects().collect::<Vec<_>>());
    assert_eq!(one.held.digests(), other.held.digests());
    // The first has the Lease, and both send its address.
    let at_first = first.at.to_string();
    one.until("reports go to the first", |agent| agent.reports_to == at_first).await;
    other.until("reports go to the first", |agent| agent.reports_to == at_first).await;
    // Both replicas deliver each change.
    world.make(pod("default", "web-2", "n1", "web")).await;
    let has_it = |agent: &Agent| agent.pods() == ["db-1", "web-1", "web-2"];
    one.until("another pod", has_it).await;
    other.until("another pod", has_it).await;
    // A node must have acknowledged a generation before its propagation is measured.
    world.make(pod("default", "web-3", "n1", "web")).await;
    let has_both = |agent: &Agent| agent.pods() == ["db-1", "web-1", "web-2", "web-3"];
    one.until("one more pod", has_both).await;
    other.until("one more pod", has_both).await;
    eventually_async("the way to the last node is measured", PATIENCE, || async {
        let count = first.metric("ferrule_controller_propagation_seconds_count", "").await;
        (count >= 1.0).then_some(())
    })
    .await;
    first.terminate();
    let over = one.over().await;
    let FollowError::Refused { status, .. } = over else { panic!("{over:?}") };
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(first.ended().await.success());
    let at_second = second.at.to_string();
    other.until("reports go to the second", |agent| agent.reports_to == at_second).await;
    // The agent continues with the other replica, which compares digests.
    one.begins(second.at).await;
    one.until("reports go to the second", |agent| agent.reports_to == at_second).await;
    assert_eq!(one.policies(), ALL);
}

#[tokio::test]
async fn a_replica_reports_missing_kinds_and_serves_no_node_before_it_is_ready() {
    let world = World::new().await;
    let agent = world.node("n1").await;
    // This service account may read nothing.
    let nobody = tests_cluster::Identity::user("nobody");
    let kubeconfig = world.cluster.kubeconfig_of("nobody", &nobody).unwrap();
    let replica = Replica::start(&kubeconfig, &[]).await;
    eventually_async("the missing kinds are reported", PATIENCE, || async {
        let page = replica.get("/readyz").await?;
        let parts = ["HTTP/1.0 503", "certificate:", "waiting for Pod: failing: cannot list pods"];
        parts.iter().all(|parts| page.contains(parts)).then_some(())
    })
    .await;
    assert!(replica.get("/livez").await.unwrap().starts_with("HTTP/1.0 200"));
    assert!(!replica.has_logged("every kind is read; accepting nodes"));
    // Another replica has issued certificates; this one has none.
    let able = Replica::start(&world.kubeconfig, &[]).await;
    able.ready().await;
    let token = world.token(&agent, "ferrule-controller").await;
    let mut agent = Agent::new(token, &world.bundle().await);
    assert!(agent.begin(replica.at).await.is_err());
    agent.begins(able.at).await;
}

#[tokio::test]
async fn a_stopping_replica_is_not_ready_and_refuses_reports_and_sends_changes_during_its_grace() {
    let world = World::new().await;
    let node = world.node("n1").await;
    // The client does not wait for its end.
    let replica = Replica::start(&world.kubeconfig, &["--grace", "1h"]).await;
    replica.ready().await;
    let token = world.token(&node, "ferrule-controller").await;
    let mut agent = Agent::new(token, &world.bundle().await);
    agent.begins(replica.at).await;
    let here = replica.at.to_string();
    agent.until("reports go here", |agent| agent.reports_to == here).await;
    replica.terminate();
    eventually_async("it is not ready", PATIENCE, || async {
        let page = replica.get("/readyz").await?;
        (page.starts_with("HTTP/1.0 503") && page.contains("this replica stops")).then_some(())
    })
    .await;
    agent.until("reports go nowhere", |agent| agent.reports_to.is_empty()).await;
    world.make(pod("default", "web-1", "n1", "web")).await;
    agent.until("a pod that is new", |agent| agent.pods() == ["web-1"]).await;
}

//! A replica whose clock is two years ahead.

use crate::{
    agent::Agent,
    replica::Replica,
    world::{PATIENCE, SYSTEM, World},
};
use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Secret},
};
use kube::Api;
use std::{collections::BTreeMap, time::Duration};
use tests_eventually::eventually_async;
use tests_support::clock::two_years_ahead;
use tokio::time::sleep;

/// Several rounds of a replica that keeps certificates.
const ROUNDS: Duration = Duration::from_secs(5);

/// The certificates, and the published authority.
type Certificates = (Option<BTreeMap<String, ByteString>>, Option<BTreeMap<String, String>>);

async fn certificates(world: &World) -> Certificates {
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), SYSTEM);
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), SYSTEM);
    let secret = secrets.get("ferrule-controller-tls").await.unwrap();
    (secret.data, maps.get("ferrule-controller-ca").await.unwrap().data)
}

/// Waits until the replica reports its clock.
async fn reports_its_clock(replica: &Replica) {
    eventually_async("a report of the clock", PATIENCE, || async {
        replica.has_line(|line| is_about_the_clock(&line.to_string())).then_some(())
    })
    .await;
}

fn is_about_the_clock(line: &str) -> bool {
    line.contains("the clock of this node is 730 days ahead of the API server's")
        && line.contains("set the node's time")
}

#[tokio::test]
async fn a_replica_two_years_ahead_reports_its_clock_and_changes_no_certificate() {
    let test = "a_replica_two_years_ahead_reports_its_clock_and_changes_no_certificate";
    let Some(clock) = two_years_ahead(test) else { return };
    let world = World::new().await;
    let node = world.node("n1").await;
    // The first replica of a cluster makes the authority of all.
    let ahead = Replica::start_with(&world.kubeconfig, &[], &clock).await;
    reports_its_clock(&ahead).await;
    let (secret, map) = certificates(&world).await;
    assert!(secret.unwrap_or_default().is_empty(), "a Secret of the wrong clock");
    assert!(map.unwrap_or_default().is_empty(), "an authority of the wrong clock");

    let right = Replica::start(&world.kubeconfig, &[]).await;
    right.ready().await;
    let bundle = world.bundle().await;
    let token = world.token(&node, "ferrule-controller").await;
    let mut agent = Agent::new(token.clone(), &bundle);
    agent.begins(right.at).await;
    let before = certificates(&world).await;

    // For its clock these certificates have ended.
    drop(ahead);
    let ahead = Replica::start_with(&world.kubeconfig, &[], &clock).await;
    reports_its_clock(&ahead).await;
    sleep(ROUNDS).await;
    assert_eq!(certificates(&world).await, before);
    assert_eq!(ahead.lines_with(is_about_the_clock), 1, "the report is repeated");
    assert_eq!(ahead.lines_with(|line| line.contains("\"WARN\"")), 1, "further warnings");
    // New streams verify both replicas, which show the same certificate.
    for replica in [&right, &ahead] {
        Agent::new(token.clone(), &bundle).begins(replica.at).await;
    }
}

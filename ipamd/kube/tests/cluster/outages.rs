//! An API server that is away, comes back, and has forgotten.

use crate::world::{Adapter, Shared, World};
use futures::StreamExt as _;
use ipamd_kube::{ClusterFact, Concern, Options, PoolHealth};
use kube::api::{ListParams, WatchEvent, WatchParams};
use serde_json::json;
use std::pin::pin;

#[tokio::test]
async fn everything_starts_when_an_unreachable_api_server_returns() {
    let world = World::new("down-first").await;
    world.pod("web", json!({})).await;
    let forwarder = world.forwarder(false).await;
    let mut options = world.options();
    options.endpoint = Some(forwarder.url());
    options.condition = true;
    let mut adapter = Adapter::start(options);
    adapter.handle.pool(PoolHealth {
        healthy: true,
        reason: "AddressesFree".to_owned(),
        message: String::new(),
    });
    let report = adapter.report("pods fail", |report| report.concern == Concern::Pods).await;
    assert!(report.next_step.contains("reaches the API server"), "{report:?}");
    adapter.is_failing(Concern::Condition).await;
    assert!(adapter.facts.try_recv().is_err());
    forwarder.open();
    adapter.coming(&["web"]).await;
    adapter.is_good(Concern::Condition).await;
}

#[tokio::test]
async fn without_access_the_connection_starts_and_reports_the_missing_access() {
    let mut options = Options::of_node("nowhere");
    options.kubeconfig = Some("/nonexistent/kubeconfig".into());
    let mut adapter = Adapter::start(options);
    let report = adapter.report("no access", |report| report.concern == Concern::Api).await;
    assert!(report.cause.contains("/nonexistent/kubeconfig"), "{report:?}");
    adapter.handle.stop().await;
    assert_eq!(adapter.facts.recv().await, None, "its work has ended");
}

#[tokio::test]
async fn an_outage_hides_nothing_that_happened_during_it() {
    let world = World::new("outage").await;
    let forwarder = world.forwarder(true).await;
    let mut options = world.options();
    options.endpoint = Some(forwarder.url());
    options.branches = true;
    let mut adapter = Adapter::start(options);
    let branch =
        r#"[{"eniId":"eni-1","ifAddress":"0a:00:00:00:00:01","privateIp":"10.0.3.9","vlanId":3}]"#;
    let annotations = json!({"vpc.amazonaws.com/pod-eni": branch});
    world.pod("secure", json!({"metadata": {"annotations": annotations}})).await;
    world.pod("stays", json!({})).await;
    adapter.coming(&["secure", "stays"]).await;
    forwarder.shut();
    adapter.is_failing(Concern::Pods).await;
    world.delete_pod("secure").await;
    world.pod("new", json!({})).await;
    forwarder.open();
    let gone = adapter
        .fact("the branch is gone", |fact| {
            let ClusterFact::Branch { pod, branch: None, .. } = fact else { return None };
            Some(pod.clone())
        })
        .await;
    assert_eq!(gone, world.pod_name("secure"));
    adapter.coming(&["new", "stays"]).await;
    adapter.is_good(Concern::Pods).await;
}

/// The resource version of the watch is older than the history of the restarted API server. The server answers 410, and
/// the adapter lists all objects again.
#[tokio::test]
async fn an_expired_resource_version_leads_to_a_new_list() {
    let mut world = World::alone("restarted").await;
    let forwarder = world.forwarder(true).await;
    let mut options = world.options();
    options.endpoint = Some(forwarder.url());
    let mut adapter = Adapter::start(options);
    world.pod("stays", json!({})).await;
    world.pod("goes", json!({})).await;
    adapter.coming(&["goes", "stays"]).await;
    let position = world.pods().list(&ListParams::default()).await.unwrap().metadata;
    forwarder.shut();
    adapter.is_failing(Concern::Pods).await;
    world.delete_pod("goes").await;
    world.pod("new", json!({})).await;
    {
        let Shared::Own(cluster) = &mut world.cluster else { unreachable!("it is its own") };
        cluster.stop_api_server();
        cluster.start_api_server().unwrap();
    }
    let position = position.resource_version.unwrap();
    let mut watch = pin!(world.pods().watch(&WatchParams::default(), &position).await.unwrap());
    let first = watch.next().await.unwrap().unwrap();
    assert!(
        matches!(&first, WatchEvent::Error(status) if status.code == 410),
        "the position is not forgotten: {first:?}"
    );
    forwarder.open();
    adapter.coming(&["new", "stays"]).await;
    adapter.is_good(Concern::Pods).await;
    world.pod("after", json!({})).await;
    adapter.coming(&["after", "new", "stays"]).await;
}

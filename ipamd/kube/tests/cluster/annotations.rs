//! ANNOTATE_POD_IP.

use crate::world::{Adapter, PATIENCE, World};
use ipamd_kube::Concern;
use serde_json::json;
use std::net::IpAddr;
use tests_eventually::eventually_async;

const KEY: &str = "vpc.amazonaws.com/pod-ips";

fn address(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

async fn wait_for_annotation(world: &World, pod: &str, wanted: &str) {
    eventually_async(&format!("the annotation of {pod} to be {wanted:?}"), PATIENCE, || async {
        let pod = world.pods().get(pod).await.unwrap();
        let annotations = pod.metadata.annotations.unwrap_or_default();
        (annotations.get(KEY).map(String::as_str) == Some(wanted)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_annotation_is_set_and_emptied_and_the_others_stay() {
    let world = World::new("annotated").await;
    let mut options = world.options();
    options.annotate_pod_ip = true;
    let adapter = Adapter::start(options);
    // Asked for before the pod is seen, as happens when the watch lags behind kubelet's.
    adapter.handle.pod_has(world.pod_name("web"), address(7));
    world.pod("web", json!({"metadata": {"annotations": {"mine": "stays"}}})).await;
    wait_for_annotation(&world, "web", "10.0.0.7").await;
    adapter.handle.pod_lost(world.pod_name("web"), address(7));
    wait_for_annotation(&world, "web", "").await;
    let web = world.pods().get("web").await.unwrap();
    assert_eq!(web.metadata.annotations.unwrap()["mine"], "stays");
    adapter.is_good(Concern::PodIps).await;
}

#[tokio::test]
async fn another_writers_annotation_is_left_and_reported() {
    let world = World::new("mismatch").await;
    let mut options = world.options();
    options.annotate_pod_ip = true;
    let mut adapter = Adapter::start(options);
    world.pod("web", json!({"metadata": {"annotations": {KEY: "10.9.9.9"}}})).await;
    adapter.coming(&["web"]).await;
    adapter.handle.pod_lost(world.pod_name("web"), address(7));
    let report = adapter.report("the mismatch", |report| report.object == "pod mismatch/web").await;
    assert!(report.cause.contains("10.9.9.9") && report.cause.contains("10.0.0.7"), "{report:?}");
    wait_for_annotation(&world, "web", "10.9.9.9").await;
    // A pod that has none is no mismatch, nor is one that is gone; both end quietly.
    world.pod("bare", json!({})).await;
    adapter.coming(&["bare", "web"]).await;
    adapter.handle.pod_lost(world.pod_name("bare"), address(8));
    adapter.handle.pod_lost(world.pod_name("gone"), address(9));
    adapter.handle.pod_has(world.pod_name("bare"), address(10));
    wait_for_annotation(&world, "bare", "10.0.0.10").await;
}

#[tokio::test]
async fn the_next_pod_of_the_name_does_not_get_the_address_of_the_last() {
    let world = World::new("renewed").await;
    let forwarder = world.forwarder(true).await;
    let mut options = world.options();
    options.annotate_pod_ip = true;
    options.endpoint = Some(forwarder.url());
    let mut adapter = Adapter::start(options);
    world.pod("db-0", json!({})).await;
    adapter.coming(&["db-0"]).await;
    // While the adapter is cut off, the pod it knows is replaced by another of its name.
    forwarder.shut();
    adapter.handle.pod_has(world.pod_name("db-0"), address(7));
    world.delete_pod("db-0").await;
    world.pod("db-0", json!({})).await;
    forwarder.open();
    let report = adapter.report("another pod", |report| report.object == "pod renewed/db-0").await;
    assert!(report.cause.contains("another pod has that name"), "{report:?}");
    let next = world.pods().get("db-0").await.unwrap();
    assert_eq!(next.metadata.annotations.unwrap_or_default().get(KEY), None);
}

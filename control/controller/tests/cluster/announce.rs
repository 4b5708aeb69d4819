//! Announcements that the controller refuses, as each address belongs to another object.

use crate::{
    agent::Agent,
    replica::Replica,
    world::{PATIENCE, SYSTEM, World, pod},
};
use kube::api::DynamicObject;
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use tests_eventually::eventually_async;
use tonic::{Code, Status};

const AUDIENCE: &str = "ferrule-controller";

/// A Service with two external addresses besides its cluster address.
fn service() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "till", "namespace": "default"},
        "spec": {
            "type": "LoadBalancer", "selector": {"app": "till"},
            "ports": [{"port": 80}], "externalIPs": ["198.51.100.7"],
        },
    })
}

/// Waits until an address of the object is refused. Until the object arrives at the replica, the pod has the
/// address and then loses it.
async fn refused(agent: &mut Agent, pod: &DynamicObject, at: [u8; 4]) -> Status {
    let refusal = async || agent.announce(pod, at).await.err();
    eventually_async(&format!("{at:?} to be refused"), PATIENCE, refusal).await
}

#[tokio::test]
async fn an_announced_address_of_a_node_a_service_or_another_pod_is_refused_and_counted() {
    let world = World::new().await;
    let agent = world.node("n1").await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
    let addresses = json!([
        {"type": "InternalIP", "address": "192.168.0.1"},
        {"type": "ExternalIP", "address": "203.0.113.1"},
    ]);
    world.status(&node, json!({ "addresses": addresses })).await;
    let made = world.make(service()).await;
    let in_cluster = made.data["spec"]["clusterIP"].as_str().unwrap().parse::<Ipv4Addr>();
    let ingress = json!([{"ip": "198.51.100.9", "ipMode": "VIP"}]);
    world.status(&service(), json!({ "loadBalancer": { "ingress": ingress } })).await;
    let running =
        |at: &str| json!({"phase": "Running", "podIP": at, "podIPs": [{"ip": at}], "hostIP": at});
    // A host may have more addresses than its Node object.
    let on_host = pod(SYSTEM, "agent-n1", "n1", "agent");
    world.status(&on_host, running("192.168.7.7")).await;
    let other = pod("default", "other", "n1", "web");
    world.make(other.clone()).await;
    world.status(&other, running("10.0.0.2")).await;
    let web = world.make(pod("default", "web", "n1", "web")).await;
    let replica = Replica::start(&world.kubeconfig, &[]).await;
    replica.ready().await;
    let mut agent = Agent::new(world.token(&agent, AUDIENCE).await, &world.bundle().await);
    agent.begins(replica.at).await;
    agent.until("its pods", |agent| agent.pods() == ["other", "web"]).await;
    let rows = [
        ([192, 168, 0, 1], Code::PermissionDenied, "address_of_node"),
        ([203, 0, 113, 1], Code::PermissionDenied, "address_of_node"),
        (in_cluster.unwrap().octets(), Code::PermissionDenied, "address_of_service"),
        ([198, 51, 100, 7], Code::PermissionDenied, "address_of_service"),
        ([198, 51, 100, 9], Code::PermissionDenied, "address_of_service"),
        // The removal of pods may not have arrived yet.
        ([192, 168, 7, 7], Code::Unavailable, "address_in_use"),
        ([10, 0, 0, 2], Code::Unavailable, "address_in_use"),
    ];
    for (at, code, reason) in rows {
        let label = format!("reason=\"{reason}\"");
        let count = || replica.metric("ferrule_controller_refused_announcements_total", &label);
        let before = count().await;
        let status = refused(&mut agent, &web, at).await;
        assert_eq!(status.code(), code, "{at:?}: {status}");
        assert!(count().await > before, "{at:?}: not counted as {reason}");
    }
    // A pod that has ended has no announcements. A removed pod is unknown.
    let job = world.make(pod("default", "job", "n1", "web")).await;
    agent.until("another pod", |agent| agent.pods() == ["job", "other", "web"]).await;
    let object = pod("default", "job", "n1", "web");
    world.status(&object, json!({"phase": "Succeeded"})).await;
    agent.until("its end", |agent| agent.pods() == ["other", "web"]).await;
    let status = agent.announce(&job, [10, 0, 0, 9]).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status}");
    world.delete(&object).await;
    world.delete(&other).await;
    agent.until("the other's end", |agent| agent.pods() == ["web"]).await;
    let again = world.make(pod("default", "gone", "n1", "web")).await;
    agent.until("a pod for a moment", |agent| agent.pods() == ["gone", "web"]).await;
    world.delete(&pod("default", "gone", "n1", "web")).await;
    agent.until("its end", |agent| agent.pods() == ["web"]).await;
    let status = agent.announce(&again, [10, 0, 0, 9]).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    // The address of an ended pod is free.
    agent.announce(&web, [10, 0, 0, 2]).await.unwrap();
}

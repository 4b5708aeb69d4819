//! Services and EndpointSlices on their way to nodes that serve Services.

use crate::{agent::Agent, replica::Replica, world::World};
use serde_json::{Value, json};
use service_objects::ObjectName;

const SERVES: [&str; 2] = ["--services", "ebpf"];

fn service(name: &str, port: u16) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"namespace": "default", "name": name},
        "spec": {"selector": {"app": name}, "ports": [{"port": port}]},
    })
}

fn slice(name: &str, service: &str, address: &str) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "namespace": "default", "name": name, "labels": {"kubernetes.io/service-name": service},
        },
        "addressType": "IPv4", "ports": [{"port": 8080}],
        "endpoints": [{"addresses": [address]}],
    })
}

fn name(name: &str) -> ObjectName {
    ObjectName::new("default", name)
}

/// The first address of a slice that the agent holds; `None` without the slice.
fn address(agent: &Agent, slice: &str) -> Option<String> {
    let slice = agent.held.slices.get(&name(slice))?;
    Some(slice.endpoints[0].address.to_string())
}

#[tokio::test]
async fn nodes_that_serve_services_receive_them_with_each_change() {
    let world = World::new().await;
    let node = world.node("n1").await;
    let (web, of_web) = (service("web", 80), slice("web-1", "web", "10.0.0.7"));
    world.make(web.clone()).await;
    world.make(of_web.clone()).await;
    let replica = Replica::start(&world.kubeconfig, &SERVES).await;
    replica.ready().await;
    let token = world.token(&node, "ferrule-controller").await;
    let bundle = world.bundle().await;
    let mut agent = Agent::new(token.clone(), &bundle);
    agent.serves = true;
    agent.begins(replica.at).await;
    agent
        .until("the first list", |agent| {
            let has_port = |port| {
                let web = agent.held.services.get(&name("web"));
                web.is_some_and(|web| web.ports[0].port == port)
            };
            has_port(80) && address(agent, "web-1").as_deref() == Some("10.0.0.7")
        })
        .await;
    let change = json!({"endpoints": [{"addresses": ["10.0.0.8"]}]});
    world.patch(&of_web, change).await;
    agent
        .until("a changed endpoint", |agent| address(agent, "web-1").as_deref() == Some("10.0.0.8"))
        .await;
    world.make(service("db", 5432)).await;
    world.delete(&web).await;
    world.delete(&of_web).await;
    agent
        .until("a new Service and a removed one", |agent| {
            let services = &agent.held.services;
            services.contains_key(&name("db"))
                && !services.contains_key(&name("web"))
                && address(agent, "web-1").is_none()
        })
        .await;

    // Another replica compares by digest: the node keeps what it holds.
    let second = Replica::start(&world.kubeconfig, &SERVES).await;
    second.ready().await;
    let held = agent.held.services.clone();
    let mut moved = Agent::new(token.clone(), &bundle);
    moved.serves = true;
    moved.held = agent.held.clone();
    moved.begins(second.at).await;
    world.make(slice("db-1", "db", "10.0.0.9")).await;
    moved.until("the next slice", |agent| address(agent, "db-1").is_some()).await;
    assert_eq!(moved.held.services, held);

    // A node that serves no Services receives none.
    let mut other = Agent::new(token, &bundle);
    other.begins(second.at).await;
    other.until("the node's own object", |agent| agent.held.generation > 0).await;
    assert!(other.held.services.is_empty() && other.held.slices.is_empty());
}

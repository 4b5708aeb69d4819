//! The aggregated API with users' own rights, and the clients that it refuses.

use crate::{
    agent::Agent,
    replica::Replica,
    world::{PATIENCE, SYSTEM, World, manifest, network_policy, pod},
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{Api, Client};
use serde_json::{Value, json};
use tests_cluster::{Identity, client, free_ports};
use tests_eventually::eventually_async;

const HERE: &str = "/apis/view.policy.ferrule.io/v1alpha1";

async fn get(client: &Client, path: &str) -> Result<Value, kube::Error> {
    let request = http::Request::get(format!("{HERE}{path}")).body(Vec::new()).unwrap();
    client.request::<Value>(request).await
}

fn code(outcome: Result<Value, kube::Error>) -> u16 {
    match outcome {
        Err(kube::Error::Api(status)) => status.code,
        other => panic!("{other:?}"),
    }
}

/// A replica with the aggregated API at its own port, registered at the API server.
async fn answering(world: &World) -> (Replica, u16) {
    let [port] = free_ports().unwrap();
    for mut object in manifest("rbac-controller-view") {
        match object["kind"].as_str() {
            Some("Service") => {
                object["spec"] = json!({ "type": "ExternalName", "externalName": "127.0.0.1" });
            }
            Some("APIService") => object["spec"]["service"]["port"] = json!(port),
            _ => {}
        }
        world.make(object).await;
    }
    let at = format!("127.0.0.1:{port}");
    let replica = Replica::start(&world.kubeconfig, &["--view", &at]).await;
    replica.ready().await;
    (replica, port)
}

#[tokio::test(flavor = "multi_thread")]
async fn users_read_the_aggregated_api_with_their_own_rights() {
    let world = World::new().await;
    let agent_pod = world.node("n1").await;
    world.make(pod("default", "web", "n1", "web")).await;
    world.make(network_policy("shut", "web", "nobody")).await;
    let (replica, port) = answering(&world).await;
    let token = world.token(&agent_pod, "ferrule-controller").await;
    let mut agent = Agent::new(token, &world.bundle().await);
    agent.begins(replica.at).await;
    agent.until("the policy", |agent| agent.policies() == ["shut"]).await;
    let policies = eventually_async("the API for people is there", PATIENCE, || async {
        let policies = get(&world.client, "/policies").await.ok()?;
        (policies["items"].as_array()?.len() == 1).then_some(policies)
    })
    .await;
    let policy = &policies["items"][0];
    assert_eq!(policy["policy"], "NetworkPolicy default/shut");
    assert_eq!(policy["span"], json!(["n1"]));
    let group = policy["appliedTo"][0].as_str().unwrap();
    let group = get(&world.client, &format!("/groups/{group}")).await.unwrap();
    assert_eq!(group["members"][0]["name"], "web");
    eventually_async("the node has no pending objects", PATIENCE, || async {
        let agent = get(&world.client, "/agents/n1").await.ok()?;
        let stream = &agent["stream"];
        (stream["follows"] == true && stream["owed"] == 0).then_some(())
    })
    .await;
    let here = replica.at.to_string();
    agent.until("reports are taken", |agent| agent.reports_to == here).await;
    agent.report(true, &[("shut", "no room")]).await.unwrap();
    let reported = get(&world.client, "/agents/n1").await.unwrap();
    assert_eq!(reported["realized"]["failing"][0]["error"], "no room");
    assert_eq!(code(get(&world.client, "/agents/n2").await), 404);
    users_without_rights_are_refused(&world).await;
    other_clients_than_the_api_server_are_refused(&world, port).await;
}

/// The account may write the chart's port only: each replica has it at an address of its own.
///
/// Nodes report to the lease holder, so the Service has that replica as its endpoint, and the next holder after it.
#[tokio::test(flavor = "multi_thread")]
async fn the_aggregated_api_is_served_by_the_lease_holder() {
    let world = World::new().await;
    for object in manifest("rbac-controller-view") {
        world.make(object).await;
    }
    let replica = |view: &'static str, address: &'static str| {
        let kubeconfig = world.kubeconfig.clone();
        async move {
            let args = ["--view", view, "--advertise", address];
            Replica::start(&kubeconfig, &args).await
        }
    };
    let first = replica("127.0.61.1:61692", "192.0.2.7:1").await;
    led_to(&world, "ferrule-controller-view", "192.0.2.7").await;
    let second = replica("127.0.61.2:61692", "192.0.2.8:1").await;
    drop(first);
    led_to(&world, "ferrule-controller-view", "192.0.2.8").await;
    let _third = replica("127.0.61.3:61692", "[2001:db8::9]:1").await;
    drop(second);
    led_to(&world, "ferrule-controller-view-ipv6", "2001:db8::9").await;
}

/// The API server cannot reach an address of the documentation's range.
#[tokio::test(flavor = "multi_thread")]
async fn an_aggregated_api_without_a_way_to_it_is_measured() {
    let world = World::new().await;
    for object in manifest("rbac-controller-view") {
        world.make(object).await;
    }
    let args = ["--view", "127.0.61.4:61692", "--advertise", "192.0.2.7:1"];
    let replica = Replica::start(&world.kubeconfig, &args).await;
    eventually_async("the metric of the alert", PATIENCE, || async {
        (replica.metric("ferrule_controller_view_unavailable", "").await > 0.0).then_some(())
    })
    .await;
}

/// Without the objects of the manifest, the replica names the missing one and the next step, and does not stop.
#[tokio::test(flavor = "multi_thread")]
async fn missing_objects_are_named_with_the_next_step() {
    let world = World::new().await;
    for object in config_crds::view_rbac() {
        world.make(object).await;
    }
    let replica = Replica::start(&world.kubeconfig, &["--view", "127.0.0.1:0"]).await;
    let object = |kind: &str, version: &str, name: &str| {
        json!({
            "apiVersion": version, "kind": kind,
            "metadata": { "name": name, "namespace": SYSTEM },
        })
    };
    replica.ready().await;
    named(&replica, "cannot patch APIService v1alpha1.view.policy.ferrule.io").await;
    world.delete(&object("Lease", "coordination.k8s.io/v1", "ferrule-controller")).await;
    named(&replica, "cannot get Lease ferrule-controller").await;
    world.delete(&object("ConfigMap", "v1", "ferrule-controller-ca")).await;
    let second = Replica::start(&world.kubeconfig, &[]).await;
    named(&second, "cannot get ConfigMap kube-system/ferrule-controller-ca").await;
    world.delete(&object("Secret", "v1", "ferrule-controller-tls")).await;
    let third = Replica::start(&world.kubeconfig, &[]).await;
    named(&third, "cannot get Secret kube-system/ferrule-controller-tls").await;
    // No replica has stopped.
    for object in config_crds::controller_objects() {
        world.make(object).await;
    }
    third.ready().await;
}

async fn named(replica: &Replica, what: &str) {
    eventually_async(what, PATIENCE, || async {
        let has = replica.has_line(|line| {
            let text = |field: &str| line[field].as_str().unwrap_or_default();
            text("cause").starts_with(what)
                && text("cause").contains("does not exist")
                && text("next_step").contains("upgrade the release")
        });
        has.then_some(())
    })
    .await;
}

async fn led_to(world: &World, name: &str, address: &str) {
    let slices: Api<EndpointSlice> = Api::namespaced(world.client.clone(), SYSTEM);
    eventually_async(address, PATIENCE, || async {
        let slice = slices.get_opt(name).await.ok()??;
        let service = slice.metadata.labels?.remove("kubernetes.io/service-name")?;
        let ready = slice.endpoints.iter().flatten().flat_map(|endpoint| &endpoint.addresses);
        (service == "ferrule-controller-view" && ready.eq([address])).then_some(())
    })
    .await;
}

/// The API server refuses the user without a request to the controller.
async fn users_without_rights_are_refused(world: &World) {
    let who = Identity::user("somebody");
    let kubeconfig = world.cluster.kubeconfig_of("somebody", &who).unwrap();
    let somebody = client(&kubeconfig).await.unwrap();
    assert_eq!(code(get(&somebody, "/agents").await), 403);
    world
        .make(json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": { "name": "looks" },
            "rules": [{
                "apiGroups": ["view.policy.ferrule.io"], "resources": ["agents"],
                "verbs": ["get", "list"],
            }],
        }))
        .await;
    world
        .make(json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": { "name": "looks" },
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "looks",
            },
            "subjects": [{
                "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "somebody",
            }],
        }))
        .await;
    let agents = eventually_async("the right is known", PATIENCE, || async {
        get(&somebody, "/agents").await.ok()
    });
    assert_eq!(agents.await["items"][0]["metadata"]["name"], "n1");
    assert_eq!(code(get(&somebody, "/policies").await), 403);
}

/// The replica refuses clients without a certificate, and clients with a user's certificate, the administrator's too.
async fn other_clients_than_the_api_server_are_refused(world: &World, port: u16) {
    let config = std::fs::read(world.cluster.kubeconfig()).unwrap();
    let admin: Value = serde_json::from_slice(&config).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for user in [admin["users"][0]["user"].clone(), json!({})] {
        let mut config = admin.clone();
        let server = format!("https://127.0.0.1:{port}");
        config["clusters"][0]["cluster"] =
            json!({ "server": server, "insecure-skip-tls-verify": true });
        config["users"][0]["user"] = user;
        let path = folder.path().join("config");
        std::fs::write(&path, config.to_string()).unwrap();
        let direct = client(&path).await.unwrap();
        let refused = get(&direct, "/agents").await.unwrap_err();
        assert!(matches!(refused, kube::Error::Service(_)), "{refused:?}");
    }
}

//! The file of the controller's replicas, from the EndpointSlices of a real API server.

use crate::world::{Adapter, PATIENCE, World};
use ipamd_kube::{Concern, Replicas};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use std::{env, fs, path::Path};
use tests_eventually::eventually_async;

fn slice(name: &str, service: &str, addresses: &[(&str, bool)]) -> Value {
    let endpoint = |(address, ready): &(&str, bool)| {
        json!({
            "addresses": [address],
            "conditions": { "ready": ready, "serving": true, "terminating": false },
        })
    };
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": { "name": name, "labels": { "kubernetes.io/service-name": service } },
        "ports": [{ "name": "metrics", "port": 1 }, { "name": "policy", "port": 61_690 }],
        "endpoints": addresses.iter().map(endpoint).collect::<Vec<_>>(),
    })
}

async fn put(api: &Api<EndpointSlice>, slice: Value) {
    let name = slice["metadata"]["name"].as_str().unwrap().to_owned();
    let params = PatchParams::apply("test").force();
    api.patch(&name, &params, &Patch::Apply(slice)).await.unwrap();
}

async fn has(file: &Path, text: &str) {
    eventually_async(&format!("the file has {text:?}"), PATIENCE, || async {
        let found = fs::read_to_string(file).ok()?;
        (found == text).then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_file_has_the_ready_replicas_and_outlives_an_outage() {
    let world = World::new("replicas").await;
    let api: Api<EndpointSlice> = Api::namespaced(world.client.clone(), "kube-system");
    let folder = env::temp_dir().join(format!("ferrule-replicas-{}", std::process::id()));
    let file = folder.join("controller/replicas");
    let between = world.forwarder(true).await;
    let mut options = world.options();
    options.endpoint = Some(between.url());
    let service = ("kube-system".to_owned(), "policy-replicas".to_owned());
    options.replicas = Some(Replicas { service, file: file.clone() });
    let adapter = Adapter::start(options);
    // No replica is an answer too.
    has(&file, "").await;
    put(&api, slice("one", "policy-replicas", &[("10.0.0.2", true), ("10.0.0.1", true)])).await;
    put(&api, slice("others", "other", &[("10.0.0.9", true)])).await;
    has(&file, "10.0.0.1:61690\n10.0.0.2:61690\n").await;
    put(&api, slice("one", "policy-replicas", &[("10.0.0.2", true), ("10.0.0.1", false)])).await;
    has(&file, "10.0.0.2:61690\n").await;
    put(&api, slice("two", "policy-replicas", &[("10.0.0.3", true)])).await;
    api.delete("one", &DeleteParams::default()).await.unwrap();
    has(&file, "10.0.0.3:61690\n").await;

    between.shut();
    adapter.is_failing(Concern::Replicas).await;
    assert_eq!(fs::read_to_string(&file).unwrap(), "10.0.0.3:61690\n");
    put(&api, slice("two", "policy-replicas", &[("10.0.0.4", true)])).await;
    between.open();
    has(&file, "10.0.0.4:61690\n").await;

    // A folder that cannot be written is reported with the next step, and retried.
    fs::remove_dir_all(&folder).unwrap();
    fs::write(&folder, "").unwrap();
    put(&api, slice("two", "policy-replicas", &[("10.0.0.5", true)])).await;
    adapter.is_failing(Concern::Replicas).await;
    fs::remove_file(&folder).unwrap();
    has(&file, "10.0.0.5:61690\n").await;
    fs::remove_dir_all(&folder).unwrap();
}

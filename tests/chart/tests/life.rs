//! The life of a release at a real API server: install, upgrade, rollback, uninstall.

#![expect(clippy::unwrap_used, reason = "a failing test panics with its line")]

use k8s_openapi::{
    api::core::v1::{ConfigMap, Secret},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams},
};
use lab_kubernetes::{Cluster, ClusterSpec};
use serde_json::{Value, json};
use tests_chart::Chart;

#[tokio::test]
async fn objects_of_the_controller_survive_an_upgrade_and_definitions_survive_the_uninstall() {
    let chart = Chart::of_this_clone().unwrap();
    let cluster = Cluster::start(&ClusterSpec::default()).unwrap();
    let client = cluster.client().await.unwrap();
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "kube-system");
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-system");
    let helm = |verb: &str, words: &[&str], values: Option<&Value>| {
        chart.command(cluster.kubeconfig(), verb, words, values).unwrap()
    };
    let values = json!({
        "enableNetworkPolicy": true, "policy": { "backend": "none" },
        "nodeAgent": { "healthProbeBindAddr": ":1" }, "env": { "ENABLE_NFTABLES": "true" },
    });
    let notes = helm("install", &[], Some(&values));
    for note in [
        "network policies are NOT enforced",
        "nodeAgent.healthProbeBindAddr has no effect",
        "env.ENABLE_NFTABLES has no effect",
    ] {
        assert!(notes.contains(note), "{note:?} is not in\n{notes}");
    }
    let write = json!({ "data": { "ca.crt": "-----BEGIN" } });
    let params = PatchParams::default();
    maps.patch("ferrule-controller-ca", &params, &Patch::Merge(&write)).await.unwrap();
    let write = json!({ "data": { "kept.json": "e30=" } });
    secrets.patch("ferrule-controller-tls", &params, &Patch::Merge(&write)).await.unwrap();

    let mut other = values.clone();
    other["controller"] = json!({ "replicas": 3 });
    helm("upgrade", &[], Some(&other));
    helm("rollback", &["1"], None);
    assert!(maps.get("ferrule-controller-ca").await.unwrap().data.unwrap().contains_key("ca.crt"));
    let secret = secrets.get("ferrule-controller-tls").await.unwrap();
    assert!(secret.data.unwrap().contains_key("kept.json"));

    helm("uninstall", &[], None);
    assert!(secrets.get_opt("ferrule-controller-tls").await.unwrap().is_none());
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let there = definitions.list(&kube::api::ListParams::default()).await.unwrap();
    let mut names: Vec<String> = there.iter().map(kube::ResourceExt::name_any).collect();
    names.sort();
    assert_eq!(
        names,
        ["eniconfigs.crd.k8s.amazonaws.com", "networkpolicyrealizations.policy.ferrule.io"]
    );
    // An APIService without a backend would block the deletion of namespaces.
    let path = "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.view.policy.ferrule.io";
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    assert!(client.request::<Value>(request).await.is_err());
    // A second installation with the definitions of the first one.
    helm("install", &[], Some(&values));
    assert!(!secrets.get("ferrule-controller-tls").await.unwrap().name_any().is_empty());
}

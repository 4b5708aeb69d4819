//! The life of a release at a real API server: install, upgrade, rollback, uninstall.

#![expect(clippy::unwrap_used, reason = "a failing test panics with its line")]

use base64::{Engine as _, prelude::BASE64_STANDARD};
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
use tests_chart::{Chart, requests::ask};

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
        "controller": { "view": true },
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

    let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/ferrule-controller";
    let slice =
        "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices/ferrule-controller-view";
    let api = "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.view.policy.ferrule.io";
    let ca = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap().cert.pem();
    let filled = [
        (lease, "/spec/holderIdentity", json!({ "spec": { "holderIdentity": "a" } })),
        (
            lease,
            "/metadata/annotations/ferrule.io~1reports-to",
            json!({ "metadata": { "annotations": { "ferrule.io/reports-to": "10.0.0.7:1" } } }),
        ),
        (
            slice,
            "/endpoints/0/addresses/0",
            json!({ "endpoints": [{ "addresses": ["10.0.0.7"] }] }),
        ),
        (
            slice,
            "/ports/0/port",
            json!({ "ports": [{ "name": "https", "port": 61692, "protocol": "TCP" }] }),
        ),
        (api, "/spec/caBundle", json!({ "spec": { "caBundle": BASE64_STANDARD.encode(ca) } })),
    ];
    for (path, _, change) in &filled {
        ask(&client, "PATCH", path, change).await.unwrap();
    }

    let mut other = values.clone();
    other["controller"]["replicas"] = json!(3);
    // Server-side apply is the default of Helm 4. Helm 3 merges three states.
    for words in [&[][..], &["--server-side=false"]] {
        helm("upgrade", words, Some(&other));
        other["controller"]["replicas"] = json!(4);
    }
    helm("rollback", &["1"], None);
    for (path, at, change) in &filled {
        let object = ask(&client, "GET", path, &json!({})).await.unwrap();
        assert_eq!(object.pointer(at), change.pointer(at), "{path}");
        assert!(object.pointer(at).is_some(), "{path} {at}");
    }
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

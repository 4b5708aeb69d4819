//! The harness: it starts a real Kubernetes and removes all of it.

#![expect(clippy::unwrap_used, reason = "a failed step ends the test at its line")]

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{Api, api::PostParams};
use std::{collections::BTreeMap, fs};
use tests_cluster::{Cluster, ClusterSpec, Identity, VERSION};

fn config_map(name: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map.data = Some(BTreeMap::from([("key".to_owned(), "value".to_owned())]));
    map
}

/// The command lines of this machine's processes.
fn processes() -> Vec<String> {
    let command = |entry: std::io::Result<fs::DirEntry>| {
        let line = fs::read(entry.ok()?.path().join("cmdline")).ok()?;
        Some(String::from_utf8_lossy(&line).replace('\0', " "))
    };
    fs::read_dir("/proc").unwrap().filter_map(command).collect()
}

#[tokio::test]
async fn a_cluster_keeps_its_objects_over_a_restart_and_leaves_nothing() {
    let mut cluster = Cluster::start(&ClusterSpec::default()).unwrap();
    let folder = cluster.kubeconfig().parent().unwrap().parent().unwrap().to_owned();
    let runs = || processes().iter().any(|line| line.contains(folder.to_str().unwrap()));
    assert!(runs());
    let client = cluster.client().await.unwrap();
    assert_eq!(client.apiserver_version().await.unwrap().git_version, VERSION);
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    maps.create(&PostParams::default(), &config_map("kept")).await.unwrap();

    cluster.stop_api_server();
    assert!(maps.get("kept").await.is_err());
    cluster.start_api_server().unwrap();
    let kept = maps.get("kept").await.unwrap();
    assert_eq!(kept.data.unwrap()["key"], "value");

    drop(cluster);
    assert!(!runs(), "a process of {} still runs", folder.display());
    assert!(!folder.exists());
}

#[tokio::test]
async fn a_user_has_only_the_rights_of_rbac() {
    let cluster = Cluster::start(&ClusterSpec::default()).unwrap();
    let admin: Api<Namespace> = Api::all(cluster.client().await.unwrap());
    admin.get("default").await.unwrap();
    let path = cluster.kubeconfig_of("nobody", &Identity::user("nobody")).unwrap();
    let nobody: Api<Namespace> = Api::all(tests_cluster::client(&path).await.unwrap());
    let refusal = nobody.get("default").await.unwrap_err();
    assert!(matches!(&refusal, kube::Error::Api(status) if status.code == 403), "{refusal}");
}

//! The flags of `ferrule check` that choose its nodes and its host port. No probe starts, so each chosen node fails.

use super::{ferrule, text};
use k8s_openapi::api::{apps::v1::DaemonSet, core::v1::Namespace};
use kube::{Api, Client, api::ListParams};
use std::path::Path;

const HOST_PORT: &str = "--host-port=7801";
const NODES: [&str; 2] = ["n1", "n2"];

pub(super) async fn all(client: &Client, admin: &Path) {
    nodes_are_those_of_the_flags(admin);
    invalid_flags_name_their_values(admin);
    only_targets_have_the_host_port(client, admin).await;
}

/// Returns the nodes with a row, and the output.
fn check(admin: &Path, words: &[&str]) -> (Vec<&'static str>, String) {
    let output = ferrule("check", admin, &[words, &["--wait", "1"]].concat());
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{words:?}: {printed}{}", text(&output.stderr));
    let has_row = |node: &&str| printed.contains(&format!("FAIL  {node}: its probe: "));
    (NODES.into_iter().filter(has_row).collect(), printed)
}

/// The nodes n1 and n2 can have probes.
fn nodes_are_those_of_the_flags(admin: &Path) {
    for words in [
        // A single node has another one to connect to.
        &["--node", "n1"][..],
        &["--sample", "all"],
        &["--sample", "2"],
        &["--node", "n2", "--sample", "all"],
        // More named nodes than the sample are all chosen.
        &["--node", "n1", "--node", "n2", "--sample", "1"],
    ] {
        let (nodes, printed) = check(admin, words);
        assert_eq!(nodes, NODES, "{words:?}: {printed}");
        assert!(!printed.contains("tested "), "{words:?}: all nodes were tested: {printed}");
    }
    for (words, node) in [
        (&["--sample", "1"][..], None),
        (&["--sample", "1", "--node", "n1"], Some("n1")),
        (&["--sample", "1", "--node", "n2"], Some("n2")),
    ] {
        let (nodes, printed) = check(admin, words);
        assert_eq!(nodes.len(), 1, "{words:?}: {printed}");
        assert!(node.is_none_or(|node| nodes == [node]), "{words:?}: {printed}");
        let chosen = "tested 1 of 2 nodes; choose others with --node or --sample";
        assert!(printed.starts_with(chosen), "{words:?}: {printed}");
    }
}

fn invalid_flags_name_their_values(admin: &Path) {
    for (words, why) in [
        (["--node", "no-such-node"], "cannot find node no-such-node"),
        (["--sample", "0"], "neither a number from 1 on nor all"),
        (["--sample", "some"], "neither a number from 1 on nor all"),
        (["--host-port", "0"], "--host-port"),
        (["--host-port", "70000"], "--host-port"),
        (["--host-network", "0"], "--host-network"),
    ] {
        let output = ferrule("check", admin, &words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", text(&output.stdout));
        let printed = text(&output.stderr);
        assert!(printed.contains(why) && printed.contains(words[1]), "{words:?}: {printed}");
    }
}

/// No controller deletes the contents of namespaces, so the objects of earlier checks are left.
async fn only_targets_have_the_host_port(client: &Client, admin: &Path) {
    let (nodes, printed) = check(admin, &[HOST_PORT]);
    assert_eq!(nodes, NODES, "{printed}");
    let sets: Api<DaemonSet> = Api::all(client.clone());
    let sets = sets.list(&ListParams::default()).await.unwrap().items;
    let has_port = |set: &&DaemonSet| {
        let pod = set.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
        let containers = pod.into_iter().flat_map(|pod| &pod.containers);
        let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
        ports.any(|port| port.host_port.is_some())
    };
    let with_port: Vec<&DaemonSet> = sets.iter().filter(has_port).collect();
    let [target] = with_port.as_slice() else { panic!("sets with a host port: {with_port:?}") };
    assert_eq!(target.metadata.name.as_deref(), Some("target"));
    assert!(serde_json::to_string(target).unwrap().contains("\"hostPort\":7801"), "{target:?}");
    // A host port does not meet the restricted pod security standard.
    let home = target.metadata.namespace.as_deref().unwrap();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    for namespace in namespaces.list(&ListParams::default()).await.unwrap().items {
        let name = namespace.metadata.name.as_deref().unwrap();
        if name.starts_with("ferrule-check-") {
            let labels = namespace.metadata.labels.as_ref().unwrap();
            let level = labels["pod-security.kubernetes.io/enforce"].as_str();
            assert_eq!(level, if name == home { "privileged" } else { "restricted" }, "{name}");
        }
    }
}

//! Network policy from the chart: two controller replicas and an agent on each node receive a policy. All report that
//! this version does not enforce it.

#![expect(clippy::unwrap_used, reason = "a test panics")]

use serde_json::{Value, json};
use std::{collections::BTreeSet, time::Duration};
use tests_lab::wait_for;
use tests_whole::{CONTROLLERS, Installed, LaneInputs, POLICY};

const PATIENCE: Duration = Duration::from_secs(120);

/// Returns the nodes whose agents have reported, with the number of policies of each, from `ferrule policy status`.
fn reported(cluster: &Installed) -> Vec<(String, u64)> {
    let printed = cluster.ferrule(&["policy", "status", "-o", "json"]).unwrap();
    let printed: Value = serde_json::from_slice(&printed.stdout).unwrap_or_default();
    let agents = printed["agents"].as_array().cloned().unwrap_or_default();
    let held = agents.into_iter().filter_map(|agent| {
        let name = agent["metadata"]["name"].as_str()?.to_owned();
        Some((name, agent["realized"]["policies"].as_u64()?))
    });
    held.collect()
}

/// Waits until both nodes follow a replica and have this number of policies.
fn wait_for_agents(cluster: &Installed, policies: u64) {
    let wanted = NODES.map(|node| (node.to_owned(), policies));
    wait_for(&format!("two agents with {policies} policies"), PATIENCE, || {
        let follow = NODES.iter().all(|node| {
            let page = cluster.lab().get(node, AGENT_METRICS, "/metrics").unwrap_or_default();
            page.contains("\nferrule_agent_following 1\n")
        });
        Ok(follow && reported(cluster) == wanted)
    })
    .unwrap();
}

#[test]
fn a_policy_reaches_every_node_through_two_replicas_and_its_status_is_written() {
    let test = "a_policy_reaches_every_node_through_two_replicas_and_its_status_is_written";
    let Some(inputs) = LaneInputs::or_skip(test) else { return };
    let cluster = Installed::bare(inputs, "policy", 2).unwrap();
    cluster.install(POLICY).unwrap();
    let replicas = cluster.pods("kube-system", CONTROLLERS).unwrap();
    let nodes: BTreeSet<&str> = replicas.iter().map(|pod| pod.node.as_str()).collect();
    assert_eq!((replicas.len(), nodes.len()), (2, 2), "{replicas:?}");
    wait_for_agents(&cluster, 0);
    let status = cluster.ferrule(&["status"]).unwrap();
    assert!(status.status.success(), "{status:?}");
    let table = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(table.contains("AGENT") && table.contains("it has no backend"), "{table}");
    let status = cluster.ferrule(&["status", "-o", "json"]).unwrap();
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    let agents = NODES.map(|name| {
        let mut lines = status["nodes"].as_array().unwrap().iter();
        lines.find(|line| line["node"] == name).unwrap()["agent"]["state"].clone()
    });
    assert_eq!(agents, ["good", "good"], "{status}");

    let pods = cluster.probes("web").unwrap();
    cluster
        .cluster()
        .apply(&[json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": { "name": "closed", "namespace": "default" },
            "spec": { "podSelector": { "matchLabels": { "app": "web" } }, "policyTypes": ["Ingress"] },
        })])
        .unwrap();
    wait_for_agents(&cluster, 1);
    let pod = format!("default/{}", pods[0].name);
    let report = cluster.ferrule(&["pod", &pod]).unwrap();
    let report = String::from_utf8_lossy(&report.stdout).into_owned();
    assert!(report.contains("policy ") && report.contains("default/closed"), "{report}");
    // The policy's status in the Kubernetes API.
    let realization = ["-n", "default", "get", "networkpolicyrealizations", "closed"];
    wait_for("the policy's status", PATIENCE, || {
        let Ok(state) = cluster.cluster().json(&realization) else { return Ok(false) };
        let state = &state["status"];
        Ok(state["desiredNodesRealized"] == 2
            && state["currentNodesRealized"] == 0
            && state["message"].as_str().is_some_and(|why| why.contains("no backend")))
    })
    .unwrap();

    // Agents of the deleted replica follow the other one, and pods start during that.
    let [gone, _] = &replicas[..] else { panic!("{replicas:?}") };
    cluster.kubectl(&["-n", "kube-system", "delete", "pod", &gone.name, "--wait=false"]).unwrap();
    cluster.kubectl(&["-n", "default", "rollout", "restart", "daemonset/web"]).unwrap();
    cluster
        .kubectl(&["-n", "default", "rollout", "status", "daemonset/web", "--timeout=180s"])
        .unwrap();
    cluster.controllers_ready().unwrap();
    wait_for_agents(&cluster, 1);

    cluster.kubectl(&["-n", "default", "delete", "networkpolicy", "closed"]).unwrap();
    wait_for_agents(&cluster, 0);
}

const NODES: [&str; 2] = ["node1", "node2"];
const AGENT_METRICS: u16 = 8162;

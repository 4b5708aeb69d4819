//! Memory, scheduling and ports of the rendered pods.

#![expect(clippy::unwrap_used, reason = "a failing test panics with its line")]

use serde_json::{Value, json};
use std::{fs, path::Path};
use tests_chart::Chart;

fn pod(kind: &str, values: &Value) -> Value {
    let rendered = Chart::of_this_clone().unwrap().render(values).unwrap();
    rendered.of_kind(kind).next().unwrap()["spec"]["template"]["spec"].clone()
}

fn controller() -> Value {
    pod("Deployment", &json!({ "enableNetworkPolicy": true }))
}

/// Returns the figures of `cargo xtask bench` with this suffix and a target, as name, value and target.
fn figures(bench: &str, suffix: &str) -> Vec<(String, f64, f64)> {
    let benchmarks = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/benchmarks");
    let text = fs::read_to_string(benchmarks.join(format!("{bench}.json"))).unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    let all = document["figures"].as_array().unwrap().iter();
    let found = all.filter(|figure| {
        figure["name"].as_str().unwrap().ends_with(suffix) && figure["target"].is_f64()
    });
    let of = |figure: &Value, key: &str| figure[key].as_f64().unwrap();
    found
        .map(|figure| {
            let name = figure["name"].as_str().unwrap().to_owned();
            (name, of(figure, "value"), of(figure, "target"))
        })
        .collect()
}

fn mebibytes(amount: &Value) -> f64 {
    amount.as_str().unwrap().strip_suffix("Mi").unwrap().parse().unwrap()
}

/// The measured memory, and the targets that the benchmarks hold, each fit twice into the limit.
#[test]
fn the_memory_limit_of_the_controller_has_room_for_5000_agents_twice() {
    let limit = mebibytes(&controller()["containers"][0]["resources"]["limits"]["memory"]);
    let agents = figures("stream", "agents_5000_memory_an_agent");
    let [(_, measured, target)] = &agents[..] else { panic!("{agents:?}") };
    let policies = figures("policy", "_peak");
    assert!(policies.len() > 3, "{policies:?}");
    let largest = |of: fn(&(String, f64, f64)) -> f64| policies.iter().map(of).fold(0.0, f64::max);
    let needed = |kibibytes: f64, megabytes: f64| {
        5000.0 * kibibytes / 1024.0 + megabytes * 1e6 / f64::from(1 << 20)
    };
    for (what, one) in [
        ("measured", needed(*measured, largest(|(_, value, _)| *value))),
        ("targets", needed(*target, largest(|(_, _, target)| *target))),
    ] {
        assert!(
            limit >= 2.0 * one,
            "{what}: the limit is {limit} MiB, twice the need {} MiB",
            2.0 * one
        );
    }
}

#[test]
fn every_container_requests_memory_and_an_operator_sets_each_amount() {
    let set = json!({
        "requests": { "memory": "99Mi", "ephemeral-storage": "10Mi" },
        "limits": { "memory": "999Mi", "ephemeral-storage": "1Gi" },
    });
    let given = json!({
        "enableNetworkPolicy": true, "init": { "resources": set }, "resources": set,
        "nodeAgent": { "resources": set }, "controller": { "resources": set },
    });
    for values in [json!({ "enableNetworkPolicy": true }), given.clone()] {
        for kind in ["DaemonSet", "Deployment"] {
            let pod = pod(kind, &values);
            let lists = ["initContainers", "containers"];
            for one in lists.iter().flat_map(|list| pod[list].as_array().into_iter().flatten()) {
                let (name, resources) = (&one["name"], &one["resources"]);
                assert!(resources["requests"]["memory"].is_string(), "{kind} {name}");
                if values == given {
                    assert_eq!(resources["limits"], set["limits"], "{kind} {name}");
                    assert_eq!(resources["requests"]["ephemeral-storage"], "10Mi", "{kind} {name}");
                }
            }
        }
    }
}

/// Kubernetes adds these two taints with the effect NoExecute to a failed node.
#[test]
fn a_replica_leaves_a_failed_node() {
    let pod = controller();
    let tolerations = pod["tolerations"].as_array().unwrap();
    for taint in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let mut of_taint = tolerations.iter().filter(|one| one["key"] == taint);
        assert!(of_taint.clone().any(|one| one["effect"] == "NoExecute"), "{taint}: bounded");
        let bounded =
            |one: &Value| one["tolerationSeconds"].is_u64() || one["effect"] == "NoSchedule";
        assert!(of_taint.all(bounded), "{taint}: {tolerations:?}");
    }
    assert!(tolerations.iter().all(|one| one["key"].is_string()), "not every taint");
}

#[test]
fn replicas_prefer_different_nodes_and_share_the_only_one() {
    let affinity = &controller()["affinity"];
    let apart = &affinity["podAntiAffinity"];
    assert_eq!(apart["requiredDuringSchedulingIgnoredDuringExecution"], Value::Null);
    let term = &apart["preferredDuringSchedulingIgnoredDuringExecution"][0]["podAffinityTerm"];
    assert_eq!(term["topologyKey"], "kubernetes.io/hostname");
    let daemon = pod("DaemonSet", &json!({}));
    let excluded = |affinity: &Value| {
        let terms = &affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        let expressions = terms["nodeSelectorTerms"][0]["matchExpressions"].as_array().unwrap();
        let key = "eks.amazonaws.com/compute-type";
        expressions.iter().find(|one| one["key"] == key).unwrap()["values"].clone()
    };
    assert_eq!(excluded(affinity), excluded(&daemon["affinity"]), "Fargate, hybrid and Auto Mode");
}

#[test]
fn notes_of_several_replicas_with_the_ports_of_nodes_name_the_value() {
    let notes = |controller: Value| {
        let values = json!({ "enableNetworkPolicy": true, "controller": controller });
        Chart::of_this_clone().unwrap().notes(&values).unwrap().contains("set controller.replicas")
    };
    assert!(notes(json!({})));
    assert!(!notes(json!({ "replicas": 1 })));
    assert!(!notes(json!({ "hostNetwork": false })));
}

/// Without the cluster's name the daemon deletes no leaked ENI of another node.
#[test]
fn notes_without_the_name_of_the_cluster_name_the_setting() {
    let notes = |values: Value| {
        Chart::of_this_clone().unwrap().notes(&values).unwrap().contains("env.CLUSTER_NAME is not")
    };
    assert!(notes(json!({})));
    assert!(!notes(json!({ "env": { "CLUSTER_NAME": "blue" } })));
    assert!(!notes(json!({ "init": { "env": { "CLUSTER_NAME": "blue" } } })));
}

/// The port keeps amazon-vpc-cni and Ferrule off the same node.
#[test]
fn the_daemon_keeps_its_port_without_metrics() {
    for disabled in ["false", "true"] {
        let values = json!({ "env": { "DISABLE_METRICS": disabled } });
        let pod = pod("DaemonSet", &values);
        let ipamd = &pod["containers"][0];
        assert_eq!((&pod["hostNetwork"], &ipamd["name"]), (&json!(true), &json!("ipamd")));
        assert_eq!(ipamd["ports"][0]["containerPort"], 61678, "DISABLE_METRICS={disabled}");
    }
}

/// Operators read the security groups' rules in that table.
#[test]
fn every_port_of_the_pods_is_in_the_table_of_the_installation_page() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/eks.md");
    let page = fs::read_to_string(page).unwrap();
    let mut ports = 0;
    for kind in ["DaemonSet", "Deployment"] {
        let values = json!({ "enableNetworkPolicy": true, "controller": { "view": true } });
        let pod = pod(kind, &values);
        let containers = pod["containers"].as_array().unwrap();
        for port in containers.iter().flat_map(|one| one["ports"].as_array().into_iter().flatten())
        {
            let number = &port["containerPort"];
            let row = |line: &str| line.starts_with(&format!("| {number} "));
            assert!(page.lines().any(row), "{kind}: {port}");
            ports += 1;
        }
    }
    assert_eq!(ports, 5);
}

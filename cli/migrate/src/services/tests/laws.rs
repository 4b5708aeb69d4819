//! The replacement and the way back converge, rest, resume and spare. At each moment a proxy serves each node.

use super::{
    cluster::{Cluster, FakeNode, replace, request},
    manifests::{set, strict_set},
};
use crate::services::{Goal, LABEL, Request, Step, Wait, manifest};
use proptest::prelude::*;
use serde_json::Value;
use std::collections::BTreeSet;

/// Applies at most `most` steps.
fn go(cluster: &mut Cluster, request: &Request, most: usize) -> Vec<String> {
    let mut taken = Vec::new();
    for _ in 0..most.min(LIMIT) {
        let plan = cluster.plan(request);
        assert!(!plan.is_blocked(), "{:?} after {taken:?}", plan.findings);
        let Some(step) = plan.steps.first() else { return taken };
        cluster.take(step);
        for (name, node) in &cluster.nodes {
            let by_kube_proxy = node.is_proxy_ready && node.has_rules;
            let is_served = by_kube_proxy || node.in_force;
            assert!(is_served, "no proxy serves {name} after {step}: {taken:?}");
            let lost = node.has_flows && !node.has_rules;
            assert!(!lost, "the rules of {name} are gone while a connection uses them: {step}");
        }
        taken.push(step.to_string());
    }
    assert!(most < LIMIT, "no end: {taken:?}");
    taken
}

/// An operator sets FERRULE_SERVICES=ebpf in the chart.
fn set_on(cluster: &mut Cluster) {
    cluster.serves = true;
}

fn at(taken: &[String], words: &str) -> usize {
    let found = taken.iter().position(|step| step.contains(words));
    found.unwrap_or_else(|| panic!("no {words:?} in {taken:#?}"))
}

#[test]
fn kube_proxy_leaves_one_node_after_the_other_and_its_daemonset_last() {
    let mut cluster = Cluster::with_kube_proxy(&set(), 2);
    set_on(&mut cluster);
    let to_ferrule = request(Goal::Ferrule, true);
    let taken = go(&mut cluster, &to_ferrule, LIMIT);
    let order = [
        "save the manifest",
        "patch kube-proxy",
        "create the DaemonSet that removes",
        "delete pod ferrule-node0",
        "Ferrule's pod exists on 1 more node",
        "all Services are in force on node0",
        "label node0",
        "delete pod ferrule-node1",
        "all Services are in force on node1",
        "label node1",
        "delete kube-proxy's DaemonSet",
        "delete the DaemonSet that removes",
    ];
    for (one, other) in order.iter().zip(order.iter().skip(1)) {
        assert!(at(&taken, one) < at(&taken, other), "{one} before {other}: {taken:#?}");
    }
    assert_eq!(cluster.kube_proxy, None);
    assert!(!cluster.has_cleaner);
    assert!(cluster.nodes.values().all(|node| node.in_force && !node.has_rules));
    assert_eq!(cluster.plan(&to_ferrule).steps, [], "it rests");
}

#[test]
fn without_the_flag_the_daemonset_stays_without_pods() {
    let mut cluster = Cluster::with_kube_proxy(&set(), 3);
    set_on(&mut cluster);
    let to_ferrule = request(Goal::Ferrule, false);
    go(&mut cluster, &to_ferrule, LIMIT);
    assert!(cluster.kube_proxy.is_some() && cluster.has_cleaner);
    let is_switched = |node: &FakeNode| node.in_force && node.has_reached && !node.has_kube_proxy;
    assert!(cluster.nodes.values().all(is_switched));
    assert_eq!(cluster.plan(&to_ferrule).steps, [], "it rests");
}

#[test]
fn the_rules_of_a_node_stay_while_a_connection_uses_them() {
    let mut cluster = Cluster::with_kube_proxy(&set(), 2);
    set_on(&mut cluster);
    cluster.nodes.get_mut("node1").unwrap().has_flows = true;
    let to_ferrule = request(Goal::Ferrule, true);
    let mut last = None;
    for _ in 0..LIMIT {
        last = cluster.plan(&to_ferrule).steps.into_iter().next();
        let Some(step) = &last else { break };
        if step.to_string().contains("no flow of node1 needs the rules") {
            break;
        }
        cluster.take(step);
    }
    let last = last.unwrap();
    assert!(last.to_string().contains("no flow of node1 needs the rules"), "{last}");
    let node = &cluster.nodes["node1"];
    assert!(node.has_rules && node.in_force && !cluster.nodes["node0"].has_rules);
    assert_eq!(cluster.plan(&to_ferrule).steps.first(), Some(&last), "it waits");
    go(&mut cluster, &to_ferrule, LIMIT);
    assert!(!cluster.nodes["node1"].has_rules);
}

#[test]
fn the_way_back_starts_kube_proxy_first_and_restores_all_objects() {
    for original in [set(), strict_set()] {
        for remove in [false, true] {
            let mut cluster = Cluster::with_kube_proxy(&original, 2);
            let before = manifest::saved(cluster.kube_proxy.as_ref().unwrap());
            let labels: Vec<_> = cluster.nodes.values().map(|node| node.labels.clone()).collect();
            set_on(&mut cluster);
            go(&mut cluster, &request(Goal::Ferrule, remove), LIMIT);
            let back = request(Goal::KubeProxy, false);
            let taken = go(&mut cluster, &back, LIMIT);
            assert!(
                at(&taken, "remove the label of node1") < at(&taken, "FERRULE_SERVICES is none")
            );
            assert!(
                at(&taken, "FERRULE_SERVICES is none") < at(&taken, "delete pod ferrule-node0")
            );
            let after = cluster.kube_proxy.as_ref().map(manifest::saved);
            assert_eq!(after, Some(before.clone()));
            assert_eq!((cluster.saved.as_ref(), cluster.has_cleaner), (None, false));
            let left: Vec<_> = cluster.nodes.values().map(|node| node.labels.clone()).collect();
            assert_eq!(left, labels);
            assert_eq!(cluster.plan(&back).steps, [], "it rests");
            // Once more in the other direction.
            set_on(&mut cluster);
            go(&mut cluster, &request(Goal::Ferrule, true), LIMIT);
        }
    }
}

#[test]
fn a_named_node_is_switched_alone_and_returns_alone() {
    let mut cluster = Cluster::with_kube_proxy(&set(), 3);
    set_on(&mut cluster);
    let nodes = BTreeSet::from(["node1".to_owned()]);
    let one = |goal| Request { goal, remove: false, nodes: nodes.clone() };
    go(&mut cluster, &one(Goal::Ferrule), LIMIT);
    let switched = |cluster: &Cluster| -> Vec<bool> {
        cluster.nodes.values().map(|node| node.labels.contains_key(LABEL)).collect()
    };
    assert_eq!(switched(&cluster), [false, true, false]);
    assert_eq!(cluster.nodes["node0"].pods, 0);
    go(&mut cluster, &one(Goal::KubeProxy), LIMIT);
    assert_eq!(switched(&cluster), [false, false, false]);
    assert!(!cluster.nodes["node1"].serves && cluster.has_cleaner);
    assert_eq!(cluster.plan(&one(Goal::KubeProxy)).steps, [], "it rests");
}

#[test]
fn the_way_back_of_one_node_leaves_no_other_node_to_its_next_pod() {
    let mut cluster = Cluster::with_kube_proxy(&set(), 3);
    set_on(&mut cluster);
    go(&mut cluster, &request(Goal::Ferrule, false), LIMIT);
    let nodes = BTreeSet::from(["node1".to_owned()]);
    let back = Request { goal: Goal::KubeProxy, remove: false, nodes };
    let taken = go(&mut cluster, &back, LIMIT);
    for node in cluster.nodes.keys() {
        let ready = at(&taken, &format!("kube-proxy is ready on {node}"));
        assert!(ready < at(&taken, "FERRULE_SERVICES is none"), "{node}: {taken:#?}");
    }
    assert_eq!(cluster.plan(&back).steps, [], "it rests");
    let serving: Vec<bool> = cluster.nodes.values().map(|node| node.serves).collect();
    assert_eq!(serving, [true, false, true], "only the named node's pod is replaced");
    // The pods of the other nodes are recreated with the setting of the DaemonSet.
    for node in cluster.nodes.values_mut() {
        replace(node, cluster.serves);
        assert!(node.is_proxy_ready && node.has_rules);
    }
    // The setting is off already: the way back of one node is that of all.
    let mut cluster = Cluster::with_kube_proxy(&set(), 2);
    set_on(&mut cluster);
    go(&mut cluster, &request(Goal::Ferrule, false), LIMIT);
    cluster.serves = false;
    let node = cluster.nodes.get_mut("node1").unwrap();
    (node.serves, node.in_force) = (false, false);
    let steps = cluster.plan(&back).steps;
    assert!(steps.contains(&Step::Return { node: "node0".to_owned() }), "{steps:#?}");
}

#[test]
fn a_change_that_another_client_has_undone_in_part_is_undone_completely() {
    for field in ["strategy", "condition"] {
        let mut cluster = Cluster::with_kube_proxy(&set(), 1);
        let before = manifest::saved(cluster.kube_proxy.as_ref().unwrap());
        set_on(&mut cluster);
        go(&mut cluster, &request(Goal::Ferrule, false), LIMIT);
        let spec = &mut cluster.kube_proxy.as_mut().unwrap()["spec"];
        match field {
            "strategy" => spec["updateStrategy"] = before["spec"]["updateStrategy"].clone(),
            _ => drop(spec["template"]["spec"].as_object_mut().unwrap().remove("affinity")),
        }
        cluster.settle();
        let back = request(Goal::KubeProxy, false);
        let taken = go(&mut cluster, &back, LIMIT);
        at(&taken, "undo the patch");
        assert_eq!(cluster.kube_proxy.as_ref().map(manifest::saved), Some(before), "{field}");
        let metadata = &cluster.kube_proxy.as_ref().unwrap()["metadata"];
        assert_eq!(metadata["annotations"][manifest::STRATEGY], Value::Null, "{field}");
        assert_eq!(cluster.plan(&back).steps, [], "it rests");
    }
}

#[test]
fn a_wait_for_services_is_the_same_with_another_reason() {
    let wait =
        |node: &str, reason: &str| Wait::InForce { node: node.into(), reason: reason.into() };
    assert!(wait("a", "2 states").is_same(&wait("a", "1 state")));
    assert!(!wait("a", "2 states").is_same(&wait("b", "2 states")));
    assert!(!wait("a", "").is_same(&Wait::KubeProxyGone { node: "a".to_owned() }));
    let missing = |missing| Wait::PodsExist { missing };
    assert!(missing(1).is_same(&missing(1)) && !missing(2).is_same(&missing(1)));
}

#[test]
fn a_cluster_without_kube_proxy_needs_no_label() {
    let mut cluster = Cluster::with_kube_proxy(&set(), 2);
    cluster.kube_proxy = None;
    cluster.settle();
    set_on(&mut cluster);
    for node in cluster.nodes.values_mut() {
        (node.serves, node.in_force, node.has_rules) = (true, true, false);
        (node.has_kube_proxy, node.proxy_leaves) = (false, false);
    }
    for remove in [false, true] {
        assert_eq!(cluster.plan(&request(Goal::Ferrule, remove)).steps, []);
    }
    // The way back needs a DaemonSet that no command has saved.
    let steps = cluster.plan(&request(Goal::KubeProxy, false)).steps;
    assert!(steps[0].to_string().contains("aws eks create-addon"), "{steps:?}");
    go(&mut cluster, &request(Goal::KubeProxy, false), LIMIT);
    assert!(cluster.nodes.values().all(|node| node.is_proxy_ready && !node.serves));
}

#[test]
fn a_cluster_that_was_never_changed_needs_no_way_back() {
    let cluster = Cluster::with_kube_proxy(&set(), 2);
    assert_eq!(cluster.plan(&request(Goal::KubeProxy, false)).steps, []);
}

#[test]
fn a_node_without_its_pod_is_not_skipped() {
    let mut cluster = Cluster::with_kube_proxy(&set(), 2);
    set_on(&mut cluster);
    for remove in [false, true] {
        let to_ferrule = request(Goal::Ferrule, remove);
        go(&mut cluster, &request(Goal::Ferrule, false), 3);
        cluster.nodes.get_mut("node0").unwrap().lacks_pod = true;
        let plan = cluster.plan(&to_ferrule);
        assert!(!plan.is_blocked(), "{:#?}", plan.findings);
        assert_eq!(plan.steps[0].to_string(), "wait until Ferrule's pod exists on 1 more node");
    }
    // A switched node without its pod goes back too.
    go(&mut cluster, &request(Goal::Ferrule, false), LIMIT);
    cluster.nodes.get_mut("node0").unwrap().lacks_pod = true;
    go(&mut cluster, &request(Goal::KubeProxy, false), LIMIT);
    assert!(cluster.nodes.values().all(|node| node.is_proxy_ready && !node.serves));
}

#[test]
fn a_rolling_update_is_awaited_and_not_forced() {
    let mut cluster = Cluster::with_kube_proxy(&set(), 1);
    cluster.replaces_pods = true;
    set_on(&mut cluster);
    let taken = go(&mut cluster, &request(Goal::Ferrule, true), LIMIT);
    assert!(at(&taken, "Ferrule's pod on node0 has the setting") < at(&taken, "label node0"));
    assert!(!taken.iter().any(|step| step.contains("delete pod")), "{taken:#?}");
}

#[test]
fn a_changed_daemonset_is_saved_again() {
    let mut cluster = Cluster::with_kube_proxy(&set(), 1);
    set_on(&mut cluster);
    let to_ferrule = request(Goal::Ferrule, false);
    go(&mut cluster, &to_ferrule, LIMIT);
    let upgraded = cluster.kube_proxy.as_mut().unwrap();
    upgraded["spec"]["template"]["spec"]["containers"][0]["image"] = "kube-proxy:next".into();
    assert_eq!(cluster.plan(&to_ferrule).steps, [Step::SaveKubeProxy]);
    go(&mut cluster, &to_ferrule, LIMIT);
    let saved = cluster.saved.unwrap();
    assert_eq!(saved["spec"]["template"]["spec"]["containers"][0]["image"], "kube-proxy:next");
    assert!(!manifest::is_kept_off(&saved));
}

proptest! {
    /// After an interruption or a change of direction at any step the plan converges, and a proxy serves each node at
    /// each moment.
    #[test]
    fn a_replacement_converges_after_any_interruption_and_reversal(
        turns in proptest::collection::vec((any::<bool>(), any::<bool>(), 0_usize..24), 0..6),
        flows in proptest::collection::vec(any::<bool>(), 1..5),
        last in (any::<bool>(), any::<bool>()),
        replaces_pods in any::<bool>(),
        strict in any::<bool>(),
    ) {
        let original = if strict { strict_set() } else { set() };
        let mut cluster = Cluster::with_kube_proxy(&original, flows.len());
        cluster.replaces_pods = replaces_pods;
        for (node, has_flows) in cluster.nodes.values_mut().zip(flows) {
            node.has_flows = has_flows;
        }
        let before = manifest::saved(cluster.kube_proxy.as_ref().unwrap());
        let turn = |cluster: &mut Cluster, ours: bool, remove: bool, most: usize| {
            if ours {
                set_on(cluster);
                go(cluster, &request(Goal::Ferrule, remove), most);
            } else {
                go(cluster, &request(Goal::KubeProxy, false), most);
            }
        };
        for (ours, remove, steps) in turns {
            turn(&mut cluster, ours, remove, steps);
        }
        let (ours, remove) = last;
        turn(&mut cluster, ours, remove, LIMIT);
        let goal = if ours { Goal::Ferrule } else { Goal::KubeProxy };
        prop_assert_eq!(cluster.plan(&request(goal, remove)).steps, vec![]);
        for node in cluster.nodes.values() {
            prop_assert_eq!(node.in_force, ours);
            prop_assert_eq!((node.has_kube_proxy, node.is_proxy_ready), (!ours, !ours));
            prop_assert!(node.is_agent_ready);
            prop_assert!(node.labels.contains_key("zone"));
        }
        let now = cluster.kube_proxy.as_ref().map(manifest::saved);
        match (ours, remove) {
            // A DaemonSet that an earlier turn deleted stays deleted.
            (true, false) => prop_assert!(now.is_none_or(|now| now == before)),
            (true, true) => prop_assert_eq!(now, None),
            (false, _) => prop_assert_eq!(now, Some(before)),
        }
    }
}

/// More than the steps of any plan of these clusters.
const LIMIT: usize = 200;

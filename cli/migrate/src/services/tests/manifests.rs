//! The changes of kube-proxy's DaemonSet are reversible and keep all other fields.

use super::cluster::merge;
use crate::services::manifest::{is_kept_off, keep_off, patch, release, saved};
use proptest::prelude::*;
use serde_json::{Value, json};

/// A DaemonSet as that of kubeadm.
pub(super) fn set() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {
            "name": "kube-proxy", "namespace": "kube-system", "uid": "1", "resourceVersion": "7",
            "generation": 1, "labels": { "k8s-app": "kube-proxy" },
            "annotations": { "deprecated.daemonset.template.generation": "1" },
        },
        "spec": {
            "selector": { "matchLabels": { "k8s-app": "kube-proxy" } },
            "updateStrategy": {
                "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 1, "maxSurge": 0 },
            },
            "template": {
                "metadata": { "labels": { "k8s-app": "kube-proxy" } },
                "spec": {
                    "nodeSelector": { "kubernetes.io/os": "linux" },
                    "containers": [{ "name": "kube-proxy", "image": "kube-proxy:v1.36.3" }],
                },
            },
        },
        "status": { "currentNumberScheduled": 2 },
    })
}

/// A DaemonSet as that of EKS, with conditions for its nodes.
pub(super) fn strict_set() -> Value {
    let term = |values: Value| json!({ "matchExpressions": [{ "key": "kubernetes.io/os", "operator": "In", "values": values }] });
    let mut set = set();
    set["spec"]["template"]["spec"]["affinity"] = json!({
        "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [term(json!(["linux"])), term(json!(["other"]))],
        } },
        "podAntiAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [] },
    });
    set
}

#[test]
fn each_condition_of_the_daemonset_excludes_labeled_nodes() {
    for original in [set(), strict_set()] {
        assert!(!is_kept_off(&original));
        let changed = keep_off(&original);
        assert!(is_kept_off(&changed));
        assert_eq!(keep_off(&changed), changed);
        assert_eq!(changed["spec"]["updateStrategy"], json!({ "type": "OnDelete" }));
        let pod = &changed["spec"]["template"]["spec"];
        let required =
            &pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        for term in required["nodeSelectorTerms"].as_array().unwrap() {
            let last = term["matchExpressions"].as_array().unwrap().last().unwrap();
            let expected =
                json!({ "key": "ferrule.io/services", "operator": "NotIn", "values": ["ebpf"] });
            assert_eq!(*last, expected);
        }
        assert_eq!(release(&changed), original);
        assert_eq!(release(&original), original);
    }
}

#[test]
fn an_empty_condition_matches_no_node_afterwards_either() {
    let mut original = strict_set();
    let required = &mut original["spec"]["template"]["spec"]["affinity"]["nodeAffinity"];
    let required = &mut required["requiredDuringSchedulingIgnoredDuringExecution"];
    required["nodeSelectorTerms"].as_array_mut().unwrap().push(json!({}));
    let changed = keep_off(&original);
    assert!(is_kept_off(&changed));
    let required = &changed["spec"]["template"]["spec"]["affinity"]["nodeAffinity"];
    let required = &required["requiredDuringSchedulingIgnoredDuringExecution"];
    assert_eq!(required["nodeSelectorTerms"][2], json!({}));
    assert_eq!(release(&changed), original);
}

#[test]
fn a_strategy_on_delete_stays_after_the_way_back() {
    let mut original = set();
    original["spec"]["updateStrategy"] = json!({ "type": "OnDelete" });
    assert_eq!(release(&keep_off(&original)), original);
}

#[test]
fn a_manifest_has_no_field_of_the_api_server() {
    let of_changed = saved(&keep_off(&set()));
    assert_eq!(of_changed, saved(&set()));
    let names: Vec<&String> = of_changed["metadata"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["labels", "name", "namespace"]);
    assert_eq!(of_changed["spec"], set()["spec"]);
    assert!(of_changed.get("status").is_none());
}

#[test]
fn a_patch_has_the_version_that_it_is_for() {
    let from = set();
    let patch = patch(&from, &keep_off(&from));
    assert_eq!(patch["metadata"]["resourceVersion"], "7");
    assert_eq!(patch["spec"]["updateStrategy"]["type"], "OnDelete");
    assert_eq!(patch["spec"]["updateStrategy"]["rollingUpdate"], Value::Null);
    assert!(patch["spec"]["template"]["spec"].get("containers").is_none());
}

proptest! {
    /// The merge patch leads from any DaemonSet to its changed form and back.
    #[test]
    fn a_patch_leads_from_one_form_to_the_other(strict in any::<bool>(), foreign in "[a-z]{1,8}") {
        let mut original = if strict { strict_set() } else { set() };
        original["metadata"]["annotations"][&foreign] = json!("kept");
        let changed = keep_off(&original);
        let mut patched = original.clone();
        merge(&mut patched, &patch(&original, &changed));
        prop_assert_eq!(&patched, &changed);
        merge(&mut patched, &patch(&changed, &release(&changed)));
        prop_assert_eq!(patched, original);
    }
}

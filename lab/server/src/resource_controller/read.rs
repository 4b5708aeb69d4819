//! Objects with only the fields that the controller needs.

use super::{HAS_TRUNK, POD_ENI};
use config_crds::{CniNode, EniConfig};
use config_model::{PodName, SecurityGroupId, SubnetId};
use k8s_openapi::{
    api::core::v1::{Node, Pod},
    apimachinery::pkg::api::resource::Quantity,
};
use lab_cloud::{ObservedNode, ObservedPod, TrunkRequest};
use std::collections::BTreeMap;

pub(crate) fn node(node: Node) -> Option<(String, ObservedNode)> {
    let labels = node.metadata.labels.unwrap_or_default();
    let status = node.status.unwrap_or_default();
    let branches = |of: Option<BTreeMap<String, Quantity>>| of?.get(POD_ENI)?.0.parse().ok();
    let seen = ObservedNode {
        uid: node.metadata.uid.unwrap_or_default(),
        labeled: labels.get(HAS_TRUNK).is_some_and(|value| value == "true"),
        branches: [branches(status.capacity), branches(status.allocatable)],
    };
    Some((node.metadata.name?, seen))
}

pub(crate) fn cni_node(node: CniNode) -> Option<(String, BTreeMap<String, String>)> {
    let features = node.spec.features.unwrap_or_default().into_iter();
    let features = features.filter_map(|it| Some((it.name?, it.value.unwrap_or_default())));
    Some((node.metadata.name?, features.collect()))
}

pub(crate) fn eni_config(config: EniConfig) -> Option<(String, TrunkRequest)> {
    let groups = config.spec.security_groups.unwrap_or_default();
    let request = TrunkRequest {
        subnet: Some(SubnetId::new(config.spec.subnet)),
        groups: groups.into_iter().map(SecurityGroupId::new).collect(),
    };
    Some((config.metadata.name?, request))
}

/// `None` for pods that want no branch, are not bound, or have ended.
pub(crate) fn pod(pod: Pod) -> Option<(PodName, ObservedPod)> {
    let spec = pod.spec?;
    let limits = spec.containers.first()?.resources.as_ref()?.limits.as_ref()?;
    let wants = limits.keys().any(|name| name.starts_with(POD_ENI));
    let phase = pod.status.and_then(|status| status.phase);
    let ended = matches!(phase.as_deref(), Some("Succeeded" | "Failed"));
    if !wants || ended {
        return None;
    }
    let name = PodName { namespace: pod.metadata.namespace?, name: pod.metadata.name? };
    let seen = ObservedPod {
        uid: pod.metadata.uid.unwrap_or_default(),
        node: spec.node_name.filter(|node| !node.is_empty())?,
        annotation: pod.metadata.annotations.and_then(|mut all| all.remove(POD_ENI)),
    };
    Some((name, seen))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(limits: Value, status: Value, more: Value) -> Option<(PodName, ObservedPod)> {
        let mut spec = json!({"containers": [{"name": "c", "resources": {"limits": limits}}]});
        if let (Some(spec), Some(more)) = (spec.as_object_mut(), more.as_object()) {
            spec.extend(more.clone());
        }
        let metadata = json!({
            "name": "web", "namespace": "shop", "uid": "u1",
            "annotations": {POD_ENI: "[]", "other": "x"},
        });
        let object = json!({"metadata": metadata, "spec": spec, "status": status});
        pod(serde_json::from_value(object).expect("a pod"))
    }

    #[test]
    fn only_bound_running_pods_that_request_a_branch_are_read() {
        let (limit, bound) = (json!({POD_ENI: "1"}), json!({"nodeName": "node1"}));
        let running = json!({"phase": "Running"});
        let (name, seen) = read(limit.clone(), running.clone(), bound.clone())
            .expect("a pod that requests a branch");
        assert_eq!(name.to_string(), "shop/web");
        let annotation = Some("[]".to_owned());
        assert_eq!(seen, ObservedPod { uid: "u1".into(), node: "node1".into(), annotation });
        assert!(read(json!({"cpu": "1"}), running.clone(), bound.clone()).is_none());
        assert!(read(limit.clone(), running, json!({})).is_none());
        for phase in ["Succeeded", "Failed"] {
            assert!(read(limit.clone(), json!({"phase": phase}), bound.clone()).is_none());
        }
    }

    #[test]
    fn a_node_shows_its_label_and_the_resource() {
        let of = |labels: Value, status: Value| {
            let object = json!({"metadata": {"name": "n", "labels": labels}, "status": status});
            node(serde_json::from_value(object).expect("a node")).expect("a name").1
        };
        let full = json!({"capacity": {POD_ENI: "9"}, "allocatable": {POD_ENI: "9"}});
        let shown = of(json!({HAS_TRUNK: "true"}), full);
        assert!(shown.labeled && shown.branches == [Some(9), Some(9)], "{shown:?}");
        assert_eq!(of(json!({}), json!({})), ObservedNode::default());
    }
}

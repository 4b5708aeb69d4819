//! Trimmed objects: unneeded fields are skipped while the answer is parsed. A pod costs a few hundred bytes here
//! and some 10 kB as the full object.
//!
//! The types are lenient: an incomplete object must not hide the others of its list.

mod node;
mod pod;

use config_crds::Feature;
use k8s_openapi::{api::core::v1 as core, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::Resource;
use serde::Deserialize;
use std::borrow::Cow;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "pod::Pod")]
pub(crate) struct Pod {
    /// Only name, namespace, UID and version.
    pub(crate) metadata: ObjectMeta,
    /// Its deletion was requested.
    pub(crate) ending: bool,
    pub(crate) host_network: bool,
    /// Its phase is `Succeeded` or `Failed`.
    pub(crate) ended: bool,
    pub(crate) has_address: bool,
    /// Container 0 has a limit whose name starts with `vpc.amazonaws.com/pod-eni`.
    pub(crate) branch_limit: bool,
    /// Annotation `k8s.amazonaws.com/nicConfig: multi-nic-attachment`.
    pub(crate) every_card: bool,
    /// Annotation `vpc.amazonaws.com/pod-eni`.
    pub(crate) branch: Option<String>,
    /// Annotation `vpc.amazonaws.com/pod-ips`.
    pub(crate) pod_ips: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "node::Node")]
pub(crate) struct Node {
    /// Only name, labels, annotations, UID and version.
    pub(crate) metadata: ObjectMeta,
    /// Unparsed: a patch must repeat a taint exactly.
    pub(crate) taints: Vec<serde_json::Value>,
    /// `.status.capacity.pods`.
    pub(crate) max_pods: Option<u32>,
    /// The condition `IPPoolHealthy`, if there is one.
    pub(crate) condition: Option<Condition>,
}

/// The used fields of a node condition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Condition {
    pub(crate) status: String,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) last_transition_time: Option<String>,
}

/// The pod's branch ENI, written by the VPC resource controller.
pub(crate) const BRANCH: &str = "vpc.amazonaws.com/pod-eni";
/// The pod's address, written by the daemon.
pub(crate) const POD_IPS: &str = "vpc.amazonaws.com/pod-ips";
/// The type of the daemon's node condition.
pub(crate) const CONDITION: &str = "IPPoolHealthy";
const EVERY_CARD: &str = "multi-nic-attachment";

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct EniConfig {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: EniConfigSpec,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct EniConfigSpec {
    pub(crate) subnet: Option<String>,
    pub(crate) security_groups: Option<Vec<String>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CniNode {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: CniNodeSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CniNodeSpec {
    pub(crate) features: Option<Vec<Feature>>,
}

/// The Kubernetes resource of a trimmed type.
macro_rules! read_from {
    ($trimmed:ty, $object:ty) => {
        impl Resource for $trimmed {
            type DynamicType = ();
            type Scope = <$object as Resource>::Scope;

            fn kind((): &()) -> Cow<'_, str> {
                <$object as Resource>::kind(&())
            }

            fn group((): &()) -> Cow<'_, str> {
                <$object as Resource>::group(&())
            }

            fn version((): &()) -> Cow<'_, str> {
                <$object as Resource>::version(&())
            }

            fn plural((): &()) -> Cow<'_, str> {
                <$object as Resource>::plural(&())
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

read_from!(Pod, core::Pod);
read_from!(Node, core::Node);
read_from!(EniConfig, config_crds::EniConfig);
read_from!(CniNode, config_crds::CniNode);

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;
    use serde_json::json;

    fn pod(object: serde_json::Value) -> Pod {
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_trimmed_pod_has_its_network_requirements() {
        let seen = pod(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "web-0", "namespace": "shop", "uid": "u1", "resourceVersion": "7",
                "annotations": {BRANCH: "[]", POD_IPS: "10.0.0.7", "other": "x",
                    "k8s.amazonaws.com/nicConfig": "multi-nic-attachment"},
                "managedFields": [{"manager": "kubectl"}],
            },
            "spec": {"nodeName": "n", "containers": [
                {"name": "c", "env": [{"name": "A"}],
                    "resources": {"limits": {"cpu": "1", "vpc.amazonaws.com/pod-eni": "1"}}},
            ]},
            "status": {"phase": "Running", "podIP": "10.0.0.7"},
        }));
        assert_eq!(seen.metadata.name.as_deref(), Some("web-0"));
        assert_eq!(seen.metadata.uid.as_deref(), Some("u1"));
        assert!(seen.metadata.managed_fields.is_none() && seen.metadata.annotations.is_none());
        assert!(seen.has_address && seen.branch_limit && seen.every_card);
        assert!(!seen.ending && !seen.ended && !seen.host_network);
        assert_eq!(seen.branch.as_deref(), Some("[]"));
        assert_eq!(seen.pod_ips.as_deref(), Some("10.0.0.7"));
    }

    #[test]
    fn only_the_first_container_requests_a_branch() {
        let limits = json!({"limits": {"vpc.amazonaws.com/pod-eni": 1}});
        let second = json!([{"name": "a"}, {"name": "b", "resources": limits}]);
        assert!(!pod(json!({"spec": {"containers": second}})).branch_limit);
        let first = json!([{"name": "b", "resources": limits}]);
        assert!(pod(json!({"spec": {"containers": first}})).branch_limit);
    }

    #[test]
    fn a_deleted_or_host_network_pod_is_marked() {
        let ending = json!({"metadata": {"deletionTimestamp": "2026-11-21T12:00:00Z"}});
        assert!(pod(ending).ending);
        assert!(pod(json!({"status": {"phase": "Failed"}})).ended);
        assert!(pod(json!({"spec": {"hostNetwork": true}})).host_network);
        assert!(!pod(json!({"status": {"podIP": ""}})).has_address);
    }

    #[test]
    fn a_trimmed_node_has_keys_taints_capacity_and_our_condition() {
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": "n", "labels": {"a": "b"}, "annotations": {"c": "d"}},
            "spec": {"taints": [{"key": "k", "effect": "NoSchedule", "timeAdded": null}]},
            "status": {
                "capacity": {"pods": "110", "cpu": "4"},
                "conditions": [
                    {"type": "Ready", "status": "True"},
                    {"type": CONDITION, "status": "False", "reason": "NoAddress",
                        "lastTransitionTime": "2026-11-21T12:00:00Z"},
                ],
                "images": [{"names": ["x"]}],
            },
        }))
        .unwrap();
        assert_eq!(node.max_pods, Some(110));
        assert_eq!(node.taints[0]["effect"], "NoSchedule");
        let condition = node.condition.unwrap();
        assert_eq!((condition.status.as_str(), condition.reason.as_str()), ("False", "NoAddress"));
        assert!(condition.last_transition_time.is_some());
    }

    #[test]
    fn an_empty_object_hides_no_other() {
        let bare = json!({"metadata": {"name": "a"}});
        let config: EniConfig = serde_json::from_value(bare.clone()).unwrap();
        assert_eq!(config.spec, EniConfigSpec::default());
        let node: CniNode = serde_json::from_value(bare).unwrap();
        assert!(node.spec.features.is_none());
    }
}

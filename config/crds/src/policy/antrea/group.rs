//! ClusterGroup and Group.

use super::selector::{Block, Selector};
use crate::policy::parts::{holds, parts};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// AntreaClusterGroupSpec is who is in a group of the cluster; without anything, nobody.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "crd.antrea.io",
    version = "v1beta1",
    kind = "ClusterGroup",
    root = "AntreaClusterGroup",
    plural = "clustergroups",
    singular = "clustergroup",
    shortname = "cg",
    status = "GroupStatus",
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    doc = "ClusterGroup is pods, addresses or nodes that policies of the cluster name",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = holds(&[
    (ONE_SELECTOR, ONE_SELECTOR_SAYS),
    ("[has(self.podSelector) || has(self.namespaceSelector) || has(self.externalEntitySelector), \
      has(self.nodeSelector), has(self.serviceReference), \
      has(self.ipBlocks) && self.ipBlocks.size() > 0, \
      has(self.childGroups) && self.childGroups.size() > 0].filter(there, there).size() <= 1",
     "a group is of selected pods, nodes, a Service, ipBlocks or childGroups: one of them"),
])))]
pub struct AntreaClusterGroupSpec {
    /// These pods; of all namespaces unless namespaceSelector selects some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_selector: Option<Selector>,
    /// Pods of these namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<Selector>,
    /// These workloads from without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_entity_selector: Option<Selector>,
    /// The addresses of these nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<Selector>,
    /// Addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_blocks: Option<Vec<Block>>,
    /// The pods that this Service selects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_reference: Option<ServiceReference>,
    /// The members of these ClusterGroups, which have none themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child_groups: Option<Vec<String>>,
}

/// AntreaGroupSpec is who is in a group of a namespace; without anything, nobody.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "crd.antrea.io",
    version = "v1beta1",
    kind = "Group",
    root = "AntreaGroup",
    plural = "groups",
    singular = "group",
    namespaced,
    shortname = "grp",
    status = "GroupStatus",
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    doc = "Group is pods or addresses that policies of its namespace name",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = holds(&[
    (ONE_SELECTOR, ONE_SELECTOR_SAYS),
    ("[has(self.podSelector) || has(self.namespaceSelector) || has(self.externalEntitySelector), \
      has(self.serviceReference), has(self.ipBlocks) && self.ipBlocks.size() > 0, \
      has(self.childGroups) && self.childGroups.size() > 0].filter(there, there).size() <= 1",
     "a group is of selected pods, a Service, ipBlocks or childGroups: one of them"),
])))]
pub struct AntreaGroupSpec {
    /// These pods; of the group's namespace unless namespaceSelector selects some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_selector: Option<Selector>,
    /// Pods of these namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<Selector>,
    /// These workloads from without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_entity_selector: Option<Selector>,
    /// Addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_blocks: Option<Vec<Block>>,
    /// The pods that this Service selects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_reference: Option<ServiceReference>,
    /// The members of these Groups, which have none themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child_groups: Option<Vec<String>>,
}

parts! {
    /// ServiceReference is a Service.
    ServiceReference {
        /// Its name.
        name: String,
        /// Its namespace.
        namespace: String,
    }
}

parts! {
    /// GroupStatus is what is known of a group.
    GroupStatus {
        /// Such as that its members are known.
        conditions: Vec<GroupCondition>,
    }
}

parts! {
    /// GroupCondition is one thing that is known of a group.
    GroupCondition {
        /// What it is about.
        #[serde(rename = "type")]
        kind: String,
        /// True, False or Unknown.
        status: String,
        /// Since when it is so.
        last_transition_time: String,
    }
}

const ONE_SELECTOR: &str = "!has(self.podSelector) || !has(self.externalEntitySelector)";
const ONE_SELECTOR_SAYS: &str = "podSelector and externalEntitySelector are not in one group";

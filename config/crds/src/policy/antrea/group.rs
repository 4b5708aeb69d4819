//! ClusterGroup and Group.

use super::selector::{Block, Selector};
use crate::policy::parts::{holds, parts};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Both scopes have one spec, except the fields in `own`.
macro_rules! group {
    (
        $(#[$about:meta])* $spec:ident($($kube:tt)*)
        pods: $pods:literal, children: $children:literal, own: { $($own:tt)* },
        holds: ($rule:expr, $says:expr)
    ) => {
        $(#[$about])*
        #[derive(
            CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema,
        )]
        #[kube(
            group = "crd.antrea.io",
            version = "v1beta1",
            status = "GroupStatus",
            printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
            derive = "PartialEq",
            $($kube)*
        )]
        #[serde(rename_all = "camelCase")]
        #[schemars(extend("x-kubernetes-validations" = holds(&[
            (ONE_SELECTOR, ONE_SELECTOR_SAYS),
            ($rule, $says),
        ])))]
        pub struct $spec {
            #[doc = $pods]
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub pod_selector: Option<Selector>,
            /// Pods in namespaces with these labels.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub namespace_selector: Option<Selector>,
            /// ExternalEntities with these labels: workloads outside the cluster.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub external_entity_selector: Option<Selector>,
            $($own)*
            /// Addresses of these CIDRs.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub ip_blocks: Option<Vec<Block>>,
            /// Pods that this Service selects.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub service_reference: Option<ServiceReference>,
            #[doc = $children]
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub child_groups: Option<Vec<String>>,
        }
    };
}

group! {
    /// AntreaClusterGroupSpec selects the members of a cluster-wide group. Without a field the group is empty.
    AntreaClusterGroupSpec(
        kind = "ClusterGroup",
        root = "AntreaClusterGroup",
        plural = "clustergroups",
        singular = "clustergroup",
        shortname = "cg",
        doc = "ClusterGroup is a set of pods, addresses or nodes for cluster-wide policies"
    )
    pods: "Pods with these labels, in all namespaces unless namespaceSelector is set.",
    children: "The members of these ClusterGroups, which cannot have childGroups.",
    own: {
        /// The addresses of nodes with these labels.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub node_selector: Option<Selector>,
    },
    holds: (
        "[has(self.podSelector) || has(self.namespaceSelector) || has(self.externalEntitySelector), \
          has(self.nodeSelector), has(self.serviceReference), \
          has(self.ipBlocks) && self.ipBlocks.size() > 0, \
          has(self.childGroups) && self.childGroups.size() > 0].filter(there, there).size() <= 1",
        "a group has one of: pod, namespace or external entity selectors, nodeSelector, serviceReference, \
         ipBlocks, childGroups"
    )
}

group! {
    /// AntreaGroupSpec selects the members of a group of one namespace. Without a field the group is empty.
    AntreaGroupSpec(
        kind = "Group",
        root = "AntreaGroup",
        plural = "groups",
        singular = "group",
        namespaced,
        shortname = "grp",
        doc = "Group is a set of pods or addresses for policies of its namespace"
    )
    pods: "Pods with these labels, in the group's namespace unless namespaceSelector is set.",
    children: "The members of these Groups, which cannot have childGroups.",
    own: {},
    holds: (
        "[has(self.podSelector) || has(self.namespaceSelector) || has(self.externalEntitySelector), \
          has(self.serviceReference), has(self.ipBlocks) && self.ipBlocks.size() > 0, \
          has(self.childGroups) && self.childGroups.size() > 0].filter(there, there).size() <= 1",
        "a group has one of: pod, namespace or external entity selectors, serviceReference, ipBlocks, childGroups"
    )
}

parts! {
    /// ServiceReference refers to a Service.
    ServiceReference {
        /// The Service's name.
        name: String,
        /// The Service's namespace.
        namespace: String,
    }
}

parts! {
    /// GroupStatus is the state of a group.
    GroupStatus {
        /// Conditions of the group, for example that its members are computed.
        conditions: Vec<GroupCondition>,
    }
}

parts! {
    /// GroupCondition is one condition of a group.
    GroupCondition {
        /// Type of the condition.
        #[serde(rename = "type")]
        kind: String,
        /// True, False or Unknown.
        status: String,
        /// Time of the last change of the status.
        last_transition_time: String,
    }
}

const ONE_SELECTOR: &str = "!has(self.podSelector) || !has(self.externalEntitySelector)";
const ONE_SELECTOR_SAYS: &str = "a group has podSelector or externalEntitySelector, not both";

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
            /// Pods of these namespaces.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub namespace_selector: Option<Selector>,
            /// These workloads from without.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub external_entity_selector: Option<Selector>,
            $($own)*
            /// Addresses.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub ip_blocks: Option<Vec<Block>>,
            /// The pods that this Service selects.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub service_reference: Option<ServiceReference>,
            #[doc = $children]
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub child_groups: Option<Vec<String>>,
        }
    };
}

group! {
    /// AntreaClusterGroupSpec is who is in a group of the cluster; without anything, nobody.
    AntreaClusterGroupSpec(
        kind = "ClusterGroup",
        root = "AntreaClusterGroup",
        plural = "clustergroups",
        singular = "clustergroup",
        shortname = "cg",
        doc = "ClusterGroup is pods, addresses or nodes that policies of the cluster name"
    )
    pods: "These pods; of all namespaces unless namespaceSelector selects some.",
    children: "The members of these ClusterGroups, which have none themselves.",
    own: {
        /// The addresses of these nodes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub node_selector: Option<Selector>,
    },
    holds: (
        "[has(self.podSelector) || has(self.namespaceSelector) || has(self.externalEntitySelector), \
          has(self.nodeSelector), has(self.serviceReference), \
          has(self.ipBlocks) && self.ipBlocks.size() > 0, \
          has(self.childGroups) && self.childGroups.size() > 0].filter(there, there).size() <= 1",
        "a group is of selected pods, nodes, a Service, ipBlocks or childGroups: one of them"
    )
}

group! {
    /// AntreaGroupSpec is who is in a group of a namespace; without anything, nobody.
    AntreaGroupSpec(
        kind = "Group",
        root = "AntreaGroup",
        plural = "groups",
        singular = "group",
        namespaced,
        shortname = "grp",
        doc = "Group is pods or addresses that policies of its namespace name"
    )
    pods: "These pods; of the group's namespace unless namespaceSelector selects some.",
    children: "The members of these Groups, which have none themselves.",
    own: {},
    holds: (
        "[has(self.podSelector) || has(self.namespaceSelector) || has(self.externalEntitySelector), \
          has(self.serviceReference), has(self.ipBlocks) && self.ipBlocks.size() > 0, \
          has(self.childGroups) && self.childGroups.size() > 0].filter(there, there).size() <= 1",
        "a group is of selected pods, a Service, ipBlocks or childGroups: one of them"
    )
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

//! ClusterNetworkPolicy and NetworkPolicy.

use super::{
    applied_to::{AppliedTo, ClusterAppliedTo},
    rule::{ClusterEgressRule, ClusterIngressRule, EgressRule, IngressRule},
};
use crate::policy::parts::{holds, parts};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Both scopes have one spec and differ only in the names that they accept.
macro_rules! policy {
    ($(#[$about:meta])* $spec:ident($($kube:tt)*) of $subject:ty, $ingress:ty, $egress:ty) => {
        $(#[$about])*
        #[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[kube(
            group = "crd.antrea.io",
            version = "v1beta1",
            status = "RealizationStatus",
            printcolumn(
                name = "Tier",
                type_ = "string",
                description = "The Tier that it belongs to",
                json_path = ".spec.tier"
            ),
            printcolumn(
                name = "Priority",
                type_ = "number",
                format = "float",
                description = "Within the Tier, lower first",
                json_path = ".spec.priority"
            ),
            printcolumn(
                name = "Desired Nodes",
                type_ = "number",
                format = "int32",
                description = "How many nodes are to enforce it",
                json_path = ".status.desiredNodesRealized"
            ),
            printcolumn(
                name = "Current Nodes",
                type_ = "number",
                format = "int32",
                description = "How many nodes enforce it",
                json_path = ".status.currentNodesRealized"
            ),
            printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
            derive = "PartialEq",
            $($kube)*
        )]
        #[serde(rename_all = "camelCase")]
        #[schemars(extend("x-kubernetes-validations" = holds(SPEC)))]
        pub struct $spec {
            /// The Tier that it belongs to; left out: application.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub tier: Option<String>,
            /// Within the Tier, lower first.
            #[schemars(range(min = 1.0, max = 10000.0), extend("format" = "float"))]
            pub priority: f64,
            /// What it is about, unless its rules say so.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub applied_to: Option<Vec<$subject>>,
            /// What comes, in order.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub ingress: Option<Vec<$ingress>>,
            /// What goes, in order.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub egress: Option<Vec<$egress>>,
        }
    };
}

policy! {
    /// AntreaClusterNetworkPolicySpec says who may talk to pods of any namespace, and with whom they may talk.
    AntreaClusterNetworkPolicySpec(
        kind = "ClusterNetworkPolicy",
        root = "AntreaClusterNetworkPolicy",
        plural = "clusternetworkpolicies",
        singular = "clusternetworkpolicy",
        shortname = "acnp",
        doc = "ClusterNetworkPolicy says who may talk to pods of any namespace"
    ) of ClusterAppliedTo, ClusterIngressRule, ClusterEgressRule
}

policy! {
    /// AntreaNetworkPolicySpec says who may talk to pods of its namespace, and with whom they may talk.
    AntreaNetworkPolicySpec(
        kind = "NetworkPolicy",
        root = "AntreaNetworkPolicy",
        plural = "networkpolicies",
        singular = "networkpolicy",
        namespaced,
        shortname = "annp",
        shortname = "anp",
        doc = "NetworkPolicy says who may talk to pods of its namespace"
    ) of AppliedTo, IngressRule, EgressRule
}

parts! {
    /// RealizationStatus is how far a policy is enforced.
    RealizationStatus {
        /// Pending, Realizing, Realized or Failed.
        phase: String,
        /// The generation of the policy that this is about.
        observed_generation: i64,
        /// How many nodes enforce it.
        current_nodes_realized: i32,
        /// How many nodes are to enforce it.
        desired_nodes_realized: i32,
        /// What else is known.
        conditions: Vec<RealizationCondition>,
    }
}

parts! {
    /// RealizationCondition is one thing that is known of a policy.
    RealizationCondition {
        /// What it is about.
        #[serde(rename = "type")]
        kind: String,
        /// True, False or Unknown.
        status: String,
        /// Since when it is so.
        last_transition_time: String,
        /// Why, in one word.
        reason: String,
        /// Why, for people.
        message: String,
    }
}

/// Requirements of Antrea's webhook for a policy as a whole, except the names of its rules.
const SPEC: &[(&str, &str)] = &[
    (
        "!has(self.tier) || !(self.tier in ['baseline', 'Baseline']) || \
         ((!has(self.ingress) || self.ingress.all(rule, rule.action != 'Pass')) && \
         (!has(self.egress) || self.egress.all(rule, rule.action != 'Pass')))",
        "a rule of the Tier baseline cannot Pass: nothing comes after it",
    ),
    (
        "!has(self.appliedTo) || self.appliedTo.size() == 0 || \
         ((!has(self.ingress) || self.ingress.all(rule, !has(rule.appliedTo) || \
         rule.appliedTo.size() == 0)) && \
         (!has(self.egress) || self.egress.all(rule, !has(rule.appliedTo) || \
         rule.appliedTo.size() == 0)))",
        "appliedTo is said of the policy or of its rules, not of both",
    ),
    (
        "(has(self.appliedTo) && self.appliedTo.size() > 0) || \
         (((has(self.ingress) && self.ingress.size() > 0) || \
         (has(self.egress) && self.egress.size() > 0)) && \
         (!has(self.ingress) || self.ingress.all(rule, has(rule.appliedTo) && \
         rule.appliedTo.size() > 0)) && \
         (!has(self.egress) || self.egress.all(rule, has(rule.appliedTo) && \
         rule.appliedTo.size() > 0)))",
        "appliedTo is said of the policy or of every one of its rules",
    ),
];

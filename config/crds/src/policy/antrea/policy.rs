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
                description = "Tier of the policy",
                json_path = ".spec.tier"
            ),
            printcolumn(
                name = "Priority",
                type_ = "number",
                format = "float",
                description = "Priority within the Tier; lower values come first",
                json_path = ".spec.priority"
            ),
            printcolumn(
                name = "Desired Nodes",
                type_ = "number",
                format = "int32",
                description = "Number of nodes that have to enforce the policy",
                json_path = ".status.desiredNodesRealized"
            ),
            printcolumn(
                name = "Current Nodes",
                type_ = "number",
                format = "int32",
                description = "Number of nodes that enforce the policy",
                json_path = ".status.currentNodesRealized"
            ),
            printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
            derive = "PartialEq",
            $($kube)*
        )]
        #[serde(rename_all = "camelCase")]
        #[schemars(extend("x-kubernetes-validations" = holds(SPEC)))]
        pub struct $spec {
            /// Tier of the policy. The default is application.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub tier: Option<String>,
            /// Priority within the Tier. Lower values come first.
            #[schemars(range(min = 1.0, max = 10000.0), extend("format" = "float"))]
            pub priority: f64,
            /// Subject of the policy, unless each rule has its own.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub applied_to: Option<Vec<$subject>>,
            /// Rules for incoming traffic, in order. The first match decides.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub ingress: Option<Vec<$ingress>>,
            /// Rules for outgoing traffic, in order. The first match decides.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub egress: Option<Vec<$egress>>,
        }
    };
}

policy! {
    /// AntreaClusterNetworkPolicySpec defines the allowed and denied traffic of pods in any namespace.
    AntreaClusterNetworkPolicySpec(
        kind = "ClusterNetworkPolicy",
        root = "AntreaClusterNetworkPolicy",
        plural = "clusternetworkpolicies",
        singular = "clusternetworkpolicy",
        shortname = "acnp",
        doc = "ClusterNetworkPolicy defines the allowed and denied traffic of pods in any namespace"
    ) of ClusterAppliedTo, ClusterIngressRule, ClusterEgressRule
}

policy! {
    /// AntreaNetworkPolicySpec defines the allowed and denied traffic of pods in its namespace.
    AntreaNetworkPolicySpec(
        kind = "NetworkPolicy",
        root = "AntreaNetworkPolicy",
        plural = "networkpolicies",
        singular = "networkpolicy",
        namespaced,
        shortname = "annp",
        shortname = "anp",
        doc = "NetworkPolicy defines the allowed and denied traffic of pods in its namespace"
    ) of AppliedTo, IngressRule, EgressRule
}

parts! {
    /// RealizationStatus is the progress of a policy on its nodes.
    RealizationStatus {
        /// Pending, Realizing, Realized or Failed.
        phase: String,
        /// Generation of the policy that this status describes.
        observed_generation: i64,
        /// Number of nodes that enforce the policy.
        current_nodes_realized: i32,
        /// Number of nodes that have to enforce the policy.
        desired_nodes_realized: i32,
        /// Conditions of the policy.
        conditions: Vec<RealizationCondition>,
    }
}

parts! {
    /// RealizationCondition is one condition of a policy.
    RealizationCondition {
        /// Type of the condition.
        #[serde(rename = "type")]
        kind: String,
        /// True, False or Unknown.
        status: String,
        /// Time of the last change of the status.
        last_transition_time: String,
        /// Reason in CamelCase, for programs.
        reason: String,
        /// Reason as a sentence, for users.
        message: String,
    }
}

/// Requirements of Antrea's webhook for a policy as a whole, except the names of its rules.
const SPEC: &[(&str, &str)] = &[
    (
        "!has(self.tier) || !(self.tier in ['baseline', 'Baseline']) || \
         ((!has(self.ingress) || self.ingress.all(rule, rule.action != 'Pass')) && \
         (!has(self.egress) || self.egress.all(rule, rule.action != 'Pass')))",
        "a rule of the Tier baseline cannot have the action Pass: baseline is the last stage",
    ),
    (
        "!has(self.appliedTo) || self.appliedTo.size() == 0 || \
         ((!has(self.ingress) || self.ingress.all(rule, !has(rule.appliedTo) || \
         rule.appliedTo.size() == 0)) && \
         (!has(self.egress) || self.egress.all(rule, !has(rule.appliedTo) || \
         rule.appliedTo.size() == 0)))",
        "appliedTo is set in the policy or in its rules, not in both",
    ),
    (
        "(has(self.appliedTo) && self.appliedTo.size() > 0) || \
         (((has(self.ingress) && self.ingress.size() > 0) || \
         (has(self.egress) && self.egress.size() > 0)) && \
         (!has(self.ingress) || self.ingress.all(rule, has(rule.appliedTo) && \
         rule.appliedTo.size() > 0)) && \
         (!has(self.egress) || self.egress.all(rule, has(rule.appliedTo) && \
         rule.appliedTo.size() > 0)))",
        "appliedTo is required in the policy or in every rule",
    ),
];

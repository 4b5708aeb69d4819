//! Parts that several kinds share.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A type whose fields may all be left out.
macro_rules! parts {
    ($(#[$attribute:meta])* $name:ident {
        $($(#[$on_field:meta])* $field:ident: $kind:ty,)*
    }) => {
        #[derive(
            Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize,
            schemars::JsonSchema,
        )]
        $(#[$attribute])*
        #[serde(rename_all = "camelCase")]
        pub struct $name {
            $(
                $(#[$on_field])*
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub $field: Option<$kind>,
            )*
        }
    };
}
pub(super) use parts;

/// An enumeration whose words are the names of its variants.
macro_rules! words {
    ($(#[$attribute:meta])* $name:ident { $($(#[$on_word:meta])* $word:ident,)* }) => {
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize,
            schemars::JsonSchema,
        )]
        $(#[$attribute])*
        #[allow(missing_docs, clippy::upper_case_acronyms, reason = "the words are defined by their owners")]
        pub enum $name {
            $($(#[$on_word])* $word,)*
        }
    };
}
pub(super) use words;

/// `x-kubernetes-validations`: rules in CEL, each with the message for a violation.
pub(super) fn holds(rules: &[(&str, &str)]) -> Value {
    rules.iter().map(|(rule, message)| json!({"rule": rule, "message": message})).collect()
}

/// Schema of a port: a number or a name.
pub(super) fn number_or_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "x-kubernetes-int-or-string": true })
}

parts! {
    /// LabelSelector selects objects by labels. All conditions must match; an empty selector selects every object.
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    LabelSelector {
        /// Required labels with their values.
        match_labels: BTreeMap<String, String>,
        /// Further conditions on labels.
        #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
        match_expressions: Vec<LabelRequirement>,
    }
}

/// LabelRequirement is a condition on one label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LabelRequirement {
    /// The label's key.
    pub key: String,
    /// In, NotIn, Exists or DoesNotExist.
    pub operator: String,
    /// The values of In and NotIn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub values: Option<Vec<String>>,
}

words! {
    /// PolicyTier is the stage of a policy relative to NetworkPolicies.
    PolicyTier {
        /// The policy decides before NetworkPolicies.
        Admin,
        /// The policy decides after NetworkPolicies, for traffic that none of them isolates.
        Baseline,
    }
}

words! {
    /// PolicyAction is the decision for matching traffic.
    PolicyAction {
        /// The connection passes, with its replies.
        Accept,
        /// The packet is dropped.
        Deny,
        /// The remaining rules of the tier are skipped.
        Pass,
    }
}

/// PolicyStatus is the progress of a policy on its nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyStatus {
    /// Conditions of the policy, one for each type.
    #[schemars(extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["type"]
    ))]
    pub conditions: Vec<Condition>,
}

/// Condition is one condition of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Type of the condition.
    #[serde(rename = "type")]
    #[schemars(length(max = 316), regex(pattern = CONDITION_TYPE))]
    pub kind: String,
    /// True, False or Unknown.
    #[schemars(extend("enum" = ["True", "False", "Unknown"]))]
    pub status: String,
    /// Generation of the object that this condition describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
    /// Time of the last change of the status.
    #[schemars(extend("format" = "date-time"))]
    pub last_transition_time: String,
    /// Reason in CamelCase, for programs.
    #[schemars(length(min = 1, max = 1024), regex(pattern = CONDITION_REASON))]
    pub reason: String,
    /// Reason as a sentence, for users.
    #[schemars(length(max = 32768))]
    pub message: String,
}

/// The pattern of the API machinery.
const CONDITION_TYPE: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";
const CONDITION_REASON: &str = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$";
/// Host names, with `*.` in front for all names below. The owners of the kinds wrote `A-z`, which includes some more
/// characters, such as `_`.
pub(super) const DOMAIN_NAME: &str = r"^(\*\.)?([a-zA-z0-9]([-a-zA-Z0-9_]*[a-zA-Z0-9])?\.)+[a-zA-z0-9]([-a-zA-Z0-9_]*[a-zA-Z0-9])?\.?$";

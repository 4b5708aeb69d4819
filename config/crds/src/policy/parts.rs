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

/// The words of an enumeration, which are its variants'.
macro_rules! words {
    ($(#[$attribute:meta])* $name:ident { $($(#[$on_word:meta])* $word:ident,)* }) => {
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize,
            schemars::JsonSchema,
        )]
        $(#[$attribute])*
        #[allow(missing_docs, clippy::upper_case_acronyms, reason = "the words say themselves")]
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

/// A number, or a name.
pub(super) fn number_or_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "x-kubernetes-int-or-string": true })
}

parts! {
    /// LabelSelector selects by labels; all conditions hold, and without any everything is selected.
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    LabelSelector {
        /// Labels and the values that they have.
        match_labels: BTreeMap<String, String>,
        /// Further conditions.
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
    /// PolicyTier is where in the order a policy stands.
    PolicyTier {
        /// Before NetworkPolicies.
        Admin,
        /// Where no NetworkPolicy isolates.
        Baseline,
    }
}

words! {
    /// PolicyAction is what becomes of what matches.
    PolicyAction {
        /// It goes on, and replies with it.
        Accept,
        /// It is dropped.
        Deny,
        /// The tier is left.
        Pass,
    }
}

/// PolicyStatus is how far a policy is enforced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyStatus {
    /// What is known of it.
    #[schemars(extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["type"]
    ))]
    pub conditions: Vec<Condition>,
}

/// Condition is one thing that is known of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What it is about.
    #[serde(rename = "type")]
    #[schemars(length(max = 316), regex(pattern = CONDITION_TYPE))]
    pub kind: String,
    /// True, False or Unknown.
    #[schemars(extend("enum" = ["True", "False", "Unknown"]))]
    pub status: String,
    /// The generation of the object that it was found for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
    /// Since when its status is so.
    #[schemars(extend("format" = "date-time"))]
    pub last_transition_time: String,
    /// Why, in one word.
    #[schemars(length(min = 1, max = 1024), regex(pattern = CONDITION_REASON))]
    pub reason: String,
    /// Why, for people.
    #[schemars(length(max = 32768))]
    pub message: String,
}

/// As the API machinery has it.
const CONDITION_TYPE: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";
const CONDITION_REASON: &str = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$";
/// Names of hosts, `*.` before them for those below. `A-z` is their owners' and holds some characters
/// more, `_` among them.
pub(super) const DOMAIN_NAME: &str = r"^(\*\.)?([a-zA-z0-9]([-a-zA-Z0-9_]*[a-zA-Z0-9])?\.)+[a-zA-z0-9]([-a-zA-Z0-9_]*[a-zA-Z0-9])?\.?$";

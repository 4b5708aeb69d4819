//! Selectors of Antrea's kinds.

use crate::policy::parts::{parts, words};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

parts! {
    /// Selector selects by labels; all conditions hold, and without any everything is selected.
    Selector {
        /// Labels and the values that they have.
        match_labels: BTreeMap<String, LabelValue>,
        /// Further conditions.
        match_expressions: Vec<Expression>,
    }
}

parts! {
    /// Expression is a condition on one label.
    Expression {
        /// The label's key.
        key: String,
        /// What of it.
        operator: Operator,
        /// The values of In and NotIn.
        values: Vec<LabelValue>,
    }
}

words! {
    /// Operator is what of a label.
    Operator { In, NotIn, Exists, DoesNotExist, }
}

/// LabelValue is a label's value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LabelValue(
    #[schemars(regex(pattern = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"))] pub String,
);

/// Block is a range of addresses with holes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Block {
    /// The range.
    #[schemars(extend("format" = "cidr"))]
    pub cidr: String,
    /// What is not in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub except: Option<Vec<Hole>>,
}

/// Hole is a range of addresses within a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Hole(#[schemars(extend("format" = "cidr"))] pub String);

/// Named is a name in a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Named {
    /// The name.
    pub name: String,
    /// The namespace.
    pub namespace: String,
}

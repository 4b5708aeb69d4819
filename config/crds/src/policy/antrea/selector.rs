//! Selectors of Antrea's kinds.

use crate::policy::parts::{parts, words};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

parts! {
    /// Selector selects objects by labels. All conditions must match; an empty selector selects every object.
    Selector {
        /// Required labels with their values.
        match_labels: BTreeMap<String, LabelValue>,
        /// Further conditions on labels.
        match_expressions: Vec<Expression>,
    }
}

parts! {
    /// Expression is a condition on one label.
    Expression {
        /// The label's key.
        key: String,
        /// Relation of the label to the values.
        operator: Operator,
        /// The values of In and NotIn.
        values: Vec<LabelValue>,
    }
}

words! {
    /// Operator relates a label to values.
    Operator { In, NotIn, Exists, DoesNotExist, }
}

/// LabelValue is a label's value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LabelValue(
    #[schemars(regex(pattern = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"))] pub String,
);

/// Block is a CIDR with exceptions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Block {
    /// Address range, such as 10.0.0.0/8.
    #[schemars(extend("format" = "cidr"))]
    pub cidr: String,
    /// Excluded ranges within the CIDR.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub except: Option<Vec<Hole>>,
}

/// Hole is an excluded range of a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Hole(#[schemars(extend("format" = "cidr"))] pub String);

/// Named refers to an object by namespace and name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Named {
    /// The object's name.
    pub name: String,
    /// The object's namespace.
    pub namespace: String,
}

//! IAM policy documents with statements of the effect `Allow`.

use serde::Serialize;
use std::collections::BTreeMap;

/// Operator, then condition key, then its values.
pub type Conditions = BTreeMap<&'static str, BTreeMap<String, ConditionValue>>;

/// Required value of a condition key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum ConditionValue {
    One(String),
    /// All values of the request must be in this list.
    Only(Vec<String>),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Document {
    /// Version of the policy language.
    pub version: &'static str,
    pub statement: Vec<Statement>,
}

/// Allowed actions on resources, with conditions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Statement {
    pub sid: &'static str,
    /// Always `Allow`.
    pub effect: &'static str,
    /// Names of actions with the prefix `ec2:`.
    pub action: Vec<String>,
    /// ARNs or `*`.
    pub resource: Vec<String>,
    /// Conditions of the statement; empty if it always applies.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub condition: Conditions,
}

impl Document {
    /// Creates a document. Statements without actions are left out.
    pub(crate) fn new(statements: impl IntoIterator<Item = Statement>) -> Self {
        let some = |statement: &Statement| !statement.action.is_empty();
        Self { version: "2012-10-17", statement: statements.into_iter().filter(some).collect() }
    }

    pub fn text(&self) -> String {
        // Writing plain data to memory does not fail.
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }
}

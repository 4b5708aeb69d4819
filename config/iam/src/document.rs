//! An IAM policy document, as far as ours go: they only allow.

use serde::Serialize;
use std::collections::BTreeMap;

/// Operator, then condition key, then its values.
pub type Conditions = BTreeMap<&'static str, BTreeMap<String, ConditionValue>>;

/// Required value of a condition key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum ConditionValue {
    One(String),
    /// None but these, where a request has many.
    Only(Vec<String>),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Document {
    /// The language's version.
    pub version: &'static str,
    pub statement: Vec<Statement>,
}

/// Some actions on some resources, under conditions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Statement {
    pub sid: &'static str,
    /// Always `Allow`.
    pub effect: &'static str,
    /// Names of actions, with `ec2:`.
    pub action: Vec<String>,
    /// On what.
    pub resource: Vec<String>,
    /// If what.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub condition: Conditions,
}

impl Document {
    /// A document of these statements, without those that allow nothing.
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

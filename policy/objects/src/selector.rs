//! Label selectors.

use std::collections::{BTreeMap, BTreeSet};

/// Labels, or annotations, of an object.
pub type Labels = BTreeMap<String, String>;

/// Selects objects by their labels: all requirements hold. Without any it selects everything.
///
/// `matchLabels` are requirements `In` of one value.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Selector {
    /// Normalized: sorted, each once.
    pub requirements: BTreeSet<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Requirement {
    /// The label's key.
    pub key: String,
    pub operator: Operator,
}

/// A condition on a label's value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operator {
    /// The label is there with one of these values, of which there is at least one.
    In(BTreeSet<String>),
    /// The label is not there, or has none of these values, of which there is at least one.
    NotIn(BTreeSet<String>),
    Exists,
    /// The label is not there.
    DoesNotExist,
}

impl Selector {
    /// True if labels meet all requirements.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.requirements.iter().all(|requirement| requirement.matches(labels))
    }

    /// The selector of one label with one value.
    pub fn equal(key: impl Into<String>, value: impl Into<String>) -> Self {
        let operator = Operator::In(BTreeSet::from([value.into()]));
        Self { requirements: BTreeSet::from([Requirement { key: key.into(), operator }]) }
    }
}

impl Requirement {
    /// True if labels meet the requirement.
    pub fn matches(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        match &self.operator {
            Operator::In(values) => value.is_some_and(|value| values.contains(value)),
            Operator::NotIn(values) => !value.is_some_and(|value| values.contains(value)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }
}

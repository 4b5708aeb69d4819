//! Label selectors.

use super::names::{is_label_key, is_label_value};
use super::tree::{At, Doubt, Notes};
use crate::{Operator, Requirement, Selector};
use std::collections::BTreeSet;

/// A selector that is understood as a whole.
pub(super) fn selector(at: &At<'_>, notes: &mut Notes) -> Result<Selector, Doubt> {
    match wide(at, notes) {
        (selector, None) => Ok(selector),
        (_, Some(doubt)) => Err(doubt),
    }
}

/// A selector without the requirements that are not understood, and the first doubt.
pub(super) fn wide(at: &At<'_>, notes: &mut Notes) -> (Selector, Option<Doubt>) {
    let mut selector = Selector::default();
    let mut doubts: Vec<Doubt> = Vec::new();
    doubts.extend(at.only(&["matchLabels", "matchExpressions"]).err());
    if let Some(labels) = at.get("matchLabels") {
        match labels.entries() {
            Err(doubt) => doubts.push(doubt),
            Ok(entries) => {
                for (key, value) in entries {
                    keep(equal(key, &value, notes), &mut selector, &mut doubts);
                }
            }
        }
    }
    match at.items("matchExpressions") {
        Err(doubt) => doubts.push(doubt),
        Ok(items) => {
            for item in items {
                keep(expression(&item, notes), &mut selector, &mut doubts);
            }
        }
    }
    (selector, doubts.into_iter().next())
}

fn keep(read: Result<Requirement, Doubt>, selector: &mut Selector, doubts: &mut Vec<Doubt>) {
    match read {
        Ok(requirement) => {
            selector.requirements.insert(requirement);
        }
        Err(doubt) => doubts.push(doubt),
    }
}

fn equal(key: &str, value: &At<'_>, notes: &mut Notes) -> Result<Requirement, Doubt> {
    let key = checked_key(key, value)?;
    let value = checked_value(value, notes)?;
    Ok(Requirement { key, operator: Operator::In(BTreeSet::from([value])) })
}

fn expression(at: &At<'_>, notes: &mut Notes) -> Result<Requirement, Doubt> {
    at.only(&["key", "operator", "values"])?;
    let key = at.get("key").ok_or_else(|| at.lacks("key"))?;
    let key = checked_key(key.text()?, &key)?;
    let mut values = BTreeSet::new();
    for value in at.items("values")? {
        values.insert(checked_value(&value, notes)?);
    }
    let operator = at.get("operator").ok_or_else(|| at.lacks("operator"))?;
    let word = operator.text()?;
    let operator = match (word, values.is_empty()) {
        ("In", false) => Operator::In(values),
        ("NotIn", false) => Operator::NotIn(values),
        ("Exists", true) => Operator::Exists,
        ("DoesNotExist", true) => Operator::DoesNotExist,
        ("In" | "NotIn", true) => {
            return Err(at.doubt(format!("`{word}` needs at least one of `values`")));
        }
        ("Exists" | "DoesNotExist", false) => {
            return Err(at.doubt(format!("`{word}` takes no `values`")));
        }
        _ => {
            return Err(
                operator.doubt(format!("`{word}` is no operator: In, NotIn, Exists, DoesNotExist"))
            );
        }
    };
    Ok(Requirement { key, operator })
}

fn checked_key(key: &str, at: &At<'_>) -> Result<String, Doubt> {
    if is_label_key(key) {
        Ok(key.to_owned())
    } else {
        Err(at.doubt(format!("`{key}` is no label key")))
    }
}

/// Keeps a value that no label can have. Older API servers accepted such values, and they are taken literally.
fn checked_value(at: &At<'_>, notes: &mut Notes) -> Result<String, Doubt> {
    let value = at.text()?;
    if !is_label_value(value) {
        notes.warn(at, format!("no label can have the value `{value}`"));
    }
    Ok(value.to_owned())
}

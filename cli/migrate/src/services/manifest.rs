//! The changes of kube-proxy's DaemonSet: nodes with the label have no pod, and no change of the template restarts one.
//!
//! [`keep_off`] and [`release`] are inverse, and keep every other field. The strategy that `OnDelete` replaces is in an
//! annotation of the DaemonSet itself, so the saved manifest is needed only after the DaemonSet was deleted.

use super::{LABEL, SWITCHED};
use serde_json::{Map, Value, json};

/// The annotation with the earlier `spec.updateStrategy`.
pub const STRATEGY: &str = "ferrule.io/update-strategy";

/// Returns true if the DaemonSet has the changes of [`keep_off`].
pub fn is_kept_off(set: &Value) -> bool {
    let terms = terms(set);
    let strategy = &set["spec"]["updateStrategy"]["type"];
    // An empty term matches no node.
    let mut matching = terms.iter().filter(|term| !is_empty(term));
    strategy == ON_DELETE && !terms.is_empty() && matching.all(excludes)
}

/// Returns the DaemonSet without pods on labeled nodes.
#[must_use]
pub fn keep_off(set: &Value) -> Value {
    let mut set = set.clone();
    let strategy = set["spec"]["updateStrategy"].clone();
    if strategy["type"] != ON_DELETE {
        insert(&mut set, ANNOTATIONS, STRATEGY, Value::String(strategy.to_string()));
        insert(&mut set, &["spec"], "updateStrategy", json!({ "type": ON_DELETE }));
    }
    let mut all = terms(&set);
    if all.is_empty() {
        all.push(json!({ EXPRESSIONS: [exclusion()] }));
    }
    for term in all.iter_mut().filter(|term| !is_empty(term) && !excludes(term)) {
        let mut kept = expressions(term);
        kept.push(exclusion());
        insert(term, &[], EXPRESSIONS, Value::Array(kept));
    }
    insert(&mut set, REQUIRED, TERMS, Value::Array(all));
    set
}

/// Returns the DaemonSet without the changes of [`keep_off`].
#[must_use]
pub fn release(set: &Value) -> Value {
    let mut set = set.clone();
    let earlier = set["metadata"]["annotations"][STRATEGY].as_str().map(str::to_owned);
    if let Some(earlier) = earlier {
        // A strategy that cannot be read is that of the API server's default.
        let strategy = serde_json::from_str(&earlier).unwrap_or(Value::Null);
        match strategy.is_object() {
            true => insert(&mut set, &["spec"], "updateStrategy", strategy),
            false => remove(&mut set, &["spec"], "updateStrategy"),
        }
        remove(&mut set, ANNOTATIONS, STRATEGY);
        prune(&mut set, ANNOTATIONS);
    }
    if !terms(&set).iter().any(excludes) {
        return set;
    }
    let mut left = Vec::new();
    for mut term in terms(&set) {
        if !excludes(&term) {
            left.push(term);
            continue;
        }
        let kept: Vec<Value> =
            expressions(&term).into_iter().filter(|it| *it != exclusion()).collect();
        match kept.is_empty() {
            true => remove(&mut term, &[], EXPRESSIONS),
            false => insert(&mut term, &[], EXPRESSIONS, Value::Array(kept)),
        }
        left.extend(Some(term).filter(|term| !is_empty(term)));
    }
    match left.is_empty() {
        true => remove(&mut set, REQUIRED, TERMS),
        false => insert(&mut set, REQUIRED, TERMS, Value::Array(left)),
    }
    for depth in (AFFINITY..=REQUIRED.len()).rev() {
        prune(&mut set, REQUIRED.get(..depth).unwrap_or_default());
    }
    set
}

/// Returns the manifest that recreates the DaemonSet, without the changes of [`keep_off`] and without the fields that the
/// API server sets.
#[must_use]
pub fn saved(set: &Value) -> Value {
    let mut set = release(set);
    if let Some(metadata) = set.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|name, _| OF_OWNERS.contains(&name.as_str()));
    }
    remove(&mut set, ANNOTATIONS, "deprecated.daemonset.template.generation");
    prune(&mut set, ANNOTATIONS);
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": set["metadata"],
        "spec": set["spec"],
    })
}

/// Returns a JSON merge patch from one version of a DaemonSet to another one. The API server refuses it if the DaemonSet
/// has changed since.
#[must_use]
pub fn patch(from: &Value, to: &Value) -> Value {
    let mut patch = difference(from, to).unwrap_or_else(|| json!({}));
    let version = from["metadata"]["resourceVersion"].clone();
    insert(&mut patch, &["metadata"], "resourceVersion", version);
    patch
}

/// The merge patch between two values; `None` if they are equal.
fn difference(from: &Value, to: &Value) -> Option<Value> {
    if from == to {
        return None;
    }
    let (Value::Object(from), Value::Object(to)) = (from, to) else { return Some(to.clone()) };
    let mut patch = Map::new();
    for (name, value) in to {
        if let Some(changed) = difference(from.get(name).unwrap_or(&Value::Null), value) {
            patch.insert(name.clone(), changed);
        }
    }
    for name in from.keys().filter(|name| !to.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    Some(Value::Object(patch))
}

fn terms(set: &Value) -> Vec<Value> {
    let required = REQUIRED.iter().fold(set, |value, name| &value[*name]);
    required[TERMS].as_array().cloned().unwrap_or_default()
}

fn expressions(term: &Value) -> Vec<Value> {
    term[EXPRESSIONS].as_array().cloned().unwrap_or_default()
}

fn is_empty(term: &Value) -> bool {
    term.as_object().is_none_or(Map::is_empty)
}

fn excludes(term: &Value) -> bool {
    expressions(term).contains(&exclusion())
}

fn exclusion() -> Value {
    json!({ "key": LABEL, "operator": "NotIn", "values": [SWITCHED] })
}

/// Sets a field of the object at a path. Creates the objects on the way.
fn insert(value: &mut Value, path: &[&str], name: &str, new: Value) {
    *path.iter().chain([&name]).fold(value, |value, name| child(value, name)) = new;
}

/// Removes a field of the object at a path.
fn remove(value: &mut Value, path: &[&str], name: &str) {
    let parent = path.iter().try_fold(value, |value, name| value.get_mut(*name));
    if let Some(parent) = parent.and_then(Value::as_object_mut) {
        parent.remove(name);
    }
}

/// Returns a field, which is null if it is new. A value that is no object becomes one.
fn child<'a>(value: &'a mut Value, name: &str) -> &'a mut Value {
    if !value.is_object() {
        *value = json!({});
    }
    &mut value[name]
}

/// Removes the object at a path if it is empty.
fn prune(value: &mut Value, path: &[&str]) {
    let Some((last, parents)) = path.split_last() else { return };
    let parent = parents.iter().try_fold(value, |value, name| value.get_mut(*name));
    let Some(parent) = parent.and_then(Value::as_object_mut) else { return };
    if parent.get(*last).and_then(Value::as_object).is_some_and(Map::is_empty) {
        parent.remove(*last);
    }
}

const ANNOTATIONS: &[&str] = &["metadata", "annotations"];
/// The fields of `metadata` that the API server does not set.
const OF_OWNERS: [&str; 4] = ["name", "namespace", "labels", "annotations"];
const ON_DELETE: &str = "OnDelete";
const EXPRESSIONS: &str = "matchExpressions";
const TERMS: &str = "nodeSelectorTerms";
/// The path of the conditions that a node must meet.
const REQUIRED: &[&str] = &[
    "spec",
    "template",
    "spec",
    "affinity",
    "nodeAffinity",
    "requiredDuringSchedulingIgnoredDuringExecution",
];
/// The length of the part of [`REQUIRED`] that ends with `affinity`.
const AFFINITY: usize = 4;

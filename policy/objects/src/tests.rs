//! Tests of reading objects.

mod antrea;
mod cluster;
mod cluster_policy;
mod identity;
mod matching;
mod network_policy;

use crate::{Note, Object, Parsed, Severity};
use serde_json::{Value, json};

/// An object that must be one.
fn read(api_version: &str, kind: &str, spec: &Value) -> (Object, Vec<Note>) {
    let parsed: Parsed = Object::read_value(&json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": {"namespace": "x", "name": "p"}, "spec": spec,
    }))
    .expect("an identity");
    let notes = parsed.notes.into_iter();
    let unsaid = |note: &Note| note.field != "metadata";
    (parsed.object, notes.filter(unsaid).collect())
}

/// The fields of the notes that are of a severity.
fn fields(notes: &[Note], severity: Severity) -> Vec<&str> {
    let notes = notes.iter().filter(|note| note.severity == severity);
    notes.map(|note| note.field.as_str()).collect()
}

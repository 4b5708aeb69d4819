//! `ferrule policy convert`.

use super::{
    NO, NOT_UNDERSTOOD,
    documents::{Documents, Position},
};
use crate::output::{Output, plain, write_raw};
use anyhow::{Context as _, Result};
use policy_core::Foreign;
use policy_objects::{
    Kind,
    convert::{ConvertError, Converted, convert},
};
use serde_json::{Value, json};
use std::{
    io::{self, Write as _},
    path::PathBuf,
};

/// Converts objects of old versions, prints them and returns the exit code.
pub(super) fn run(file: &[PathBuf], output: Output) -> Result<u8> {
    let read = Documents::read(file, &[]);
    let (mut new, mut remarks, mut lost) = (Vec::new(), Vec::new(), false);
    for (value, place) in &read.values {
        for item in items(value) {
            match convert(item) {
                Ok(Converted { object, notes }) => {
                    remarks.extend(notes.into_iter().map(|note| {
                        format!("note: {}: {}: {}\n", title(item, place), note.field, note.text)
                    }));
                    new.push(object);
                }
                Err(ConvertError::NotOld { api_version, kind, current }) => {
                    if let Some(next) = not_converted(api_version, kind, current) {
                        remarks.push(format!("NOT CONVERTED: {}: {next}\n", title(item, place)));
                        lost = true;
                    }
                }
                Err(error @ ConvertError::Lost { .. }) => {
                    remarks.push(format!("NOT CONVERTED: {}: {error}\n", title(item, place)));
                    lost = true;
                }
            }
        }
    }
    remarks.extend(read.faults.iter().map(|fault| format!("NOT UNDERSTOOD: {fault}\n")));
    if new.is_empty() && !lost {
        remarks.push("note: the input has no objects of an old version\n".to_owned());
    }
    io::stderr().write_all(plain(&remarks.concat()).as_bytes()).context("cannot print remarks")?;
    match output {
        Output::Text | Output::Yaml => write_raw(&yaml(&new)?)?,
        Output::Json => {
            output.write(&json!({ "apiVersion": "v1", "kind": "List", "items": new }))?;
        }
    }
    Ok(if !read.faults.is_empty() {
        NOT_UNDERSTOOD
    } else if lost {
        NO
    } else {
        0
    })
}

/// Returns the next step for a policy that is neither current nor of a version that can be converted.
fn not_converted(api_version: String, kind: String, current: bool) -> Option<String> {
    let known = Kind::of_any_version(&api_version, &kind).is_some();
    let foreign = Foreign { api_version, kind, namespace: String::new(), name: String::new() };
    let ours = !current && (known || foreign.is_misspelled());
    ours.then(|| format!("cannot convert version {}: {}", foreign.api_version, foreign.next()))
}

/// Returns the object itself, or the items of a list.
fn items(value: &Value) -> Vec<&Value> {
    let list = value.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List"));
    match value.get("items").and_then(Value::as_array) {
        Some(list_of) if list => list_of.iter().flat_map(items).collect(),
        _ => vec![value],
    }
}

fn title(value: &Value, place: &Position) -> String {
    let word = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or("?").to_owned();
    let metadata = |key| word(value.get("metadata").and_then(|metadata| metadata.get(key)));
    format!("{place}: {} {}", word(value.get("kind")), metadata("name"))
}

fn yaml(objects: &[Value]) -> Result<String> {
    let mut text = String::new();
    for object in objects {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(object).context("cannot encode an object")?);
    }
    Ok(text)
}

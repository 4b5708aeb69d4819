//! Converts objects of old API versions to the current ones.
//!
//! The conversion loses no field silently. A field that the current version cannot express is an error with the name
//! of the field. A choice of the conversion is a note.

mod admin;

#[cfg(test)]
mod tests;

use crate::read::tree::{At, Doubt};
use crate::{Kind, Note, Object, Severity};
use serde_json::{Map, Value};

/// An object of a current version.
#[derive(Clone, Debug, PartialEq)]
pub struct Converted {
    /// The object, without what only an API server sets.
    pub object: Value,
    /// Choices of the conversion, and the notes of reading the object.
    pub notes: Vec<Note>,
}

/// Reasons why the conversion yields no object of a current version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConvertError {
    /// Not an object of an old version; `current` if it has a current version.
    #[error("{kind} of `{api_version}` {}", if *current { "is current" } else { "is no old version of a policy" })]
    NotOld {
        api_version: String,
        kind: String,
        /// True if the object needs no conversion.
        current: bool,
    },
    /// The current version cannot express this field.
    #[error("`{field}` cannot be carried over: {cause}")]
    Lost { field: String, cause: String },
}

impl From<Doubt> for ConvertError {
    fn from(doubt: Doubt) -> Self {
        Self::Lost { field: doubt.field, cause: doubt.cause }
    }
}

/// The kind that an object of an old version is converted to.
pub fn target(api_version: &str, kind: &str) -> Option<Kind> {
    let mut old = OLD.iter().filter(|(_, name, _)| *name == kind);
    old.find(|(versions, _, _)| versions.contains(&api_version)).map(|(_, _, target)| *target)
}

/// Converts one object.
pub fn convert(object: &Value) -> Result<Converted, ConvertError> {
    let word = |key| object.get(key).and_then(Value::as_str).unwrap_or_default();
    let (api_version, name) = (word("apiVersion"), word("kind"));
    let Some(kind) = target(api_version, name) else {
        return Err(ConvertError::NotOld {
            api_version: api_version.to_owned(),
            kind: name.to_owned(),
            current: Kind::of(api_version, name).is_some(),
        });
    };
    let empty = Value::Object(Map::new());
    let spec = object.get("spec").filter(|spec| !spec.is_null()).unwrap_or(&empty);
    let spec = At::top("spec", spec);
    let mut notes = Vec::new();
    let mut metadata = metadata(object)?;
    let spec = if kind == Kind::ClusterNetworkPolicy {
        let baseline = name == BASELINE;
        if baseline {
            let text = "AdminNetworkPolicies become the same kind: the name tells them apart";
            notes.push(chosen("metadata.name", text));
            metadata.insert("name".to_owned(), Value::from("default-baseline"));
        }
        admin::spec(&spec, baseline, &mut notes)?
    } else if kind == Kind::AntreaClusterGroup {
        group(&spec)?
    } else {
        spec.value.clone()
    };
    let mut converted = Map::new();
    converted.insert("apiVersion".to_owned(), Value::from(kind.api_version()));
    converted.insert("kind".to_owned(), Value::from(kind.name()));
    converted.insert("metadata".to_owned(), Value::Object(metadata));
    converted.insert("spec".to_owned(), spec);
    for (key, value) in object.as_object().into_iter().flatten() {
        if !["apiVersion", "kind", "metadata", "spec", "status"].contains(&key.as_str()) {
            return Err(At::top(key, value).doubt("no object has this field").into());
        }
    }
    let object = Value::Object(converted);
    match Object::read_value(&object) {
        Ok(parsed) => notes.extend(parsed.notes),
        Err(error) => {
            return Err(ConvertError::Lost {
                field: "metadata".to_owned(),
                cause: error.to_string(),
            });
        }
    }
    Ok(Converted { object, notes })
}

/// Without what an API server sets, and without what kubectl remembers of the old version.
fn metadata(object: &Value) -> Result<Map<String, Value>, ConvertError> {
    let metadata = object.get("metadata").and_then(Value::as_object).cloned();
    let mut metadata = metadata.ok_or_else(|| ConvertError::Lost {
        field: "metadata".to_owned(),
        cause: "it is no object".to_owned(),
    })?;
    metadata.retain(|key, _| !SERVER.contains(&key.as_str()));
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    Ok(metadata)
}

/// `ipBlock` became one of `ipBlocks`.
fn group(spec: &At<'_>) -> Result<Value, ConvertError> {
    let mut members = spec.value.clone();
    let Some(map) = members.as_object_mut() else {
        return Err(spec.doubt("it is no object").into());
    };
    let Some(block) = map.remove("ipBlock").filter(|block| !block.is_null()) else {
        return Ok(members);
    };
    if spec.items("ipBlocks")?.len() > 0 {
        return Err(spec.doubt("it has both `ipBlock` and `ipBlocks`").into());
    }
    map.insert("ipBlocks".to_owned(), Value::Array(vec![block]));
    Ok(members)
}

fn chosen(field: &str, text: &str) -> Note {
    Note { severity: Severity::Warning, field: field.to_owned(), text: text.to_owned() }
}

const BASELINE: &str = "BaselineAdminNetworkPolicy";

const ADMIN: &[&str] = &["policy.networking.k8s.io/v1alpha1"];
const ANTREA: &[&str] = &["crd.antrea.io/v1alpha1", "security.antrea.tanzu.vmware.com/v1alpha1"];
const GROUPS: &[&str] =
    &["crd.antrea.io/v1alpha2", "crd.antrea.io/v1alpha3", "core.antrea.tanzu.vmware.com/v1alpha2"];

const OLD: [(&[&str], &str, Kind); 8] = [
    (ADMIN, "AdminNetworkPolicy", Kind::ClusterNetworkPolicy),
    (ADMIN, BASELINE, Kind::ClusterNetworkPolicy),
    (&["extensions/v1beta1"], "NetworkPolicy", Kind::NetworkPolicy),
    (ANTREA, "Tier", Kind::AntreaTier),
    (ANTREA, "ClusterNetworkPolicy", Kind::AntreaClusterNetworkPolicy),
    (ANTREA, "NetworkPolicy", Kind::AntreaNetworkPolicy),
    (GROUPS, "ClusterGroup", Kind::AntreaClusterGroup),
    (&["crd.antrea.io/v1alpha3"], "Group", Kind::AntreaGroup),
];

const SERVER: [&str; 6] =
    ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink"];

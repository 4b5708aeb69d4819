//! Reasons why an object could not be read.

use super::word;
use crate::Kind;
use serde_json::Value;

/// Part of an object's identity that could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The input cannot be parsed at all.
    #[error("this is not JSON")]
    NotJson {
        /// Position and cause.
        #[source]
        source: serde_json::Error,
    },
    /// The input is a list, a number or a string.
    #[error(
        "this is no object: write one with `apiVersion` and `kind`, or a List that has such as `items`"
    )]
    NoObject,
    /// The input has no `kind`.
    #[error("it lacks `apiVersion` or `kind`: write both")]
    NoKind,
    /// A list of nothing that can be found.
    #[error("{kind} without a list as `items`: no item is read")]
    NoItems { kind: String },
    /// Policy does not read this kind, or not in this version.
    #[error("{kind} of {api_version} is not read: {}", foreign(*known))]
    Foreign {
        api_version: String,
        kind: String,
        /// Its namespace, if it has one.
        namespace: String,
        name: String,
        /// The kind that is read, where this is an old form of it.
        known: Option<Kind>,
    },
    #[error("{} without `metadata.name`: name it", kind.text())]
    NoName { kind: Kind },
}

impl ReadError {
    pub(super) fn foreign(api_version: &str, kind: &str, value: &Value) -> Self {
        let metadata = value.get("metadata").unwrap_or(&Value::Null);
        Self::Foreign {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            namespace: word(metadata, "namespace").to_owned(),
            name: word(metadata, "name").to_owned(),
            known: crate::convert::target(api_version, kind)
                .or_else(|| Kind::of_any_version(api_version, kind)),
        }
    }
}

fn foreign(known: Option<Kind>) -> String {
    match known {
        Some(kind) => format!("write it as {} of {}", kind.name(), kind.api_version()),
        None => "it is not enforced".to_owned(),
    }
}

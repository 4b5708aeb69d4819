//! Objects from JSON.

mod address;
mod antrea;
mod cluster;
mod cluster_policy;
mod error;
mod meta;
mod names;
mod network_policy;
mod ports;
mod selector;
pub(crate) mod tree;

pub(crate) use address::{MANY, plain_cidr};
pub use error::ReadError;
pub(crate) use names::{is_label_key, is_label_value, is_port_name};

use crate::{Dialect, Flavor, Kind, Note, Object, Unknown};
use antrea::Scope;
use serde_json::{Map, Value};
use tree::{At, Doubt, Notes};

/// An object, and what people should know of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Parsed {
    pub object: Object,
    /// Parts that are odd or not understood, in the order of the object.
    pub notes: Vec<Note>,
}

impl Object {
    /// Reads one object, of any kind that policy reads.
    pub fn read(json: &[u8]) -> Result<Parsed, ReadError> {
        Self::read_value(&value(json)?)
    }

    /// Reads one object that was parsed already, from YAML for instance.
    pub fn read_value(value: &Value) -> Result<Parsed, ReadError> {
        if !value.is_object() {
            return Err(ReadError::NoObject);
        }
        let version = word(value, "apiVersion");
        let name = word(value, "kind");
        match Kind::of(version, name) {
            Some(kind) => Self::read_as(kind, value),
            None if name.is_empty() || version.is_empty() => Err(ReadError::NoKind),
            None => Err(ReadError::foreign(version, name, value)),
        }
    }

    /// Reads one object of a kind that the caller knows: items of a list do not contain it.
    pub fn read_as(kind: Kind, value: &Value) -> Result<Parsed, ReadError> {
        let map = value.as_object().ok_or(ReadError::NoObject)?;
        let mut notes = Notes::default();
        let empty = Value::Object(Map::new());
        let part = |key| {
            let value = map.get(key).filter(|value| !value.is_null()).unwrap_or(&empty);
            At::top(key, value)
        };
        let metadata = part("metadata");
        let meta = meta::meta(&metadata, kind, &mut notes);
        let meta = meta.ok_or(ReadError::NoName { kind })?;
        for (key, value) in map {
            if !TOP.contains(&key.as_str()) && kind.is_policy() {
                notes.warn(&At::top(key, value), "it is not a field of the object, and not read");
            }
        }
        let spec = part("spec");
        if !map.contains_key("spec") && kind.is_policy() {
            notes.warn(&spec, "it is missing");
        }
        let object = dispatch(kind, meta, &metadata, &spec, &part("status"), &mut notes);
        Ok(Parsed { object, notes: notes.finish() })
    }

    /// Reads all objects of a document: one, or those of a list (`kind: List` or `…List`).
    pub fn read_all(json: &[u8]) -> Vec<Result<Parsed, ReadError>> {
        match value(json) {
            Ok(value) => Self::read_all_values(&value),
            Err(error) => vec![Err(error)],
        }
    }

    /// As [`Object::read_all`], of a document that was parsed already.
    pub fn read_all_values(value: &Value) -> Vec<Result<Parsed, ReadError>> {
        let version = word(value, "apiVersion");
        let Some(of) = word(value, "kind").strip_suffix("List") else {
            return vec![Self::read_value(value)];
        };
        let items = match value.get("items") {
            Some(Value::Array(items)) => items,
            // Servers write `null` for an empty list.
            Some(Value::Null) => return Vec::new(),
            _ if of.is_empty() || Kind::of_any_version(version, of).is_some() => {
                return vec![Err(ReadError::NoItems { kind: format!("{of}List") })];
            }
            _ => return vec![Self::read_value(value)],
        };
        let kind = Kind::of(version, of);
        let read = |item: &Value| match kind {
            Some(kind) if item.get("kind").is_none() => vec![Self::read_as(kind, item)],
            _ => Self::read_all_values(item),
        };
        items.iter().flat_map(read).collect()
    }
}

fn dispatch(
    kind: Kind,
    meta: crate::Meta,
    metadata: &At<'_>,
    spec: &At<'_>,
    status: &At<'_>,
    notes: &mut Notes,
) -> Object {
    let flavored = |meta, flavor, notes: &mut Notes| {
        Object::NetworkPolicy(network_policy::policy(meta, flavor, spec, notes))
    };
    let cluster = |meta, dialect, notes: &mut Notes| {
        Object::ClusterPolicy(cluster_policy::policy(meta, dialect, spec, notes))
    };
    let antrea = |meta, scope, notes: &mut Notes| {
        Object::AntreaPolicy(antrea::policy(meta, scope, spec, notes))
    };
    let group =
        |meta, scope, notes: &mut Notes| Object::Group(antrea::group(meta, scope, spec, notes));
    match kind {
        Kind::Pod => Object::Pod(cluster::pod(meta, spec, status, notes)),
        Kind::Namespace => Object::Namespace(cluster::namespace(meta)),
        Kind::Node => Object::Node(cluster::node(meta, metadata, spec, status, notes)),
        Kind::Service => Object::Service(cluster::service(meta, spec, status, notes)),
        Kind::NetworkPolicy => flavored(meta, Flavor::Kubernetes, notes),
        Kind::AwsApplicationNetworkPolicy => flavored(meta, Flavor::Aws, notes),
        Kind::ClusterNetworkPolicy => cluster(meta, Dialect::Upstream, notes),
        Kind::AwsClusterNetworkPolicy => cluster(meta, Dialect::Aws, notes),
        Kind::AntreaTier => Object::Tier(antrea::tier(meta, spec, notes)),
        Kind::AntreaClusterNetworkPolicy => antrea(meta, Scope::Cluster, notes),
        Kind::AntreaNetworkPolicy => antrea(meta, Scope::Namespace, notes),
        Kind::AntreaClusterGroup => group(meta, Scope::Cluster, notes),
        Kind::AntreaGroup => group(meta, Scope::Namespace, notes),
    }
}

fn value(json: &[u8]) -> Result<Value, ReadError> {
    serde_json::from_slice(json).map_err(|source| ReadError::NotJson { source })
}

fn word<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// A rule that is not understood, with what could be read of it.
fn unknown(rule: &At<'_>, doubt: &Doubt) -> Unknown {
    let text_of =
        |key| Some(word(rule.value, key)).filter(|text| !text.is_empty()).map(str::to_owned);
    Unknown { why: doubt.why(), name: text_of("name"), action: text_of("action") }
}

/// True if a policy has no rules at all.
fn is_silent(spec: &At<'_>) -> bool {
    let none = |key| spec.items(key).is_ok_and(|items| items.len() == 0);
    spec.value.is_object() && none("ingress") && none("egress")
}

/// Effect of a rule with an action that is not understood.
fn becomes(rule: Option<&At<'_>>) -> &'static str {
    match rule.map(|rule| word(rule.value, "action")) {
        Some("Allow" | "Accept") => "the rule allows nothing until that is fixed",
        _ => "the rule denies all of its direction until that is fixed",
    }
}

const TOP: [&str; 5] = ["apiVersion", "kind", "metadata", "spec", "status"];

//! The format of the vectors.

use anyhow::{Context as _, Result};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use std::{net::IpAddr, path::Path};

/// A world and its cases.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Vector {
    pub(crate) id: String,
    pub(crate) title: String,
    /// The source of the expectation: `[spec]`, a test of another project, or `design`.
    #[expect(dead_code, reason = "for people")]
    source: String,
    pub(crate) rows: Vec<String>,
    /// Added to the standard world. Replaces an object of the same kind and name.
    #[serde(default)]
    objects: Vec<Value>,
    /// DNS results: address and name.
    #[serde(default)]
    names: Vec<Value>,
    notes: Option<Vec<ExpectedNote>>,
    #[serde(default)]
    lint: Vec<ExpectedFinding>,
    #[serde(default)]
    refused: Vec<RefusedObject>,
    #[serde(default)]
    packets: Vec<PacketCase>,
    #[serde(default)]
    steps: Vec<Step>,
}

/// A change of the world, and the cases after it.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    #[serde(default)]
    pub(crate) title: String,
    #[serde(default)]
    pub(crate) objects: Vec<Value>,
    /// Kind and name of each object to remove.
    #[serde(default)]
    pub(crate) remove: Vec<String>,
    #[serde(default)]
    pub(crate) names: Vec<Value>,
    #[serde(default)]
    pub(crate) forget: Vec<String>,
    pub(crate) notes: Option<Vec<ExpectedNote>>,
    #[serde(default)]
    pub(crate) lint: Vec<ExpectedFinding>,
    /// Objects that cannot be read.
    #[serde(skip)]
    pub(crate) refused: Vec<RefusedObject>,
    #[serde(default)]
    pub(crate) packets: Vec<PacketCase>,
}

/// A note about an object of the step that the reader must return. Every error must be listed; warnings need
/// not be.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExpectedNote {
    /// Name, with the namespace if it has one.
    pub(crate) object: String,
    pub(crate) severity: String,
    /// The field or a parent of it.
    pub(crate) field: String,
    /// A part of the text.
    #[serde(default)]
    pub(crate) text: String,
}

/// A finding of lint in the world of the step.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExpectedFinding {
    /// As in lint's output with `-o json`.
    pub(crate) check: String,
    /// Such as `NetworkPolicy x/p`.
    pub(crate) object: String,
    /// A part of the text.
    pub(crate) text: String,
}

/// An object that the reader must refuse, and a part of the error.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RefusedObject {
    pub(crate) object: Value,
    pub(crate) text: String,
}

/// A packet and its expected decision.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PacketCase {
    /// A pod `x/a`, a node `n1`, `EXT` or `EXT6`, or an address whose packet the node forwards.
    pub(crate) from: String,
    /// Same forms as `from`.
    pub(crate) to: String,
    pub(crate) port: Option<u16>,
    /// Default `TCP`. A number is a protocol without ports.
    pub(crate) protocol: Option<Value>,
    /// Type and code.
    pub(crate) icmp: Option<(u8, u8)>,
    /// Default 4, unless an end has the other family.
    pub(crate) family: Option<u8>,
    /// Replaces the address of `from`.
    pub(crate) source: Option<IpAddr>,
    pub(crate) source_port: Option<u16>,
    /// The Service that the sender used; `to` is the endpoint.
    pub(crate) via_service: Option<String>,
    pub(crate) state: Option<String>,
    pub(crate) expect: Expect,
    /// The deciding reason: `np x/p ingress 0`, `egress isolation`, `exempt (from own node)`, `default`. For
    /// an allowed packet: the reasons of both ends except defaults, joined by ` + `.
    pub(crate) by: String,
    /// A part of the verdict's text.
    pub(crate) text: Option<String>,
}

/// Expected decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) enum Expect {
    /// Allow.
    A,
    /// Drop.
    D,
    /// Reject.
    R,
}

impl Vector {
    /// The steps. The first one is the initial world.
    pub(crate) fn steps(&self) -> impl Iterator<Item = Step> {
        let first = Step {
            objects: self.objects.clone(),
            names: self.names.clone(),
            notes: self.notes.clone(),
            lint: self.lint.clone(),
            refused: self.refused.clone(),
            packets: self.packets.clone(),
            ..Step::default()
        };
        let later = self.steps.iter().map(|step| Step {
            title: step.title.clone(),
            objects: step.objects.clone(),
            remove: step.remove.clone(),
            names: step.names.clone(),
            forget: step.forget.clone(),
            notes: step.notes.clone(),
            lint: step.lint.clone(),
            refused: Vec::new(),
            packets: step.packets.clone(),
        });
        std::iter::once(first).chain(later)
    }
}

/// Reads a YAML file. `{repeat: N, item: …}` in a list means N items.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    // As in YAML 1.2: `y` is a namespace here, not a boolean.
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_str_with_options(&text, options).with_context(|| path.display().to_string())
}

/// Expands repetitions.
pub(crate) fn written_out(value: &Value) -> Value {
    match value {
        Value::Array(items) => Value::Array(items.iter().flat_map(repeated).collect()),
        Value::Object(map) => Value::Object(
            map.iter().map(|(key, value)| (key.clone(), written_out(value))).collect(),
        ),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

fn repeated(item: &Value) -> Vec<Value> {
    match (item.get("repeat").and_then(Value::as_u64), item.get("item")) {
        (Some(count), Some(item)) => (0..count).map(|n| numbered(item, n)).collect(),
        _ => vec![written_out(item)],
    }
}

/// In strings, `{n}` is the number of the repetition and `{ADDRESS+2n}` an address; `"{n+1000}"` as a whole
/// is a number.
fn numbered(value: &Value, n: u64) -> Value {
    match value {
        Value::String(text) => match text.strip_prefix("{n+").and_then(|end| end.strip_suffix('}'))
        {
            Some(start) => Value::from(start.parse::<u64>().unwrap_or_default() + n),
            None => Value::String(filled(text, n)),
        },
        Value::Array(items) => items.iter().map(|item| numbered(item, n)).collect(),
        Value::Object(map) => {
            Value::Object(map.iter().map(|(key, item)| (key.clone(), numbered(item, n))).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

fn filled(text: &str, n: u64) -> String {
    let text = text.replace("{n}", &n.to_string());
    let Some((before, (inner, after))) =
        text.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)))
    else {
        return text;
    };
    let address =
        inner.strip_suffix("+2n").and_then(|start| start.parse::<std::net::Ipv4Addr>().ok());
    match address {
        Some(start) => {
            let steps = u32::try_from(2 * n).unwrap_or_default();
            format!("{before}{}{after}", std::net::Ipv4Addr::from(u32::from(start) + steps))
        }
        None => text.clone(),
    }
}

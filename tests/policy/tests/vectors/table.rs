//! The table as it is written.

use anyhow::{Context as _, Result};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use std::{net::IpAddr, path::Path};

/// A world and what is asked of it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Vector {
    pub(crate) id: String,
    pub(crate) title: String,
    /// Where the answer is from: `[spec]`, a test of somebody's, `design`.
    #[expect(dead_code, reason = "for people")]
    source: String,
    pub(crate) rows: Vec<String>,
    /// Added to the standard world, or in the place of one of the same name.
    #[serde(default)]
    objects: Vec<Value>,
    /// What DNS said: address and name.
    #[serde(default)]
    names: Vec<Value>,
    notes: Option<Vec<Note>>,
    #[serde(default)]
    lint: Vec<Found>,
    #[serde(default)]
    refused: Vec<Refused>,
    #[serde(default)]
    packets: Vec<Asked>,
    #[serde(default)]
    steps: Vec<Step>,
}

/// A change of the world and what is asked then.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    #[serde(default)]
    pub(crate) title: String,
    #[serde(default)]
    pub(crate) objects: Vec<Value>,
    /// Kind and name of each object that is gone.
    #[serde(default)]
    pub(crate) remove: Vec<String>,
    #[serde(default)]
    pub(crate) names: Vec<Value>,
    #[serde(default)]
    pub(crate) forget: Vec<String>,
    pub(crate) notes: Option<Vec<Note>>,
    #[serde(default)]
    pub(crate) lint: Vec<Found>,
    /// No objects that can be read.
    #[serde(skip)]
    pub(crate) refused: Vec<Refused>,
    #[serde(default)]
    pub(crate) packets: Vec<Asked>,
}

/// What is said of an object of the step as it is read. Errors must all stand here, warnings may.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Note {
    /// Its name, with its namespace if it has one.
    pub(crate) object: String,
    pub(crate) severity: String,
    /// The field, or one that it is within.
    pub(crate) field: String,
    /// A part of the text.
    #[serde(default)]
    pub(crate) text: String,
}

/// What lint finds in the world of the step.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Found {
    /// As lint writes it with `-o json`.
    pub(crate) check: String,
    /// Kind and name.
    pub(crate) object: String,
    /// A part of the text.
    pub(crate) text: String,
}

/// What is not read at all, and a part of what is said of it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Refused {
    pub(crate) object: Value,
    pub(crate) text: String,
}

/// A packet, and what becomes of it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {
    /// A pod `x/a`, a node `n1`, `EXT` or `EXT6`, or an address that came by.
    pub(crate) from: String,
    /// As `from`.
    pub(crate) to: String,
    pub(crate) port: Option<u16>,
    /// `TCP` if it is not said; or the number of one without ports.
    pub(crate) protocol: Option<Value>,
    /// Type and code.
    pub(crate) icmp: Option<(u8, u8)>,
    /// 4 if it does not follow from the ends.
    pub(crate) family: Option<u8>,
    /// Instead of the address of `from`.
    pub(crate) source: Option<IpAddr>,
    pub(crate) source_port: Option<u16>,
    /// The Service that was asked for; `to` is where it led.
    pub(crate) via_service: Option<String>,
    pub(crate) state: Option<String>,
    pub(crate) expect: Expect,
    /// What decided: `np x/p ingress 0`, `egress isolation`, `exempt (from own node)`, `default`. Of a
    /// packet that passes both ends' reasons but for defaults, joined by ` + `.
    pub(crate) by: String,
    /// A part of the verdict in words.
    pub(crate) says: Option<String>,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) enum Expect {
    /// It passes.
    A,
    /// It is dropped.
    D,
    /// It is refused.
    R,
}

impl Vector {
    /// The steps, with the world as it begins for the first.
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

/// A file of YAML, in which `{repeat: N, item: …}` in a list stands for N items.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    // As in YAML 1.2: `y` is a namespace here.
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_str_with_options(&text, options).with_context(|| path.display().to_string())
}

/// A value with its repetitions written out.
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

/// In texts `{n}` is the number, `{ADDRESS+2n}` an address; `"{n+1000}"` as a whole is a number.
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

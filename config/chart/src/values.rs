//! `values.yaml`.

use crate::{
    env,
    table::{Effect, Shape, Value, table},
};
use serde_json::Value as Json;
use std::fmt::Write as _;

/// `values.yaml`: every value with its default and its meaning.
pub(crate) fn text() -> String {
    let mut text = String::from(HEAD);
    let mut open: Vec<&str> = Vec::new();
    for value in table() {
        let mut names: Vec<&str> = value.path.split('.').collect();
        let Some(last) = names.pop() else { continue };
        let shared = open.iter().zip(&names).take_while(|(open, name)| open == name).count();
        if names.is_empty() || shared < names.len() {
            text.push('\n');
        }
        for (depth, name) in names.iter().enumerate().skip(shared) {
            let _ = writeln!(text, "{}{name}:", indent(depth));
        }
        let at = indent(names.len());
        for line in wrapped(&meaning(value), WIDTH - at.len()) {
            let _ = writeln!(text, "{at}# {line}");
        }
        if value.path == "env" {
            settings(&mut text);
        }
        let _ = write!(text, "{at}{last}:");
        yaml(&mut text, &default(value), names.len() + 1);
        open = names;
    }
    text
}

/// A value's default.
pub(crate) fn default(value: &Value) -> Json {
    // A test holds that each is JSON.
    serde_json::from_str(value.default).unwrap_or_default()
}

fn meaning(value: &Value) -> String {
    match value.effect {
        Effect::Used => value.meaning.to_owned(),
        Effect::Idle => format!("No effect. {}", value.meaning),
        Effect::Refused(why) => format!("Only the default is accepted: {why}. {}", value.meaning),
    }
}

/// The settings that `env` accepts, as comments.
fn settings(text: &mut String) {
    text.push_str("# Names and defaults:\n#\n");
    for setting in env::settings() {
        let value =
            if setting.default.is_empty() { "\"\"".to_owned() } else { quoted(setting.default) };
        let _ = writeln!(text, "#     {}: {value}", setting.name);
    }
}

fn quoted(text: &str) -> String {
    Json::from(text).to_string()
}

fn indent(depth: usize) -> String {
    "  ".repeat(depth)
}

/// Wraps text at spaces. A line exceeds the width only if a single word does.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let Some(line) = lines.last_mut() else { break };
        if !line.is_empty() && line.len() + word.len() + 3 > width {
            lines.push(word.to_owned());
            continue;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines
}

/// Appends a value after its key and colon.
fn yaml(text: &mut String, value: &Json, depth: usize) {
    match value {
        Json::Object(map) if !map.is_empty() => {
            text.push('\n');
            for (key, value) in map {
                let _ = write!(text, "{}{}:", indent(depth), key_text(key));
                yaml(text, value, depth + 1);
            }
        }
        Json::Array(items) if !items.is_empty() => {
            text.push('\n');
            for item in items {
                let _ = write!(text, "{}-", indent(depth.saturating_sub(1)));
                // JSON is YAML, and an item is short.
                let _ = writeln!(text, " {item}");
            }
        }
        Json::Null => text.push('\n'),
        Json::Object(_) | Json::Array(_) | Json::Bool(_) | Json::Number(_) | Json::String(_) => {
            let _ = writeln!(text, " {value}");
        }
    }
}

fn key_text(key: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || ['-', '_', '.', '/'].contains(&c);
    if key.chars().all(plain) { key.to_owned() } else { quoted(key) }
}

/// Accepted form of a value, as text.
pub(crate) fn shape_text(shape: Shape) -> String {
    match shape {
        Shape::Bool => "boolean".to_owned(),
        Shape::BoolText => "boolean, or as text".to_owned(),
        Shape::MaybeBool => "boolean or nothing".to_owned(),
        Shape::Int(least) => format!("integer, {least} or more"),
        Shape::MaybeInt => "integer or nothing".to_owned(),
        Shape::Text => "text".to_owned(),
        Shape::Listen => "port, or address with port".to_owned(),
        Shape::MaybeText | Shape::Digits => "text or nothing".to_owned(),
        Shape::Choice(words) => {
            let words: Vec<String> =
                words.iter().map(|word| format!("`{}`", quoted(word))).collect();
            words.join(", ")
        }
        Shape::Texts => "map of texts".to_owned(),
        Shape::Labels => "map of labels".to_owned(),
        Shape::Env => "map of settings".to_owned(),
        Shape::MoreEnv => "list of EnvVar".to_owned(),
        Shape::Object("") => "object".to_owned(),
        Shape::Object(kind) => kind.to_owned(),
        Shape::List(kind) => format!("list of {kind}"),
        Shape::Objects => "list of objects".to_owned(),
        Shape::Probe => "Probe without its action".to_owned(),
        Shape::Rights | Shape::LesserRights => "SecurityContext without `privileged`".to_owned(),
        Shape::Subnets => "map of subnets".to_owned(),
    }
}

const WIDTH: usize = 118;

const HEAD: &str = "\
# Generated by `cargo xtask generate` from config/chart; docs/guide/values.md describes each value.
# The keys of amazon-vpc-cni's chart have the same meaning here.
";

//! `values.schema.json`: the schema against which Helm checks the values.

use crate::{
    env,
    table::{Effect, Shape, Value, table},
    values::default,
};
use config_settings::{Kind, Setting};
use serde_json::{Map, Value as Json, json};
use std::collections::BTreeSet;

pub(crate) fn text() -> String {
    let mut root = tree(table().map(|value| (value.path, of_value(value))));
    // Helm removes a group that is null, with the defaults of its values.
    let groups = table().filter_map(|value| Some(value.path.split_once('.')?.0));
    root["required"] = json!(groups.collect::<BTreeSet<_>>());
    root["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    root["title"] = json!("Values of the chart ferrule");
    root["properties"]["global"] = json!({ "type": "object", "description": "Values of a parent chart, which Helm passes to every subchart." });
    pretty(&root)
}

pub(crate) fn pretty(value: &Json) -> String {
    format!("{value:#}\n")
}

/// Returns a tree of closed objects, one for each part of the paths.
pub(crate) fn tree<'a>(leaves: impl Iterator<Item = (&'a str, Json)>) -> Json {
    let mut root = closed();
    for (path, schema) in leaves {
        let mut names: Vec<&str> = path.split('.').collect();
        let Some(last) = names.pop() else { continue };
        let mut at = &mut root;
        for name in names {
            let next = &mut at["properties"][name];
            if next.is_null() {
                *next = closed();
            }
            at = next;
        }
        at["properties"][last] = schema;
    }
    root
}

pub(crate) fn closed() -> Json {
    json!({ "type": "object", "additionalProperties": false, "properties": {} })
}

fn of_value(value: &Value) -> Json {
    let mut schema = of_shape(value.shape);
    schema["description"] = json!(value.meaning);
    if let Effect::Refused(why) = value.effect {
        schema["type"] = json!("boolean");
        // Helm prints the enum if another value is set. The reason is one of its texts and no valid value.
        schema["enum"] = json!([default(value), format!("because {why}")]);
        if value.shape == Shape::BoolText {
            schema["type"] = json!(["boolean", "string"]);
            schema["maxLength"] = json!(5);
            schema["enum"] = json!([default(value), "false", format!("because {why}")]);
        }
    }
    schema
}

fn of_shape(shape: Shape) -> Json {
    match shape {
        Shape::Bool => json!({ "type": "boolean" }),
        Shape::BoolText => json!({ "enum": [true, false, "true", "false"] }),
        Shape::MaybeBool => json!({ "enum": [true, false, "true", "false", null] }),
        Shape::Int(least) => json!({ "type": "integer", "minimum": least }),
        Shape::MaybeInt => {
            json!({ "type": ["integer", "string", "null"], "minimum": 0, "pattern": "^[0-9]+$" })
        }
        Shape::Text => json!({ "type": "string" }),
        Shape::MaybeText => json!({ "type": ["string", "null"] }),
        Shape::Listen => json!({
            "type": ["string", "integer"], "pattern": "^([^/]*:)?[0-9]+$", "minimum": 1, "maximum": 65535,
        }),
        Shape::Digits => json!({ "type": ["string", "integer", "null"], "pattern": "^[0-9]*$" }),
        Shape::Choice(words) => json!({ "enum": words }),
        Shape::Texts => json!({
            "type": "object", "additionalProperties": { "type": ["string", "null"] },
        }),
        Shape::Labels => labels(),
        Shape::Env => environment(),
        Shape::MoreEnv => json!({ "type": "array", "items": {
            "type": "object",
            "required": ["name"],
            "properties": { "name": { "type": "string", "minLength": 1 } },
        }}),
        Shape::Object("ResourceRequirements") => resources(),
        Shape::Object("PodSecurityContext") => json!({ "type": "object", "properties": user() }),
        Shape::Object(_) => json!({ "type": "object" }),
        Shape::List(_) => json!({ "type": "array", "items": { "type": "object" } }),
        Shape::Objects => objects(),
        Shape::Probe => {
            let names = [
                ("initialDelaySeconds", 0),
                ("periodSeconds", 1),
                ("timeoutSeconds", 1),
                ("failureThreshold", 1),
                ("successThreshold", 1),
                ("terminationGracePeriodSeconds", 1),
            ];
            let names =
                names.map(|(name, least)| (name, json!({ "type": "integer", "minimum": least })));
            let command = json!({ "type": "array", "items": { "type": "string" } });
            tree(names.into_iter().chain([("exec.command", command)]))
        }
        Shape::Rights => rights(&json!({ "const": false })),
        Shape::LesserRights => rights(&json!({ "type": "boolean" })),
        Shape::Subnets => json!({ "type": "object", "additionalProperties": {
            "type": "object",
            "additionalProperties": false,
            "required": ["id"],
            "properties": {
                "id": { "type": "string", "pattern": "^subnet-" },
                "securityGroups": {
                    "type": "array", "items": { "type": "string", "pattern": "^sg-" },
                },
            },
        }}),
    }
}

/// Returns the schema of labels that do not replace a label of the chart.
fn labels() -> Json {
    let value = json!({
        "type": "string", "pattern": "^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$",
    });
    let mut refused = value.clone();
    // Helm prints the enum. The reason does not match the pattern, so no value does.
    refused["enum"] = json!(["because the chart and Kubernetes use labels of this domain"]);
    let key = "^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$";
    json!({
        "type": "object",
        "additionalProperties": false,
        "patternProperties": { key: value, "(^|[.])kubernetes[.]io/|^helm[.]sh/": refused },
    })
}

/// Returns the schema of whole Kubernetes objects. Helm needs the name of each.
fn objects() -> Json {
    let text = json!({ "type": "string", "minLength": 1 });
    let labels =
        json!({ "type": ["object", "null"], "additionalProperties": { "type": "string" } });
    json!({ "type": "array", "items": {
        "type": "object",
        "required": ["apiVersion", "kind", "metadata"],
        "properties": {
            "apiVersion": text, "kind": text,
            "metadata": {
                "type": "object",
                "required": ["name"],
                "properties": { "name": text, "labels": labels },
            },
        },
    }})
}

fn rights(privileged: &Json) -> Json {
    let mut properties = user();
    properties["privileged"] = privileged.clone();
    properties["allowPrivilegeEscalation"] = json!({ "const": false });
    properties["readOnlyRootFilesystem"] = json!({ "const": true });
    json!({ "type": "object", "properties": properties })
}

/// Returns the schemas of a security context's fields about the user. The kubelet refuses a container with
/// `runAsNonRoot` and uid 0.
fn user() -> Json {
    // Helm prints the enum if another value is set. The reason is one of its texts and no valid value.
    let why = "because every container of the DaemonSet runs as uid 0; remove the field";
    json!({
        "runAsNonRoot": { "type": ["boolean", "null"], "enum": [false, null, why] },
        "runAsUser": { "type": ["integer", "null"], "enum": [0, null, why] },
    })
}

fn resources() -> Json {
    let amounts = json!({
        "type": "object", "additionalProperties": { "type": ["string", "number", "null"] },
    });
    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "limits": amounts, "requests": amounts,
            "claims": { "type": "array", "items": { "type": "object" } },
        },
    })
}

/// Returns the schema of `env`: the settings, the variables of amazon-vpc-cni without effect, and those of libraries.
fn environment() -> Json {
    let mut names = Map::new();
    for setting in env::settings() {
        let mut schema = of_setting(setting);
        schema["description"] = json!(setting.meaning);
        names.insert(setting.name.to_owned(), schema);
    }
    for idle in env::idle() {
        let schema =
            json!({ "type": ["string", "boolean", "number"], "description": idle.meaning });
        names.insert(idle.name.to_owned(), schema);
    }
    for name in env::OTHERS {
        names.insert((*name).to_owned(), json!({ "type": ["string", "boolean", "number"] }));
    }
    json!({ "type": "object", "additionalProperties": false, "properties": names })
}

fn of_setting(setting: &Setting) -> Json {
    let may_be_empty = setting.empty_is_unset || setting.default.is_empty();
    let empty = may_be_empty.then_some(json!(""));
    match setting.kind {
        Kind::Bool => {
            let texts =
                ["1", "t", "T", "TRUE", "true", "True", "0", "f", "F", "FALSE", "false", "False"];
            let mut all = vec![json!(true), json!(false)];
            all.extend(texts.map(|text| json!(text)));
            all.extend(empty);
            json!({ "enum": all })
        }
        Kind::Int(range) => integer(range, may_be_empty),
        Kind::Choice(words) => {
            let mut all: Vec<Json> = choices(words).into_iter().map(Json::from).collect();
            all.extend(empty);
            json!({ "enum": all })
        }
        Kind::Path => json!({ "type": "string", "pattern": "^(/.*)?$" }),
        Kind::Text | Kind::Address | Kind::Cidrs | Kind::Tags | Kind::Plugins => {
            json!({ "type": "string" })
        }
    }
}

/// Returns the schema of a number, also as text. The schema bounds numbers only; the daemon checks the range of a text.
pub(crate) fn integer(range: &str, may_be_empty: bool) -> Json {
    let mut schema = json!({ "type": ["integer", "string"] });
    // A single digit elsewhere in a text is a part of a name.
    let bounds = range.split_once("from ").map_or(range, |(_, bounds)| bounds);
    let mut numbers = bounds
        .split(|c: char| !c.is_ascii_digit())
        .filter(|digits| digits.len() > 1 || bounds.starts_with(digits))
        .filter_map(|digits| digits.parse::<u64>().ok());
    if let Some(least) = numbers.next() {
        schema["minimum"] = json!(least);
    }
    if let Some(most) = numbers.next() {
        schema["maximum"] = json!(most);
    }
    let number = if range.contains("0x") {
        "(0[xX][0-9a-fA-F]+|0[oO][0-7]+|0[bB][01]+|[0-9]+)"
    } else {
        "[+-]?[0-9]+"
    };
    let optional = if may_be_empty { "?" } else { "" };
    schema["pattern"] = json!(format!("^({number}){optional}$"));
    schema
}

/// Returns the words of a choice; if the setting ignores case, also in upper and title case.
pub(crate) fn choices(words: &str) -> Vec<String> {
    let (words, in_any_case) = match words.strip_suffix(", in any case") {
        Some(words) => (words, true),
        None => (words, false),
    };
    let words = words.split(", ").flat_map(|words| words.split(" or ")).map(str::trim);
    let cases = |word: &str| {
        let mut title = word.to_owned();
        if let Some(first) = title.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        if in_any_case {
            vec![word.to_owned(), word.to_ascii_uppercase(), title]
        } else {
            vec![word.to_owned()]
        }
    };
    words.flat_map(cases).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_choices_of_the_settings_page_are_read() {
        let range = |text: &str| {
            let schema = integer(text, false);
            (schema["minimum"].as_u64(), schema["maximum"].as_u64())
        };
        assert_eq!(range("0 or more"), (Some(0), None));
        assert_eq!(range("10 or more"), (Some(10), None));
        assert_eq!(range("576 to 9001"), (Some(576), Some(9001)));
        assert_eq!(range("1 to 1000"), (Some(1), Some(1000)));
        assert_eq!(range("an integer from 1 to 2592000"), (Some(1), Some(2_592_000)));
        assert_eq!(range("any"), (None, None));
        let mark = "1 to 4294967295, with 0x, 0o or 0b if wanted";
        assert_eq!(range(mark), (Some(1), Some(4_294_967_295)));
        assert_eq!(choices("prng, hashrandom or none"), ["prng", "hashrandom", "none"]);
        assert_eq!(choices("strict or standard"), ["strict", "standard"]);
        assert!(choices("debug, info or fatal, in any case").contains(&"Debug".to_owned()));
        assert_eq!(choices("none"), ["none"]);
    }
}

//! The configuration schema of the form for EKS add-ons: the values that an add-on accepts. EKS
//! reads draft 06, with every value of the environment as text.

use crate::{
    env,
    schema::{choices, closed, pretty, tree},
    table::{Effect, Shape, Value, table},
};
use config_settings::{Kind, Setting};
use serde_json::{Value as Json, json};

pub(crate) fn text() -> String {
    let values = table().filter(|value| is_offered(value));
    let mut values = tree(values.map(|value| (value.path, of_value(value))));
    values["title"] = json!("Ferrule");
    pretty(&json!({
        "$schema": "http://json-schema.org/draft-06/schema#",
        "$ref": "#/definitions/Ferrule",
        "definitions": { "Ferrule": values },
    }))
}

/// Values of vpc-cni's own schema that have no effect or are refused here. Only their default is accepted.
const AT_THEIR_DEFAULTS: &[&str] = &[
    "nodeAgent.enableCloudWatchLogs",
    "nodeAgent.enablePolicyEventLogs",
    "nodeAgent.healthProbeBindAddr",
];

/// False for names of objects and whole Kubernetes objects, which EKS sets, and for values that have no effect or
/// are refused.
fn is_offered(value: &Value) -> bool {
    let never = [
        "nameOverride",
        "fullnameOverride",
        "image",
        "imagePullSecrets",
        "serviceAccount",
        "extraObjects",
    ];
    let top = value.path.split('.').next().unwrap_or_default();
    let is_taken = value.effect == Effect::Used || AT_THEIR_DEFAULTS.contains(&value.path);
    is_taken && !never.contains(&top) && !top.starts_with("extraVolume")
}

fn of_value(value: &Value) -> Json {
    match value.effect {
        Effect::Refused(_) => json!({ "type": "string", "enum": [value.default] }),
        Effect::Used | Effect::Idle => of_shape(value.shape),
    }
}

fn of_shape(shape: Shape) -> Json {
    match shape {
        Shape::Bool => json!({ "type": "boolean" }),
        Shape::BoolText | Shape::MaybeBool => json!({ "type": "string", "format": "boolean" }),
        Shape::Int(least) => json!({ "type": "integer", "minimum": least }),
        Shape::MaybeInt => json!({ "type": "string", "format": "integer" }),
        Shape::Text | Shape::MaybeText | Shape::Digits | Shape::Listen => {
            json!({ "type": "string" })
        }
        Shape::Choice(words) => json!({ "type": "string", "enum": words }),
        Shape::Texts | Shape::Labels => {
            json!({ "type": "object", "additionalProperties": { "type": "string" } })
        }
        Shape::Env => {
            let mut schema = closed();
            for setting in env::settings().filter(|setting| !env::is_refused(setting)) {
                schema["properties"][setting.name] = of_setting(setting);
            }
            for idle in env::idle().iter().filter(|idle| idle.is_done) {
                schema["properties"][idle.name] = json!({ "type": "string" });
            }
            schema
        }
        Shape::Object(_) | Shape::Probe | Shape::Rights | Shape::LesserRights | Shape::Subnets => {
            json!({ "type": "object" })
        }
        Shape::List(_) | Shape::MoreEnv | Shape::Objects => {
            json!({ "type": "array", "items": { "type": "object" } })
        }
    }
}

fn of_setting(setting: &Setting) -> Json {
    match setting.kind {
        Kind::Bool => json!({ "type": "string", "format": "boolean" }),
        Kind::Int(_) => json!({ "type": "string", "format": "integer" }),
        Kind::Choice(words) => json!({ "type": "string", "enum": choices(words) }),
        Kind::Text | Kind::Path | Kind::Address | Kind::Cidrs | Kind::Tags | Kind::Plugins => {
            json!({ "type": "string" })
        }
    }
}

//! Redaction of objects and logs for a support archive.

mod pem;
mod text;

use serde_json::{Value, json};
use text::is_secret_name;

pub use text::redact_text;

/// Removes values of unknown environment variables, the last applied configuration and managed fields. A Secret keeps
/// only its name.
pub fn redact(object: &mut Value) {
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    if kind == "Secret" || kind == "SecretList" {
        let metadata = json!({ "name": object["metadata"]["name"] });
        *object = json!({ "kind": kind, "metadata": metadata, "redacted": true });
        return;
    }
    walk(object);
}

fn walk(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if fields.get("kind").and_then(Value::as_str) == Some("Secret") {
                fields.remove("data");
                fields.remove("stringData");
            }
            fields.remove("managedFields");
            if fields.contains_key("nodeInfo") {
                // The list is long and not useful.
                fields.remove("images");
            }
            for (name, value) in fields.iter_mut() {
                if value.is_string() && is_secret_name(name) {
                    *value = json!(REDACTED);
                }
            }
            if let Some(Value::Object(annotations)) = fields.get_mut("annotations") {
                annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
            }
            if let Some(Value::Array(env)) = fields.get_mut("env") {
                env.iter_mut().for_each(variable);
            }
            fields.values_mut().for_each(walk);
        }
        Value::Array(items) => items.iter_mut().for_each(walk),
        Value::String(text) => *text = redact_text(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// A reference to another object has no value to hide.
fn variable(variable: &mut Value) {
    let name = variable["name"].as_str().unwrap_or_default();
    let known = KNOWN.contains(&name) || KNOWN_PREFIXES.iter().any(|it| name.starts_with(it));
    let secret_words = ["SECRET", "TOKEN", "PASSWORD", "KEY", "CREDENTIAL"];
    let harmless = known && !secret_words.iter().any(|word| name.contains(word));
    if !harmless && variable.get("value").is_some() {
        variable["value"] = json!(REDACTED);
    }
}

/// Returns the end of a log, without text that looks like a credential.
pub fn redact_log(text: &str, most: usize) -> String {
    let mut start = text.len().saturating_sub(most);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    let (before, end) = text.split_at_checked(start).unwrap_or_default();
    // A partial line may contain a partial credential.
    let cut = !before.is_empty() && !before.ends_with('\n');
    let lines = end.lines().skip(usize::from(cut));
    // A private key has several lines.
    redact_text(&lines.map(|line| line.to_owned() + "\n").collect::<String>())
}

/// Replaces removed text.
pub const REDACTED: &str = "REDACTED";

/// Prefixes of settings of Ferrule and amazon-vpc-cni. None of these settings is a secret.
const KNOWN_PREFIXES: [&str; 8] = [
    "FERRULE_",
    "AWS_VPC_",
    "WARM_",
    "MINIMUM_",
    "ENABLE_",
    "DISABLE_",
    "INTROSPECTION_",
    "NETWORK_POLICY_",
];
const KNOWN: [&str; 13] = [
    "ADDITIONAL_ENI_TAGS",
    "ANNOTATE_POD_IP",
    "AWS_EXTERNAL_SERVICE_CIDRS",
    "AWS_MANAGE_ENIS_NON_SCHEDULABLE",
    "AWS_REGION",
    "CLUSTER_NAME",
    "ENI_CONFIG_LABEL_DEF",
    "IP_COOLDOWN_PERIOD",
    "MAX_ENI",
    "MY_NODE_NAME",
    "MY_POD_NAME",
    "POD_SECURITY_GROUP_ENFORCING_MODE",
    "VPC_ID",
];
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_unknown_variables_are_left_out_and_known_settings_stay() {
        let mut pod = json!({ "kind": "Pod",
            "metadata": { "name": "p", "managedFields": [1], "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": "{}", "mine": "stays" } },
            "spec": { "containers": [{ "env": [
                { "name": "WARM_IP_TARGET", "value": "3" },
                { "name": "HTTP_PROXY", "value": "http://user:pw@proxy" },
                { "name": "FERRULE_SECRET", "value": "x" },
                { "name": "MY_NODE_NAME", "valueFrom": { "fieldRef": { "fieldPath": "spec.nodeName" } } },
            ] }] } });
        redact(&mut pod);
        let env = &pod["spec"]["containers"][0]["env"];
        let values: Vec<&str> =
            [0, 1, 2].map(|n| env[n]["value"].as_str().unwrap_or_default()).into();
        assert_eq!(values, ["3", REDACTED, REDACTED]);
        assert_eq!(env[3]["valueFrom"]["fieldRef"]["fieldPath"], "spec.nodeName");
        assert_eq!(pod["metadata"], json!({ "name": "p", "annotations": { "mine": "stays" } }));
    }

    #[test]
    fn a_secret_is_never_shown() {
        let mut secret =
            json!({ "kind": "Secret", "metadata": { "name": "s" }, "data": { "a": "eA==" } });
        redact(&mut secret);
        assert!(!secret.to_string().contains("eA=="), "{secret}");
        let mut list = json!({ "kind": "List", "items": [
            { "kind": "Secret", "data": { "a": "eA==" } }] });
        redact(&mut list);
        assert!(!list.to_string().contains("eA=="), "{list}");
    }

    #[test]
    fn a_log_loses_its_start_and_credentials() {
        let log = "first ä\nused AKIAIOSFODNN7EXAMPLE, ok\nbearer eyJhbGciOiJSUzI1NiIsImtpZCI6\n";
        assert_eq!(
            redact_log(log, 1000),
            format!("first ä\nused {REDACTED}, ok\nbearer {REDACTED}\n")
        );
        assert_eq!(redact_log("first\nlast\n", 5), "last\n");
        assert_eq!(redact_log("first\nlast\n", 7), "last\n", "nor half of a line");
        assert_eq!(redact_log("ä", 1), "", "no half of a letter is left");
        let key = "a\n-----BEGIN PRIVATE KEY-----\nMIIEow\nIBAAK\n-----END PRIVATE KEY-----\nb\n";
        let hidden = "a\n-----BEGIN PRIVATE KEY-----REDACTED-----END PRIVATE KEY-----\nb\n";
        assert_eq!(redact_log(key, 1000), hidden);
        for most in 0..key.len() {
            assert!(!redact_log(key, most).contains("IBAAK"), "{}", redact_log(key, most));
        }
    }

    #[test]
    fn free_text_of_an_object_is_redacted_too() {
        let mut pod = json!({ "kind": "Pod",
            "metadata": { "annotations": { "from": "https://user:pw@host/x", "session-token": "abc" } },
            "spec": { "containers": [{ "args": ["--password=hunter2", "--port=1"] }] },
            "status": { "nodeInfo": {}, "images": [{}], "conditions": [
                { "message": "denied to ASIAIOSFODNN7EXAMPLE" }] } });
        redact(&mut pod);
        let wanted = json!({ "kind": "Pod",
            "metadata": { "annotations": { "from": "https://REDACTED@host/x",
                "session-token": REDACTED } },
            "spec": { "containers": [{ "args": ["--password=REDACTED", "--port=1"] }] },
            "status": { "nodeInfo": {}, "conditions": [{ "message": "denied to REDACTED" }] } });
        assert_eq!(pod, wanted);
    }
}

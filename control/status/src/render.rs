//! Statuses in the words of each kind. They are JSON, as the API server takes them.

use crate::{Phase, Realization};
use policy_core::PolicyKey;
use policy_objects::Kind;
use serde_json::{Map, Value, json};

/// Group, version and kind of our object with the status of a NetworkPolicy.
pub const OURS: (&str, &str, &str) = ("policy.ferrule.io", "v1alpha1", "NetworkPolicyRealization");

/// Condition type that ClusterNetworkPolicy and AWS's kinds use.
const REALIZED: &str = "Realized";
/// The word that Antrea has for it, for what is the other way round.
const FAILURE: &str = "RealizationFailure";
/// Maximum length of a message, in characters.
const MESSAGE: usize = 2_048;

/// Returns the status of a policy whose kind has one, if it differs from the previous one. Only changed conditions
/// get the new time, in the API server's format. Conditions of other writers stay.
pub fn status(kind: Kind, says: &Realization, was: &Value, now: &str) -> Option<Value> {
    let is = match kind {
        Kind::AntreaClusterNetworkPolicy | Kind::AntreaNetworkPolicy => antrea(says, was, now),
        Kind::ClusterNetworkPolicy
        | Kind::AwsClusterNetworkPolicy
        | Kind::AwsApplicationNetworkPolicy => {
            let mut is = whole(was);
            is.insert("conditions".to_owned(), conditions(was, &realized(says), now));
            Value::Object(is)
        }
        Kind::NetworkPolicy
        | Kind::Pod
        | Kind::Namespace
        | Kind::Node
        | Kind::Service
        | Kind::AntreaTier
        | Kind::AntreaClusterGroup
        | Kind::AntreaGroup => return None,
    };
    (is != *was).then_some(is)
}

/// Our object of a NetworkPolicy, which goes with it.
pub fn object(key: &PolicyKey, uid: &str, says: &Realization) -> Value {
    let (group, version, kind) = OURS;
    let failures: Vec<Value> =
        says.failures.iter().map(|it| json!({"node": it.node, "why": it.why})).collect();
    json!({
        "apiVersion": format!("{group}/{version}"),
        "kind": kind,
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "ownerReferences": [{
                "apiVersion": "networking.k8s.io/v1",
                "kind": "NetworkPolicy",
                "name": key.name,
                "uid": uid,
            }],
        },
        "status": {
            "phase": says.phase().text(),
            "observedGeneration": says.generation,
            "currentNodesRealized": says.realized,
            "desiredNodesRealized": says.desired,
            "failingNodes": says.failing,
            "failures": failures,
            "silentNodes": says.silent,
            "message": message(says),
        },
    })
}

fn antrea(says: &Realization, was: &Value, now: &str) -> Value {
    let mut is = whole(was);
    is.insert("phase".to_owned(), json!(says.phase().text()));
    is.insert("observedGeneration".to_owned(), json!(says.generation));
    is.insert("currentNodesRealized".to_owned(), json!(says.realized));
    is.insert("desiredNodesRealized".to_owned(), json!(says.desired));
    let (status, reason) = match (says.failing, says.silent) {
        (0, 0) => ("False", "NoFailure"),
        (0, _) => ("Unknown", "NodesSilent"),
        (_, _) => ("True", "NetworkPolicyRealizationFailedOnNode"),
    };
    let failure = json!({
        "type": FAILURE, "status": status, "reason": reason, "message": message(says),
    });
    is.insert("conditions".to_owned(), conditions(was, &failure, now));
    Value::Object(is)
}

fn realized(says: &Realization) -> Value {
    let (status, reason) = match says.phase() {
        Phase::Realized => ("True", "Realized"),
        Phase::Failed => ("False", "FailedOnNodes"),
        Phase::Realizing if says.failing > 0 => ("False", "FailedOnNodes"),
        Phase::Realizing if says.silent > 0 => ("Unknown", "NodesSilent"),
        Phase::Realizing => ("False", "Realizing"),
    };
    json!({
        "type": REALIZED, "status": status, "reason": reason, "message": message(says),
        "observedGeneration": says.generation,
    })
}

/// All conditions, with this one in its place: it has its time unless its status is another.
fn conditions(was: &Value, is: &Value, now: &str) -> Value {
    let mut all: Vec<Value> = was["conditions"].as_array().cloned().unwrap_or_default();
    let found = all.iter_mut().find(|condition| condition["type"] == is["type"]);
    let since = match found.as_deref() {
        Some(before) if before["status"] == is["status"] => before["lastTransitionTime"].clone(),
        Some(_) | None => Value::Null,
    };
    let mut is = is.clone();
    is["lastTransitionTime"] = if since.is_string() { since } else { json!(now) };
    match found {
        Some(condition) => *condition = is,
        None => all.push(is),
    }
    Value::Array(all)
}

fn whole(was: &Value) -> Map<String, Value> {
    was.as_object().cloned().unwrap_or_default()
}

fn message(says: &Realization) -> String {
    says.to_string().chars().take(MESSAGE).collect()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::expect_used, reason = "a test stops where its premise fails")]

    use super::*;
    use crate::Failing;

    fn counts(realized: u32, failing: u32, silent: u32) -> Realization {
        let (node, why) = ("n1".to_owned(), "no room in the map".to_owned());
        let failures = if failing > 0 { vec![Failing { node, why }] } else { Vec::new() };
        let silence = if silent > 0 { vec!["n2".to_owned()] } else { Vec::new() };
        let (generation, desired) = (3, 5);
        Realization { generation, desired, realized, failing, failures, silent, silence }
    }

    #[test]
    fn an_equal_status_is_not_written_and_keeps_its_time() {
        for kind in [Kind::AntreaNetworkPolicy, Kind::ClusterNetworkPolicy] {
            let first = status(kind, &counts(3, 0, 0), &Value::Null, "then").expect("it is new");
            assert_eq!(status(kind, &counts(3, 0, 0), &first, "now"), None);
            let next = status(kind, &counts(4, 0, 0), &first, "now").expect("it is another");
            assert_eq!(next["conditions"][0]["lastTransitionTime"], "then");
            let failed = status(kind, &counts(4, 1, 0), &next, "now").expect("it is another");
            assert_eq!(failed["conditions"].as_array().map(Vec::len), Some(1));
            let turned = kind == Kind::AntreaNetworkPolicy;
            let since = if turned { "now" } else { "then" };
            assert_eq!(failed["conditions"][0]["lastTransitionTime"], since, "{kind:?}");
        }
    }

    #[test]
    fn conditions_of_other_writers_stay() {
        let was = json!({
            "another": 1,
            "conditions": [{"type": "Audited", "status": "True"}],
        });
        for kind in [Kind::AntreaClusterNetworkPolicy, Kind::AwsClusterNetworkPolicy] {
            let is = status(kind, &counts(5, 0, 0), &was, "now").expect("it is another");
            assert_eq!(is["another"], 1);
            assert_eq!(is["conditions"][0], was["conditions"][0]);
        }
    }

    #[test]
    fn the_text_names_failing_and_silent_nodes() {
        let text = counts(2, 1, 2).to_string();
        assert_eq!(
            text,
            "in force on 2 of 5 nodes; 1 cannot enforce it: n1 (no room in the map); \
             2 have not reported: n2 and 1 more"
        );
        let is = status(Kind::ClusterNetworkPolicy, &counts(2, 0, 3), &Value::Null, "now");
        let is = is.expect("it is new");
        assert_eq!(is["conditions"][0]["status"], "Unknown");
        assert_eq!(is["conditions"][0]["observedGeneration"], 3);
        let is = status(Kind::AntreaNetworkPolicy, &counts(4, 1, 0), &Value::Null, "now");
        let is = is.expect("it is new");
        assert_eq!(is["phase"], "Failed");
        assert_eq!(
            (&is["currentNodesRealized"], &is["desiredNodesRealized"]),
            (&json!(4), &json!(5))
        );
    }

    #[test]
    fn kinds_without_a_status_have_none() {
        assert_eq!(status(Kind::NetworkPolicy, &counts(1, 0, 0), &Value::Null, "now"), None);
    }
}

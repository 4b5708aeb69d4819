//! The fields that are read from a Node object.

use super::{CONDITION, Condition, ObjectMeta};
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Node {
    metadata: Meta,
    spec: Spec,
    status: Status,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Meta {
    name: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Spec {
    taints: Vec<serde_json::Value>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Status {
    capacity: Capacity,
    conditions: Vec<Typed>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Capacity {
    pods: Option<String>,
}

#[derive(Deserialize)]
struct Typed {
    r#type: String,
    #[serde(flatten)]
    condition: Condition,
}

impl From<Node> for super::Node {
    fn from(node: Node) -> Self {
        let mut conditions = node.status.conditions.into_iter();
        Self {
            metadata: ObjectMeta {
                name: node.metadata.name,
                uid: node.metadata.uid,
                resource_version: node.metadata.resource_version,
                labels: node.metadata.labels,
                annotations: node.metadata.annotations,
                ..ObjectMeta::default()
            },
            taints: node.spec.taints,
            max_pods: node.status.capacity.pods.and_then(|pods| pods.parse().ok()),
            condition: conditions
                .find(|typed| typed.r#type == CONDITION)
                .map(|typed| typed.condition),
        }
    }
}

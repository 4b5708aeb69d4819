//! The fields that are read from a Pod object.

use super::{BRANCH, EVERY_CARD, ObjectMeta};
use serde::{Deserialize, de::IgnoredAny};
use std::collections::BTreeMap;

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Pod {
    metadata: Meta,
    spec: Spec,
    status: Status,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Meta {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    deletion_timestamp: Option<IgnoredAny>,
    annotations: Option<Annotations>,
}

/// The annotations that the daemon reads.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Annotations {
    #[serde(rename = "vpc.amazonaws.com/pod-eni")]
    branch: Option<String>,
    #[serde(rename = "vpc.amazonaws.com/pod-ips")]
    pod_ips: Option<String>,
    #[serde(rename = "k8s.amazonaws.com/nicConfig")]
    nic_config: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    host_network: bool,
    containers: Vec<Container>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Container {
    resources: Resources,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Resources {
    limits: BTreeMap<String, IgnoredAny>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    phase: Option<String>,
    #[serde(rename = "podIP")]
    pod_ip: Option<String>,
}

impl From<Pod> for super::Pod {
    fn from(pod: Pod) -> Self {
        let annotations = pod.metadata.annotations.unwrap_or_default();
        let first = pod.spec.containers.first();
        Self {
            metadata: ObjectMeta {
                name: pod.metadata.name,
                namespace: pod.metadata.namespace,
                uid: pod.metadata.uid,
                resource_version: pod.metadata.resource_version,
                ..ObjectMeta::default()
            },
            ending: pod.metadata.deletion_timestamp.is_some(),
            host_network: pod.spec.host_network,
            ended: matches!(pod.status.phase.as_deref(), Some("Succeeded" | "Failed")),
            has_address: pod.status.pod_ip.is_some_and(|address| !address.is_empty()),
            branch_limit: first.is_some_and(|container| {
                container.resources.limits.keys().any(|name| name.starts_with(BRANCH))
            }),
            every_card: annotations.nic_config.as_deref() == Some(EVERY_CARD),
            branch: annotations.branch,
            pod_ips: annotations.pod_ips,
        }
    }
}

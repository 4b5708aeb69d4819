//! Kubernetes' objects, trimmed to what is looked at here. What a field lacks is empty: nothing is refused.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Whose an object is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    /// Its name.
    pub name: String,
    /// Its namespace, if it has one.
    pub namespace: String,
    /// Its identity.
    pub uid: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// Since when it is being deleted.
    pub deletion_timestamp: Option<String>,
}

/// A condition of a node or a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// A word.
    pub reason: String,
    /// A sentence.
    pub message: String,
    /// Since when.
    pub last_transition_time: Option<String>,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Node {
    /// Whose it is.
    pub metadata: Meta,
    /// What is wanted.
    pub spec: NodeSpec,
    /// What is.
    pub status: NodeStatus,
}

/// What is wanted of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSpec {
    /// Whether it is cordoned.
    pub unschedulable: bool,
}

/// What a node is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    /// How it stands.
    pub conditions: Vec<Condition>,
    /// Where it is reached.
    pub addresses: Vec<NodeAddress>,
}

/// Where a node is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAddress {
    /// `InternalIP` and others.
    #[serde(rename = "type")]
    pub kind: String,
    /// The address.
    pub address: String,
}

impl Node {
    /// Its first internal address.
    pub fn internal_address(&self) -> Option<&str> {
        let internal = |it: &&NodeAddress| it.kind == "InternalIP";
        self.status.addresses.iter().find(internal).map(|it| it.address.as_str())
    }

    /// A condition of it.
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.status.conditions.iter().find(|condition| condition.kind == kind)
    }
}

/// A pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pod {
    /// Whose it is.
    pub metadata: Meta,
    /// What is wanted.
    pub spec: PodSpec,
    /// What is.
    pub status: PodStatus,
}

/// What is wanted of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// The node it is bound to.
    pub node_name: Option<String>,
    /// Whether it has the network of its node.
    pub host_network: bool,
    /// Its containers.
    pub containers: Vec<Container>,
}

/// A container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    /// Its name.
    pub name: String,
    /// Its image.
    pub image: String,
    /// Its environment.
    pub env: Vec<Variable>,
}

impl Container {
    /// The value of a variable, where it is written in the object itself.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.env.iter().find(|it| it.name == name).map(|it| it.value.as_str())
    }
}

/// A variable of a container's environment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its value; empty where it comes from elsewhere.
    pub value: String,
}

/// What a pod is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// `Pending`, `Running` and others.
    pub phase: String,
    /// A word for why.
    pub reason: String,
    /// A sentence.
    pub message: String,
    /// Its addresses.
    #[serde(rename = "podIPs")]
    pub pod_ips: Vec<PodIp>,
    /// How it stands.
    pub conditions: Vec<Condition>,
    /// Its containers.
    pub container_statuses: Vec<ContainerStatus>,
    /// Those that run before them.
    pub init_container_statuses: Vec<ContainerStatus>,
}

/// An address of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PodIp {
    /// It.
    pub ip: String,
}

/// How a container stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    /// Its name.
    pub name: String,
    /// Its image.
    pub image: String,
    /// Whether it is ready.
    pub ready: bool,
    /// How often it was started anew.
    pub restart_count: u32,
    /// Now.
    pub state: ContainerState,
    /// Before.
    pub last_state: ContainerState,
}

/// One of the two, or it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ContainerState {
    /// It waits.
    pub waiting: Option<Reason>,
    /// It has ended.
    pub terminated: Option<Reason>,
}

/// Why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Reason {
    /// A word.
    pub reason: String,
    /// A sentence.
    pub message: String,
    /// How it ended.
    pub exit_code: Option<i64>,
}

/// A DaemonSet, as far as it says on which nodes it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DaemonSet {
    /// Whose it is.
    pub metadata: Meta,
    /// What is wanted.
    pub spec: DaemonSetSpec,
}

/// What is wanted of a DaemonSet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct DaemonSetSpec {
    /// Its pods.
    pub template: Template,
}

/// What pods are made of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Template {
    /// What is wanted of them.
    pub spec: TemplateSpec,
}

/// Where pods may run, and of what they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TemplateSpec {
    /// Labels that a node must have.
    pub node_selector: BTreeMap<String, String>,
    /// What else a node must be.
    pub affinity: Affinity,
    /// Their containers.
    pub containers: Vec<Container>,
}

/// What a pod's node must be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Affinity {
    /// Of the node alone; what is said of other pods is not looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_affinity: Option<NodeAffinity>,
}

/// What must be, without what is only preferred.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeAffinity {
    /// What holds when a pod is placed.
    #[serde(
        rename = "requiredDuringSchedulingIgnoredDuringExecution",
        skip_serializing_if = "Option::is_none"
    )]
    pub required: Option<NodeSelector>,
}

/// One of its terms must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelector {
    /// Its terms.
    pub node_selector_terms: Vec<NodeSelectorTerm>,
}

/// All of it must hold; one that says nothing never does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelectorTerm {
    /// Of the node's labels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<Requirement>,
    /// Of the node's name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub match_fields: Vec<Requirement>,
}

/// What is required of one label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Requirement {
    /// The label.
    pub key: String,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt` or `Lt`.
    pub operator: String,
    /// With what.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

/// An event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Event {
    /// `Normal` or `Warning`.
    #[serde(rename = "type")]
    pub kind: String,
    /// A word.
    pub reason: String,
    /// A sentence.
    pub message: String,
    /// How often.
    pub count: Option<u32>,
    /// When it was last seen, by those who count.
    pub last_timestamp: Option<String>,
    /// When it happened, by those who do not.
    pub event_time: Option<String>,
}

impl Event {
    /// When it was seen last; RFC 3339 in UTC sorts as text.
    pub fn at(&self) -> &str {
        let times = [&self.last_timestamp, &self.event_time];
        times.into_iter().flatten().map(String::as_str).max().unwrap_or_default()
    }
}

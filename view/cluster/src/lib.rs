//! What a cluster and its daemons say to what an operator is told: documents → tables, troubles, what to do.
//!
//! Pure: whoever calls asks the API server and each node's daemon, and hands over what came or why nothing
//! came. Start with [`Glance`] for the nodes, [`Whereabouts`] for one pod, [`Matrix`] for the
//! connectivity test, [`explain`] for kubelet's words.

mod affinity;
mod bundle;
mod check;
mod glance;
mod objects;
mod pod_state;
mod redact;
mod table;
mod whereabouts;
mod words;

pub use affinity::{excluded, for_probes, unselected};
pub use bundle::{Bounds, Entry, Index, Missing};
pub use check::{Around, Column, Failure, How, Matrix, Outcome, Row, Site, Try, answered, tries};
pub use glance::{Agent, AgentLine, AgentState, Cluster, Glance, Heard, Lease, NodeLine, Width};
pub use objects::{
    Affinity, Condition, Container, ContainerState, ContainerStatus, DaemonSet, DaemonSetSpec,
    Event, Meta, Node, NodeAddress, NodeAffinity, NodeSelector, NodeSelectorTerm, NodeSpec,
    NodeStatus, Pod, PodIp, PodSpec, PodStatus, Reason, Requirement, Template, TemplateSpec,
    Variable,
};
pub use pod_state::of_pod;
pub use redact::{REDACTED, redact, redact_log, redact_text};
pub use table::Table;
pub use whereabouts::{AboutPod, Finding, Interface, Whereabouts};
pub use words::{By, Explained, WORDS, Word, explain};

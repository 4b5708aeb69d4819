//! The views of `ferrule` on a cluster: API objects and daemon documents in, tables, problems and next steps out.
//!
//! Pure: the caller reads the API server and each node's daemon and passes the answers or the errors. Start with
//! [`StatusReport`] for the nodes, [`AddressReport`] for addresses, [`PodReport`] for one pod and [`ServiceReport`] for one
//! Service. [`Matrix`] is for the connectivity test, and [`explain`] for the kubelet's messages.

mod address_report;
mod affinity;
mod bundle;
mod check;
mod forecast;
mod known_errors;
mod objects;
mod pod_list;
mod pod_report;
mod pod_state;
mod redact;
mod service_list;
mod service_report;
mod status_report;
mod subnets;
mod versions;

pub use address_report::{AddressData, AddressReport, BlockUse, Count, EniUse, SubnetUse};
pub use affinity::{excluded, for_probes, unselected};
pub use bundle::{Bounds, Entry, Index, Missing, OwnObjects};
pub use check::{
    Around, Chosen, Column, Failure, How, Matrix, Outcome, Row, Site, Try, answered, failed,
    for_nodes, host_tries, sample, tries,
};
pub use forecast::{Forecast, Silence, forecast};
pub use known_errors::{By, Explanation, KNOWN_ERRORS, KnownError, explain};
pub use objects::{
    Affinity, Condition, Container, ContainerPort, ContainerState, ContainerStatus, DaemonSet,
    DaemonSetSpec, Event, Meta, Node, NodeAddress, NodeAffinity, NodeSelector, NodeSelectorTerm,
    NodeSpec, NodeStatus, Pod, PodIp, PodSpec, PodStatus, Reason, Requirement, Template,
    TemplateSpec, Variable,
};
pub use pod_list::PodList;
pub use pod_report::{Finding, Interface, PodData, PodReport};
pub use pod_state::of_pod;
pub use redact::{REDACTED, redact, redact_log, redact_text};
pub use service_list::ServiceList;
pub use service_report::{
    AgentServices, Answer, ClientView, EndpointCount, EndpointView, FrontendView, InForce,
    PortView, ServiceData, ServiceReport, Serving,
};
pub use status_report::{
    Agent, AgentLine, AgentState, Cluster, DaemonAnswer, Lease, NodeLine, StatusReport, Summary,
    Width,
};
pub use subnets::SubnetState;
pub use versions::{Program, ProgramLine, VersionReport, version_of_metrics};

//! From an observation of a node to a report about pod networking.
//!
//! Pure: the caller observes the node and passes an [`Observation`]; [`examine`] runs each [`Check`]. A check that
//! could not run is reported and never counts as passed. The crate does not change a node: each finding has a fix for the
//! operator.
//!
//! Start with [`Check`]; the judgments are in `checks/`, one file per subject, with their tests.

mod check;
mod checks;
mod observation;
mod report;

pub use check::Check;
pub use checks::examine;
pub use observation::{
    AgentMemory, Chain, Ebpf, EbpfAgent, Feature, Imds, LinkFile, LinkView, Metadata, Observation,
    Observed, RouteView, Routing, RuleView, Unit,
};
pub use report::{Finding, Report, Severity, Unchecked};

//! What is seen of a node to what breaks pod networking on it: observation → report.
//!
//! Pure: whoever calls looks at the node and hands over an [`Observation`]; [`examine`] asks each
//! [`Check`] in turn. A check that could not be made says so and never passes for a good one. Nothing
//! here changes a node: each finding says how people mend it.
//!
//! Start with [`Check`]; the judgements stand in `checks/`, one noun each, with their tests.

mod check;
mod checks;
mod observation;
mod report;

pub use check::Check;
pub use checks::examine;
pub use observation::{
    Chain, Feature, Imds, LinkFile, LinkView, Looked, Metadata, Observation, RouteView, Routing,
    RuleView, Unit,
};
pub use report::{Finding, Report, Severity, Unseen};

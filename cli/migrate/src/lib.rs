//! From an observation of a node to the steps that take it over from amazon-vpc-cni or give it back.
//!
//! Pure: the caller observes the node, passes an [`Observation`] and applies the first [`Step`] of the [`Plan`]; then it
//! observes and plans again. Only the requested owner is stored (`config_model::Migration`), so after a crash the next
//! run continues from the node's state.
//!
//! Input that is not understood is refused before the first step. Start with [`plan`]; the two ways are in `plan/`,
//! amazon-vpc-cni's files in `vpc_cni`, and the conditions for a pod to change its owner in `fit`. [`services`] replaces
//! kube-proxy in a cluster; it shares no state with the takeover of a node.

mod conflist;
mod fit;
mod observation;
mod plan;
mod refusal;
mod result;
pub mod services;
mod settings;
mod vpc_cni;

#[cfg(test)]
mod tests;

pub use conflist::{ASIDE, Network, OURS as OUR_CONFLIST, is_read};
pub use observation::{
    Assignment, Calls, Cluster, DaemonSet, Eni, Ferrule, File, Kernel, LinkView, NftTable,
    Observation, Observed, Policy, Program, RouteView, RuleView, Settings, VpcCni,
};
pub use plan::{Check, Plan, PolicyChoice, Step, Wait, check, is_guarded, plan};
pub use refusal::Refusal;
pub use settings::{Difference, Values, differences};
pub use vpc_cni::same_allocations;

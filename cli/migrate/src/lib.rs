//! What is seen of a node to the steps that take it over from amazon-vpc-cni, or give it back.
//!
//! Pure: whoever calls looks at the node, hands over an [`Observation`] and carries out the first
//! [`Step`] of the [`Plan`]; then it looks and asks again. Nothing is remembered but which way the
//! node is to go (`config_model::Migration`), so who was killed in between goes on where the node is.
//!
//! What is not understood is refused before the first step, and nothing of it is changed. Start with
//! [`plan`]; the two ways stand in `plan/`, what amazon-vpc-cni's files mean in `theirs`, and how a
//! pod must look to change hands in `fit`.

mod conflist;
mod fit;
mod observation;
mod plan;
mod refusal;
mod result;
mod theirs;

#[cfg(test)]
mod tests;

pub use conflist::{ASIDE, Network, OURS as OUR_CONFLIST, is_read};
pub use observation::{
    Calls, Eni, File, Held, Kernel, LinkView, Looked, Observation, Ours, Policy, Program,
    RouteView, RuleView, Theirs,
};
pub use plan::{Plan, PolicyChoice, Step, Wait, Way, plan};
pub use refusal::Refusal;
pub use theirs::same_allocations;

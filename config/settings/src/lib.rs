//! Environment to resolved settings: the only place where defaults live.
//!
//! One [table()] names every setting with its type, default, unit and meaning. Parsing, the
//! defaults and the reference page `docs/settings.md` all come from it. Where amazon-vpc-cni has
//! the setting, its name, type, default and parsing are kept; where its code and its manifest
//! differ in the default, the manifest's counts, since that is what clusters run with.
//!
//! This crate reads no environment: [`Settings::resolve`] is given the pairs. Start reading there.

mod contradiction;
mod controller;
mod page;
mod parse;
mod refusal;
mod resolve;
mod table;
mod values;

pub use controller::{CONTROLLER, Flag};
pub use page::reference_page;
pub use refusal::Refusal;
pub use resolve::Warning;
pub use table::{Effect, Kind, OnBad, Origin, Setting, table};
pub use values::{
    Agent, Bind, CallBudget, CustomNetworking, Family, Kubernetes, LogLevel, LogTo, NatBackend,
    PodEniMode, PolicyBackend, RandomizeSnat, Settings, Warm,
};

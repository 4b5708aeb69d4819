//! Resolves the environment to settings. Defaults exist only here.
//!
//! One [table()] names every setting with its type, default, unit and meaning. Parsing, the
//! defaults and the reference page `docs/settings.md` all come from it. A setting of amazon-vpc-cni
//! keeps its name, type, default and parsing. If the default differs between its code and its
//! manifest, the manifest's applies, since clusters run with the manifest.
//!
//! This crate does not read the environment: its caller passes the pairs to [`Settings::resolve`]. Start reading there.

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
    Agent, Bind, CallBudget, Connections, CustomNetworking, Family, Kubernetes, LogLevel, LogTo,
    NatBackend, PodEniMode, PolicyBackend, RandomizeSnat, Settings, Timeouts, Warm,
};

//! `ferrule-controller`: reads what the cluster says of policy, computes it once, tells each node what it needs.
//!
//! [`run`] is a replica's whole life. `feed` reads one kind, `intake` takes its objects into the hub, `admit` lets
//! agents in, `tls` keeps the certificate, `lease` says who takes reports and writes `status`, `view` answers
//! people. Which node is told what is decided in
//! `control-hub`, and the stream is `control-rpc`'s.

mod admit;
mod agents;
mod api;
mod board;
mod definitions;
mod dismissals;
mod fault;
mod feed;
mod http;
mod intake;
mod kinds;
mod known;
mod lease;
mod lines;
mod metrics;
mod options;
mod propagation;
mod rarely;
mod run;
mod status;
mod tls;
mod view;

pub use agents::Account;
pub use options::{LogFormat, LogLevel, Options};
pub use run::run;

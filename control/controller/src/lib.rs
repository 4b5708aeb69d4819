//! `ferrule-controller`: reads what the cluster says of policy, computes it once, tells each node what it needs.
//!
//! [`run`] is a replica's whole life. `feed` reads one kind, `intake` takes its objects into the hub, `admit` lets
//! agents in, `tls` keeps the certificate, `lease` says who takes reports and writes `status`, `view` answers
//! people. Which node is told what is decided in
//! `control-hub`, and the stream is `control-rpc`'s.

mod admit;
mod agents;
mod api;
mod definitions;
mod dismissals;
mod fault;
mod feed;
mod http;
mod intake;
mod kinds;
mod lease;
mod log_limiter;
mod metrics;
mod object_tracker;
mod options;
mod propagation;
mod readiness;
mod run;
mod status;
mod tls;
mod view;
mod watch_lines;

pub use agents::Account;
pub use options::{LogFormat, LogLevel, Options};
pub use run::run;

//! `ferrule-controller`: reads the cluster's policies, computes them once, and sends each node its part.
//!
//! [`run`] runs a replica. `feed` reads one kind, and `intake` applies its objects to the hub. `admit` authenticates
//! agents. `tls` keeps the certificate. `lease` elects the replica that collects reports and writes `status`. `view`
//! serves the aggregated API. `control-hub` decides about the content of nodes, and `control-rpc` has the stream.

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

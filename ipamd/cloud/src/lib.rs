//! The seam between the daemon and the cloud, and EC2 as its implementation.
//!
//! The daemon calls [`Cloud`]; [`Ec2`] implements it with aws-sdk-ec2 and the instance metadata service. The adapter
//! makes no decision: it translates, executes each call once, and classifies failures by the caller's next step. It
//! retries no EC2 call, because the core has the budget. It keeps no state of the cloud, and never logs a request, an
//! answer or a credential.
//!
//! Start with [`Cloud`]; `ec2` has the calls, `imds` the metadata. The table of EC2's error codes is in
//! `ipamd_core::Ec2ErrorResponse`. Tests run [`Ec2`] against the lab's services over HTTP.

mod cloud;
mod ec2;
mod error_chain;
mod imds;
mod observer;
mod refusal;

pub use cloud::{Cloud, Node, TypeLimits};
pub use ec2::{ConnectError, Ec2, Options};
pub use observer::{CallReport, Observer, Service};
pub use refusal::Refusal;

//! The cloud in our words, and EC2 behind it.
//!
//! [`Cloud`] is what the daemon asks; [`Ec2`] answers it with aws-sdk-ec2 and the instance metadata
//! service. The adapter decides nothing: it translates, carries out one call at a time as it is
//! told, and sorts what failed by what the caller can do next. It repeats no EC2 call (the core
//! has the budget), keeps no state of the cloud, and never logs a request, an answer or a credential.
//!
//! Start with [`Cloud`]; `ec2` has the calls, `imds` the metadata; the table of EC2's error codes is in
//! `ipamd_core::Ec2ErrorResponse`. Tests drive [`Ec2`] against the lab's services over HTTP.

mod cloud;
mod ec2;
mod imds;
mod observer;
mod refusal;

pub use cloud::{Cloud, Node, TypeLimits};
pub use ec2::{ConnectError, Ec2, Options};
pub use observer::{CallReport, Observer, Service};
pub use refusal::Refusal;

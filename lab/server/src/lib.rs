//! EC2, IMDS and a VPC on one machine: the library behind `ferrule-lab`.
//!
//! - [`LiveCloud`] is the pure model of `lab-cloud` under a real clock.
//! - [`serve_loopback`] gives a test both services on loopback, without any privilege.
//! - The EC2 endpoint speaks the Query protocol and answers XML; the IMDS endpoint is version 2 alone. The model
//!   decides the answers. This crate adds forms, XML, HTTP and time.
//!
//! The crate must never touch the machine's own network: everything of a lab is in namespaces of its own.

mod api_proxy;
pub mod cli;
pub mod control;
mod ec2;
mod forward;
mod http;
mod imds;
mod lab;
mod live;
mod loopback;
mod resource_controller;
mod routes;
mod serve;

pub use lab::Cluster;
pub use live::{LiveCloud, ReplyLoss, Source};
pub use loopback::{Loopback, serve_loopback};
pub use serve::{Layout, ServeError, ServeSpec, serve};

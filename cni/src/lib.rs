//! ferrule-cni: creates and removes one pod's veth, routes and rules for the container runtime.
//!
//! ADD is reserve, build, confirm; DEL is release, then the kernel. The only state of the plugin is the tombstone of a
//! DEL that did not reach the daemon. It forks no process, connects to sockets of this node only, and writes only the
//! answer to standard output. It never prints or logs a value of `runtimeConfig`, of an unknown argument or of raw input.
//!
//! Start with [`run`]; then `add`, `del`, `check`, `status` and `gc`, one file for each
//! verb. The error codes are in [`fault::Code`]. Tests of the built binary against a
//! real kernel: `tests/netns/tests/plugin`.

mod add;
pub mod args;
mod attachment;
mod check;
mod del;
pub mod fault;
mod flight;
mod gc;
pub mod invocation;
pub mod log;
pub mod netconf;
pub mod result;
mod sandbox;
mod session;
mod status;
pub mod tombstone;
mod verbs;
pub mod version;
mod wiring;

pub use verbs::{Reply, run};

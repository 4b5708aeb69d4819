//! ferrule-cni: one pod's veth, routes and rules, as the container runtime asks for them.
//!
//! ADD is reserve, build, confirm; DEL is release, then the kernel. The plugin keeps no state of
//! its own but the tombstone of a DEL that the daemon missed, forks no process, opens no connection
//! but the daemon's socket, and writes nothing to standard output but the answer. What it must
//! never do: print or log a value of `runtimeConfig`, of an unknown argument or of raw input.
//!
//! Start with [`run`]; then `add`, `del`, `check`, `status` and `gc`, which read like the design's description of
//! the verbs. The codes of failures stand in [`fault::Code`]. Tests of the built binary against a
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

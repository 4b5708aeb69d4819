//! Fakes, and the test suites that they share with the real components.
//!
//! [`FakeKernel`] executes routing operations on a state that tests can observe. The cases of
//! [`kernel_contract`] hold for it and for a real kernel, so that results on the fake are valid for the real
//! one.

pub mod clock;
mod fake_kernel;
pub mod kernel_contract;
mod lookup;
pub mod node;
mod program;
pub mod promtool;

pub use fake_kernel::{Call, FakeKernel};
pub use lookup::{lookup, lookup_incoming, pod_is_connected};
pub use program::Program;

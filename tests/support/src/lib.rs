//! Fakes that execute what they are told, and the suites they share with the real thing.
//!
//! [`FakeKernel`] carries out routing operations on a state that can be observed; the cases of
//! [`kernel_contract`] hold for it and for a real kernel alike, so that what is proved on the one
//! is true of the other.

mod fake_kernel;
pub mod kernel_contract;
mod lookup;
pub mod node;
pub mod promtool;

pub use fake_kernel::{Call, FakeKernel};
pub use lookup::{lookup, lookup_incoming, pod_is_connected};

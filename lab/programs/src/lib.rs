//! Programs of others that run with ours: built from their Go modules the first time and kept outside the clone
//! ([`Program`]), and images of one program each, packed without a registry ([`image`]). The modules that are ours are
//! in `sources/`.

mod build;
pub mod image;
mod program;
mod recipe;

pub use program::Program;
pub use recipe::{KUBERNETES_VERSION, VPC_CNI_VERSION};

//! Third-party programs that run with ours.
//!
//! [`Program`] builds them from their Go modules on the first use and keeps them outside the clone. [`image`] packs
//! images of these programs without a registry. Our own modules are in `sources/`.

mod architecture;
mod build;
pub mod image;
mod program;
mod recipe;

pub use program::Program;
pub use recipe::{KUBERNETES_VERSION, VPC_CNI_VERSION};

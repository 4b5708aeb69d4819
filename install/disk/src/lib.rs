//! A node's CNI folders: observes them, and applies the operations of `install-plan`.
//!
//! Decides and remembers nothing. A program or a network configuration is written to a temporary name, gets its mode,
//! is synced, and is renamed then. A reader gets the whole old file or the whole new one, also after a loss of power.
//! A lock serializes installers of the same folders.
//!
//! Start with [`Folders`]. The tests use real folders and stop before every single step.

mod disk;
mod error;
mod folders;
mod from_settings;
mod plugin_versions;

pub use disk::{Disk, RealDisk};
pub use error::InstallError;
pub use folders::{Folders, Locked};
pub use from_settings::conflist;

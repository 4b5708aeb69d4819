//! A node's CNI folders: observed, and changed as `install-plan` says.
//!
//! Decides nothing, and remembers nothing. A program or a network configuration is written beside its
//! place, given its mode and synced, and only then renamed: whoever looks sees the old one or the new
//! one, whole, also after a loss of power. Two that work on the same folders wait for each other.
//!
//! Start with [`Folders`]. Tested against real folders, cut off before every single step.

mod disk;
mod error;
mod folders;
mod speaks;
mod wanted;

pub use disk::{Disk, RealDisk};
pub use error::InstallError;
pub use folders::{Folders, Locked};
pub use wanted::conflist;

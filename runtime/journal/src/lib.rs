//! The folder of a program's state: few enough verbs that a test can carry them out too, and cut the power between
//! any two.
//!
//! [`DiskFolder`] is the real one. With the feature `power`, `power::Disk` is one in memory that writes down what is
//! done to it, and `power::left` is everything that a power cut may leave of that.

mod folder;
#[cfg(feature = "power")]
pub mod power;

pub use folder::{DiskFolder, Folder, OpenError, Written, create_durably};

//! A program's durable journal: framed records in a folder that one process owns.
//!
//! Start reading at [`Journal`]. [`DiskFolder`] is the real folder. With the feature `power`, `power::Disk` is one in
//! memory that records each operation, and `power::left` computes every state that a power cut may leave.

mod backoff;
mod folder;
mod journal;
#[cfg(any(test, feature = "power"))]
pub mod power;

pub use backoff::Backoff;
pub use folder::{DiskFolder, Folder, OpenError, Written, create_durably};
pub use journal::{Journal, Layout, Opened};
pub use runtime_frame::{Damage, Record, TooLong};

#[cfg(test)]
mod tests;

//! A node's CNI folders to the steps of an installer: observation → operations.
//!
//! Pure: the caller lists the two folders ([`Observed`]) and applies the [`Op`]s, each of which is atomic. After an
//! interruption the next plan continues, and after the last step it is empty. Foreign files are only renamed to a
//! name that no runtime reads, and `remove` restores their names.
//!
//! Start with [`network`]: between its steps the node never has fewer networks than before.

mod conf;
mod conflist;
mod machine;
mod plan;

pub use conf::PLUGIN;
pub use conflist::{CNI_VERSIONS, CONFLIST, Conflist};
pub use machine::{HEADER_BYTES, Machine};
pub use plan::{
    FileState, FolderKind, Note, Observed, Op, Plan, Pods, Refusal, aside, chained, edited,
    network, programs, remove, temporary,
};

//! What lies in a node's CNI folders to what an installer does about it: observation → operations.
//!
//! Pure: whoever calls lists the two folders ([`Observed`]) and carries out the [`Op`]s, of which each
//! is atomic. Cut off anywhere, planning again goes on from there; planned again when all is done,
//! nothing is left to do; what is another's is at most renamed, to a name that no runtime reads, and
//! gets its own name back.
//!
//! Start with [`network`]: at no moment between its steps has the node fewer networks than before.

mod conf;
mod conflist;
mod machine;
mod plan;

pub use conflist::{CNI_VERSIONS, CONFLIST, Conflist, PLUGIN};
pub use machine::{HEADER_BYTES, Machine};
pub use plan::{
    Note, Observed, Op, Place, Plan, Pods, Refusal, Standing, aside, chained, edited, network,
    programs, remove, temporary,
};

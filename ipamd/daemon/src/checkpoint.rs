//! The checkpoint: what the address book needs to survive this process.
//!
//! Here *durable* means: it outlives this process, and a loss of power where
//! `Record::outlives_the_boot` says that it must.
//!
//! Records are appended and made durable before anything that follows from them is told to
//! anybody. One write carries all records that came while the one before was under way, so a burst
//! of ADDs costs a few syncs, not one each. Now and then the file is replaced by the shortest list
//! of records with the same meaning. What is read at start is a hint: the core compares it with
//! what EC2 and the kernel show.

mod journal;
mod ledger;
mod writer;

pub use ipamd_core::frame::{Damage, HEADER, Recovered, decode, encode};
pub use ipamd_node::Durable;
pub use journal::{FileJournal, Journal, Opened};
pub use runtime_journal::{DiskFolder, Folder, OpenError, Written, create_durably};
pub use writer::{Progress, Writer};

#[cfg(test)]
mod power;
#[cfg(test)]
mod tests;

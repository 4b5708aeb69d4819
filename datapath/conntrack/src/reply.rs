//! Parses the kernel's reply to a dump, datagram by datagram.
//!
//! A message that is cut is an error for the whole reply, because a partial table hides connections. An attribute that
//! cannot be parsed leaves out its own connection only.

use crate::{
    Connection, Table,
    entry::{self, Entry},
};
use datapath_netlink::Frames;
pub use datapath_netlink::Unreadable;

/// The reply so far to the request with a certain number.
#[derive(Debug)]
pub struct Reply<K> {
    frames: Frames,
    keep: K,
    table: Table,
}

impl<K: Fn(&Connection) -> bool> Reply<K> {
    /// The empty reply to a request. The table gets the connections for which `keep` is true.
    pub fn to(sequence: u32, keep: K) -> Self {
        Self { frames: Frames::to(sequence), keep, table: Table::default() }
    }

    /// Adds a datagram. Returns true if it completes the reply.
    ///
    /// # Errors
    /// The datagram cannot be parsed to its end. The whole reply is unusable then.
    pub fn read(&mut self, datagram: &[u8]) -> Result<bool, Unreadable> {
        let Self { frames, keep, table } = self;
        frames.read(datagram, |kind, payload| {
            if kind == CONNECTION {
                add(table, &*keep, payload);
            }
            Ok(())
        })
    }

    /// True if the kernel changed its table so much that the dump lacks or repeats connections.
    pub fn is_interrupted(&self) -> bool {
        self.frames.is_interrupted()
    }

    /// The positive error number with which the kernel ended the dump. `None` if it is complete.
    pub fn refusal(&self) -> Option<i32> {
        self.frames.refusal()
    }

    pub fn into_table(self) -> Table {
        self.table
    }
}

fn add(table: &mut Table, keep: impl Fn(&Connection) -> bool, payload: &[u8]) {
    match entry::parse(payload) {
        Ok(Entry::Connection(connection)) => {
            if keep(&connection) {
                table.connections.push(connection);
            }
        }
        Ok(Entry::OtherZone) => table.left_out.other_zones += 1,
        Err(cause) => {
            table.left_out.unreadable += 1;
            table.left_out.cause = Some(cause);
        }
    }
}

/// linux/netfilter/nfnetlink.h: NFNL_SUBSYS_CTNETLINK, in the upper byte of a message type.
pub(crate) const CTNETLINK: u16 = 1 << 8;
/// linux/netfilter/nfnetlink_conntrack.h: IPCTNL_MSG_CT_NEW, the type of each connection in a dump.
const CONNECTION: u16 = CTNETLINK;
#[cfg(test)]
pub(crate) mod tests;

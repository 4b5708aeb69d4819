//! Parses the kernel's reply to a dump, datagram by datagram.
//!
//! A message that is cut is an error for the whole reply, because a partial table hides connections. An attribute that
//! cannot be parsed leaves out its own connection only.

use crate::{
    Connection, Table,
    entry::{self, Entry},
};
use netlink_packet_core::{NLM_F_DUMP_INTR, NLMSG_DONE, NLMSG_ERROR, NLMSG_OVERRUN, NetlinkBuffer};

/// The reply so far to the request with a certain number.
#[derive(Debug)]
pub struct Reply<K> {
    sequence: u32,
    keep: K,
    table: Table,
    is_interrupted: bool,
    refusal: Option<i32>,
}

/// Cause for which a datagram cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// A message that ends behind the datagram, or that is shorter than its header.
    #[error("truncated message")]
    Message,
    /// The datagram has this size and is longer than the receive buffer.
    #[error("a datagram of {0} bytes was truncated")]
    Datagram(usize),
    /// The kernel dropped a part of the reply.
    #[error("the kernel dropped a part of the reply")]
    Lost,
}

impl<K: Fn(&Connection) -> bool> Reply<K> {
    /// The empty reply to a request. The table gets the connections for which `keep` is true.
    pub fn to(sequence: u32, keep: K) -> Self {
        Self { sequence, keep, table: Table::default(), is_interrupted: false, refusal: None }
    }

    /// Adds a datagram. Returns true if it completes the reply.
    ///
    /// # Errors
    /// The datagram cannot be parsed to its end. The whole reply is unusable then.
    pub fn read(&mut self, datagram: &[u8]) -> Result<bool, Unreadable> {
        let mut rest = datagram;
        while !rest.is_empty() {
            let message = NetlinkBuffer::new_checked(rest).map_err(|_| Unreadable::Message)?;
            let length = usize::try_from(message.length()).map_err(|_| Unreadable::Message)?;
            if message.sequence_number() == self.sequence && self.take(&message)? {
                return Ok(true);
            }
            rest = rest.get(length.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
        }
        Ok(false)
    }

    fn take(&mut self, message: &NetlinkBuffer<&[u8]>) -> Result<bool, Unreadable> {
        self.is_interrupted |= message.flags() & NLM_F_DUMP_INTR != 0;
        match message.message_type() {
            CONNECTION => self.add(message.payload()),
            NLMSG_DONE | NLMSG_ERROR => {
                // A DONE may be empty.
                let code =
                    message.payload().first_chunk().map_or(0, |code| i32::from_ne_bytes(*code));
                self.refusal = (code != 0).then(|| code.saturating_neg());
                return Ok(true);
            }
            NLMSG_OVERRUN => return Err(Unreadable::Lost),
            _ => {}
        }
        Ok(false)
    }

    fn add(&mut self, payload: &[u8]) {
        match entry::parse(payload) {
            Ok(Entry::Connection(connection)) => {
                if (self.keep)(&connection) {
                    self.table.connections.push(connection);
                }
            }
            Ok(Entry::OtherZone) => self.table.left_out.other_zones += 1,
            Err(cause) => {
                self.table.left_out.unreadable += 1;
                self.table.left_out.cause = Some(cause);
            }
        }
    }

    /// True if the kernel changed its table so much that the dump lacks or repeats connections.
    pub fn is_interrupted(&self) -> bool {
        self.is_interrupted
    }

    /// The positive error number with which the kernel ended the dump. `None` if it is complete.
    pub fn refusal(&self) -> Option<i32> {
        self.refusal
    }

    pub fn into_table(self) -> Table {
        self.table
    }
}

/// linux/netfilter/nfnetlink.h: NFNL_SUBSYS_CTNETLINK, in the upper byte of a message type.
pub(crate) const CTNETLINK: u16 = 1 << 8;
/// linux/netfilter/nfnetlink_conntrack.h: IPCTNL_MSG_CT_NEW, the type of each connection in a dump.
const CONNECTION: u16 = CTNETLINK;
/// linux/netlink.h: NLMSG_ALIGNTO
const ALIGNMENT: usize = 4;

#[cfg(test)]
pub(crate) mod tests;

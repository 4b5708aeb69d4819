//! The frames of the kernel's reply, datagram by datagram.
//!
//! A message that is cut is an error for the whole reply, because a partial list hides objects.

use netlink_packet_core::{NLM_F_DUMP_INTR, NLMSG_DONE, NLMSG_ERROR, NLMSG_OVERRUN, NetlinkBuffer};

/// The reply so far to the request with a certain number, without the messages.
#[derive(Debug)]
pub struct Frames {
    sequence: u32,
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

impl Frames {
    /// The empty reply to a request. Messages of other requests are ignored.
    pub fn to(sequence: u32) -> Self {
        Self { sequence, is_interrupted: false, refusal: None }
    }

    /// Reads a datagram. `take` receives the type and the payload of each message, except those of netlink itself. Returns
    /// true if the datagram completes the reply.
    ///
    /// # Errors
    /// The datagram cannot be parsed to its end, or `take` fails. The whole reply is unusable then.
    pub fn read<E: From<Unreadable>>(
        &mut self,
        datagram: &[u8],
        mut take: impl FnMut(u16, &[u8]) -> Result<(), E>,
    ) -> Result<bool, E> {
        let mut rest = datagram;
        while !rest.is_empty() {
            let message = NetlinkBuffer::new_checked(rest).map_err(|_| Unreadable::Message)?;
            let length = usize::try_from(message.length()).map_err(|_| Unreadable::Message)?;
            if message.sequence_number() == self.sequence {
                self.is_interrupted |= message.flags() & NLM_F_DUMP_INTR != 0;
                match message.message_type() {
                    NLMSG_DONE | NLMSG_ERROR => {
                        self.end(message.payload());
                        return Ok(true);
                    }
                    NLMSG_OVERRUN => return Err(Unreadable::Lost.into()),
                    kind => take(kind, message.payload())?,
                }
            }
            rest = rest.get(length.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
        }
        Ok(false)
    }

    fn end(&mut self, payload: &[u8]) {
        // A DONE may be empty.
        let code = payload.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code));
        self.refusal = (code != 0).then(|| code.saturating_neg());
    }

    /// True if the kernel's objects changed so much that the list lacks or repeats some.
    pub fn is_interrupted(&self) -> bool {
        self.is_interrupted
    }

    /// The positive error number with which the kernel ended the reply. `None` if it is complete.
    pub fn refusal(&self) -> Option<i32> {
        self.refusal
    }
}

/// linux/netlink.h: NLMSG_ALIGNTO
const ALIGNMENT: usize = 4;

#[cfg(test)]
mod tests;

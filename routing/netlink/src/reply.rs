//! The kernel's reply, datagram by datagram: bytes to objects and refusals.
//!
//! Half a reply is none: what cannot be read to its end is an error, since whoever takes a list for
//! whole would remove what it lacks.

use crate::{
    encode::{self, Means},
    lists::{With, lists},
};
use netlink_packet_core::{NLM_F_DUMP_INTR, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use routing_plan::{Action, Errno, Observed};
use std::collections::BTreeMap;

/// What came so far of the answers to a batch of numbered messages.
#[derive(Debug)]
pub struct Reply {
    first: u32,
    count: u32,
    /// By the place of the message in its batch.
    pub(crate) errors: BTreeMap<u32, Errno>,
    pub(crate) objects: Vec<RouteNetlinkMessage>,
    pub(crate) interrupted: bool,
}

/// A datagram is not what a kernel sends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// One of its messages.
    #[error("a message is not understood: {0}")]
    Message(String),
    /// It is longer than what was received of it.
    #[error("a datagram of {0} bytes was cut off")]
    Datagram(usize),
    /// The kernel had no room for all it had to say.
    #[error("the kernel lost a part of it")]
    Lost,
}

impl Reply {
    /// The reply to `count` messages, the first of which has the sequence number `first`.
    pub fn to(first: u32, count: u32) -> Self {
        let (errors, objects) = (BTreeMap::new(), Vec::new());
        Self { first, count, errors, objects, interrupted: false }
    }

    /// Takes in a datagram; tells whether the answer to the last message ended with it.
    ///
    /// # Errors
    /// It cannot be read to its end: then the whole reply is worth nothing.
    pub fn read(&mut self, datagram: &[u8]) -> Result<bool, Unreadable> {
        let mut rest = datagram;
        while !rest.is_empty() {
            let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)
                .map_err(|cause| Unreadable::Message(cause.to_string()))?;
            let length = usize::try_from(message.header.length).unwrap_or(usize::MAX);
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
            let place = message.header.sequence_number.wrapping_sub(self.first);
            if place < self.count && self.take(place, message)? && place + 1 == self.count {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What it tells of, if it was a reply to questions for lists.
    pub fn observed(&self) -> Observed {
        let mut observed = Observed::default();
        lists(With::Neighbors).for_each(|list| list.fill(&mut observed, &self.objects));
        observed
    }

    /// The refusals, by the place of the refused message in the batch.
    pub fn refusals(&self) -> &BTreeMap<u32, Errno> {
        &self.errors
    }

    /// Takes in a message; tells whether it is the last answer to its request.
    fn take(
        &mut self,
        place: u32,
        message: NetlinkMessage<RouteNetlinkMessage>,
    ) -> Result<bool, Unreadable> {
        self.interrupted |= message.header.flags & NLM_F_DUMP_INTR != 0;
        let code = match message.payload {
            NetlinkPayload::InnerMessage(object) => {
                self.objects.push(object);
                return Ok(false);
            }
            NetlinkPayload::Error(error) => error.code.map_or(0, i32::from),
            NetlinkPayload::Done(done) => done.code,
            NetlinkPayload::Overrun(_) => return Err(Unreadable::Lost),
            NetlinkPayload::Noop | _ => return Ok(false),
        };
        if code != 0 {
            self.errors.insert(place, Errno(code.saturating_neg()));
        }
        Ok(true)
    }
}

/// The message that carries out the action, as it is sent with this sequence number; nothing if it
/// takes more than one message, or none.
pub fn request(action: &Action, sequence: u32) -> Option<Vec<u8>> {
    let Means::One(request) = encode::means(action) else { return None };
    let message = request.message(sequence, false);
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    Some(bytes)
}

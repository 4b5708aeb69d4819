//! Parses the kernel's reply, datagram by datagram, to objects and refusals.
//!
//! A reply that cannot be parsed to its end is an error. A partial list would cause the removal of objects that it
//! lacks.

use crate::{
    encode::{self, Means},
    lists::{With, lists},
};
use netlink_packet_core::{NLM_F_DUMP_INTR, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use routing_plan::{Action, Errno, Observed};
use std::collections::BTreeMap;

/// The answers so far to a batch of numbered messages, and their objects in the form that the caller needs.
///
/// A parsed message of a link takes ten times the space of the link, so no list of messages is kept.
#[derive(Debug)]
pub struct Reply<T> {
    first: u32,
    count: u32,
    /// By the position of the message in its batch.
    pub(crate) errors: BTreeMap<u32, Errno>,
    pub(crate) objects: T,
    pub(crate) interrupted: bool,
}

/// Cause for which a datagram cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// A message that is not valid; the text is the cause.
    #[error("invalid message: {0}")]
    Message(String),
    /// The datagram is longer than the receive buffer.
    #[error("a datagram of {0} bytes was truncated")]
    Datagram(usize),
    /// The kernel dropped a part of the answer, because the receive queue was full.
    #[error("the kernel dropped a part of the answer")]
    Lost,
}

impl<T: Default> Reply<T> {
    /// The reply to `count` messages, the first of which has the sequence number `first`.
    pub fn to(first: u32, count: u32) -> Self {
        let (errors, objects) = (BTreeMap::new(), T::default());
        Self { first, count, errors, objects, interrupted: false }
    }
}

impl<T> Reply<T> {
    /// Adds a datagram, and each of its objects with `add`. Returns true if it completes the answer to the last message.
    ///
    /// # Errors
    /// The datagram cannot be parsed to its end. The whole reply is unusable then.
    pub(crate) fn read(
        &mut self,
        datagram: &[u8],
        add: impl Fn(&mut T, RouteNetlinkMessage),
    ) -> Result<bool, Unreadable> {
        let mut rest = datagram;
        while !rest.is_empty() {
            let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)
                .map_err(|cause| Unreadable::Message(cause.to_string()))?;
            let length = usize::try_from(message.header.length).unwrap_or(usize::MAX);
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
            let place = message.header.sequence_number.wrapping_sub(self.first);
            if place < self.count && self.take(place, message, &add)? && place + 1 == self.count {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The refusals, by the position of the refused message in the batch.
    pub fn refusals(&self) -> &BTreeMap<u32, Errno> {
        &self.errors
    }

    /// Adds a message. Returns true if it is the last answer to its request.
    fn take(
        &mut self,
        place: u32,
        message: NetlinkMessage<RouteNetlinkMessage>,
        add: impl Fn(&mut T, RouteNetlinkMessage),
    ) -> Result<bool, Unreadable> {
        self.interrupted |= message.header.flags & NLM_F_DUMP_INTR != 0;
        let code = match message.payload {
            NetlinkPayload::InnerMessage(object) => {
                add(&mut self.objects, object);
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

impl Reply<Observed> {
    /// Adds a datagram of a reply to list requests. Returns true if it completes the answer to the last message.
    ///
    /// # Errors
    /// The datagram cannot be parsed to its end. The whole reply is unusable then.
    pub fn observe(&mut self, datagram: &[u8]) -> Result<bool, Unreadable> {
        self.read(datagram, |observed, object| {
            lists(With::Neighbors).for_each(|list| list.add(observed, &object));
        })
    }

    pub fn observed(&self) -> &Observed {
        &self.objects
    }
}

/// The bytes of the message that carries out the action, with this sequence number. `None` if the action
/// takes several messages or none.
pub fn request(action: &Action, sequence: u32) -> Option<Vec<u8>> {
    let Means::One(request) = encode::means(action) else { return None };
    let message = request.message(sequence, false);
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    Some(bytes)
}

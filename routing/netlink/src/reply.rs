//! Parses the kernel's reply, datagram by datagram, to objects and refusals.
//!
//! A reply that cannot be parsed to its end is an error. A partial list would cause the removal of objects that it
//! lacks. Only the daemon leaves out single objects that a newer kernel describes in another way: one such object must
//! not end all repairs.

use crate::{
    encode::{self, Means},
    lists::{With, lists},
};
use netlink_packet_core::{NLM_F_DUMP_INTR, NetlinkBuffer, NetlinkMessage, NetlinkPayload};
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
    /// `None` if an object that cannot be parsed is an error.
    left_out: Option<LeftOut>,
}

/// The cause of the last object that was left out. `None` if none was.
pub(crate) type LeftOut = Option<Unreadable>;

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
        Self { first, count, errors, objects, interrupted: false, left_out: None }
    }
}

impl<T> Reply<T> {
    /// Leaves out an object that cannot be parsed, and reports it in [`Self::left_out`].
    pub(crate) fn leave_out(&mut self) {
        self.left_out = Some(None);
    }

    /// The cause of the last object that was left out.
    pub(crate) fn left_out(&mut self) -> LeftOut {
        self.left_out.take().flatten()
    }

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
            let message = match NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest) {
                Ok(message) => message,
                Err(cause) => {
                    let cause = Unreadable::Message(cause.to_string());
                    let (Some(left_out), Some(length)) = (&mut self.left_out, object_length(rest))
                    else {
                        return Err(cause);
                    };
                    *left_out = Some(cause);
                    rest = after(rest, length);
                    continue;
                }
            };
            rest = after(rest, message.header.length);
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

/// The length of a whole message about an object; `None` for a status and for a message that is cut.
fn object_length(datagram: &[u8]) -> Option<u32> {
    let header = NetlinkBuffer::new_checked(datagram).ok()?;
    (header.message_type() >= FIRST_OBJECT_TYPE).then(|| header.length())
}

fn after(datagram: &[u8], length: u32) -> &[u8] {
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    length.checked_next_multiple_of(4).and_then(|at| datagram.get(at..)).unwrap_or_default()
}

/// linux/netlink.h: NLMSG_MIN_TYPE; lower types are statuses.
const FIRST_OBJECT_TYPE: u16 = 16;

/// The bytes of the message that carries out the action, with this sequence number. `None` if the action
/// takes several messages or none.
pub fn request(action: &Action, sequence: u32) -> Option<Vec<u8>> {
    let Means::One(request) = encode::means(action) else { return None };
    let message = request.message(sequence, false);
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use routing_plan::{Rule, Selector};

    /// Two rules, the first with a priority of two bytes.
    fn datagram() -> Vec<u8> {
        let rule = |host: u8| {
            let pod = std::net::IpAddr::from([10, 0, 0, host]);
            Rule::ours(512, Selector::to(pod), config_model::TableId::MAIN)
        };
        let [mut first, second] = [1, 2]
            .map(|host| request(&Action::AddRule(rule(host)), 1).expect("a rule is one message"));
        let priority = (512_u32).to_ne_bytes();
        let at = first.windows(4).position(|bytes| bytes == priority).expect("the priority");
        first[at - 4..at - 2].copy_from_slice(&6_u16.to_ne_bytes());
        [first, second].concat()
    }

    #[test]
    fn an_object_that_cannot_be_parsed_is_left_out_only_on_request() {
        let mut strict: Reply<Observed> = Reply::to(1, 1);
        assert!(matches!(strict.observe(&datagram()), Err(Unreadable::Message(_))));
        let mut lenient: Reply<Observed> = Reply::to(1, 1);
        lenient.leave_out();
        assert_eq!(lenient.observe(&datagram()), Ok(false));
        let hosts: Vec<_> =
            lenient.observed().rules.iter().filter_map(|rule| rule.selector.dst).collect();
        assert_eq!(hosts, ["10.0.0.2/32".parse().expect("a network")]);
        assert!(matches!(lenient.left_out(), Some(Unreadable::Message(_))));
    }

    #[test]
    fn a_message_that_is_cut_is_never_left_out() {
        let whole = datagram();
        for length in (1..whole.len()).filter(|length| *length != whole.len() / 2) {
            let mut reply: Reply<Observed> = Reply::to(1, 1);
            reply.leave_out();
            assert!(reply.observe(&whole[..length]).is_err(), "{length} of {} bytes", whole.len());
        }
    }
}

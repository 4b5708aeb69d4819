//! Answers over TCP.

use config_model::{Span, Time};
use std::{collections::BTreeMap, net::IpAddr};

/// A connection of a pod to a DNS server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamKey {
    /// The index of the pod's link.
    pub link: u32,
    pub server: IpAddr,
    /// The pod's port.
    pub port: u16,
}

/// The segments of connections, joined to messages.
///
/// A connection is read from its first packet on. At most [`Self::MAX`] connections are known, each with one message.
#[derive(Clone, Debug, Default)]
pub struct Streams(BTreeMap<StreamKey, Stream>);

#[derive(Clone, Debug)]
struct Stream {
    /// The sequence number of the next byte.
    next: u32,
    bytes: Vec<u8>,
    /// Segments that came too early, by their sequence number.
    early: BTreeMap<u32, Vec<u8>>,
    seen: Time,
}

/// The longest message with its length.
const MESSAGE_MAX: usize = 2 + u16::MAX as usize;
/// The time after which a connection without a segment is forgotten.
const IDLE: Span = Span::seconds(15);

impl Streams {
    /// The most connections of a node.
    pub const MAX: usize = 256;
    /// The most connections of one link.
    pub const MAX_OF_LINK: usize = 16;

    /// Adds a segment, and returns the messages that are complete now. `sequence` is that of the segment's first byte.
    pub fn add(
        &mut self,
        key: StreamKey,
        sequence: u32,
        is_first: bool,
        is_last: bool,
        payload: &[u8],
        now: Time,
    ) -> Vec<Vec<u8>> {
        if is_first {
            self.open(key, sequence, now);
        }
        let Some(stream) = self.0.get_mut(&key) else { return Vec::new() };
        stream.seen = now;
        let sequence = if is_first { sequence.wrapping_add(1) } else { sequence };
        let messages = stream.add(sequence, payload);
        if is_last || messages.is_none() {
            self.0.remove(&key);
        }
        messages.unwrap_or_default()
    }

    fn open(&mut self, key: StreamKey, sequence: u32, now: Time) {
        self.0.retain(|_, stream| now.since(stream.seen) < IDLE);
        let of_link = self.0.keys().filter(|of| of.link == key.link).count();
        if of_link >= Self::MAX_OF_LINK {
            let of_link = self.0.iter().filter(|(of, _)| of.link == key.link);
            let oldest = of_link.min_by_key(|(_, stream)| stream.seen).map(|(of, _)| *of);
            oldest.map(|oldest| self.0.remove(&oldest));
        }
        if self.0.len() < Self::MAX {
            let next = sequence.wrapping_add(1);
            let stream = Stream { next, bytes: Vec::new(), early: BTreeMap::new(), seen: now };
            self.0.insert(key, stream);
        }
    }
}

impl Stream {
    /// The messages that are complete, or `None` if the connection holds too much.
    fn add(&mut self, sequence: u32, payload: &[u8]) -> Option<Vec<Vec<u8>>> {
        let ahead = sequence.wrapping_sub(self.next).cast_signed();
        if ahead > 0 {
            let held: usize = self.early.values().map(Vec::len).sum();
            if held + payload.len() > MESSAGE_MAX || ahead.unsigned_abs() as usize > MESSAGE_MAX {
                return None;
            }
            self.early.insert(sequence, payload.to_vec());
            return Some(Vec::new());
        }
        self.append(ahead, payload);
        while let Some(at) = self.early.keys().copied().find(|at| self.is_due(*at)) {
            let Some(early) = self.early.remove(&at) else { break };
            self.append(at.wrapping_sub(self.next).cast_signed(), &early);
        }
        let mut messages = Vec::new();
        while let Some((length, rest)) = self.bytes.split_first_chunk() {
            let length = usize::from(u16::from_be_bytes(*length));
            let Some((message, rest)) = rest.split_at_checked(length) else { break };
            messages.push(message.to_vec());
            self.bytes = rest.to_vec();
        }
        (self.bytes.len() <= MESSAGE_MAX).then_some(messages)
    }

    fn is_due(&self, sequence: u32) -> bool {
        sequence.wrapping_sub(self.next).cast_signed() <= 0
    }

    /// Appends the bytes that are new of a segment that starts `ahead`, which is at most 0.
    fn append(&mut self, ahead: i32, payload: &[u8]) {
        let new = payload.get(ahead.unsigned_abs() as usize..).unwrap_or_default();
        self.bytes.extend_from_slice(new);
        // A segment is shorter than 64 KiB.
        self.next = self.next.wrapping_add(u32::try_from(new.len()).unwrap_or_default());
    }
}

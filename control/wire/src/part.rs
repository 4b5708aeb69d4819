//! Parts of a generation, put together from changes that were encoded once for all nodes.

use crate::{Digest, decode, model, proto};
use bytes::{BufMut, Bytes, BytesMut};
use prost::{
    Message as _,
    encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len},
};

/// A change in the encoding of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// With its key and length before it.
    bytes: Bytes,
    /// Length of these bytes.
    head: usize,
}

/// Size of a part at which the next one starts, in bytes. One change is never split.
pub const PART_BYTES: usize = 32 << 10;

const CHANGES: u32 = 2;

/// Encodes a change.
pub fn entry(change: &proto::Change) -> Entry {
    Entry::encoded(&change.encode_to_vec())
}

impl Entry {
    /// An encoded [`proto::Change`] of a source that has its own messages.
    pub fn encoded(change: &[u8]) -> Self {
        let length = change.len();
        let mut bytes =
            BytesMut::with_capacity(key_len(CHANGES) + encoded_len_varint(length as u64) + length);
        encode_key(CHANGES, WireType::LengthDelimited, &mut bytes);
        encode_varint(length as u64, &mut bytes);
        let head = bytes.len();
        bytes.put_slice(change);
        Self { bytes: bytes.freeze(), head }
    }

    /// The digest of the object, if this is all of one: of a policy, a group of few members, a bucket.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.bytes[self.head..])
    }

    /// The policy, if it is one.
    pub fn policy(&self) -> Option<model::Policy> {
        let change = proto::Change::decode(&self.bytes[self.head..]).ok()?;
        let proto::change::Of::Policy(policy) = change.of? else { return None };
        decode::policy(&policy).ok()
    }

    /// The members that it adds to a group, if it is such a change.
    pub fn added(&self) -> Option<Vec<proto::Member>> {
        let change = proto::Change::decode(&self.bytes[self.head..]).ok()?;
        let proto::change::Of::AddressChange(change) = change.of? else { return None };
        Some(change.added)
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Never: a change has a key and a length at least.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// The parts of a generation, each an encoded [`proto::Part`]: at least one.
pub fn parts(generation: u64, changes: &[Entry]) -> Vec<Bytes> {
    let mut parts = Vec::new();
    let mut from = 0;
    loop {
        let mut bytes = 0;
        let fit = changes[from..].iter().take_while(|entry| {
            let first = bytes == 0;
            bytes += entry.len();
            first || bytes <= PART_BYTES
        });
        let upto = from + fit.count();
        let last = upto == changes.len();
        let head = proto::Part { generation, changes: Vec::new(), last };
        let body: usize = changes[from..upto].iter().map(Entry::len).sum();
        let mut part = BytesMut::with_capacity(head.encoded_len() + body);
        let _ = head.encode(&mut part);
        changes[from..upto].iter().for_each(|entry| part.put_slice(&entry.bytes));
        parts.push(part.freeze());
        if last {
            return parts;
        }
        from = upto;
    }
}

/// Read positions and the receiver of reports, in the encoding of a [`proto::Bookmark`]. All nodes receive the
/// same bytes, which are encoded once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Positions(Bytes);

/// A [`proto::Bookmark`] as it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedBookmark {
    /// Generation that the node holds.
    pub generation: u64,
    /// Part of the bookmark that is the same for all nodes.
    pub reach: Positions,
}

impl Positions {
    /// Encodes the resource versions up to which kinds were read, and where reports go; empty if nowhere.
    pub fn new<'a>(kinds: impl IntoIterator<Item = (&'a str, u64)>, reports_to: &str) -> Self {
        let reached = kinds.into_iter();
        let reached = reached.map(|(kind, version)| proto::Reached { kind: kind.into(), version });
        let (reached, reports_to) = (reached.collect(), reports_to.to_owned());
        Self(proto::Bookmark { generation: 0, reached, reports_to }.encode_to_vec().into())
    }
}

impl EncodedBookmark {
    /// The generation's field, and how long it is: a message is its fields, in any order.
    fn head(&self) -> proto::Bookmark {
        proto::Bookmark { generation: self.generation, ..proto::Bookmark::default() }
    }

    /// Returns the encoded length in bytes.
    pub fn encoded_len(&self) -> usize {
        self.head().encoded_len() + self.reach.0.len()
    }

    /// Writes it.
    pub fn encode(&self, to: &mut impl BufMut) {
        // Room was made: nothing else can fail.
        let _ = self.head().encode(to);
        to.put_slice(&self.reach.0);
    }

    /// Returns the message as a receiver decodes it.
    pub fn message(&self) -> proto::Bookmark {
        // The bytes were encoded here, so they decode.
        let reach = proto::Bookmark::decode(self.reach.0.clone()).unwrap_or_default();
        proto::Bookmark { generation: self.generation, ..reach }
    }
}

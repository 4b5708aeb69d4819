//! Encoding of the stream's messages.

use bytes::{Buf as _, BufMut as _, Bytes};
use control_wire::{
    EncodedBookmark,
    proto::{self, FollowReply},
};
use prost::{
    DecodeError, Message as _,
    encoding::{
        DecodeContext, WireType, decode_key, decode_varint, encode_key, encode_varint, skip_field,
    },
};
use std::marker::PhantomData;
use tonic::{
    Status,
    codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
};

/// Message of a replica to a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// As a message.
    Message(FollowReply),
    /// A part of a generation, encoded already; a node that reads it has it as a message.
    Part(Bytes),
    /// A bookmark, the larger part of which is encoded already; the same.
    Bookmark(EncodedBookmark),
}

/// The codec of all methods, for both ends.
#[derive(Debug)]
pub struct MessageCodec<E, D>(PhantomData<(E, D)>);

/// Writes one end's messages.
#[derive(Debug)]
pub struct Writer<E>(PhantomData<E>);

/// Reads the other's.
#[derive(Debug)]
pub struct Reader<D>(PhantomData<D>);

impl<E, D> Default for MessageCodec<E, D> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

/// The fields of a part and of a bookmark in a reply.
const PART: u32 = 2;
const BOOKMARK: u32 = 3;
/// The fields of `Hello` with packed numbers: kinds and features.
const PACKED: [u32; 2] = [7, 8];
/// Maximum number of elements of a request. A node with more objects could not follow.
const ELEMENTS: usize = 100_000;
/// Initial buffer of a stream, in bytes in each direction. Most messages are small, and a replica has thousands of
/// streams.
const READY: usize = 512;
/// Bytes that are collected before they are sent. A larger message is sent alone, and the bookmark after it has
/// another buffer, so the stream does not keep the large buffer.
const TOGETHER: usize = 1 << 10;

fn buffers() -> BufferSettings {
    BufferSettings::new(READY, TOGETHER)
}

impl Encoder for Writer<Reply> {
    type Item = Reply;
    type Error = Status;

    fn encode(&mut self, item: Reply, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        match item {
            Reply::Message(message) => {
                let written = message.encode(to);
                written.map_err(|error| Status::internal(error.to_string()))
            }
            Reply::Part(part) => {
                to.reserve(part.len() + 16);
                encode_key(PART, WireType::LengthDelimited, to);
                encode_varint(part.len() as u64, to);
                to.put(part);
                Ok(())
            }
            Reply::Bookmark(mark) => {
                let length = mark.encoded_len();
                to.reserve(length + 16);
                encode_key(BOOKMARK, WireType::LengthDelimited, to);
                encode_varint(length as u64, to);
                mark.encode(to);
                Ok(())
            }
        }
    }

    fn buffer_settings(&self) -> BufferSettings {
        buffers()
    }
}

impl<M: prost::Message + 'static> Encoder for Writer<M> {
    type Item = M;
    type Error = Status;

    fn encode(&mut self, item: M, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        item.encode(to).map_err(|error| Status::internal(error.to_string()))
    }

    fn buffer_settings(&self) -> BufferSettings {
        buffers()
    }
}

impl Decoder for Reader<Reply> {
    type Item = Reply;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Reply>, Status> {
        Ok(Some(Reply::Message(read(from)?)))
    }

    fn buffer_settings(&self) -> BufferSettings {
        buffers()
    }
}

impl<M: prost::Message + Default + 'static> Decoder for Reader<M> {
    type Item = M;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<M>, Status> {
        read(from).map(Some)
    }

    fn buffer_settings(&self) -> BufferSettings {
        buffers()
    }
}

fn read<M: prost::Message + Default>(from: &mut DecodeBuf<'_>) -> Result<M, Status> {
    let bytes = from.copy_to_bytes(from.remaining());
    let invalid = |error| Status::invalid_argument(format!("cannot decode message: {error}"));
    let elements = elements(&bytes, 1).map_err(invalid)?;
    if elements > ELEMENTS {
        return Err(Status::resource_exhausted(format!(
            "cannot decode message: it has {elements} elements, and the maximum is {ELEMENTS}"
        )));
    }
    M::decode(bytes).map_err(invalid)
}

/// Counts the fields of a message, and those of its first field if that is a message (`Hello` in a `FollowRequest`). Each
/// number of a packed field of `Hello` counts too. An element of two bytes takes up to 64 in memory.
fn elements(bytes: &[u8], depth: u32) -> Result<usize, DecodeError> {
    let mut count = 0;
    count_elements(bytes, depth, &mut count)?;
    Ok(count)
}

fn count_elements(mut bytes: &[u8], depth: u32, count: &mut usize) -> Result<(), DecodeError> {
    while bytes.has_remaining() {
        let (field, wire) = decode_key(&mut bytes)?;
        *count += 1;
        if wire == WireType::LengthDelimited && field == 1 && depth > 0 {
            // A string is no message. The decoder of a damaged message allocates the elements before the damage, so they
            // count.
            let _ = count_elements(content(&mut bytes)?, depth - 1, count);
        } else if wire == WireType::LengthDelimited && PACKED.contains(&field) && depth == 0 {
            // The last byte of a number has no continuation bit.
            *count += content(&mut bytes)?.iter().filter(|byte| **byte < 0x80).count();
        } else {
            skip_field(wire, field, &mut bytes, DecodeContext::default())?;
        }
    }
    Ok(())
}

/// Takes the content of a field. It is empty if the length is too large, which the decoder reports.
fn content<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8], DecodeError> {
    let length = usize::try_from(decode_varint(bytes)?).unwrap_or(usize::MAX);
    let inside = bytes.get(..length).unwrap_or_default();
    bytes.advance(length.min(bytes.len()));
    Ok(inside)
}

impl<E, D> Codec for MessageCodec<E, D>
where
    E: Send + 'static,
    D: Send + 'static,
    Writer<E>: Encoder<Item = E, Error = Status> + Send + 'static,
    Reader<D>: Decoder<Item = D, Error = Status> + Send + 'static,
{
    type Encode = E;
    type Decode = D;
    type Encoder = Writer<E>;
    type Decoder = Reader<D>;

    fn encoder(&mut self) -> Self::Encoder {
        Writer(PhantomData)
    }

    fn decoder(&mut self) -> Self::Decoder {
        Reader(PhantomData)
    }
}

impl From<proto::follow_reply::Of> for Reply {
    fn from(of: proto::follow_reply::Of) -> Self {
        Self::Message(FollowReply { of: Some(of) })
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use control_wire::proto::{FollowRequest, Hello, follow_request::Of};

    #[test]
    fn the_elements_before_a_damaged_one_count() {
        // A Hello with three digests and the key of a fourth without its length.
        let hello = [0x2a, 0, 0x2a, 0, 0x2a, 0, 0x2a];
        let request = [&[0x0a, 7][..], &hello].concat();
        assert_eq!(elements(&request, 1).unwrap(), 5);
    }

    fn request(kinds: usize, features: usize) -> Vec<u8> {
        let hello =
            Hello { kinds: vec![1; kinds], features: vec![300; features], ..Hello::default() };
        FollowRequest { of: Some(Of::Hello(hello)) }.encode_to_vec()
    }

    #[test]
    fn each_number_of_a_packed_field_counts() {
        // The Hello itself, and one more element for each packed field.
        assert_eq!(elements(&request(5, 0), 1).unwrap(), 7);
        assert_eq!(elements(&request(0, 7), 1).unwrap(), 9);
        let most = request(ELEMENTS / 2, ELEMENTS / 2);
        assert!(elements(&most, 1).unwrap() > ELEMENTS);
        // The end of the message is damaged, and the numbers before it are whole.
        let damaged = [&[0x0a, 6][..], &[0x3a, 3, 1, 1, 1], &[0x3a]].concat();
        assert_eq!(elements(&damaged, 1).unwrap(), 6);
    }
}

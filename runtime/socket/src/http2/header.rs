//! Header blocks (HPACK, RFC 7541), without the dynamic table. This side announces a size of 0 for the table, so the
//! server may not refer to it. This side does not use it either.

use super::{Http2Error, huffman};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, request::Parts};

/// A decoded block: the status of a response, if it is one, and its fields.
pub(super) struct Block {
    pub(super) status: Option<StatusCode>,
    pub(super) fields: HeaderMap,
}

/// The table that both sides know (RFC 7541, appendix A). Entries are numbered from 1.
const TABLE: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// Entries of the table that a request uses.
const AUTHORITY: u8 = 1;
const METHOD_POST: u8 = 3;
const PATH: u8 = 4;
const SCHEME_HTTP: u8 = 6;

/// A field that is an entry of the table.
const INDEXED: u8 = 0x80;
/// A field that the dynamic table should take.
const TO_BE_INDEXED: u8 = 0x40;
/// A new size of the dynamic table.
const TABLE_SIZE: u8 = 0x20;

/// The block of a POST request, without Huffman codes.
pub(super) fn encode(head: &Parts) -> Vec<u8> {
    let mut block = vec![INDEXED | METHOD_POST, INDEXED | SCHEME_HTTP];
    block.push(PATH);
    put_text(&mut block, head.uri.path().as_bytes());
    block.push(AUTHORITY);
    put_text(&mut block, head.uri.host().unwrap_or_default().as_bytes());
    for (name, value) in &head.headers {
        block.push(0);
        put_text(&mut block, name.as_str().as_bytes());
        put_text(&mut block, value.as_bytes());
    }
    block
}

fn put_text(block: &mut Vec<u8>, text: &[u8]) {
    put_number(block, text.len());
    block.extend_from_slice(text);
}

/// A number in a prefix of seven bits (RFC 7541, section 5.1).
fn put_number(block: &mut Vec<u8>, number: usize) {
    const MOST: usize = 0x7f;
    let byte = |number: usize| u8::try_from(number).unwrap_or(u8::MAX);
    if number < MOST {
        return block.push(byte(number));
    }
    block.push(byte(MOST));
    let mut rest = number - MOST;
    while rest >= 0x80 {
        block.push(byte(rest & 0x7f) | 0x80);
        rest >>= 7;
    }
    block.push(byte(rest));
}

/// Decodes a header block that the server sent.
pub(super) fn decode(block: &[u8]) -> Result<Block, Http2Error> {
    read(block).ok_or(Http2Error::Malformed("the header block is not valid"))
}

fn read(block: &[u8]) -> Option<Block> {
    let mut reader = Reader(block);
    let mut read = Block { status: None, fields: HeaderMap::new() };
    while let Some(first) = reader.0.first().copied() {
        let (name, value) = if first & INDEXED != 0 {
            let (name, value) = entry(reader.number(7)?)?;
            (name.as_bytes().to_vec(), value.as_bytes().to_vec())
        } else if first & TO_BE_INDEXED != 0 {
            reader.field(6)?
        } else if first & TABLE_SIZE != 0 {
            // The size that this side has announced.
            if reader.number(5)? != 0 {
                return None;
            }
            continue;
        } else {
            reader.field(4)?
        };
        match name.as_slice() {
            b":status" => read.status = Some(StatusCode::from_bytes(&value).ok()?),
            [b':', ..] => return None,
            _ => {
                let name = HeaderName::from_lowercase(&name).ok()?;
                read.fields.append(name, HeaderValue::from_bytes(&value).ok()?);
            }
        }
    }
    Some(read)
}

fn entry(number: usize) -> Option<(&'static str, &'static str)> {
    TABLE.get(number.checked_sub(1)?).copied()
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    /// A field whose name is an entry of the table, or follows.
    fn field(&mut self, prefix: u32) -> Option<(Vec<u8>, Vec<u8>)> {
        let name = match self.number(prefix)? {
            0 => self.text()?,
            number => entry(number)?.0.as_bytes().to_vec(),
        };
        Some((name, self.text()?))
    }

    fn text(&mut self) -> Option<Vec<u8>> {
        let is_coded = self.0.first()? & 0x80 != 0;
        let length = self.number(7)?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        if is_coded { huffman::decode(text) } else { Some(text.to_vec()) }
    }

    /// A number whose first bits are the last `prefix` bits of the next byte.
    fn number(&mut self, prefix: u32) -> Option<usize> {
        let most = (1_usize << prefix) - 1;
        let mut number = usize::from(self.byte()?) & most;
        if number < most {
            return Some(number);
        }
        // Four more bytes exceed every block.
        for shift in [0, 7, 14, 21] {
            let byte = self.byte()?;
            number += usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn a_block_with_every_representation_is_read() {
        let mut block = vec![0x20, INDEXED | 8];
        // content-type by its number, to be indexed, in Huffman's code: "302".
        block.extend([TO_BE_INDEXED | 31, 0x82, 0x64, 0x02]);
        // A new name that is never indexed.
        block.extend([0x10, 11]);
        block.extend(b"grpc-status");
        block.extend([1, b'0']);
        let read = decode(&block).unwrap();
        assert_eq!(read.status, Some(StatusCode::OK));
        assert_eq!(read.fields["content-type"], "302");
        assert_eq!(read.fields["grpc-status"], "0");
        assert_eq!(read.fields.len(), 2);
    }

    #[test]
    fn a_long_text_is_written_as_it_is_read() {
        for length in [0, 1, 126, 127, 128, 255, 16_383, 16_384, 70_000] {
            let mut block = Vec::new();
            let text = vec![b'x'; length];
            put_text(&mut block, &text);
            let mut reader = Reader(&block);
            assert_eq!(reader.text(), Some(text), "{length}");
            assert!(reader.0.is_empty(), "{length}");
        }
    }

    #[test]
    fn a_block_that_is_not_valid_is_refused() {
        let cases: [&[u8]; 8] = [
            &[INDEXED],                // entry 0
            &[INDEXED | 62],           // an entry of the dynamic table
            &[0x3f, 0x01],             // a size of 32
            &[0x00, 5, b'n', b'a'],    // a name cut short
            &[0x00, 1, b'n'],          // no value
            &[0x00, 1, b'N', 1, b'v'], // a capital
            &[0x01, 1, b'x'],          // a pseudo field of requests
            &[INDEXED | 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff],
        ];
        for block in cases {
            assert!(decode(block).is_err(), "{block:?}");
        }
    }
}

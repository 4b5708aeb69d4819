//! Records as bytes: length, checksum, kind, body. A file that was cut off anywhere still tells which of its records
//! are whole.

use super::{Record, Started, announcement, started};
use prost::Message as _;
use std::fmt;

/// What a file begins with.
pub const HEADER: &[u8] = b"ferrule-policy 1\n";
/// Length and checksum, four bytes each, before kind and body.
const PREFIX: usize = 8;
/// A longer record is damage: a part is a quarter of a megabyte, or one object.
const RECORD_MAX: usize = 64 << 20;

/// What was wrong with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// The last write did not come to its end.
    TornTail {
        /// Where it starts.
        at: usize,
        /// How many bytes it has.
        bytes: usize,
    },
    /// Something cannot be read, and what stands after it was not written with it.
    Corrupt {
        /// Where it starts.
        at: usize,
    },
    /// It does not begin as such a file of this version does.
    Foreign,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TornTail { at, bytes } => {
                write!(f, "it was cut off: {bytes} bytes at {at} are no whole record")
            }
            Self::Corrupt { at } => write!(f, "the record at {at} is not as it was written"),
            Self::Foreign => f.write_str("it does not begin as such a file does"),
        }
    }
}

/// What a file told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// Its whole records up to the first that is not, oldest first.
    pub records: Vec<Record>,
    /// What was wrong with it.
    pub damage: Option<Damage>,
}

/// Appends a record.
pub fn encode(record: &Record, out: &mut Vec<u8>) {
    let announced;
    let (kind, body): (u8, &[u8]) = match record {
        Record::Begun { epoch } => (1, epoch),
        Record::Part(bytes) => (2, bytes),
        Record::Bookmark(bytes) => (3, bytes),
        Record::Started(pod) => {
            let container = pod.container.clone();
            announced = Started { pod: Some(announcement(pod)), container }.encode_to_vec();
            (4, &announced)
        }
        Record::Ended { uid } => (5, uid.as_bytes()),
    };
    let length = u32::try_from(body.len() + 1).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&crc32(kind, body).to_le_bytes());
    out.push(kind);
    out.extend_from_slice(body);
}

/// Reads the whole records.
pub fn decode(file: &[u8]) -> Recovered {
    let mut records = Vec::new();
    if !file.starts_with(HEADER) {
        return Recovered { records, damage: Some(Damage::Foreign) };
    }
    let mut at = HEADER.len();
    while at < file.len() {
        match record_at(&file[at..]) {
            Ok((record, length)) => {
                records.push(record);
                at += length;
            }
            Err(is_last) => {
                let bytes = file.len() - at;
                let torn = Damage::TornTail { at, bytes };
                let damage = if is_last { torn } else { Damage::Corrupt { at } };
                return Recovered { records, damage: Some(damage) };
            }
        }
    }
    Recovered { records, damage: None }
}

/// The record that starts here, and its length. If there is none, whether the rest is what a write that did not
/// come to its end leaves: cut short, or blank.
fn record_at(rest: &[u8]) -> Result<(Record, usize), bool> {
    let Some((prefix, after)) = rest.split_at_checked(PREFIX) else { return Err(true) };
    let (length, crc) = prefix.split_at(4);
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0_u32, |n, b| (n << 8) | u32::from(*b));
    let length = usize::try_from(number(length)).unwrap_or(usize::MAX);
    let blank = rest.iter().all(|byte| *byte == 0);
    let body = after.get(..length).and_then(|bytes| bytes.split_first());
    let Some((kind, body)) = body.filter(|_| length <= RECORD_MAX) else {
        return Err(blank || (1..=RECORD_MAX).contains(&length) && after.len() < length);
    };
    if crc32(*kind, body) != number(crc) {
        // Its length came to the disk and not all of its bytes, though the file is long enough.
        return Err(after.len() == length || after[length..].iter().all(|byte| *byte == 0));
    }
    let record = match kind {
        1 => Some(Record::Begun { epoch: body.to_vec() }),
        2 => Some(Record::Part(body.to_vec())),
        3 => Some(Record::Bookmark(body.to_vec())),
        4 => Started::decode(body).ok().and_then(started).map(Record::Started),
        5 => String::from_utf8(body.to_vec()).ok().map(|uid| Record::Ended { uid }),
        _ => None,
    };
    record.map(|record| (record, PREFIX + length)).ok_or(false)
}

/// CRC-32 as in IEEE 802.3, of both.
fn crc32(kind: u8, body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&[kind]);
    hasher.update(body);
    hasher.finalize()
}

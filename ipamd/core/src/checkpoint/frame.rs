//! Records as lines of length, CRC and JSON. The intact records of a truncated file stay readable.

use super::Record;
use crc32fast::hash as crc32;
use std::fmt;

/// The first line of the file.
pub const HEADER: &[u8] = b"ferrule-ipam 1\n";

/// The prefix `llllllll cccccccc ` of the JSON: its length and CRC-32 in hex.
const PREFIX: usize = 18;
/// A record has a few hundred bytes; a longer one is damage.
const RECORD_MAX: usize = 64 * 1024;

/// Appends the line of the record.
pub fn encode(record: &Record, out: &mut Vec<u8>) {
    let json = serde_json::to_vec(record).expect("a record holds only text, numbers and lists");
    out.extend_from_slice(format!("{:08x} {:08x} ", json.len(), crc32(&json)).as_bytes());
    out.extend_from_slice(&json);
    out.push(b'\n');
}

/// The result of reading a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The intact records, oldest first.
    pub records: Vec<Record>,
    /// `None` for an intact file.
    pub damage: Option<Damage>,
}

/// The damage of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// The last write did not finish, so no reply depended on it; or the file was truncated, which looks the same.
    TornTail {
        /// The offset of the tail.
        at: usize,
        /// The length of the tail.
        bytes: usize,
    },
    /// A part in the middle is unreadable, and later records are readable.
    Corrupt {
        /// The offset of the first unreadable byte.
        at: usize,
        /// The number of unreadable bytes in all.
        bytes: usize,
    },
    /// The file does not start with the header of this version.
    Foreign,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TornTail { at, bytes } => {
                write!(f, "it was cut off: {bytes} bytes at {at} are no whole record")
            }
            Self::Corrupt { at, bytes } => {
                write!(f, "{bytes} bytes from {at} on cannot be read")
            }
            Self::Foreign => f.write_str("it does not begin as a checkpoint does"),
        }
    }
}

/// Reads every intact record.
pub fn decode(file: &[u8]) -> Recovered {
    let mut records = Vec::new();
    if !file.starts_with(HEADER) {
        return Recovered { records, damage: Some(Damage::Foreign) };
    }
    let mut at = HEADER.len();
    let mut bad: Option<(usize, usize)> = None;
    let damage = loop {
        if at == file.len() {
            break bad.map(|(at, bytes)| Damage::Corrupt { at, bytes });
        }
        if let Some((record, after)) = record_at(file, at) {
            records.push(record);
            at = after;
            continue;
        }
        let Some(next) = next_whole(file, at) else {
            let bytes = file.len() - at;
            break Some(match bad {
                Some((first, skipped)) => Damage::Corrupt { at: first, bytes: skipped + bytes },
                None => Damage::TornTail { at, bytes },
            });
        };
        let (first, skipped) = bad.unwrap_or((at, 0));
        bad = Some((first, skipped + next - at));
        at = next;
    };
    Recovered { records, damage }
}

/// The record of the line at this offset, and the offset of the next line.
fn record_at(file: &[u8], at: usize) -> Option<(Record, usize)> {
    let prefix = file.get(at..at + PREFIX)?;
    let length = usize::try_from(hex(&prefix[..8])?).ok().filter(|length| *length <= RECORD_MAX)?;
    let crc = hex(&prefix[9..17])?;
    let json = file.get(at + PREFIX..at + PREFIX + length)?;
    let end = at + PREFIX + length;
    let whole = prefix[8] == b' ' && prefix[17] == b' ' && file.get(end) == Some(&b'\n');
    if !whole || crc32(json) != crc {
        return None;
    }
    Some((serde_json::from_slice(json).ok()?, end + 1))
}

/// The offset of the next intact record. Every byte is tried, because a line end may be damaged.
fn next_whole(file: &[u8], after: usize) -> Option<usize> {
    (after + 1..file.len()).find(|start| record_at(file, *start).is_some())
}

fn hex(digits: &[u8]) -> Option<u32> {
    let lower = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    let text = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|b| lower(&b)))?;
    u32::from_str_radix(text, 16).ok()
}

//! Records as lines: length, CRC and JSON. A file that was cut off anywhere still tells which of
//! its records are whole.

use super::Record;
use crc32fast::hash as crc32;
use std::fmt;

/// The first line of the file.
pub const HEADER: &[u8] = b"ferrule-ipam 1\n";

/// `llllllll cccccccc ` before the JSON: its length and its CRC-32 in hex.
const PREFIX: usize = 18;
/// A record is a few hundred bytes; more is damage.
const RECORD_MAX: usize = 64 * 1024;

/// Appends the record's line.
pub fn encode(record: &Record, out: &mut Vec<u8>) {
    let json = serde_json::to_vec(record).expect("a record holds only text, numbers and lists");
    out.extend_from_slice(format!("{:08x} {:08x} ", json.len(), crc32(&json)).as_bytes());
    out.extend_from_slice(&json);
    out.push(b'\n');
}

/// What a file told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// Its whole records, oldest first.
    pub records: Vec<Record>,
    /// What was wrong with it.
    pub damage: Option<Damage>,
}

/// What was wrong with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// The last write did not come to its end, and nobody was told of what it said; or somebody cut
    /// the file off, which looks the same.
    TornTail {
        /// Where it starts.
        at: usize,
        /// How many bytes it has.
        bytes: usize,
    },
    /// Something in the middle cannot be read, and what stands after it can.
    Corrupt {
        /// Where it starts.
        at: usize,
        /// How many bytes could not be read in all.
        bytes: usize,
    },
    /// It does not begin as a checkpoint of this version does.
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

/// Reads every whole record.
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

/// The record whose line starts here, and where the next one starts.
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

/// The next place where a whole record starts. Every byte is tried, since the damage may be to the
/// end of a line.
fn next_whole(file: &[u8], after: usize) -> Option<usize> {
    (after + 1..file.len()).find(|start| record_at(file, *start).is_some())
}

fn hex(digits: &[u8]) -> Option<u32> {
    let lower = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    let text = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|b| lower(&b)))?;
    u32::from_str_radix(text, 16).ok()
}

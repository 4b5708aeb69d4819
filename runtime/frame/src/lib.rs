//! Framing of journal files: a header line, then one frame per record.
//!
//! A frame is `llllllll cccccccc PAYLOAD\n`: the payload's length and CRC-32 as lower-case hex, then the payload. A
//! payload may be any bytes. A file that is cut off or damaged anywhere still yields its whole records.
//!
//! This crate performs no input or output: `runtime-journal` owns the files.

use crc32fast::hash as crc32;
use std::{error::Error, fmt};

/// A record of one kind of journal.
pub trait Record: Sized {
    /// The first line of a file, with its newline. It names the program and the version of the format.
    const HEADER: &'static [u8];
    /// The longest payload in bytes. [`encode`] refuses a longer one, and [`decode`] counts it as damage.
    const LONGEST: usize;
    /// True if records after a damaged one still count. They do not if a record means something only after all
    /// records before it.
    const COUNTS_AFTER_DAMAGE: bool;

    /// Appends the payload.
    fn encode(&self, out: &mut Vec<u8>);

    /// `None` if these bytes are no record; the frame then counts as damaged.
    fn decode(payload: &[u8]) -> Option<Self>;
}

/// The contents of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered<R> {
    /// The records that count, oldest first.
    pub records: Vec<R>,
    /// `None` if the file is whole.
    pub damage: Option<Damage>,
}

/// The reason why a file is not whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// No whole record follows. Either the last write was interrupted, and nothing was reported that depends on it;
    /// or somebody truncated the file, which looks the same.
    TornTail {
        /// The offset of the first such byte.
        at: usize,
        /// The number of bytes from there to the end.
        bytes: usize,
    },
    /// A whole record follows the damage.
    Corrupt {
        /// The offset of the first damaged byte.
        at: usize,
        /// The number of bytes that do not count.
        bytes: usize,
    },
    /// The file does not start with the header of this version.
    Foreign,
}

impl Damage {
    /// Returns true if a power cut alone can explain the damage. If not, a person should look at the file.
    pub fn is_torn_tail(self) -> bool {
        matches!(self, Self::TornTail { .. })
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TornTail { at, bytes } => {
                write!(f, "the last {bytes} bytes, from offset {at}, are not a whole record")
            }
            Self::Corrupt { at, bytes } => {
                write!(f, "{bytes} bytes from offset {at} are not valid records")
            }
            Self::Foreign => f.write_str("the file does not start with the header of this version"),
        }
    }
}

/// A record whose payload is longer than [`Record::LONGEST`]. A reader would count its frame as damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong {
    /// The length of the payload in bytes.
    pub bytes: usize,
    /// [`Record::LONGEST`].
    pub limit: usize,
}

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes, limit } = self;
        write!(
            f,
            "cannot encode a record: it has {bytes} bytes, and the limit is {limit}; \
             restart the program, which drops the record, and report the defect"
        )
    }
}

impl Error for TooLong {}

/// A whole file of these records.
///
/// # Errors
/// If a record is too long.
pub fn image<R: Record>(records: &[R]) -> Result<Vec<u8>, TooLong> {
    let mut bytes = R::HEADER.to_vec();
    records.iter().try_for_each(|record| encode(record, &mut bytes))?;
    Ok(bytes)
}

/// Appends the record's frame.
///
/// # Errors
/// If the record is too long. `out` is then unchanged.
pub fn encode<R: Record>(record: &R, out: &mut Vec<u8>) -> Result<(), TooLong> {
    let start = out.len();
    out.resize(start + PREFIX, b' ');
    record.encode(out);
    let payload = &out[start + PREFIX..];
    let bytes = payload.len();
    if bytes > R::LONGEST {
        out.truncate(start);
        return Err(TooLong { bytes, limit: R::LONGEST });
    }
    let prefix = format!("{bytes:08x} {:08x} ", crc32(payload));
    out[start..start + PREFIX].copy_from_slice(prefix.as_bytes());
    out.push(b'\n');
    Ok(())
}

/// Reads a file.
pub fn decode<R: Record>(file: &[u8]) -> Recovered<R> {
    let mut records = Vec::new();
    if !file.starts_with(R::HEADER) {
        return Recovered { records, damage: Some(Damage::Foreign) };
    }
    let mut at = R::HEADER.len();
    let mut skipped: Option<(usize, usize)> = None;
    let damage = loop {
        if at == file.len() {
            break skipped.map(|(at, bytes)| Damage::Corrupt { at, bytes });
        }
        if let Some((record, after)) = record_at(file, at) {
            records.push(record);
            at = after;
            continue;
        }
        let rest = file.len() - at;
        match (next_whole::<R>(file, at), skipped) {
            (Some(_), _) if !R::COUNTS_AFTER_DAMAGE => {
                break Some(Damage::Corrupt { at, bytes: rest });
            }
            (Some(next), _) => {
                let (first, bytes) = skipped.unwrap_or((at, 0));
                skipped = Some((first, bytes + next - at));
                at = next;
            }
            (None, Some((first, bytes))) => {
                break Some(Damage::Corrupt { at: first, bytes: bytes + rest });
            }
            (None, None) => break Some(Damage::TornTail { at, bytes: rest }),
        }
    };
    Recovered { records, damage }
}

/// The record whose frame starts here, and the offset behind the frame.
fn record_at<R: Record>(file: &[u8], at: usize) -> Option<(R, usize)> {
    let prefix = file.get(at..at + PREFIX)?;
    if prefix[8] != b' ' || prefix[17] != b' ' {
        return None;
    }
    let length = usize::try_from(hex(&prefix[..8])?).ok().filter(|length| *length <= R::LONGEST)?;
    let crc = hex(&prefix[9..17])?;
    let end = at + PREFIX + length;
    let payload = file.get(at + PREFIX..end)?;
    if file.get(end) != Some(&b'\n') || crc32(payload) != crc {
        return None;
    }
    Some((R::decode(payload)?, end + 1))
}

/// The next offset where a whole record starts. Every offset is tried, since the damage may include the end of a
/// frame.
fn next_whole<R: Record>(file: &[u8], after: usize) -> Option<usize> {
    (after + 1..file.len()).find(|start| record_at::<R>(file, *start).is_some())
}

fn hex(digits: &[u8]) -> Option<u32> {
    let lower = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    let text = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|b| lower(&b)))?;
    u32::from_str_radix(text, 16).ok()
}

/// `llllllll cccccccc `.
const PREFIX: usize = 18;

#[cfg(test)]
mod tests;

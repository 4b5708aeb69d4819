//! The payload of a record: one byte for its kind, then its body.

use super::{Record, Started, announcement, started};
use prost::Message as _;

/// The first line of the file.
pub const HEADER: &[u8] = b"ferrule-policy 2\n";

impl runtime_frame::Record for Record {
    const HEADER: &'static [u8] = HEADER;
    /// A part is a quarter of a megabyte, or one object.
    const LONGEST: usize = 64 << 20;
    /// A part means something only after all parts before it.
    const COUNTS_AFTER_DAMAGE: bool = false;

    fn encode(&self, out: &mut Vec<u8>) {
        let announced;
        let (kind, body): (u8, &[u8]) = match self {
            Self::Begun { epoch } => (1, epoch),
            Self::Part(bytes) => (2, bytes),
            Self::Bookmark(bytes) => (3, bytes),
            Self::Started(pod) => {
                let container = pod.container.clone();
                announced = Started { pod: Some(announcement(pod)), container }.encode_to_vec();
                (4, &announced)
            }
            Self::Ended { uid } => (5, uid.as_bytes()),
        };
        out.push(kind);
        out.extend_from_slice(body);
    }

    fn decode(payload: &[u8]) -> Option<Self> {
        let (kind, body) = payload.split_first()?;
        match kind {
            1 => Some(Self::Begun { epoch: body.to_vec() }),
            2 => Some(Self::Part(body.to_vec())),
            3 => Some(Self::Bookmark(body.to_vec())),
            4 => Started::decode(body).ok().and_then(started).map(Self::Started),
            5 => String::from_utf8(body.to_vec()).ok().map(|uid| Self::Ended { uid }),
            _ => None,
        }
    }
}

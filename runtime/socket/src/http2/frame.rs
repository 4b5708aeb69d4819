//! Frames of HTTP/2 (RFC 9113, section 4).

/// The length of a frame's head in bytes.
pub(super) const HEAD: usize = 9;
/// The longest payload in bytes that a side accepts unless it announces another.
pub(super) const LONGEST: usize = 16_384;
/// The window of a stream and of a connection in bytes, unless a side announces another.
pub(super) const WINDOW: i64 = 65_535;

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PUSH_PROMISE: u8 = 5;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

pub(super) const ACK: u8 = 0x1;
pub(super) const END_STREAM: u8 = 0x1;
pub(super) const END_HEADERS: u8 = 0x4;
pub(super) const PADDED: u8 = 0x8;
pub(super) const PRIORITY: u8 = 0x20;

pub(super) const HEADER_TABLE_SIZE: u16 = 1;
pub(super) const ENABLE_PUSH: u16 = 2;
pub(super) const INITIAL_WINDOW_SIZE: u16 = 4;
pub(super) const MAX_FRAME_SIZE: u16 = 5;

/// The nine bytes before a frame's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) length: usize,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

impl Head {
    /// `None` if there are too few bytes.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let [a, b, c, kind, flags, stream @ ..] = *bytes.first_chunk::<HEAD>()?;
        let length = u32::from_be_bytes([0, a, b, c]);
        let stream = u32::from_be_bytes(stream) & 0x7fff_ffff;
        Some(Self { length: usize::try_from(length).ok()?, kind, flags, stream })
    }

    pub(super) fn is(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Appends a frame. The payload is at most [`LONGEST`] bytes.
pub(super) fn put(output: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    output.extend_from_slice(&length[1..]);
    output.extend_from_slice(&[kind, flags]);
    output.extend_from_slice(&stream.to_be_bytes());
    output.extend_from_slice(payload);
}

/// The payload of SETTINGS.
pub(super) fn settings(values: &[(u16, u32)]) -> Vec<u8> {
    let bytes = |(name, value): &(u16, u32)| {
        name.to_be_bytes().into_iter().chain(value.to_be_bytes()).collect::<Vec<u8>>()
    };
    values.iter().flat_map(bytes).collect()
}

/// The payload without its padding and priority; `None` if it is too short for them.
pub(super) fn content(head: Head, mut payload: &[u8]) -> Option<&[u8]> {
    if head.is(PADDED) {
        let (padding, rest) = payload.split_first()?;
        payload = rest.get(..rest.len().checked_sub(usize::from(*padding))?)?;
    }
    if head.kind == HEADERS && head.is(PRIORITY) {
        payload = payload.get(5..)?;
    }
    Some(payload)
}

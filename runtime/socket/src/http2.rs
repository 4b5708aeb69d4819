//! HTTP/2 (RFC 9113) for a client that has one request at a time, without its socket: bytes in, bytes out.
//!
//! The preface, this side's settings and the first request are one piece of output: the server is not awaited before
//! the request. The server's window is respected; this side's own is never exhausted by the few short messages of a
//! connection.

mod frame;
mod header;
mod huffman;

use frame::Head;
use http::{HeaderMap, Response, StatusCode, request::Parts};

/// The longest response and the longest header block in bytes, so that no server makes this side's memory grow.
pub(crate) const LONGEST_RESPONSE: usize = 512 * 1024;
const LONGEST_BLOCK: usize = 64 * 1024;
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// This side's window: the most that the protocol has.
const WINDOW: u32 = 0x7fff_ffff;

/// An exchange that failed.
#[derive(Debug, thiserror::Error)]
pub enum Http2Error {
    /// The socket failed.
    #[error("cannot use the connection")]
    Io(#[from] std::io::Error),
    /// The connection ended.
    #[error("the server closed the connection before its answer")]
    Closed,
    /// The server gave the request up.
    #[error("the server canceled the request with HTTP/2 error {code}")]
    Reset {
        /// The code of RFC 9113, section 7.
        code: u32,
    },
    /// The server will not answer this request.
    #[error("the server closes the connection with HTTP/2 error {code}")]
    GoingAway {
        /// The code of RFC 9113, section 7.
        code: u32,
    },
    /// The server does not keep to the protocol.
    #[error("cannot read the server's HTTP/2 frames: {0}")]
    Malformed(&'static str),
}

/// A response: its head, its data, and the fields after them.
pub(crate) type Answer = (Response<()>, Vec<u8>, HeaderMap);

/// One connection.
pub(crate) struct Protocol {
    input: Vec<u8>,
    output: Vec<u8>,
    /// Acknowledgments, which nothing waits for: they precede the next output.
    deferred: Vec<u8>,
    next_stream: u32,
    /// Bytes that the server still accepts on the connection.
    window: i64,
    /// Bytes that the server accepts on a new stream.
    stream_window: i64,
    longest_frame: usize,
    /// The server has announced that it ends the connection.
    is_ending: bool,
    /// The first frame was seen, which is the server's settings.
    has_settings: bool,
    /// The stream and the flags of a header block that is not complete, and the block so far.
    block: Option<(Head, Vec<u8>)>,
    call: Option<Call>,
}

/// The request under way.
struct Call {
    stream: u32,
    /// Data that still has to be sent.
    unsent: Vec<u8>,
    /// Bytes that the server still accepts on this stream.
    window: i64,
    head: Option<(StatusCode, HeaderMap)>,
    data: Vec<u8>,
    trailers: HeaderMap,
    is_complete: bool,
}

impl Protocol {
    /// A new connection. The preface waits for the first request.
    pub(crate) fn new() -> Self {
        let mut output = PREFACE.to_vec();
        let settings = frame::settings(&[
            (frame::HEADER_TABLE_SIZE, 0),
            (frame::ENABLE_PUSH, 0),
            (frame::INITIAL_WINDOW_SIZE, WINDOW),
        ]);
        frame::put(&mut output, frame::SETTINGS, 0, 0, &settings);
        let more = WINDOW - u32::try_from(frame::WINDOW).unwrap_or(0);
        frame::put(&mut output, frame::WINDOW_UPDATE, 0, 0, &more.to_be_bytes());
        Self {
            input: Vec::new(),
            output,
            deferred: Vec::new(),
            next_stream: 1,
            window: frame::WINDOW,
            stream_window: frame::WINDOW,
            longest_frame: frame::LONGEST,
            is_ending: false,
            has_settings: false,
            block: None,
            call: None,
        }
    }

    /// Starts a request. The one before must be complete.
    pub(crate) fn start(&mut self, head: &Parts, body: Vec<u8>) {
        let stream = self.next_stream;
        self.next_stream += 2;
        let block = header::encode(head);
        let mut kind = frame::HEADERS;
        let mut chunks = block.chunks(frame::LONGEST).peekable();
        while let Some(chunk) = chunks.next() {
            let end = if chunks.peek().is_none() { frame::END_HEADERS } else { 0 };
            frame::put(&mut self.output, kind, end, stream, chunk);
            kind = frame::CONTINUATION;
        }
        if body.is_empty() {
            frame::put(&mut self.output, frame::DATA, frame::END_STREAM, stream, &[]);
        }
        self.call = Some(Call {
            stream,
            unsent: body,
            window: self.stream_window,
            head: None,
            data: Vec::new(),
            trailers: HeaderMap::new(),
            is_complete: false,
        });
        self.send_data();
    }

    /// Takes the bytes to write now.
    pub(crate) fn take_output(&mut self) -> Vec<u8> {
        if self.output.is_empty() {
            return Vec::new();
        }
        let mut output = self.take_deferred();
        output.append(&mut self.output);
        output
    }

    /// Returns true if there are bytes that may wait for the next output, but not forever.
    pub(crate) fn has_deferred(&self) -> bool {
        !self.deferred.is_empty()
    }

    /// Takes the bytes that need not wait any longer.
    pub(crate) fn take_deferred(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.deferred)
    }

    /// Returns true if another request may follow on this connection.
    pub(crate) fn is_reusable(&self) -> bool {
        self.call.is_none() && !self.is_ending
    }

    /// Takes bytes that were read. Gives the response once it is complete.
    ///
    /// # Errors
    /// There will be no response on this connection.
    pub(crate) fn receive(&mut self, bytes: &[u8]) -> Result<Option<Answer>, Http2Error> {
        self.input.extend_from_slice(bytes);
        let mut at = 0;
        while let Some(head) = self.input.get(at..).and_then(Head::read) {
            if head.length > frame::LONGEST {
                return Err(Http2Error::Malformed("a frame is too long"));
            }
            let start = at + frame::HEAD;
            let Some(payload) = self.input.get(start..start + head.length) else { break };
            let payload = payload.to_vec();
            at = start + head.length;
            self.take(head, &payload)?;
        }
        self.input.drain(..at);
        self.send_data();
        Ok(self.answer())
    }

    fn answer(&mut self) -> Option<Answer> {
        let mut call = self.call.take_if(|call| call.is_complete)?;
        // The server has answered before it has read all data: it expects no further data on this stream.
        self.is_ending |= !call.unsent.is_empty();
        let (status, fields) = call.head.take()?;
        let mut response = Response::new(());
        *response.status_mut() = status;
        *response.headers_mut() = fields;
        Some((response, call.data, call.trailers))
    }

    fn take(&mut self, head: Head, payload: &[u8]) -> Result<(), Http2Error> {
        if !self.has_settings && (head.kind != frame::SETTINGS || head.is(frame::ACK)) {
            return Err(Http2Error::Malformed("the first frame is not SETTINGS"));
        }
        self.has_settings = true;
        let is_continued = head.kind == frame::CONTINUATION
            && self.block.as_ref().is_some_and(|(first, _)| first.stream == head.stream);
        if is_continued != self.block.is_some() {
            return Err(Http2Error::Malformed("a header block is interrupted"));
        }
        match head.kind {
            frame::DATA => self.take_data(head, payload),
            frame::HEADERS => self.take_block(head, payload),
            frame::CONTINUATION => self.continue_block(head, payload),
            frame::RST_STREAM => self.take_reset(head, payload),
            frame::SETTINGS if head.is(frame::ACK) => Ok(()),
            frame::SETTINGS => self.take_settings(payload),
            frame::PUSH_PROMISE => Err(Http2Error::Malformed("a push, which is switched off")),
            frame::PING if head.is(frame::ACK) => Ok(()),
            frame::PING => {
                frame::put(&mut self.output, frame::PING, frame::ACK, 0, payload);
                Ok(())
            }
            frame::GOAWAY => self.take_goaway(payload),
            frame::WINDOW_UPDATE => self.take_window(head, payload),
            // Frames of other kinds have no meaning here, as RFC 9113 demands.
            _ => Ok(()),
        }
    }

    /// The request under way, if the frame is about it.
    fn call_of(&mut self, head: Head) -> Option<&mut Call> {
        self.call.as_mut().filter(|call| call.stream == head.stream && !call.is_complete)
    }

    fn take_data(&mut self, head: Head, payload: &[u8]) -> Result<(), Http2Error> {
        let content = frame::content(head, payload).ok_or(PADDING)?;
        let Some(call) = self.call_of(head) else { return Ok(()) };
        if call.head.is_none() {
            return Err(Http2Error::Malformed("data precede the response's head"));
        }
        if call.data.len() + content.len() > LONGEST_RESPONSE {
            return Err(Http2Error::Malformed("the response is too long"));
        }
        call.data.extend_from_slice(content);
        call.is_complete = head.is(frame::END_STREAM);
        Ok(())
    }

    fn take_block(&mut self, head: Head, payload: &[u8]) -> Result<(), Http2Error> {
        let content = frame::content(head, payload).ok_or(PADDING)?.to_vec();
        if head.is(frame::END_HEADERS) {
            return self.take_fields(head, &content);
        }
        self.block = Some((head, content));
        Ok(())
    }

    fn continue_block(&mut self, head: Head, payload: &[u8]) -> Result<(), Http2Error> {
        let Some((first, mut block)) = self.block.take() else {
            return Err(Http2Error::Malformed("a header block without its start"));
        };
        block.extend_from_slice(payload);
        if block.len() > LONGEST_BLOCK {
            return Err(Http2Error::Malformed("the header block is too long"));
        }
        if head.is(frame::END_HEADERS) {
            return self.take_fields(first, &block);
        }
        self.block = Some((first, block));
        Ok(())
    }

    fn take_fields(&mut self, head: Head, block: &[u8]) -> Result<(), Http2Error> {
        let header::Block { status, fields } = header::decode(block)?;
        let Some(call) = self.call_of(head) else { return Ok(()) };
        match (status, &call.head) {
            // An interim response; the real one follows.
            (Some(status), None) if status.is_informational() => return Ok(()),
            (Some(status), None) => call.head = Some((status, fields)),
            (None, Some(_)) => call.trailers = fields,
            (None, None) => return Err(Http2Error::Malformed("a response without a status")),
            (Some(_), Some(_)) => return Err(Http2Error::Malformed("a second response")),
        }
        call.is_complete = head.is(frame::END_STREAM);
        Ok(())
    }

    fn take_reset(&mut self, head: Head, payload: &[u8]) -> Result<(), Http2Error> {
        let code = number(payload, 0)?;
        match self.call_of(head) {
            Some(_) => Err(Http2Error::Reset { code }),
            None => Ok(()),
        }
    }

    fn take_settings(&mut self, payload: &[u8]) -> Result<(), Http2Error> {
        let (settings, rest) = payload.as_chunks::<6>();
        if !rest.is_empty() {
            return Err(Http2Error::Malformed("SETTINGS are cut short"));
        }
        for [a, b, value @ ..] in settings {
            let value = u32::from_be_bytes(*value);
            match u16::from_be_bytes([*a, *b]) {
                frame::INITIAL_WINDOW_SIZE => {
                    let change = i64::from(value) - self.stream_window;
                    self.stream_window = value.into();
                    if let Some(call) = &mut self.call {
                        call.window += change;
                    }
                }
                frame::MAX_FRAME_SIZE => {
                    let longest = usize::try_from(value).unwrap_or(frame::LONGEST);
                    self.longest_frame = longest.max(frame::LONGEST);
                }
                _ => {}
            }
        }
        frame::put(&mut self.deferred, frame::SETTINGS, frame::ACK, 0, &[]);
        Ok(())
    }

    fn take_goaway(&mut self, payload: &[u8]) -> Result<(), Http2Error> {
        let last = number(payload, 0)? & 0x7fff_ffff;
        let code = number(payload, 4)?;
        self.is_ending = true;
        match &self.call {
            Some(call) if call.stream > last => Err(Http2Error::GoingAway { code }),
            Some(_) | None => Ok(()),
        }
    }

    fn take_window(&mut self, head: Head, payload: &[u8]) -> Result<(), Http2Error> {
        let more = i64::from(number(payload, 0)? & 0x7fff_ffff);
        if head.stream == 0 {
            self.window += more;
        } else if let Some(call) = self.call_of(head) {
            call.window += more;
        }
        Ok(())
    }

    /// Puts as much of the request's data into the output as the server takes.
    fn send_data(&mut self) {
        let Some(call) = self.call.as_mut().filter(|call| !call.is_complete) else { return };
        while !call.unsent.is_empty() {
            let room = usize::try_from(self.window.min(call.window)).unwrap_or(0);
            let length = call.unsent.len().min(room).min(self.longest_frame);
            if length == 0 {
                return;
            }
            let is_last = length == call.unsent.len();
            let rest = call.unsent.split_off(length);
            let flags = if is_last { frame::END_STREAM } else { 0 };
            frame::put(&mut self.output, frame::DATA, flags, call.stream, &call.unsent);
            call.unsent = rest;
            let sent = i64::try_from(length).unwrap_or(i64::MAX);
            self.window -= sent;
            call.window -= sent;
        }
    }
}

const PADDING: Http2Error = Http2Error::Malformed("a frame's padding exceeds it");

/// The 32 bits at this place of a payload.
fn number(payload: &[u8], at: usize) -> Result<u32, Http2Error> {
    let bytes = payload.get(at..).and_then(<[u8]>::first_chunk).copied();
    bytes.map(u32::from_be_bytes).ok_or(Http2Error::Malformed("a frame is too short"))
}

#[cfg(test)]
mod tests;

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use http::Request;

fn parts(path: &str) -> Parts {
    let uri = format!("http://ferrule{path}");
    let request = Request::post(uri).header("content-type", "application/grpc").body(()).unwrap();
    request.into_parts().0
}

/// The frames of a piece of output.
fn frames(mut bytes: &[u8]) -> Vec<(Head, Vec<u8>)> {
    let mut frames = Vec::new();
    while let Some(head) = Head::read(bytes) {
        let (payload, rest) = bytes[frame::HEAD..].split_at(head.length);
        frames.push((head, payload.to_vec()));
        bytes = rest;
    }
    assert!(bytes.is_empty(), "a frame is cut short");
    frames
}

fn frame_of(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::put(&mut bytes, kind, flags, stream, payload);
    bytes
}

fn settings(values: &[(u16, u32)]) -> Vec<u8> {
    frame_of(frame::SETTINGS, 0, 0, &frame::settings(values))
}

/// `:status 200`.
const OK: &[u8] = &[0x88];
/// `grpc-status: 0`.
const TRAILERS: &[u8] = b"\x00\x0bgrpc-status\x010";

fn head_of(stream: u32) -> Vec<u8> {
    frame_of(frame::HEADERS, frame::END_HEADERS, stream, OK)
}

fn trailers_of(stream: u32) -> Vec<u8> {
    frame_of(frame::HEADERS, frame::END_HEADERS | frame::END_STREAM, stream, TRAILERS)
}

fn data_of(stream: u32, data: &[u8]) -> Vec<u8> {
    frame_of(frame::DATA, 0, stream, data)
}

/// A protocol whose first request is under way, and the frames of its first output.
fn started(body: &[u8]) -> (Protocol, Vec<(Head, Vec<u8>)>) {
    let mut protocol = Protocol::new();
    protocol.start(&parts("/a.B/C"), body.to_vec());
    let output = protocol.take_output();
    let sent = frames(output.strip_prefix(PREFACE).unwrap());
    (protocol, sent)
}

fn response() -> Vec<u8> {
    [settings(&[]), head_of(1), data_of(1, b"reply"), trailers_of(1)].concat()
}

#[test]
fn the_first_output_is_preface_settings_and_the_whole_request() {
    let (_, sent) = started(b"body");
    let kinds: Vec<u8> = sent.iter().map(|(head, _)| head.kind).collect();
    assert_eq!(kinds, [frame::SETTINGS, frame::WINDOW_UPDATE, frame::HEADERS, frame::DATA]);
    let (data, payload) = &sent[3];
    assert!(data.is(frame::END_STREAM) && data.stream == 1);
    assert_eq!(payload, b"body");
}

#[test]
fn a_request_without_a_body_is_complete_too() {
    let (_, sent) = started(b"");
    let (last, payload) = sent.last().unwrap();
    assert!(last.kind == frame::DATA && last.is(frame::END_STREAM) && payload.is_empty());
}

#[test]
fn a_response_is_complete_however_its_bytes_arrive() {
    let bytes = response();
    for size in [1, 2, 7, 9, 10, bytes.len()] {
        let (mut protocol, _) = started(b"body");
        let mut answer = None;
        for chunk in bytes.chunks(size) {
            assert!(answer.is_none(), "the response is complete with its last byte");
            answer = protocol.receive(chunk).unwrap();
        }
        let (head, data, trailers) = answer.unwrap();
        assert_eq!(head.status(), StatusCode::OK);
        assert_eq!(data, b"reply");
        assert_eq!(trailers["grpc-status"], "0");
        assert!(protocol.is_reusable());
    }
}

#[test]
fn a_second_request_has_the_next_stream_and_no_preface() {
    let (mut protocol, _) = started(b"");
    protocol.receive(&response()).unwrap().unwrap();
    protocol.start(&parts("/a.B/D"), b"x".to_vec());
    let sent = frames(&protocol.take_output());
    // The settings' acknowledgment was waiting.
    assert!(sent[0].0.kind == frame::SETTINGS && sent[0].0.is(frame::ACK));
    assert_eq!((sent[1].0.kind, sent[1].0.stream), (frame::HEADERS, 3));
    // Late data of the first stream does not count for the second.
    let late = [data_of(1, b"late"), head_of(3), trailers_of(3)].concat();
    let (_, data, _) = protocol.receive(&late).unwrap().unwrap();
    assert!(data.is_empty());
}

#[test]
fn settings_are_acknowledged_with_the_next_output_or_after_a_while() {
    let (mut protocol, _) = started(b"");
    assert!(!protocol.has_deferred());
    protocol.receive(&settings(&[])).unwrap();
    assert!(protocol.take_output().is_empty() && protocol.has_deferred());
    let sent = frames(&protocol.take_deferred());
    assert!(sent[0].0.kind == frame::SETTINGS && sent[0].0.is(frame::ACK));
    assert!(!protocol.has_deferred());
}

#[test]
fn a_response_may_be_trailers_alone_padded_and_in_several_blocks() {
    let (mut protocol, _) = started(b"");
    let block = [OK, TRAILERS].concat();
    let (first, rest) = block.split_at(4);
    // One byte of padding length, five of priority, two of padding.
    let padded = [&[2, 0, 0, 0, 0, 0][..], first, &[0, 0]].concat();
    let flags = frame::PADDED | frame::PRIORITY | frame::END_STREAM;
    let bytes = [
        settings(&[]),
        frame_of(frame::HEADERS, flags, 1, &padded),
        frame_of(frame::CONTINUATION, frame::END_HEADERS, 1, rest),
    ];
    let (head, data, trailers) = protocol.receive(&bytes.concat()).unwrap().unwrap();
    assert_eq!(head.headers()["grpc-status"], "0");
    assert!(data.is_empty() && trailers.is_empty());
}

#[test]
fn a_long_body_waits_for_the_windows_of_stream_and_connection() {
    let body = vec![7; 200_000];
    let (mut protocol, sent) = started(&body);
    let data = |sent: &[(Head, Vec<u8>)]| {
        let data = sent.iter().filter(|(head, _)| head.kind == frame::DATA);
        data.map(|(_, payload)| payload.len()).sum::<usize>()
    };
    assert!(sent.iter().all(|(head, _)| head.length <= frame::LONGEST));
    assert_eq!(data(&sent), 65_535);
    let more = |stream, by: u32| frame_of(frame::WINDOW_UPDATE, 0, stream, &by.to_be_bytes());
    // The stream's alone does not help, nor does the connection's alone.
    let bytes = [settings(&[(frame::INITIAL_WINDOW_SIZE, 150_000)]), more(0, 10)].concat();
    assert!(protocol.receive(&bytes).unwrap().is_none());
    assert_eq!(data(&frames(&protocol.take_output())), 10);
    protocol.receive(&more(0, 1_000_000)).unwrap();
    assert_eq!(data(&frames(&protocol.take_output())), 150_000 - 65_545);
    protocol.receive(&more(1, 1_000_000)).unwrap();
    let sent = frames(&protocol.take_output());
    assert_eq!(data(&sent), 50_000);
    assert!(sent.last().unwrap().0.is(frame::END_STREAM));
}

#[test]
fn a_response_before_the_whole_body_ends_the_connection() {
    let (mut protocol, _) = started(&vec![7; 200_000]);
    let bytes = [settings(&[]), head_of(1), trailers_of(1)].concat();
    assert!(protocol.receive(&bytes).unwrap().is_some());
    assert!(!protocol.is_reusable());
}

#[test]
fn a_server_with_goaway_answers_the_open_request_and_no_other() {
    let goaway = |last: u32| {
        frame_of(frame::GOAWAY, 0, 0, &[last.to_be_bytes(), 0_u32.to_be_bytes()].concat())
    };
    let (mut protocol, _) = started(b"");
    protocol.receive(&[settings(&[]), goaway(0x7fff_ffff)].concat()).unwrap();
    protocol.receive(&[goaway(1), head_of(1), trailers_of(1)].concat()).unwrap().unwrap();
    assert!(!protocol.is_reusable());
    let (mut protocol, _) = started(b"");
    let error = protocol.receive(&[settings(&[]), goaway(0)].concat()).unwrap_err();
    assert!(matches!(error, Http2Error::GoingAway { code: 0 }), "{error}");
}

#[test]
fn a_reset_is_an_error_and_a_ping_is_answered() {
    let (mut protocol, _) = started(b"");
    let ping = frame_of(frame::PING, 0, 0, b"12345678");
    protocol.receive(&[settings(&[]), ping].concat()).unwrap();
    let sent = frames(&protocol.take_output());
    let (head, payload) = sent.last().unwrap();
    assert!(head.kind == frame::PING && head.is(frame::ACK) && payload == b"12345678");
    let reset = |stream| frame_of(frame::RST_STREAM, 0, stream, &8_u32.to_be_bytes());
    assert!(protocol.receive(&reset(7)).unwrap().is_none());
    let error = protocol.receive(&reset(1)).unwrap_err();
    assert!(matches!(error, Http2Error::Reset { code: 8 }), "{error}");
}

#[test]
fn a_violation_of_the_protocol_is_an_error() {
    let open_block = frame_of(frame::HEADERS, 0, 1, OK);
    let cases: [(&str, Vec<u8>); 10] = [
        ("no settings first", head_of(1)),
        ("HTTP/1", b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()),
        ("a push", [settings(&[]), frame_of(frame::PUSH_PROMISE, 0, 1, &[0; 8])].concat()),
        ("data first", [settings(&[]), data_of(1, b"x")].concat()),
        ("no status", [settings(&[]), trailers_of(1)].concat()),
        ("two responses", [settings(&[]), head_of(1), head_of(1)].concat()),
        ("an interrupted block", [settings(&[]), open_block, data_of(1, b"x")].concat()),
        ("a continuation alone", [settings(&[]), frame_of(frame::CONTINUATION, 0, 1, OK)].concat()),
        ("settings cut short", frame_of(frame::SETTINGS, 0, 0, &[0; 5])),
        ("padding beyond the frame", {
            [settings(&[]), frame_of(frame::HEADERS, frame::PADDED, 1, &[9, 0x88])].concat()
        }),
    ];
    for (name, bytes) in cases {
        let (mut protocol, _) = started(b"");
        let error = protocol.receive(&bytes).unwrap_err();
        assert!(matches!(error, Http2Error::Malformed(_)), "{name}: {error}");
    }
}

#[test]
fn a_response_without_end_does_not_fill_the_memory() {
    let (mut protocol, _) = started(b"");
    protocol.receive(&[settings(&[]), head_of(1)].concat()).unwrap();
    let chunk = data_of(1, &[0; 16_000]);
    let error = (0..LONGEST_RESPONSE / 16_000 + 1).find_map(|_| protocol.receive(&chunk).err());
    assert!(error.is_some());
    let (mut protocol, _) = started(b"");
    protocol.receive(&settings(&[])).unwrap();
    protocol.receive(&frame_of(frame::HEADERS, 0, 1, OK)).unwrap();
    let chunk = frame_of(frame::CONTINUATION, 0, 1, &[0x88; 16_000]);
    let error = (0..LONGEST_BLOCK / 16_000 + 1).find_map(|_| protocol.receive(&chunk).err());
    assert!(error.is_some());
}

/// A server that sends anything at all makes an error or a response, and no panic.
#[test]
fn changed_bytes_never_panic() {
    let bytes = response();
    for at in 0..bytes.len() {
        for change in [0x01, 0x04, 0x20, 0x80, 0xff] {
            let mut changed = bytes.clone();
            changed[at] ^= change;
            let (mut protocol, _) = started(b"body");
            let _ = protocol.receive(&changed);
        }
    }
}

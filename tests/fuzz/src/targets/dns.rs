//! DNS answers to pods.

use config_model::Time;
use datapath_names::{Checksum, Frame, Segment, StreamKey, Streams, read};
use std::net::IpAddr;

/// The input is a message.
///
/// A message that is cut is refused. A message that is read has a name in lower case. It has addresses only if it has
/// records, and is the same if it comes over TCP, in two segments in any order.
pub fn message(data: &[u8]) {
    let Some((cut, message)) = data.split_first() else { return };
    let whole = read(message);
    if let Ok(answer) = &whole {
        assert!(message.len() > 12, "{answer:?}");
        assert_eq!(answer.name, answer.name.to_ascii_lowercase());
        let records = u16::from_be_bytes([message[6], message[7]]);
        assert!(answer.addresses.len() <= usize::from(records), "{answer:?}");
    }
    let Ok(length) = u16::try_from(message.len()) else { return };
    let bytes = [&length.to_be_bytes(), message].concat();
    let at = (usize::from(*cut) * bytes.len() / 256).min(bytes.len());
    let (one, other) = bytes.split_at(at);
    let key = StreamKey { link: 1, server: IpAddr::from([10, 0, 0, 1]), port: 1 };
    let start = u32::MAX - 5;
    let second = start.wrapping_add(1).wrapping_add(u32::try_from(at).unwrap_or_default());
    let mut streams = Streams::default();
    let mut found = streams.add(key, start, true, false, &[], Time(0));
    found.extend(streams.add(key, second, false, false, other, Time(0)));
    found.extend(streams.add(key, start.wrapping_add(1), false, true, one, Time(0)));
    assert_eq!(found, [message]);
}

/// The input is the offset of the segment's header, whether it is UDP, and a frame.
///
/// A frame that is read has its payload within it. Only a partial checksum is changed, and is valid then.
pub fn frame(data: &[u8]) {
    let [segment, kind, bytes @ ..] = data else { return };
    let is_udp = kind % 2 == 0;
    let Ok(mut frame) = Frame::new(1, bytes.to_vec(), usize::from(*segment), is_udp) else {
        return;
    };
    assert!(frame.bytes().len() <= bytes.len());
    let payload = match frame.segment() {
        Segment::Udp(payload) | Segment::Tcp { payload, .. } => payload.len(),
    };
    assert!(payload <= frame.bytes().len() - usize::from(*segment));
    let before = frame.clone();
    match frame.complete() {
        Checksum::Partial => assert_eq!(frame.complete(), Checksum::Valid),
        Checksum::Valid | Checksum::Wrong => assert_eq!(frame, before),
    }
}

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use proptest::prelude::*;

/// The type of a message of the protocol.
const OBJECT: u16 = 20;
const NLMSG_NOOP: u16 = 1;

/// A message with a header of netlink, and the bytes up to the next one.
fn framed(kind: u16, flags: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(16 + payload.len()).unwrap().to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes.extend(payload);
    bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
    bytes
}

/// Types and payloads of messages.
type Messages = Vec<(u16, Vec<u8>)>;

/// The messages of a datagram, and true if it completes the reply.
fn read(frames: &mut Frames, datagram: &[u8]) -> Result<(Messages, bool), Unreadable> {
    let mut messages = Vec::new();
    let is_complete = frames.read::<Unreadable>(datagram, |kind, payload| {
        messages.push((kind, payload.to_vec()));
        Ok(())
    })?;
    Ok((messages, is_complete))
}

#[test]
fn a_datagram_has_the_messages_of_the_request() {
    let mut frames = Frames::to(7);
    let datagram = [
        framed(OBJECT, 0, 7, &[1, 2, 3]),
        framed(OBJECT, NLM_F_DUMP_INTR, 8, &[4]),
        framed(NLMSG_DONE, 0, 6, &[0; 4]),
        framed(OBJECT, 0, 7, &[]),
    ];
    let expected = vec![(OBJECT, vec![1, 2, 3]), (OBJECT, vec![])];
    assert_eq!(read(&mut frames, &datagram.concat()), Ok((expected, false)));
    assert!(!frames.is_interrupted());
    let last = [framed(OBJECT, 0, 7, &[5; 4]), framed(NLMSG_DONE, 0, 7, &[]), vec![9]];
    assert_eq!(read(&mut frames, &last.concat()), Ok((vec![(OBJECT, vec![5; 4])], true)));
    assert_eq!(frames.refusal(), None);
}

#[test]
fn the_end_of_a_reply_has_the_error_number() {
    for kind in [NLMSG_DONE, NLMSG_ERROR] {
        for (code, refusal) in [(-95_i32, Some(95)), (0, None), (i32::MIN, Some(i32::MAX))] {
            let mut frames = Frames::to(1);
            let end = framed(kind, 0, 1, &code.to_ne_bytes());
            assert_eq!(read(&mut frames, &end), Ok((vec![], true)));
            assert_eq!(frames.refusal(), refusal);
        }
    }
    let lost = framed(NLMSG_OVERRUN, 0, 1, &[]);
    assert_eq!(read(&mut Frames::to(1), &lost), Err(Unreadable::Lost));
}

#[test]
fn a_changed_list_is_marked_by_any_message() {
    for datagram in [
        framed(OBJECT, NLM_F_DUMP_INTR, 1, &[0; 4]),
        framed(NLMSG_DONE, NLM_F_DUMP_INTR, 1, &[0; 4]),
    ] {
        let mut frames = Frames::to(1);
        read(&mut frames, &datagram).unwrap();
        read(&mut frames, &framed(OBJECT, 0, 1, &[])).unwrap();
        assert!(frames.is_interrupted());
    }
}

#[test]
fn a_message_that_is_cut_is_an_error() {
    let whole = framed(OBJECT, 0, 1, &[7; 8]);
    for length in 1..whole.len() {
        let cut = read(&mut Frames::to(1), &whole[..length]);
        assert_eq!(cut, Err(Unreadable::Message), "{length}");
        let cut = read(&mut Frames::to(1), &[&whole, &whole[..length]].concat());
        assert_eq!(cut, Err(Unreadable::Message), "{length}");
    }
    for length in [0_u32, 15] {
        let mut short = whole.clone();
        short[..4].copy_from_slice(&length.to_ne_bytes());
        assert_eq!(read(&mut Frames::to(1), &short), Err(Unreadable::Message), "{length}");
    }
}

#[test]
fn an_error_of_the_caller_ends_the_reply() {
    #[derive(Debug, PartialEq)]
    enum Fault {
        Frames(Unreadable),
        Object(u16),
    }
    impl From<Unreadable> for Fault {
        fn from(cause: Unreadable) -> Self {
            Self::Frames(cause)
        }
    }
    let refuse = |kind, _: &[u8]| Err(Fault::Object(kind));
    let datagram = framed(NLMSG_NOOP, 0, 1, &[]);
    assert_eq!(Frames::to(1).read(&datagram, refuse), Err(Fault::Object(NLMSG_NOOP)));
    let cut = Frames::to(1).read(&datagram[..3], refuse);
    assert_eq!(cut, Err(Fault::Frames(Unreadable::Message)));
}

proptest! {
    #[test]
    fn no_datagram_panics(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
        let _ = read(&mut Frames::to(1), &bytes);
    }

    #[test]
    fn a_reply_in_two_parts_is_the_same_as_in_one(count in 1..6_usize, at in any::<prop::sample::Index>()) {
        let messages: Vec<Vec<u8>> =
            (0..count).map(|number| framed(OBJECT, 0, 1, &vec![3; number])).collect();
        let whole = read(&mut Frames::to(1), &messages.concat()).unwrap();
        let (head, tail) = messages.split_at(at.index(count));
        let mut frames = Frames::to(1);
        let mut parts = read(&mut frames, &head.concat()).unwrap().0;
        parts.extend(read(&mut frames, &tail.concat()).unwrap().0);
        prop_assert_eq!(parts, whole.0);
    }
}

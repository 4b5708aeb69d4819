#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use crate::{
    EntryError,
    entry::tests::{connection, message},
};
use netlink_packet_core::{NLM_F_DUMP_INTR, NLMSG_DONE, NLMSG_ERROR, NLMSG_OVERRUN};
use proptest::prelude::*;

/// A message with a header of netlink.
pub(crate) fn framed(kind: u16, flags: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(16 + payload.len()).unwrap().to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes.extend(payload);
    bytes
}

fn done(flags: u16) -> Vec<u8> {
    framed(NLMSG_DONE, flags, 1, &[0; 4])
}

#[test]
fn a_reply_of_many_datagrams_is_one_table() {
    let mut reply = Reply::to(1, |_| true);
    assert_eq!(reply.read(&[message(1), message(1)].concat()), Ok(false));
    assert_eq!(reply.read(&message(1)), Ok(false));
    assert_eq!(reply.read(&[message(1), done(0)].concat()), Ok(true));
    assert_eq!((reply.refusal(), reply.is_interrupted()), (None, false));
    let expected = vec![connection(); 4];
    assert_eq!(reply.into_table(), Table { connections: expected, ..Table::default() });
}

#[test]
fn an_entry_that_cannot_be_parsed_leaves_out_itself_only() {
    let cut = framed(CONNECTION, 2, 1, &[2, 0, 0, 0, 200, 0, 1, 0]);
    let mut reply = Reply::to(1, |_| true);
    assert_eq!(reply.read(&[message(1), cut, message(1), done(0)].concat()), Ok(true));
    let table = reply.into_table();
    assert_eq!(table.connections, vec![connection(); 2]);
    assert_eq!((table.left_out.unreadable, table.left_out.other_zones), (1, 0));
    assert_eq!(table.left_out.cause, Some(EntryError::Truncated));
}

#[test]
fn only_the_wanted_connections_are_kept() {
    let mut reply = Reply::to(1, |connection: &Connection| connection.protocol == 17);
    assert_eq!(reply.read(&[message(1), done(0)].concat()), Ok(true));
    assert_eq!(reply.into_table(), Table::default());
}

#[test]
fn a_message_of_another_request_is_ignored() {
    let mut reply = Reply::to(2, |_| true);
    assert_eq!(reply.read(&[message(1), done(0)].concat()), Ok(false));
    assert_eq!(reply.into_table(), Table::default());
}

#[test]
fn an_interruption_is_reported_by_any_message() {
    for flags in [[NLM_F_DUMP_INTR, 0], [0, NLM_F_DUMP_INTR]] {
        let mut reply = Reply::to(1, |_| true);
        let first = framed(CONNECTION, flags[0], 1, &[]);
        assert_eq!(reply.read(&[first, done(flags[1])].concat()), Ok(true));
        assert!(reply.is_interrupted());
    }
}

#[test]
fn a_refusal_has_the_error_number() {
    for kind in [NLMSG_ERROR, NLMSG_DONE] {
        let mut reply = Reply::to(1, |_| true);
        let refusal = framed(kind, 0, 1, &(-22_i32).to_ne_bytes());
        assert_eq!(reply.read(&refusal), Ok(true));
        assert_eq!(reply.refusal(), Some(22));
    }
    let mut lost = Reply::to(1, |_| true);
    assert_eq!(lost.read(&framed(NLMSG_OVERRUN, 0, 1, &[])), Err(Unreadable::Lost));
}

#[test]
fn a_message_that_is_cut_is_an_error() {
    let whole = message(1);
    for length in 1..whole.len() {
        let mut reply = Reply::to(1, |_| true);
        assert_eq!(reply.read(&whole[..length]), Err(Unreadable::Message), "{length}");
    }
    let mut empty = whole;
    empty[..4].fill(0);
    assert_eq!(Reply::to(1, |_| true).read(&empty), Err(Unreadable::Message));
}

/// Linux 6.18 on x86-64 sent this message about a connection through DNAT.
const RECORDED: &str = "d4 00 00 00 00 01 02 00 01 00 00 00 50 04 00 00 \
     02 00 00 00 34 00 01 80 14 00 01 80 08 00 01 00 \
     0a 00 00 01 08 00 02 00 0a 60 00 01 1c 00 02 80 \
     05 00 01 00 06 00 00 00 06 00 02 00 d4 14 00 00 \
     06 00 03 00 00 50 00 00 34 00 02 80 14 00 01 80 \
     08 00 01 00 0a 00 00 02 08 00 02 00 0a 00 00 01 \
     1c 00 02 80 05 00 01 00 06 00 00 00 06 00 02 00 \
     1f 90 00 00 06 00 03 00 d4 14 00 00 08 00 03 00 \
     00 00 01 ae 08 00 08 00 00 00 00 00 08 00 0c 00 \
     9e 8c 6e 94 08 00 0b 00 00 00 00 01 08 00 07 00 \
     00 06 97 7f 30 00 04 80 2c 00 01 80 05 00 01 00 \
     03 00 00 00 05 00 02 00 0a 00 00 00 05 00 03 00 \
     0a 00 00 00 06 00 04 00 23 00 00 00 06 00 05 00 \
     23 00 00 00";

#[test]
#[cfg(target_endian = "little")]
fn a_recorded_message_is_the_connection_that_was_open() {
    let bytes: Vec<u8> =
        RECORDED.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
    let mut reply = Reply::to(1, |_| true);
    assert_eq!(reply.read(&bytes), Ok(false));
    let mut expected = connection();
    expected.original.source_port = 54292;
    expected.reply.destination_port = 54292;
    assert_eq!(reply.into_table().connections, [expected]);
}

proptest! {
    #[test]
    fn no_datagram_panics(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
        let _ = Reply::to(1, |_| true).read(&bytes);
    }

    #[test]
    fn no_changed_datagram_panics(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let mut bytes = [message(1), done(0)].concat();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = Reply::to(1, |_| true).read(&bytes);
    }
}

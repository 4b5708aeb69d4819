//! Tables of nftables, read over netlink: a node may have no `nft`.

use crate::SocketError;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};
use routing_plan::Errno;
use std::io;

/// The family of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableFamily {
    Ip,
    Ip6,
    /// Both.
    Inet,
}

/// True if the table exists. A kernel without nftables has none.
///
/// # Errors
/// The kernel refuses, or the socket fails.
pub fn has_nft_table(family: TableFamily, name: &str) -> Result<bool, SocketError> {
    let get = message(GET_TABLE, 0, family, &name_attribute(name), 1);
    match exchange(&get, 1) {
        Ok(Ok(())) => Ok(true),
        // A kernel without nftables answers EINVAL.
        Ok(Err(Errno::ENOENT | Errno::EINVAL)) => Ok(false),
        Ok(Err(errno)) => Err(SocketError::List { what: "tables of nftables", errno }),
        Err(SocketError::Open(cause)) if cause.raw_os_error() == Some(NO_PROTOCOL) => Ok(false),
        Err(cause) => Err(cause),
    }
}

/// Deletes the table with its content; false if it does not exist.
///
/// # Errors
/// The kernel refuses, or the socket fails.
pub fn delete_nft_table(family: TableFamily, name: &str) -> Result<bool, SocketError> {
    // The kernel accepts changes in a batch only.
    let mut batch = batch(BATCH_BEGIN, 1);
    batch.extend(message(DELETE_TABLE, ACK, family, &name_attribute(name), 2));
    batch.extend(self::batch(BATCH_END, 3));
    match exchange(&batch, 2)? {
        Ok(()) => Ok(true),
        Err(Errno::ENOENT) => Ok(false),
        Err(errno) => Err(SocketError::DeleteTable { name: name.to_owned(), errno }),
    }
}

/// Sends messages and waits for the answer to one of them.
fn exchange(messages: &[u8], sequence: u32) -> Result<Result<(), Errno>, SocketError> {
    let open = || {
        let mut socket = Socket::new(NETLINK_NETFILTER)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(socket)
    };
    let socket = open().map_err(SocketError::Open)?;
    socket.send(messages, 0).map_err(SocketError::Send)?;
    loop {
        let mut answers = Vec::with_capacity(RECEIVE_BYTES);
        match socket.recv(&mut answers, 0) {
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => continue,
            received => received.map_err(SocketError::Receive)?,
        };
        if let Some(answer) = answer(&answers, sequence) {
            return Ok(answer);
        }
    }
}

/// Finds the answer to the message with this number: an acknowledgment or an object. An error for any message counts
/// too, because errors of the whole batch carry the number of its first message.
fn answer(mut messages: &[u8], sequence: u32) -> Option<Result<(), Errno>> {
    while let Some((header, rest)) = messages.split_first_chunk::<HEADER_BYTES>() {
        let [l0, l1, l2, l3, k0, k1, _, _, s0, s1, s2, s3, _, _, _, _] = *header;
        let length = usize::try_from(u32::from_ne_bytes([l0, l1, l2, l3])).ok()?;
        let code = rest.first_chunk().map(|code| i32::from_ne_bytes(*code));
        let is_error = u16::from_ne_bytes([k0, k1]) == ERROR;
        if let Some(code) = code.filter(|code| is_error && *code != 0) {
            return Some(Err(Errno(code.saturating_neg())));
        }
        if u32::from_ne_bytes([s0, s1, s2, s3]) == sequence {
            return Some(Ok(()));
        }
        messages = messages.get(length.next_multiple_of(4).max(HEADER_BYTES)..).unwrap_or_default();
    }
    None
}

fn message(
    kind: u16,
    flags: u16,
    family: TableFamily,
    attributes: &[u8],
    sequence: u32,
) -> Vec<u8> {
    let family = match family {
        TableFamily::Ip => IPV4,
        TableFamily::Ip6 => IPV6,
        TableFamily::Inet => INET,
    };
    framed(SUBSYSTEM << 8 | kind, flags, &[family, 0, 0, 0], attributes, sequence)
}

/// The first or last message of a batch for nftables.
fn batch(kind: u16, sequence: u32) -> Vec<u8> {
    let [high, low] = SUBSYSTEM.to_be_bytes();
    framed(kind, 0, &[0, 0, high, low], &[], sequence)
}

fn framed(kind: u16, flags: u16, head: &[u8; 4], attributes: &[u8], sequence: u32) -> Vec<u8> {
    let length = HEADER_BYTES + head.len() + attributes.len();
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend((REQUEST | flags).to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes.extend(head);
    bytes.extend(attributes);
    bytes
}

fn name_attribute(name: &str) -> Vec<u8> {
    // The name ends with a zero byte.
    let length = u16::try_from(4 + name.len() + 1).unwrap_or(u16::MAX);
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend(TABLE_NAME.to_ne_bytes());
    bytes.extend(name.as_bytes());
    bytes.push(0);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

const HEADER_BYTES: usize = 16;
const RECEIVE_BYTES: usize = 64 * 1024;
/// linux/netlink.h
const REQUEST: u16 = 1;
const ACK: u16 = 4;
const ERROR: u16 = 2;
/// linux/netfilter/nfnetlink.h
const SUBSYSTEM: u16 = 10;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
/// linux/netfilter/nf_tables.h
const GET_TABLE: u16 = 1;
const DELETE_TABLE: u16 = 2;
const TABLE_NAME: u16 = 1;
/// linux/netfilter.h
const INET: u8 = 1;
const IPV4: u8 = 2;
const IPV6: u8 = 10;
/// EPROTONOSUPPORT: a kernel without netfilter.
const NO_PROTOCOL: i32 = 93;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_that_to_the_message() {
        let refused = |sequence: u32, code: i32| {
            let mut bytes = framed(ERROR, 0, &code.to_ne_bytes(), &[0; 16], sequence);
            bytes.extend([0; 4]);
            bytes
        };
        assert_eq!(answer(&refused(2, -2), 2), Some(Err(Errno::ENOENT)));
        assert_eq!(answer(&refused(2, 0), 2), Some(Ok(())));
        assert_eq!(answer(&refused(1, 0), 2), None);
        assert_eq!(answer(&refused(1, -1), 2), Some(Err(Errno::EPERM)));
        assert_eq!(
            answer(&message(GET_TABLE, 0, TableFamily::Ip, &name_attribute("a"), 2), 2),
            Some(Ok(()))
        );
        // A truncated or empty message ends the loop.
        assert_eq!(answer(&[0; 40], 2), None);
    }

    #[test]
    fn the_length_of_a_message_matches_its_header() {
        for name in ["a", "abc", "ferrule"] {
            let bytes = message(DELETE_TABLE, ACK, TableFamily::Ip6, &name_attribute(name), 7);
            assert_eq!(bytes.len() % 4, 0);
            assert_eq!(
                bytes.first_chunk(),
                u32::try_from(bytes.len()).map(u32::to_ne_bytes).ok().as_ref()
            );
        }
    }
}

//! The request for a dump, and the socket for it.

use crate::{
    Connection, Table,
    entry::NFGENMSG_BYTES,
    reply::{CTNETLINK, Reply},
};
use datapath_netlink::{KernelSocket, SocketError};
use netlink_packet_core::{Emitable as _, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader};
use netlink_sys::protocols::NETLINK_NETFILTER;
use std::{io, thread, time::Duration};

/// Cause of a failed dump.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The capability is missing in the user namespace that owns the network namespace.
    #[error("cannot list connections: permission denied; add the capability NET_ADMIN")]
    Forbidden,
    #[error("cannot list connections")]
    Refused(#[source] io::Error),
    /// Each dump was marked as inconsistent.
    #[error(
        "cannot list connections: the table changed during {DUMP_TRIES} dumps; try again later"
    )]
    Interrupted,
}

/// Lists the connections of the calling thread's network namespace, of both families. Blocks until the kernel has sent
/// the whole table.
///
/// `None` if the kernel tracks no connections: it lacks netfilter or ctnetlink. A kernel that could track has a table,
/// which may be empty.
///
/// # Errors
/// The process lacks the capability NET_ADMIN, or the socket fails, or the table changed during each dump.
pub fn dump() -> Result<Option<Table>, DumpError> {
    dump_if(|_| true)
}

/// Lists the connections for which `keep` is true, and otherwise acts as [`dump`]. A node can have a million entries,
/// with more than a hundred bytes each; `keep` bounds the memory.
///
/// # Errors
/// As for [`dump`].
pub fn dump_if(keep: impl Fn(&Connection) -> bool) -> Result<Option<Table>, DumpError> {
    let mut socket = match KernelSocket::open(NETLINK_NETFILTER) {
        Err(error) if error.is_without_protocol() => return Ok(None),
        opened => opened?,
    };
    repeat(|sequence| {
        let mut reply = Reply::to(sequence, &keep);
        socket.send(&request(sequence))?;
        while !reply.read(socket.receive()?).map_err(SocketError::Parse)? {}
        Ok(reply)
    })
}

/// Asks until a reply is consistent. Each request has a number of its own.
fn repeat<K: Fn(&Connection) -> bool>(
    mut ask: impl FnMut(u32) -> Result<Reply<K>, DumpError>,
) -> Result<Option<Table>, DumpError> {
    for (round, sequence) in (0..DUMP_TRIES).zip(1..) {
        thread::sleep(DUMP_PAUSE.saturating_mul(round));
        let reply = ask(sequence)?;
        match reply.refusal() {
            // A subsystem that is not registered, and whose module cannot be loaded.
            Some(EINVAL) => return Ok(None),
            Some(EPERM) => return Err(DumpError::Forbidden),
            Some(code) => return Err(DumpError::Refused(io::Error::from_raw_os_error(code))),
            None if reply.is_interrupted() => {}
            None => return Ok(Some(reply.into_table())),
        }
    }
    Err(DumpError::Interrupted)
}

/// The header of netlink, and the header of netfilter with zeros: both families.
fn request(sequence: u32) -> [u8; REQUEST_BYTES] {
    let mut header = NetlinkHeader::default();
    header.length = REQUEST_LENGTH;
    header.message_type = CTNETLINK | GET;
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    header.sequence_number = sequence;
    let mut bytes = [0; REQUEST_BYTES];
    header.emit(&mut bytes);
    bytes
}

/// linux/netfilter/nfnetlink_conntrack.h: IPCTNL_MSG_CT_GET
const GET: u16 = 1;
const REQUEST_LENGTH: u32 = 20;
const REQUEST_BYTES: usize = 16 + NFGENMSG_BYTES;
const _: () = assert!(REQUEST_BYTES == REQUEST_LENGTH as usize);
/// Maximum dumps of a table that changes.
const DUMP_TRIES: u32 = 10;
/// Wait before the second dump; the n-th wait is n times as long.
const DUMP_PAUSE: Duration = Duration::from_millis(5);
/// asm-generic/errno-base.h
const EPERM: i32 = 1;
const EINVAL: i32 = 22;

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use crate::reply::tests::framed;
    use netlink_packet_core::{NLM_F_DUMP_INTR, NLMSG_DONE};

    /// Returns what a dump finds if each of its replies has these flags and this code.
    fn replies(flags: &[u16], code: i32) -> (Result<Option<Table>, DumpError>, usize) {
        let mut asked = 0;
        let found = repeat(|sequence| {
            let flags = flags[asked.min(flags.len() - 1)];
            asked += 1;
            let mut reply = Reply::to(sequence, |_: &Connection| true);
            assert!(reply.read(&framed(NLMSG_DONE, flags, sequence, &code.to_ne_bytes())).unwrap());
            Ok(reply)
        });
        (found, asked)
    }

    #[test]
    fn a_table_that_changes_is_dumped_again_a_few_times() {
        let (found, asked) = replies(&[NLM_F_DUMP_INTR, NLM_F_DUMP_INTR, 0], 0);
        assert_eq!((found.unwrap(), asked), (Some(Table::default()), 3));
        let (found, asked) = replies(&[NLM_F_DUMP_INTR], 0);
        assert!(matches!(found, Err(DumpError::Interrupted)), "{found:?}");
        assert_eq!(asked, usize::try_from(DUMP_TRIES).unwrap());
    }

    #[test]
    fn a_kernel_without_ctnetlink_tracks_nothing() {
        assert_eq!(replies(&[0], -EINVAL).0.unwrap(), None);
        assert!(matches!(replies(&[0], -EPERM).0, Err(DumpError::Forbidden)));
        assert!(matches!(replies(&[0], -12).0, Err(DumpError::Refused(_))));
    }

    #[test]
    fn the_request_is_a_dump_of_both_families() {
        assert_eq!(request(9)[..], framed(0x101, 0x301, 9, &[0; 4]));
    }
}

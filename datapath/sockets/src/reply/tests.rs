#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use datapath_netlink::Unreadable as FrameFault;
use netlink_packet_core::{NLMSG_DONE, NLMSG_ERROR, NLMSG_OVERRUN};
use netlink_packet_sock_diag::{TCP_CLOSE, TCP_LISTEN};
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

fn done() -> Vec<u8> {
    framed(NLMSG_DONE, 0, 1, &[0; 4])
}

/// A message about a socket, with an attribute that no kernel has yet.
fn message(state: u8, socket: &Connected) -> Vec<u8> {
    let address = |at: SocketAddr| match at.ip() {
        std::net::IpAddr::V4(address) => [&address.octets()[..], &[0; 12]].concat(),
        std::net::IpAddr::V6(address) => address.octets().to_vec(),
    };
    let family = if socket.local.is_ipv4() { 2 } else { 10 };
    let [a, b, c, d, e, f, g, h] = socket.cookie.to_le_bytes();
    let payload = [
        vec![family, state, 0, 0],
        socket.local.port().to_be_bytes().to_vec(),
        socket.peer.port().to_be_bytes().to_vec(),
        address(socket.local),
        address(socket.peer),
        socket.link.to_ne_bytes().to_vec(),
        u32::from_le_bytes([a, b, c, d]).to_ne_bytes().to_vec(),
        u32::from_le_bytes([e, f, g, h]).to_ne_bytes().to_vec(),
        // Expiry, queues, user and inode.
        vec![0; 20],
        5_u16.to_ne_bytes().to_vec(),
        500_u16.to_ne_bytes().to_vec(),
        vec![1, 0, 0, 0],
    ];
    framed(SOCK_DIAG_BY_FAMILY, 2, 1, &payload.concat())
}

fn socket(cookie: u64, local: &str, peer: &str) -> Connected {
    Connected { cookie, local: local.parse().unwrap(), peer: peer.parse().unwrap(), link: 3 }
}

fn sockets() -> [Connected; 3] {
    [
        socket(1, "10.0.0.1:40000", "10.0.0.2:53"),
        socket(0x0102_0304_0506_0708, "[fd00::1]:40001", "[fd00::2]:53"),
        socket(3, "[::ffff:10.0.0.1]:40002", "[::ffff:10.0.0.2]:53"),
    ]
}

fn all() -> Vec<u8> {
    sockets().iter().flat_map(|socket| message(TCP_ESTABLISHED, socket)).collect()
}

#[test]
fn a_reply_of_many_datagrams_has_each_socket() {
    let mut reply = Reply::to(1, |_: &Connected| true);
    assert_eq!(reply.read(&all()), Ok(false));
    assert_eq!(reply.read(&[all(), done()].concat()), Ok(true));
    assert_eq!(reply.refusal(), None);
    assert_eq!(reply.into_sockets(), [sockets(), sockets()].concat());
}

#[test]
fn a_mapped_peer_is_an_address_of_ipv4() {
    let [v4, v6, mapped] = sockets();
    assert_eq!(mapped.canonical_peer(), v4.peer);
    assert_eq!((v4.canonical_peer(), v6.canonical_peer()), (v4.peer, v6.peer));
}

#[test]
fn a_socket_without_a_peer_is_left_out() {
    let [connected, ..] = sockets();
    let unconnected = message(7, &connected);
    let peers = ["0.0.0.0:53", "10.0.0.2:0", "[::]:53", "[::ffff:0.0.0.0]:53"];
    let without = peers.map(|peer| {
        let local = if peer.starts_with('[') { "[::1]:1" } else { "10.0.0.1:1" };
        message(TCP_ESTABLISHED, &socket(9, local, peer))
    });
    let mut reply = Reply::to(1, |_: &Connected| true);
    assert_eq!(reply.read(&[unconnected, without.concat(), done()].concat()), Ok(true));
    assert_eq!(reply.into_sockets(), []);
}

#[test]
fn only_the_wanted_sockets_are_kept() {
    let mut reply = Reply::to(1, |socket: &Connected| socket.cookie == 3);
    assert_eq!(reply.read(&[all(), done()].concat()), Ok(true));
    assert_eq!(reply.into_sockets(), sockets()[2..]);
}

#[test]
fn a_socket_that_waits_for_any_peer_has_a_port_and_no_peer() {
    let [connected, ..] = sockets();
    let waiting = ["0.0.0.0:61678", "[::]:61679", "[::ffff:127.0.0.1]:61680", "127.0.0.1:8080"];
    let messages = waiting.map(|local| {
        let peer = if local.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
        message(TCP_LISTEN, &socket(9, local, peer))
    });
    let without_port = message(TCP_CLOSE, &socket(9, "0.0.0.0:0", "0.0.0.0:0"));
    let datagram = [messages.concat(), message(TCP_LISTEN, &connected), without_port, done()];
    let mut reply = Unconnected::to(1, |local: SocketAddr| local.port() != 8080);
    assert_eq!(reply.read(&datagram.concat()), Ok(true));
    assert_eq!(reply.refusal(), None);
    let expected: Vec<SocketAddr> = waiting[..3].iter().map(|at| at.parse().unwrap()).collect();
    assert_eq!(reply.locals, expected);
}

#[test]
fn a_message_of_another_request_is_ignored() {
    let mut reply = Reply::to(2, |_: &Connected| true);
    assert_eq!(reply.read(&[all(), done()].concat()), Ok(false));
    assert_eq!(reply.into_sockets(), []);
}

#[test]
fn a_refusal_has_the_error_number_and_an_acknowledgment_has_none() {
    for kind in [NLMSG_ERROR, NLMSG_DONE] {
        for (code, expected) in [(-95_i32, Some(95)), (0, None)] {
            let mut reply = Reply::to(1, |_: &Connected| true);
            assert_eq!(reply.read(&framed(kind, 0, 1, &code.to_ne_bytes())), Ok(true));
            assert_eq!(reply.refusal(), expected);
        }
    }
    let mut lost = Reply::to(1, |_: &Connected| true);
    assert_eq!(lost.read(&framed(NLMSG_OVERRUN, 0, 1, &[])), Err(FrameFault::Lost.into()));
}

#[test]
fn a_message_that_is_cut_is_an_error() {
    let whole = message(TCP_ESTABLISHED, &sockets()[0]);
    for length in 1..whole.len() {
        let mut reply = Reply::to(1, |_: &Connected| true);
        assert_eq!(reply.read(&whole[..length]), Err(FrameFault::Message.into()), "{length}");
    }
    // A message with the right length and a short socket.
    for length in 0..72 {
        let short = framed(SOCK_DIAG_BY_FAMILY, 2, 1, &whole[16..16 + length]);
        let read = Reply::to(1, |_: &Connected| true).read(&short);
        assert!(matches!(read, Err(Unreadable::Socket(_))), "{length}: {read:?}");
    }
    let mut other_family = whole;
    other_family[16] = 1;
    let read = Reply::to(1, |_: &Connected| true).read(&other_family);
    assert!(matches!(read, Err(Unreadable::Socket(_))), "{read:?}");
}

proptest! {
    #[test]
    fn no_datagram_panics(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
        let _ = Reply::to(1, |_: &Connected| true).read(&bytes);
    }

    #[test]
    fn no_changed_datagram_panics(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let mut bytes = [all(), done()].concat();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = Reply::to(1, |_: &Connected| true).read(&bytes);
    }
}

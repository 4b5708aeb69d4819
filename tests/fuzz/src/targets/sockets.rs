//! Connected sockets that the kernel lists: replies whole, cut and garbled.

use datapath_sockets::{
    Connected,
    reply::{Reply, Unreadable},
};

/// The input is the position of a cut, and the datagram.
///
/// A cut reply is an error or incomplete; it is never a complete reply with fewer sockets. A reply that is cut between
/// two messages and received in two parts is the same as in one part. Each socket has a peer of its own family.
pub fn reply(data: &[u8]) {
    let [high, low, datagram @ ..] = data else { return };
    let whole = read(&[datagram]);
    for socket in whole.iter().flat_map(|content| &content.sockets) {
        assert_eq!(socket.local.is_ipv4(), socket.peer.is_ipv4(), "{socket:?}");
        let peer = socket.canonical_peer();
        assert!(!peer.ip().is_unspecified() && peer.port() != 0, "{socket:?}");
    }
    let hint = usize::from(u16::from_be_bytes([*high, *low]));
    for cut in (0..8).map(|step| (hint + step) % (datagram.len() + 1)) {
        let (head, tail) = datagram.split_at(cut);
        match read(&[head]) {
            Ok(half) if half.is_complete => assert_eq!(Ok(half), whole, "cut at {cut}"),
            Ok(_) if cut.is_multiple_of(4) => {
                assert_eq!(read(&[head, tail]), whole, "in two, cut at {cut}");
            }
            Ok(_) | Err(_) => {}
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Content {
    is_complete: bool,
    refusal: Option<i32>,
    sockets: Vec<Connected>,
}

fn read(datagrams: &[&[u8]]) -> Result<Content, Unreadable> {
    let mut reply = Reply::to(1, |_: &Connected| true);
    let mut is_complete = false;
    for datagram in datagrams {
        is_complete = reply.read(datagram)?;
        if is_complete {
            break;
        }
    }
    Ok(Content { is_complete, refusal: reply.refusal(), sockets: reply.into_sockets() })
}

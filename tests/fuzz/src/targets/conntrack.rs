//! Connections that the kernel tracks: replies whole, cut and garbled.

use datapath_conntrack::{
    Connection, Table,
    reply::{Reply, Unreadable},
};

/// The input is the position of a cut, and the datagram.
///
/// A cut reply is an error or incomplete; it is never a complete reply with fewer connections. A reply that is cut
/// between two messages and received in two parts is the same as in one part. Each end of a connection has one family.
pub fn reply(data: &[u8]) {
    let [high, low, datagram @ ..] = data else { return };
    let whole = read(&[datagram]);
    for connection in whole.iter().flat_map(|(_, content)| &content.table.connections) {
        check(connection);
    }
    let hint = usize::from(u16::from_be_bytes([*high, *low]));
    for cut in (0..8).map(|step| (hint + step) % (datagram.len() + 1)) {
        let (head, tail) = datagram.split_at(cut);
        match read(&[head]) {
            Ok((true, half)) => assert_eq!(Ok((true, half)), whole, "cut at {cut}"),
            Ok((false, _)) if cut.is_multiple_of(4) => {
                assert_eq!(read(&[head, tail]), whole, "in two, cut at {cut}");
            }
            Ok((false, _)) | Err(_) => {}
        }
    }
}

fn check(connection: &Connection) {
    let Connection { original, reply, .. } = connection;
    let families = [original, reply]
        .map(|tuple| [tuple.source.is_ipv4(), tuple.destination.is_ipv4()])
        .concat();
    assert!(families.iter().all(|family| *family == families[0]), "{connection:?}");
    assert_eq!(original.icmp.is_some(), reply.icmp.is_some(), "{connection:?}");
    if original.icmp.is_some() {
        assert_eq!(original.source_port, original.destination_port, "{connection:?}");
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Content {
    is_interrupted: bool,
    refusal: Option<i32>,
    table: Table,
}

fn read(datagrams: &[&[u8]]) -> Result<(bool, Content), Unreadable> {
    let mut reply = Reply::to(1, |_| true);
    let mut is_complete = false;
    for datagram in datagrams {
        is_complete = reply.read(datagram)?;
        if is_complete {
            break;
        }
    }
    let (is_interrupted, refusal) = (reply.is_interrupted(), reply.refusal());
    Ok((is_complete, Content { is_interrupted, refusal, table: reply.into_table() }))
}

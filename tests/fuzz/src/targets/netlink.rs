//! What the kernel says: replies whole, cut off and garbled, and the objects in them.

use routing_netlink::reply::{Reply, Unreadable, request};
use routing_plan::{Action, Observed};

/// First the number of messages that it answers and where it is cut, then the datagram.
///
/// Half a reply is an error, or its end is still to come; it is never a whole one with less in it.
/// Cut between two messages and received one after the other, it is the same as at once.
pub fn reply(data: &[u8]) {
    let [count, high, low, datagram @ ..] = data else { return };
    let count = u32::from(count % 4) + 1;
    let whole = read(count, &[datagram]);
    let hint = usize::from(u16::from_be_bytes([*high, *low]));
    for cut in (0..8).map(|step| (hint + step) % (datagram.len() + 1)) {
        let (head, tail) = datagram.split_at(cut);
        if let Ok((true, half)) = read(count, &[head]) {
            let (_, all) = whole.as_ref().expect("what ended within its head ends in one piece");
            assert_eq!(&told(&half), &told(all), "cut at {cut} of {}", datagram.len());
        } else if cut.is_multiple_of(4) && read(count, &[head]).is_ok() {
            let parts = read(count, &[head, tail]);
            let told = |read: &Result<(bool, Reply), Unreadable>| {
                read.as_ref().ok().map(|(ended, reply)| (*ended, self::told(reply)))
            };
            assert_eq!(told(&parts), told(&whole), "in two, cut at {cut} of {}", datagram.len());
        }
    }
}

fn read(count: u32, datagrams: &[&[u8]]) -> Result<(bool, Reply), Unreadable> {
    let mut reply = Reply::to(1, count);
    for datagram in datagrams {
        if reply.read(datagram)? {
            return Ok((true, reply));
        }
    }
    Ok((false, reply))
}

fn told(reply: &Reply) -> String {
    format!("{:?} {:?}", reply.observed(), reply.refusals())
}

/// Each object of the datagram that we could have made is the same when we make it and the kernel
/// tells of it in the words in which we asked.
pub fn objects(data: &[u8]) {
    let mut reply = Reply::to(1, 1);
    if reply.read(data).is_err() {
        return;
    }
    let Observed { addresses, rules, routes, neighbors, .. } = reply.observed();
    for rule in rules.into_iter().filter(|rule| !rule.selector.other) {
        let again = asked(&Action::AddRule(rule.clone()));
        assert_eq!(again.rules, [rule]);
    }
    for route in routes.into_iter().filter(|route| route.plain) {
        let again = asked(&Action::AddRoute(route.clone()));
        assert_eq!(again.routes, [route]);
    }
    for address in addresses.into_iter().filter(|address| !address.secondary) {
        let again = asked(&Action::AddAddress(address));
        assert_eq!(again.addresses, [address]);
    }
    for neighbor in neighbors {
        let again = asked(&Action::SetNeighbor(neighbor));
        assert_eq!(again.neighbors, [neighbor]);
    }
}

/// What a kernel would have that did as the message says.
fn asked(action: &Action) -> Observed {
    let message = request(action, 1).expect("one message makes one object");
    let mut reply = Reply::to(1, 1);
    assert_eq!(reply.read(&message), Ok(false), "{action:?} is not understood again");
    reply.observed()
}

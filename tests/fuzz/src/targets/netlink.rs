//! Kernel replies: whole, cut and garbled, and the objects in them.

use routing_netlink::reply::{Reply, Unreadable, request};
use routing_plan::{Action, Observed};

/// The input is the number of messages that the reply answers, the position of a cut, and the datagram.
///
/// A cut reply is an error or incomplete; it is never a complete reply with fewer objects. A reply that is
/// cut between two messages and received in two parts is the same as in one part.
pub fn reply(data: &[u8]) {
    let [count, high, low, datagram @ ..] = data else { return };
    let count = u32::from(count % 4) + 1;
    let whole = read(count, &[datagram]);
    let hint = usize::from(u16::from_be_bytes([*high, *low]));
    for cut in (0..8).map(|step| (hint + step) % (datagram.len() + 1)) {
        let (head, tail) = datagram.split_at(cut);
        if let Ok((true, half)) = read(count, &[head]) {
            let (_, all) = whole
                .as_ref()
                .expect("a reply that is complete after its head is complete as a whole");
            assert_eq!(&content(&half), &content(all), "cut at {cut} of {}", datagram.len());
        } else if cut.is_multiple_of(4) && read(count, &[head]).is_ok() {
            let parts = read(count, &[head, tail]);
            let result = |read: &Result<(bool, Reply<Observed>), Unreadable>| {
                read.as_ref().ok().map(|(ended, reply)| (*ended, content(reply)))
            };
            assert_eq!(
                result(&parts),
                result(&whole),
                "in two, cut at {cut} of {}",
                datagram.len()
            );
        }
    }
}

fn read(count: u32, datagrams: &[&[u8]]) -> Result<(bool, Reply<Observed>), Unreadable> {
    let mut reply = Reply::to(1, count);
    for datagram in datagrams {
        if reply.observe(datagram)? {
            return Ok((true, reply));
        }
    }
    Ok((false, reply))
}

fn content(reply: &Reply<Observed>) -> String {
    format!("{:?} {:?}", reply.observed(), reply.refusals())
}

/// Each object of the datagram that Ferrule could have requested is unchanged after a round trip through a
/// request message.
pub fn objects(data: &[u8]) {
    let mut reply = Reply::to(1, 1);
    if reply.observe(data).is_err() {
        return;
    }
    let Observed { addresses, rules, routes, neighbors, .. } = reply.observed().clone();
    for rule in rules.into_iter().filter(|rule| !rule.selector.other) {
        let again = after_request(&Action::AddRule(rule.clone()));
        assert_eq!(again.rules, [rule]);
    }
    for route in routes.into_iter().filter(|route| route.plain) {
        let again = after_request(&Action::AddRoute(route.clone()));
        assert_eq!(again.routes, [route]);
    }
    for address in addresses.into_iter().filter(|address| !address.secondary) {
        let again = after_request(&Action::AddAddress(address));
        assert_eq!(again.addresses, [address]);
    }
    for neighbor in neighbors {
        let again = after_request(&Action::SetNeighbor(neighbor));
        assert_eq!(again.neighbors, [neighbor]);
    }
}

/// The state of a kernel that executed this message literally.
fn after_request(action: &Action) -> Observed {
    let message = request(action, 1).expect("the action is one message");
    let mut reply = Reply::to(1, 1);
    assert_eq!(reply.observe(&message), Ok(false), "the request of {action:?} cannot be read");
    reply.observed().clone()
}

//! The two requests to sock_diag.

use crate::{Connected, Transport};
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
    NetlinkSerializable,
};
use netlink_packet_sock_diag::{
    AF_INET, AF_INET6, IPPROTO_TCP, IPPROTO_UDP, SockDiagDestroy, SockDiagMessage,
    inet::{ExtensionFlags, InetRequest, SocketId, StateFlags},
};

/// Both families of sockets. A socket of IPv6 can have a peer of IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    pub(crate) const ALL: [Self; 2] = [Self::V4, Self::V6];

    fn number(self) -> u8 {
        match self {
            Self::V4 => AF_INET,
            Self::V6 => AF_INET6,
        }
    }

    /// The ends of any socket.
    fn any(self) -> SocketId {
        match self {
            Self::V4 => SocketId::new_v4(),
            Self::V6 => SocketId::new_v6(),
        }
    }
}

/// The request for all connected UDP sockets of a family.
pub(crate) fn list(family: Family, sequence: u32) -> Vec<u8> {
    message(SockDiagMessage::InetRequest(request(family, family.any())), NLM_F_DUMP, sequence)
}

/// The request for all sockets of a family that wait for packets of any peer.
pub(crate) fn list_unconnected(family: Family, transport: Transport, sequence: u32) -> Vec<u8> {
    // `CLOSE` is the state of a UDP socket without a peer.
    let (protocol, states) = match transport {
        Transport::Tcp => (IPPROTO_TCP, StateFlags::LISTEN),
        Transport::Udp => (IPPROTO_UDP, StateFlags::CLOSE),
    };
    let request = InetRequest { protocol, states, ..request(family, family.any()) };
    message(SockDiagMessage::InetRequest(request), NLM_F_DUMP, sequence)
}

/// The request to close a socket.
pub(crate) fn close(socket: &Connected, sequence: u32) -> Vec<u8> {
    let family = if socket.local.is_ipv4() { Family::V4 } else { Family::V6 };
    let id = SocketId {
        source_port: socket.local.port(),
        destination_port: socket.peer.port(),
        source_address: socket.local.ip(),
        destination_address: socket.peer.ip(),
        interface_id: socket.link,
        cookie: cookie_bytes(socket.cookie),
    };
    let request = SockDiagMessage::InetRequest(request(family, id));
    message(SockDiagDestroy::new(request), NLM_F_ACK, sequence)
}

/// `ESTABLISHED` is the state of a UDP socket with a peer.
fn request(family: Family, socket_id: SocketId) -> InetRequest {
    InetRequest {
        family: family.number(),
        protocol: IPPROTO_UDP,
        extensions: ExtensionFlags::empty(),
        states: StateFlags::ESTABLISHED,
        socket_id,
    }
}

fn message<M>(request: M, flags: u16, sequence: u32) -> Vec<u8>
where
    M: NetlinkSerializable + Into<NetlinkPayload<M>>,
{
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | flags;
    header.sequence_number = sequence;
    let mut message = NetlinkMessage::new(header, request.into());
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

/// The kernel has two words: the lower half of the number, then the upper half.
pub(crate) fn cookie_bytes(cookie: u64) -> [u8; 8] {
    let [a, b, c, d, e, f, g, h] = cookie.to_le_bytes();
    let low = u32::from_le_bytes([a, b, c, d]).to_ne_bytes();
    let high = u32::from_le_bytes([e, f, g, h]).to_ne_bytes();
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&low);
    bytes[4..].copy_from_slice(&high);
    bytes
}

pub(crate) fn cookie_of(bytes: [u8; 8]) -> u64 {
    let [a, b, c, d, e, f, g, h] = bytes;
    let low = u32::from_ne_bytes([a, b, c, d]);
    let high = u32::from_ne_bytes([e, f, g, h]);
    u64::from(low) | u64::from(high) << 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::tests::framed;
    use std::net::SocketAddr;

    /// The header of `inet_diag_req_v2`: family, UDP, no extensions, the state ESTABLISHED.
    fn header(family: u8) -> Vec<u8> {
        [&[family, 17, 0, 0][..], &2_u32.to_ne_bytes()].concat()
    }

    #[test]
    fn a_list_asks_for_the_connected_sockets_of_a_family() {
        for (family, number) in [(Family::V4, 2), (Family::V6, 10)] {
            let payload = [header(number), vec![0; 48]].concat();
            // SOCK_DIAG_BY_FAMILY; NLM_F_REQUEST, NLM_F_ROOT and NLM_F_MATCH.
            assert_eq!(list(family, 9), framed(20, 0x301, 9, &payload));
        }
    }

    #[test]
    fn a_list_of_unconnected_sockets_asks_for_their_state() {
        for (transport, protocol, state) in [(Transport::Tcp, 6, 10), (Transport::Udp, 17, 7)] {
            for (family, number) in [(Family::V4, 2), (Family::V6, 10)] {
                let states = (1_u32 << state).to_ne_bytes();
                let payload = [&[number, protocol, 0, 0][..], &states, &[0; 48]].concat();
                let request = list_unconnected(family, transport, 9);
                assert_eq!(request, framed(20, 0x301, 9, &payload), "{transport:?}");
            }
        }
    }

    #[test]
    fn a_request_to_close_has_the_addresses_and_the_cookie_of_the_socket() {
        let ipv4 = [&[10, 0, 0, 1][..], &[0; 12], &[10, 0, 0, 2], &[0; 12]].concat();
        let ipv6 = |last: u8| [&[0xfd][..], &[0; 14], &[last]].concat();
        let mapped = |last: u8| [&[0; 10][..], &[0xff, 0xff, 10, 0, 0, last]].concat();
        for (local, peer, number, addresses) in [
            ("10.0.0.1:40000", "10.0.0.2:53", 2, ipv4),
            ("[fd00::1]:40000", "[fd00::2]:53", 10, [ipv6(1), ipv6(2)].concat()),
            (
                "[::ffff:10.0.0.1]:40000",
                "[::ffff:10.0.0.2]:53",
                10,
                [mapped(1), mapped(2)].concat(),
            ),
        ] {
            let [local, peer] = [local, peer].map(|at| at.parse::<SocketAddr>().expect("a test's"));
            let socket = Connected { cookie: 0x0102_0304_0506_0708, local, peer, link: 7 };
            let payload = [
                header(number),
                40_000_u16.to_be_bytes().to_vec(),
                53_u16.to_be_bytes().to_vec(),
                addresses,
                7_u32.to_ne_bytes().to_vec(),
                0x0506_0708_u32.to_ne_bytes().to_vec(),
                0x0102_0304_u32.to_ne_bytes().to_vec(),
            ]
            .concat();
            // SOCK_DESTROY; NLM_F_REQUEST and NLM_F_ACK.
            assert_eq!(close(&socket, 3), framed(21, 5, 3, &payload), "{peer}");
        }
    }

    #[test]
    fn a_cookie_is_the_same_after_its_bytes() {
        for cookie in [0, 1, u64::from(u32::MAX), 0x0102_0304_0506_0708, u64::MAX] {
            assert_eq!(cookie_of(cookie_bytes(cookie)), cookie);
        }
    }
}

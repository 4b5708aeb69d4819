//! Processes of the node that listen at node ports of Services. The programs lead the packets of clients to the Service.

use crate::logged::remember;
use config_model::causes;
use datapath_sockets::{DiagError, Listener, Sockets, Transport};
use service_core::{Index, Place};
use service_objects::{Family, ObjectName, Protocol};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv6Addr},
    time::Duration,
};
use tokio::time::Instant;

/// The passes over the sockets of the node.
#[derive(Debug, Default)]
pub(crate) struct PortUsers {
    /// `None` before the first pass.
    due: Option<Instant>,
    /// The sockets of the last pass that were logged.
    logged: BTreeSet<(Listener, ObjectName)>,
    /// The last fault, which is logged once.
    fault: Option<String>,
}

/// The Services of node ports.
type Owners = BTreeMap<(Transport, u16, Family), ObjectName>;

impl PortUsers {
    /// Logs the new sockets, if a pass is due.
    pub(crate) fn step(&mut self, now: Instant, index: &Index) {
        if self.due.is_some_and(|due| now < due) {
            return;
        }
        self.due = Some(now + EVERY);
        let owners = owners(index);
        if owners.is_empty() {
            self.logged.clear();
            return;
        }
        let addresses = &index.world().node.addresses;
        match find(&owners, |address| is_served(address, addresses)) {
            Ok(found) => self.settle(&found),
            Err(error) => {
                let why = causes(&error);
                if self.fault.as_ref() != Some(&why) {
                    tracing::warn!(why, "cannot look for sockets at node ports of Services");
                }
                self.fault = Some(why);
            }
        }
    }

    fn settle(&mut self, found: &BTreeSet<(Listener, ObjectName)>) {
        self.fault = None;
        for (Listener { transport, local }, service) in remember(&mut self.logged, found) {
            tracing::warn!(
                %service,
                port = local.port(),
                socket = %format_args!("{transport} {local}"),
                "a process listens at a node port of the Service, and clients reach the Service instead; give the process \
                 or the Service another port"
            );
        }
    }
}

fn owners(index: &Index) -> Owners {
    let ports = index.frontends().keys().filter_map(|place| {
        let Place::NodePort(family, port, protocol) = place else { return None };
        let transport = match protocol {
            Protocol::Tcp => Transport::Tcp,
            Protocol::Udp => Transport::Udp,
            Protocol::Sctp => return None,
        };
        Some(((transport, *port, *family), index.owner(place)?.clone()))
    });
    ports.collect()
}

/// True if node ports are served at the address of a socket.
fn is_served(address: IpAddr, node: &BTreeSet<IpAddr>) -> bool {
    let address = address.to_canonical();
    address.is_unspecified() || address.is_loopback() || node.contains(&address)
}

fn find(
    owners: &Owners,
    is_served: impl Fn(IpAddr) -> bool,
) -> Result<BTreeSet<(Listener, ObjectName)>, DiagError> {
    let ports: BTreeSet<u16> = owners.keys().map(|(_, port, _)| *port).collect();
    let listeners = Sockets::open()?
        .listeners(|local| ports.contains(&local.port()) && is_served(local.ip()))?;
    let owned = listeners.into_iter().filter_map(|listener| {
        let owner = owner(owners, &listener)?.clone();
        Some((listener, owner))
    });
    Ok(owned.collect())
}

fn owner<'a>(owners: &'a Owners, listener: &Listener) -> Option<&'a ObjectName> {
    let Listener { transport, local } = listener;
    let of = |family| owners.get(&(*transport, local.port(), family));
    let address = local.ip().to_canonical();
    let both = address == IpAddr::from(Ipv6Addr::UNSPECIFIED);
    // Such a socket receives packets of IPv4 too.
    of(Family::of(address)).or_else(|| both.then(|| of(Family::V4))?)
}

/// The time between two lists of sockets.
const EVERY: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;
    use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};

    #[test]
    fn a_socket_is_found_at_the_port_and_protocol_of_a_service_only() {
        let used = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = used.local_addr().unwrap().port();
        let datagrams = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let other = datagrams.local_addr().unwrap().port();
        let name = ObjectName::new("shop", "web");
        let owners: Owners =
            [port, other].map(|port| ((Transport::Tcp, port, Family::V4), name.clone())).into();
        let node = BTreeSet::new();
        let found = find(&owners, |address| is_served(address, &node)).unwrap();
        let listener = Listener { transport: Transport::Tcp, local: used.local_addr().unwrap() };
        assert_eq!(found, BTreeSet::from([(listener, name)]));
        assert!(find(&owners, |_| false).unwrap().is_empty());
    }

    #[test]
    fn a_socket_of_the_other_family_does_not_use_the_port() {
        let owners = |family| {
            Owners::from([((Transport::Tcp, 30_080, family), ObjectName::new("shop", "web"))])
        };
        let is_owned = |at: &str, family| {
            let local = SocketAddr::new(at.parse().unwrap(), 30_080);
            owner(&owners(family), &Listener { transport: Transport::Tcp, local }).is_some()
        };
        for (at, of_v4, of_v6) in [
            ("0.0.0.0", true, false),
            ("10.0.0.1", true, false),
            ("::ffff:10.0.0.1", true, false),
            ("::", true, true),
            ("::1", false, true),
            ("fd00::1", false, true),
        ] {
            assert_eq!([Family::V4, Family::V6].map(|of| is_owned(at, of)), [of_v4, of_v6], "{at}");
        }
    }

    #[test]
    fn sockets_beyond_the_limit_of_a_pass_are_logged_by_the_next_one() {
        let sockets = |count: u16| -> BTreeSet<_> {
            let listeners = (0..count).map(|number| Listener {
                transport: Transport::Tcp,
                local: (Ipv4Addr::UNSPECIFIED, 30_000 + number).into(),
            });
            listeners.map(|of| (of, ObjectName::new("shop", "web"))).collect()
        };
        let mut users = PortUsers::default();
        for logged in [16, 20, 20] {
            users.settle(&sockets(20));
            assert_eq!(users.logged.len(), logged);
        }
        users.settle(&sockets(3));
        assert_eq!(users.logged, sockets(3));
    }

    #[test]
    fn addresses_with_node_ports_are_those_of_the_node() {
        let node = BTreeSet::from(["10.0.0.1".parse().unwrap()]);
        let served = |text: &str| is_served(text.parse().unwrap(), &node);
        for text in ["0.0.0.0", "::", "127.0.0.1", "::1", "10.0.0.1", "::ffff:10.0.0.1"] {
            assert!(served(text), "{text}");
        }
        for text in ["169.254.20.10", "10.0.0.2", "fd00::1"] {
            assert!(!served(text), "{text}");
        }
    }
}

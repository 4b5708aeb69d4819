//! Every packet of interest of a world: to all frontends and beside them.

use service_core::{Client, Packet, World};
use service_objects::{Family, Protocol};
use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// Packets to each address of the world and to loopback, at each port of a Service and one other, from both clients.
/// Packets to addresses of load balancers also come from the edges of all source ranges.
pub fn packets(world: &World) -> Vec<Packet> {
    let services = || world.services.values();
    let mut addresses: BTreeSet<IpAddr> = world.node.addresses.clone();
    addresses.extend(services().flat_map(|service| &service.cluster_ips));
    addresses.extend(services().flat_map(|service| &service.external_ips));
    addresses.extend(services().flat_map(|service| &service.ingress).map(|to| to.address));
    addresses.extend(addresses.clone().into_iter().map(after));
    let loopback = [Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 0, 0, 53)];
    addresses.extend(loopback.map(IpAddr::V4));
    addresses.insert(Ipv6Addr::LOCALHOST.into());

    let ports = || services().flat_map(|service| &service.ports);
    let mut numbers: BTreeSet<u16> = ports().map(|port| port.port).collect();
    numbers.extend(ports().filter_map(|port| port.node_port));
    numbers.insert(1);

    let mut packets = Vec::new();
    for destination in addresses {
        for source in sources(world, destination) {
            for &port in &numbers {
                for protocol in [Protocol::Tcp, Protocol::Udp, Protocol::Sctp] {
                    for client in [Client::Node, Client::Outside] {
                        packets.push(Packet { client, source, destination, port, protocol });
                    }
                }
            }
        }
    }
    packets
}

fn sources(world: &World, destination: IpAddr) -> BTreeSet<IpAddr> {
    let family = Family::of(destination);
    let mut sources: BTreeSet<IpAddr> =
        ["10.9.1.1", "fd98::1"].map(|text| text.parse().expect("an address")).into();
    let services = world.services.values();
    let balancers = services
        .filter(|service| service.ingress.iter().any(|ingress| ingress.address == destination));
    for range in balancers.filter_map(|service| service.source_ranges.as_ref()).flatten() {
        sources.extend([range.network(), range.broadcast(), after(range.broadcast())]);
    }
    sources.retain(|source| Family::of(*source) == family);
    sources
}

/// The next address.
fn after(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(v4) => Ipv4Addr::from(u32::from(v4).wrapping_add(1)).into(),
        IpAddr::V6(v6) => Ipv6Addr::from(u128::from(v6).wrapping_add(1)).into(),
    }
}

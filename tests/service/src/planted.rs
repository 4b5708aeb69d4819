//! Planted faults, which the judge must find.
//!
//! A faulty implementation is a right one with a changed question or a changed answer. An engineer could make each of
//! these faults by mistake.

use service_core::{Client, DropReason, Packet, RejectReason, Route, World};
use service_objects::{Protocol, Service, Slice};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Hints for nodes are ignored.
    NodeHints,
    /// Hints for zones count though a ready endpoint has none.
    PartialHints,
    /// Clients on the node follow the external policy.
    ShortCircuit,
    /// Missing endpoints are answered before source ranges.
    RangesLate,
    /// Source ranges do not apply to clients on the node.
    RangesOutside,
    /// The local table uses terminating endpoints only if no endpoint of the cluster is ready.
    Fallback,
    /// Of several entries of one endpoint the last counts.
    Duplicates,
    /// An external IP wins over a cluster IP.
    Hijack,
    /// The younger of two Services wins.
    Younger,
    /// Labels of slices are ignored.
    SliceLabels,
    /// A Service is served in a family without a cluster IP.
    Families,
    /// Clients outside reach node ports of the loopback addresses.
    Loopback,
    /// Unused ports of a cluster IP are no Service.
    UnusedPorts,
    /// SCTP ports are translated.
    Sctp,
}

impl Fault {
    pub const ALL: [Self; 14] = [
        Self::NodeHints,
        Self::PartialHints,
        Self::ShortCircuit,
        Self::RangesLate,
        Self::RangesOutside,
        Self::Fallback,
        Self::Duplicates,
        Self::Hijack,
        Self::Younger,
        Self::SliceLabels,
        Self::Families,
        Self::Loopback,
        Self::UnusedPorts,
        Self::Sctp,
    ];

    /// The answer of an implementation with this fault; `right` is one without.
    pub fn answer(
        self,
        world: &World,
        packet: &Packet,
        right: impl Fn(&World, &Packet) -> Route,
    ) -> Route {
        match self {
            Self::NodeHints => right(&without_node_hints(world), packet),
            Self::PartialHints => right(&with_zone_hints(world), packet),
            Self::ShortCircuit if packet.destination.is_loopback() => right(world, packet),
            Self::ShortCircuit => right(world, &Packet { client: Client::Outside, ..*packet }),
            Self::RangesLate => match right(&without_ranges(world), packet) {
                missing @ (Route::Reject(RejectReason::NoEndpoints)
                | Route::Drop(DropReason::NoLocalEndpoints)) => missing,
                Route::NotService | Route::To(_) | Route::Reject(_) | Route::Drop(_) => {
                    right(world, packet)
                }
            },
            Self::RangesOutside => match packet.client {
                Client::Node => right(&without_ranges(world), packet),
                Client::Outside => right(world, packet),
            },
            Self::Fallback => right(&with_common_fallback(world), packet),
            Self::Duplicates => right(&with_last_entries(world), packet),
            Self::Hijack => right(&with_hijacker(world, packet), packet),
            Self::Younger => right(&with_reversed_ages(world), packet),
            Self::SliceLabels => right(&without_slice_labels(world), packet),
            Self::Families => right(&with_both_families(world), packet),
            Self::Loopback if packet.destination.is_loopback() => {
                right(world, &Packet { client: Client::Node, ..*packet })
            }
            Self::Loopback => right(world, packet),
            Self::UnusedPorts => match right(world, packet) {
                Route::Reject(RejectReason::NoSuchPort) => Route::NotService,
                route @ (Route::NotService | Route::To(_) | Route::Reject(_) | Route::Drop(_)) => {
                    route
                }
            },
            Self::Sctp if packet.protocol == Protocol::Sctp => {
                let packet = Packet { protocol: Protocol::Udp, ..*packet };
                right(&with_sctp_as_udp(world), &packet)
            }
            Self::Sctp => right(world, packet),
        }
    }
}

fn change_services(world: &World, change: impl Fn(&mut Service)) -> World {
    let mut world = world.clone();
    world.services.values_mut().for_each(|service| change(Arc::make_mut(service)));
    world
}

fn change_slices(world: &World, mut change: impl FnMut(&mut Slice)) -> World {
    let mut world = world.clone();
    world.slices.values_mut().for_each(|slice| change(Arc::make_mut(slice)));
    world
}

fn without_node_hints(world: &World) -> World {
    change_slices(world, |slice| {
        slice.endpoints.iter_mut().for_each(|endpoint| endpoint.node_hints.clear());
    })
}

fn with_zone_hints(world: &World) -> World {
    change_slices(world, |slice| {
        for endpoint in &mut slice.endpoints {
            endpoint.zone_hints.push("of no node".to_owned());
        }
    })
}

fn without_ranges(world: &World) -> World {
    change_services(world, |service| service.source_ranges = None)
}

fn with_common_fallback(world: &World) -> World {
    let world = with_one_port_per_slice(world);
    let key = |slice: &Slice| (slice.service.clone(), slice.family, slice.ports[0].clone());
    let slices = world.slices.values();
    let ready = slices.filter(|slice| slice.endpoints.iter().any(|endpoint| endpoint.ready));
    let ready: BTreeSet<_> = ready.map(|slice| key(slice)).collect();
    change_slices(&world, |slice| {
        let is_ready = ready.contains(&key(slice));
        slice.endpoints.iter_mut().for_each(|endpoint| endpoint.serving &= !is_ready);
    })
}

fn with_one_port_per_slice(world: &World) -> World {
    let mut split = World { slices: BTreeMap::new(), ..world.clone() };
    for slice in world.slices.values() {
        for (position, port) in slice.ports.iter().enumerate() {
            let mut part = Slice { ports: vec![port.clone()], ..(**slice).clone() };
            part.name.name = format!("{}-{position}", part.name.name);
            split.slices.insert(part.name.clone(), Arc::new(part));
        }
    }
    split
}

fn with_last_entries(world: &World) -> World {
    let mut last = BTreeMap::new();
    for slice in world.slices.values() {
        for endpoint in &slice.endpoints {
            last.insert((&slice.service, endpoint.address), endpoint);
        }
    }
    change_slices(world, |slice| {
        for endpoint in &mut slice.endpoints {
            endpoint.clone_from(last[&(&slice.service, endpoint.address)]);
        }
    })
}

/// Only the Service whose external IP the packet has remains.
fn with_hijacker(world: &World, packet: &Packet) -> World {
    let claims = |service: &Service| {
        let mut ports = service.ports.iter();
        service.external_ips.contains(&packet.destination)
            && !service.cluster_ips.contains(&packet.destination)
            && ports.any(|port| (port.port, port.protocol) == (packet.port, packet.protocol))
    };
    let mut changed = world.clone();
    if let Some((name, _)) = world.services.iter().find(|(_, service)| claims(service)) {
        changed.services.retain(|other, _| other == name);
    }
    changed
}

fn with_reversed_ages(world: &World) -> World {
    let ages: BTreeSet<_> = world.services.values().map(|service| &service.created).collect();
    let ages: Vec<_> = ages.into_iter().rev().collect();
    change_services(world, |service| {
        let position = ages.iter().position(|age| **age == service.created);
        service.created = format!("{position:?}");
    })
}

fn without_slice_labels(world: &World) -> World {
    change_slices(world, |slice| (slice.headless, slice.other_proxy) = (false, None))
}

fn with_both_families(world: &World) -> World {
    change_services(world, |service| {
        if !service.cluster_ips.is_empty() {
            let unused: [IpAddr; 2] =
                ["172.20.255.255", "fd20::ffff"].map(|text| text.parse().expect("an address"));
            service.cluster_ips.extend(unused);
        }
    })
}

fn with_sctp_as_udp(world: &World) -> World {
    let world = change_services(world, |service| {
        service.ports.retain(|port| port.protocol == Protocol::Sctp);
        service.ports.iter_mut().for_each(|port| port.protocol = Protocol::Udp);
    });
    change_slices(&world, |slice| {
        slice.ports.retain(|port| port.protocol == Protocol::Sctp);
        slice.ports.iter_mut().for_each(|port| port.protocol = Protocol::Udp);
    })
}

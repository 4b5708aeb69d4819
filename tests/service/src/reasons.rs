//! Checks of an explanation: each endpoint that is in is a backend of the naive evaluator, and each reason holds.
//!
//! A reason is checked by a scan of the world's entries, without the steps that lead to it.

use crate::{naive, text::show_world};
use service_core::{
    Backend, Client, EndpointUse, Explanation, Index, OutReason, Packet, Place, Route, Use, World,
};
use service_objects::{Endpoint, Family, ObjectName, Protocol, Slice, TrafficPolicy};
use std::{collections::BTreeSet, net::IpAddr};

/// Checks the explanations of all places, and returns the reasons that they have.
///
/// # Errors
/// The first place with a wrong explanation, and the world.
pub fn check(world: &World) -> Result<BTreeSet<OutReason>, String> {
    let mut index = Index::of(world.clone());
    index.take_changes();
    let mut reasons = BTreeSet::new();
    for place in index.frontends().keys() {
        let of_place = |why| format!("{}{place:?}: {why}", show_world(world));
        let Some(explanation) = index.explain(place) else {
            match place {
                Place::OtherPorts(_) => continue,
                Place::Port(..) | Place::NodePort(..) => {
                    return Err(of_place("it has no explanation".to_owned()));
                }
            }
        };
        let service = index.owner(place).ok_or_else(|| of_place("it has no owner".to_owned()))?;
        for client in [Client::Node, Client::Outside] {
            let of = Explained { world, service, place, client, explanation: &explanation };
            of.check_backends(&index).map_err(of_place)?;
            reasons.extend(of.check_reasons().map_err(of_place)?);
        }
        of_entries(world, service, &explanation).map_err(of_place)?;
    }
    Ok(reasons)
}

/// The answer to the clients of one kind.
struct Explained<'a> {
    world: &'a World,
    service: &'a ObjectName,
    place: &'a Place,
    client: Client,
    explanation: &'a Explanation,
}

impl Explained<'_> {
    /// Compares the endpoints that are in with the route of a packet.
    fn check_backends(&self, index: &Index) -> Result<(), String> {
        let Some(packet) = packet(self.world, index, self.place, self.client) else {
            return Ok(());
        };
        let expected = match naive::route(self.world, &packet) {
            Route::To(backends) => backends,
            Route::Reject(_) | Route::Drop(_) => BTreeSet::new(),
            Route::NotService => return Err("no Service has the packet".to_owned()),
        };
        let mut explained = BTreeSet::new();
        for endpoint in self.explanation.endpoints.iter().filter(|of| self.of(of) == Use::In) {
            let port = endpoint.port.ok_or("a backend has no port")?;
            explained.insert(Backend { address: endpoint.endpoint.address, port });
        }
        match explained == expected {
            true => Ok(()),
            false => Err(format!("{:?}: {explained:?} instead of {expected:?}", self.client)),
        }
    }

    fn check_reasons(&self) -> Result<BTreeSet<OutReason>, String> {
        let mut reasons = BTreeSet::new();
        for endpoint in &self.explanation.endpoints {
            if let Use::Out(reason) = self.of(endpoint) {
                if !self.holds(endpoint, reason) {
                    return Err(format!("{:?}: {reason:?} of {endpoint:?}", self.client));
                }
                reasons.insert(reason);
            }
        }
        Ok(reasons)
    }

    fn of(&self, endpoint: &EndpointUse) -> Use {
        match self.client {
            Client::Node => endpoint.inside,
            Client::Outside => endpoint.outside,
        }
    }

    fn policy(&self) -> TrafficPolicy {
        match self.client {
            Client::Node => self.explanation.inside,
            Client::Outside => self.explanation.outside,
        }
    }

    fn holds(&self, of: &EndpointUse, reason: OutReason) -> bool {
        let slice = &self.world.slices[&of.slice];
        let node = &self.world.node;
        let same = || self.entries(of);
        let is_policy = |policy| self.policy() == policy;
        match reason {
            OutReason::OtherProxy => slice.other_proxy.is_some(),
            OutReason::Headless => slice.headless,
            OutReason::OtherFamily => slice.family != self.family(),
            OutReason::NoSuchPort => !slice.ports.iter().any(|port| {
                (&port.name, port.protocol)
                    == (&self.explanation.port.name, self.explanation.port.protocol)
            }),
            OutReason::OtherPort => {
                self.explanation.port.protocol == Protocol::Sctp && of.port != Some(self.number())
            }
            OutReason::NotReady => !of.endpoint.terminating && !same().any(is_usable),
            OutReason::Terminating => of.endpoint.terminating && !same().any(is_usable),
            OutReason::Draining => {
                !same().any(|entry| entry.ready)
                    && self.explanation.endpoints.iter().any(|of| of.endpoint.ready)
            }
            OutReason::OtherNode => {
                is_policy(TrafficPolicy::Local)
                    && !same().any(|entry| entry.node.as_ref() == Some(&node.name))
            }
            OutReason::NodeHint => {
                is_policy(TrafficPolicy::Cluster)
                    && same().any(|entry| !entry.node_hints.is_empty())
                    && !same().any(|entry| entry.ready && entry.node_hints.contains(&node.name))
            }
            OutReason::ZoneHint => {
                let is_for_node = |entry: &Endpoint| {
                    entry.ready
                        && node.zone.as_ref().is_some_and(|at| entry.zone_hints.contains(at))
                };
                is_policy(TrafficPolicy::Cluster)
                    && same().any(|entry| !entry.zone_hints.is_empty())
                    && !same().any(is_for_node)
            }
            OutReason::BeyondLimit => self.explanation.endpoints.len() > MOST_BACKENDS,
        }
    }

    /// The entries of all slices for the same backend.
    fn entries<'a>(&'a self, of: &'a EndpointUse) -> impl Iterator<Item = &'a Endpoint> {
        let is_used = |slice: &&Slice| {
            slice.service == *self.service
                && slice.family == self.family()
                && !slice.headless
                && slice.other_proxy.is_none()
        };
        let port = &self.explanation.port;
        let has_port = move |slice: &&Slice| {
            slice.ports.iter().any(|at| {
                (&at.name, at.protocol, Some(at.port)) == (&port.name, port.protocol, of.port)
            })
        };
        let slices = self.world.slices.values().map(|slice| &**slice);
        let entries = slices.filter(is_used).filter(has_port).flat_map(|slice| &slice.endpoints);
        entries.filter(|entry| entry.address == of.endpoint.address)
    }

    fn family(&self) -> Family {
        match self.place {
            Place::Port(address, ..) | Place::OtherPorts(address) => Family::of(*address),
            Place::NodePort(family, ..) => *family,
        }
    }

    fn number(&self) -> u16 {
        match self.place {
            Place::Port(_, number, _) | Place::NodePort(_, number, _) => *number,
            Place::OtherPorts(_) => 0,
        }
    }
}

fn is_usable(entry: &Endpoint) -> bool {
    entry.ready || (entry.serving && entry.terminating)
}

/// Each entry of the Service's slices has a use.
fn of_entries(world: &World, service: &ObjectName, all: &Explanation) -> Result<(), String> {
    let slices = world.slices.values().filter(|slice| slice.service == *service);
    let entries: BTreeSet<(&ObjectName, &Endpoint)> =
        slices.flat_map(|slice| slice.endpoints.iter().map(|of| (&slice.name, of))).collect();
    let explained: BTreeSet<_> = all.endpoints.iter().map(|of| (&of.slice, &of.endpoint)).collect();
    (entries == explained).then_some(()).ok_or_else(|| "an entry has no use".to_owned())
}

/// A packet to a place that its source ranges admit. `None` for a node port without an address, and if the ranges admit
/// no client.
fn packet(world: &World, index: &Index, place: &Place, client: Client) -> Option<Packet> {
    let (destination, port, protocol) = match place {
        Place::Port(address, port, protocol) => (*address, *port, *protocol),
        Place::NodePort(family, port, protocol) => {
            let is_free = |at: &&IpAddr| {
                let other = [Place::Port(**at, *port, *protocol), Place::OtherPorts(**at)];
                Family::of(**at) == *family
                    && !other.iter().any(|place| index.frontends().contains_key(place))
            };
            (*world.node.addresses.iter().find(is_free)?, *port, *protocol)
        }
        Place::OtherPorts(_) => return None,
    };
    let ranges = index.frontends().get(place)?.sources.as_ref();
    let source = match ranges {
        Some(ranges) => {
            let is_family = |at: &IpAddr| Family::of(*at) == Family::of(destination);
            ranges.iter().map(ipnet::IpNet::network).find(is_family)?
        }
        None if destination.is_ipv4() => IpAddr::from([10, 9, 1, 1]),
        None => IpAddr::from([0xfd98, 0, 0, 0, 0, 0, 0, 1]),
    };
    Some(Packet { client, source, destination, port, protocol })
}

/// The largest number of backends of one table.
const MOST_BACKENDS: usize = 8_191;

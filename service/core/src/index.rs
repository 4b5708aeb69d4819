//! The index: objects in, frontends out, at the cost of the change.
//!
//! A Service claims places by its addresses and ports. The best claim of a place has it. A change of a Service marks its
//! places, a change of a slice those of its Service. [`Index::take_changes`] compiles the marked places.

mod choices;
mod explain;
mod few;
mod health;

use crate::{
    Backend, Choice, Client, DropReason, Frontend, NodeView, Packet, Place, RejectReason, Route,
    Taken, World,
};
use choices::{Choices, choices};
use few::{ByName, Few};
use service_objects::{
    Family, IngressMode, ObjectName, Protocol, Service, ServiceKind, Slice, TrafficPolicy,
};
use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

/// The frontends of a node, and the objects from which they follow.
#[derive(Clone, Debug, Default)]
pub struct Index {
    world: World,
    /// The slices of each Service by name. A slice can come before its Service.
    slices: BTreeMap<ObjectName, Few<ByName<Slice>>>,
    claims: BTreeMap<Place, Few<Claim>>,
    /// The Services of each cluster IP by name.
    cluster_ips: BTreeMap<IpAddr, Few<ByName<Service>>>,
    frontends: BTreeMap<Place, Frontend>,
    /// The endpoints without a place in the largest table, of each Service that has some.
    left_out: BTreeMap<ObjectName, BTreeMap<Place, usize>>,
    /// Places that more than one Service claims.
    contested: BTreeSet<Place>,
    /// Places whose frontend may differ from `frontends`.
    marked: BTreeSet<Place>,
    /// The Services with health checks.
    checked: BTreeSet<ObjectName>,
}

/// The kind of a place. The first one wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    ClusterIp,
    /// An external IP, or the address of a load balancer.
    Exact,
    NodePort,
}

/// A Service's port that claims a place. The smallest claim has the place: of one kind, that of the oldest Service.
#[derive(Clone, Debug)]
struct Claim {
    kind: Kind,
    service: Arc<Service>,
    /// The position of the port in the Service's list.
    position: usize,
    has_sources: bool,
}

impl Claim {
    fn order(&self) -> (Kind, &str, &ObjectName, usize, bool) {
        let Service { created, name, .. } = &*self.service;
        (self.kind, created, name, self.position, self.has_sources)
    }
}

impl PartialEq for Claim {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl Eq for Claim {}

impl PartialOrd for Claim {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Claim {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

/// The choices of a Service's port, which its places share: by Service, position and family. SCTP ports are not
/// translated, so its choices depend on the port of the place.
type Shared = BTreeMap<(ObjectName, usize, Family, Option<u16>), Choices>;

impl Index {
    /// An index with all objects of a world.
    pub fn of(world: World) -> Self {
        let mut index =
            Self { world: World { node: world.node, ..World::default() }, ..Self::default() };
        world.slices.into_values().for_each(|slice| index.set_slice(slice));
        world.services.into_values().for_each(|service| index.set_service(service));
        index
    }

    /// Adds or replaces a Service.
    pub fn set_service(&mut self, service: Arc<Service>) {
        if self.world.services.get(&service.name).is_some_and(|known| *known == service) {
            return;
        }
        self.remove_service(&service.name);
        self.add_claims(&service);
        self.world.services.insert(service.name.clone(), service);
    }

    pub fn remove_service(&mut self, name: &ObjectName) {
        if let Some(service) = self.world.services.remove(name) {
            self.remove_claims(&service);
        }
    }

    /// Adds or replaces a slice.
    pub fn set_slice(&mut self, slice: Arc<Slice>) {
        if self.world.slices.get(&slice.name).is_some_and(|known| *known == slice) {
            return;
        }
        self.remove_slice(&slice.name);
        let slices = self.slices.entry(slice.service.clone()).or_default();
        slices.insert(ByName(Arc::clone(&slice)));
        self.mark_service(&slice.service);
        self.world.slices.insert(slice.name.clone(), slice);
    }

    pub fn remove_slice(&mut self, name: &ObjectName) {
        let Some(slice) = self.world.slices.remove(name) else { return };
        if let Some(slices) = self.slices.get_mut(&slice.service) {
            slices.remove(&ByName(Arc::clone(&slice)));
            if slices.is_empty() {
                self.slices.remove(&slice.service);
            }
        }
        self.mark_service(&slice.service);
    }

    /// Sets the node. Another name or zone can change each frontend.
    pub fn set_node(&mut self, node: NodeView) {
        let is_moved = (&node.name, &node.zone) != (&self.world.node.name, &self.world.node.zone);
        self.world.node = node;
        if is_moved {
            self.marked.extend(self.claims.keys());
        }
    }

    /// The objects of which the index consists.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Compiles what has changed. Returns the frontends that differ from those of the last call; `None` for a place
    /// without one.
    pub fn take_changes(&mut self) -> BTreeMap<Place, Option<Frontend>> {
        let mut changes = BTreeMap::new();
        let mut shared = Shared::new();
        for place in std::mem::take(&mut self.marked) {
            let frontend = self.frontend(&place, &mut shared);
            let is_contested = self.taken_at(&place).next().is_some();
            match is_contested {
                true => self.contested.insert(place),
                false => self.contested.remove(&place),
            };
            if frontend.as_ref() == self.frontends.get(&place) {
                continue;
            }
            match &frontend {
                Some(frontend) => self.frontends.insert(place, frontend.clone()),
                None => self.frontends.remove(&place),
            };
            changes.insert(place, frontend);
        }
        changes
    }

    /// The frontends as of the last [`take_changes`](Self::take_changes).
    pub fn frontends(&self) -> &BTreeMap<Place, Frontend> {
        &self.frontends
    }

    /// The Service that has a place.
    pub fn owner(&self, place: &Place) -> Option<&ObjectName> {
        match place {
            Place::OtherPorts(address) => {
                self.cluster_ips.get(address)?.first().map(|service| &service.0.name)
            }
            Place::Port(..) | Place::NodePort(..) => {
                self.winner(place).map(|claim| &claim.service.name)
            }
        }
    }

    /// The claims that another Service has, as of the last [`take_changes`](Self::take_changes).
    pub fn taken(&self) -> impl Iterator<Item = Taken<'_>> {
        self.contested.iter().flat_map(|place| self.taken_at(place))
    }

    fn taken_at(&self, place: &Place) -> impl Iterator<Item = Taken<'_>> {
        let place = *place;
        let owner = self.owner(&place).or_else(|| match place {
            // A cluster IP of another Service has all its ports.
            Place::Port(address, ..) => self.owner(&Place::OtherPorts(address)),
            Place::NodePort(..) | Place::OtherPorts(_) => None,
        });
        let claims = self.claims.get(&place).into_iter().flatten();
        owner.into_iter().flat_map(move |owner| {
            let others = claims.clone().map(|claim| &claim.service.name);
            let others = others.filter(move |service| *service != owner);
            others.map(move |service| Taken { service, place, owner })
        })
    }

    /// The Services with more endpoints than the largest table has places, with the number of the others.
    pub fn left_out(&self) -> impl Iterator<Item = (&ObjectName, usize)> {
        let most = |of: &BTreeMap<Place, usize>| of.values().copied().max().unwrap_or(0);
        self.left_out.iter().map(move |(service, of)| (service, most(of)))
    }

    /// Looks up a packet in [`Self::frontends`], as the programs of a node do.
    pub fn route(&self, packet: &Packet) -> Route {
        let to = packet.destination;
        let at_node = self.world.node.addresses.contains(&to)
            || (packet.client == Client::Node && to.is_loopback());
        let exact = Place::Port(to, packet.port, packet.protocol);
        let node_port = Place::NodePort(Family::of(to), packet.port, packet.protocol);
        let frontend = self.frontends.get(&exact);
        let frontend = frontend.or_else(|| self.frontends.get(&Place::OtherPorts(to)));
        let frontend = frontend.or_else(|| self.frontends.get(&node_port).filter(|_| at_node));
        let Some(frontend) = frontend else { return Route::NotService };
        let is_served = |sources: &Arc<[ipnet::IpNet]>| {
            sources.iter().any(|range| range.contains(&packet.source))
        };
        if !frontend.sources.as_ref().is_none_or(is_served) {
            return Route::Drop(DropReason::SourceRange);
        }
        let choice = match packet.client {
            Client::Node => &frontend.inside,
            Client::Outside => &frontend.outside,
        };
        match choice {
            Choice::Backends(backends) => {
                Route::To(backends.iter().copied().map(backend).collect())
            }
            Choice::NoEndpoints => Route::Reject(RejectReason::NoEndpoints),
            Choice::NoSuchPort => Route::Reject(RejectReason::NoSuchPort),
            Choice::NoLocalEndpoints => Route::Drop(DropReason::NoLocalEndpoints),
        }
    }

    fn winner(&self, place: &Place) -> Option<&Claim> {
        let claim = self.claims.get(place)?.first()?;
        let is_taken = match place {
            // No other kind takes a part of a cluster IP, not even an unused port.
            Place::Port(address, ..) => {
                claim.kind != Kind::ClusterIp && self.cluster_ips.contains_key(address)
            }
            Place::NodePort(..) | Place::OtherPorts(_) => false,
        };
        (!is_taken).then_some(claim)
    }

    fn frontend(&mut self, place: &Place, shared: &mut Shared) -> Option<Frontend> {
        for owner in self.claims.get(place).into_iter().flatten() {
            if let Some(places) = self.left_out.get_mut(&owner.service.name) {
                places.remove(place);
            }
        }
        self.left_out.retain(|_, places| !places.is_empty());
        let (family, port) = match place {
            Place::Port(address, port, _) => (Family::of(*address), *port),
            Place::NodePort(family, port, _) => (*family, *port),
            Place::OtherPorts(address) => {
                return self.cluster_ips.contains_key(address).then_some(Frontend {
                    inside: Choice::NoSuchPort,
                    outside: Choice::NoSuchPort,
                    affinity: 0,
                    sources: None,
                });
            }
        };
        let claim = self.winner(place)?.clone();
        let service = &claim.service;
        let of_port = service.ports.get(claim.position)?;
        let only_port = (of_port.protocol == Protocol::Sctp).then_some(port);
        let key = (service.name.clone(), claim.position, family, only_port);
        let found = shared.entry(key).or_insert_with(|| {
            let slices = self.slices(&service.name);
            choices(&self.world.node, slices, of_port, family, only_port)
        });
        let [inside, outside] = policies(service, claim.kind);
        let frontend = Frontend {
            inside: found.of(inside).clone(),
            outside: found.of(outside).clone(),
            affinity: service.affinity.map_or(0, |affinity| affinity.timeout_seconds),
            sources: match &service.source_ranges {
                Some(ranges) if claim.has_sources => Some(ranges.as_slice().into()),
                Some(_) | None => None,
            },
        };
        if found.left_out > 0 {
            let places = self.left_out.entry(service.name.clone()).or_default();
            places.insert(*place, found.left_out);
        }
        Some(frontend)
    }

    fn mark_service(&mut self, service: &ObjectName) {
        let claims = self.world.services.get(service).into_iter().flat_map(claims_of);
        self.marked.extend(claims.map(|(place, _)| place));
    }

    fn remove_claims(&mut self, service: &Arc<Service>) {
        for (place, claim) in claims_of(service) {
            if let Some(claims) = self.claims.get_mut(&place) {
                claims.remove(&claim);
                if claims.is_empty() {
                    self.claims.remove(&place);
                }
            }
            self.marked.insert(place);
        }
        self.left_out.remove(&service.name);
        self.checked.remove(&service.name);
        for address in &service.cluster_ips {
            let Some(services) = self.cluster_ips.get_mut(address) else { continue };
            if services.remove(&ByName(Arc::clone(service))) && services.is_empty() {
                self.cluster_ips.remove(address);
                self.mark_address(*address);
            }
        }
    }

    fn add_claims(&mut self, service: &Arc<Service>) {
        if !is_served(service) {
            return;
        }
        for address in &service.cluster_ips {
            let services = self.cluster_ips.entry(*address).or_default();
            let is_new = services.is_empty();
            services.insert(ByName(Arc::clone(service)));
            if is_new {
                self.mark_address(*address);
            }
        }
        for (place, claim) in claims_of(service) {
            self.claims.entry(place).or_default().insert(claim);
            self.marked.insert(place);
        }
        if health::port(service).is_some() {
            self.checked.insert(service.name.clone());
        }
    }

    /// Marks all places of an address that is a cluster IP now, or no longer.
    fn mark_address(&mut self, address: IpAddr) {
        let first = Place::Port(address, 0, Protocol::Tcp);
        let last = Place::Port(address, u16::MAX, Protocol::Sctp);
        self.marked.extend(self.claims.range(first..=last).map(|(place, _)| *place));
        self.marked.insert(Place::OtherPorts(address));
    }
}

/// The policies for clients on the node and from outside. Clients on the node reach external addresses as if they came
/// from a load balancer that knows all nodes.
fn policies(service: &Service, kind: Kind) -> [TrafficPolicy; 2] {
    let is_external = service.kind != ServiceKind::ClusterIp || !service.external_ips.is_empty();
    match kind {
        Kind::ClusterIp => [service.internal_policy; 2],
        Kind::Exact | Kind::NodePort if is_external => {
            [TrafficPolicy::Cluster, service.external_policy]
        }
        Kind::Exact | Kind::NodePort => [TrafficPolicy::Cluster; 2],
    }
}

fn is_served(service: &Service) -> bool {
    !service.headless && service.other_proxy.is_none() && service.kind != ServiceKind::ExternalName
}

/// The places that a Service claims, in the families of its cluster IPs. A port claims a place once, by its best kind. A
/// Service that no node serves claims none.
fn claims_of(service: &Arc<Service>) -> Vec<(Place, Claim)> {
    if !is_served(service) {
        return Vec::new();
    }
    let families: BTreeSet<bool> = service.cluster_ips.iter().map(IpAddr::is_ipv4).collect();
    let vips = service.ingress.iter().filter(|ingress| ingress.mode == IngressMode::Vip);
    let cluster_ips = service.cluster_ips.iter().map(|at| (*at, Kind::ClusterIp, false));
    let vips = vips.map(|of| (of.address, Kind::Exact, service.source_ranges.is_some()));
    let external_ips = service.external_ips.iter().map(|at| (*at, Kind::Exact, false));
    let mut addresses = BTreeMap::new();
    for (address, kind, has_sources) in cluster_ips.chain(vips).chain(external_ips) {
        if families.contains(&address.is_ipv4()) {
            addresses.entry(address).or_insert((kind, has_sources));
        }
    }
    let mut claims = Vec::new();
    for (position, port) in service.ports.iter().enumerate() {
        let claim =
            |kind, has_sources| Claim { kind, service: Arc::clone(service), position, has_sources };
        claims.extend(addresses.iter().map(|(address, (kind, has_sources))| {
            (Place::Port(*address, port.port, port.protocol), claim(*kind, *has_sources))
        }));
        for is_v4 in port.node_port.iter().flat_map(|_| &families) {
            let family = if *is_v4 { Family::V4 } else { Family::V6 };
            let number = port.node_port.unwrap_or_default();
            let place = Place::NodePort(family, number, port.protocol);
            claims.push((place, claim(Kind::NodePort, false)));
        }
    }
    claims
}

fn backend(at: SocketAddr) -> Backend {
    Backend { address: at.ip(), port: at.port() }
}

//! The naive evaluator: decides one packet by a scan of all objects.
//!
//! It keeps no state and no index, and shares the objects and the model with `service-core`, but no rule. The rules are
//! those of kube-proxy 1.36.3, except that source ranges without a valid one of a family admit no client of it. Start at
//! [`route`].

use service_core::{Backend, Client, DropReason, Packet, RejectReason, Route, World};
use service_objects::{
    Endpoint, Family, IngressMode, Protocol, Service, ServiceKind, ServicePort, Slice,
    TrafficPolicy,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

/// The largest number of backends of one table.
const MOST_BACKENDS: usize = 8_191;

/// The kind of a destination.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    ClusterIp,
    /// An external IP, or a load balancer's address.
    Exact {
        has_source_ranges: bool,
    },
    NodePort,
}

/// A Service's port that serves the destination of a packet.
#[derive(Clone, Copy)]
struct Frontend<'a> {
    kind: Kind,
    service: &'a Service,
    port: &'a ServicePort,
}

/// The usability of a backend. A later state is better.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Unusable,
    /// Serving while it terminates.
    Draining,
    Ready,
}

/// All entries of slices that name one backend.
struct Candidate {
    state: State,
    is_local: bool,
    zone_hints: BTreeSet<String>,
    node_hints: BTreeSet<String>,
}

type Candidates = BTreeMap<Backend, Candidate>;

/// Decides a packet.
pub fn route(world: &World, packet: &Packet) -> Route {
    let Some(frontend) = frontend(world, packet) else {
        return match is_cluster_ip(world, packet.destination) {
            true => Route::Reject(RejectReason::NoSuchPort),
            false => Route::NotService,
        };
    };
    // Before any look at endpoints, and for every client.
    if frontend.kind == (Kind::Exact { has_source_ranges: true })
        && !is_in_source_ranges(frontend.service, packet.source)
    {
        return Route::Drop(DropReason::SourceRange);
    }
    let candidates = candidates(world, frontend, packet);
    if candidates.values().all(|candidate| candidate.state == State::Unusable) {
        return Route::Reject(RejectReason::NoEndpoints);
    }
    let chosen = match policy(frontend, packet.client) {
        TrafficPolicy::Cluster => cluster_wide(world, &candidates),
        TrafficPolicy::Local => local(&candidates),
    };
    if chosen.is_empty() {
        return Route::Drop(DropReason::NoLocalEndpoints);
    }
    Route::To(chosen.into_iter().take(MOST_BACKENDS).collect())
}

/// True if a client keeps its backend.
pub fn is_affine(world: &World, packet: &Packet) -> bool {
    frontend(world, packet).is_some_and(|frontend| frontend.service.affinity.is_some())
}

/// The frontend of a destination. Of several the best kind wins, then the oldest Service, then the smallest name, then
/// the first port of the list.
fn frontend<'a>(world: &'a World, packet: &Packet) -> Option<Frontend<'a>> {
    let mut claims = Vec::new();
    for service in services(world, packet.destination) {
        for (position, port) in service.ports.iter().enumerate() {
            if let Some(kind) = claim(world, service, port, packet) {
                let rank = match kind {
                    Kind::ClusterIp => 0,
                    Kind::Exact { .. } => 1,
                    Kind::NodePort => 2,
                };
                let order = (rank, &service.created, &service.name, position);
                claims.push((order, Frontend { kind, service, port }));
            }
        }
    }
    claims.sort_by_key(|(order, _)| *order);
    claims.first().map(|(_, frontend)| *frontend)
}

/// The kind as which a Service's port claims the destination of a packet.
fn claim(world: &World, service: &Service, port: &ServicePort, packet: &Packet) -> Option<Kind> {
    let to = packet.destination;
    if port.protocol != packet.protocol {
        return None;
    }
    let is_port = port.port == packet.port;
    if is_port && service.cluster_ips.contains(&to) {
        return Some(Kind::ClusterIp);
    }
    if is_cluster_ip(world, to) {
        // No other kind takes a part of a cluster IP, not even an unused port.
        return None;
    }
    let is_balancer = |ingress: &service_objects::Ingress| {
        ingress.address == to && ingress.mode == IngressMode::Vip
    };
    if is_port && service.ingress.iter().any(is_balancer) {
        return Some(Kind::Exact { has_source_ranges: service.source_ranges.is_some() });
    }
    if is_port && service.external_ips.contains(&to) {
        return Some(Kind::Exact { has_source_ranges: false });
    }
    let is_of_node =
        world.node.addresses.contains(&to) || (packet.client == Client::Node && to.is_loopback());
    (is_of_node && port.node_port == Some(packet.port)).then_some(Kind::NodePort)
}

/// The Services that are served in the family of an address.
fn services(world: &World, address: IpAddr) -> impl Iterator<Item = &Service> {
    let family = Family::of(address);
    world.services.values().map(|service| &**service).filter(move |service| {
        !service.headless
            && service.other_proxy.is_none()
            && service.kind != ServiceKind::ExternalName
            && service.cluster_ips.iter().any(|cluster_ip| Family::of(*cluster_ip) == family)
    })
}

fn is_cluster_ip(world: &World, address: IpAddr) -> bool {
    services(world, address).any(|service| service.cluster_ips.contains(&address))
}

fn is_in_source_ranges(service: &Service, source: IpAddr) -> bool {
    service.source_ranges.iter().flatten().any(|range| range.contains(&source))
}

/// The policy for a client. Clients on the node reach external addresses as if they came from a load balancer that
/// knows all nodes.
fn policy(frontend: Frontend<'_>, client: Client) -> TrafficPolicy {
    let service = frontend.service;
    let is_external = service.kind != ServiceKind::ClusterIp || !service.external_ips.is_empty();
    match (frontend.kind, client) {
        (Kind::ClusterIp, _) => service.internal_policy,
        (_, Client::Outside) if is_external => service.external_policy,
        (_, Client::Outside | Client::Node) => TrafficPolicy::Cluster,
    }
}

/// The backends of a frontend, each with its best state.
fn candidates(world: &World, frontend: Frontend<'_>, packet: &Packet) -> Candidates {
    let mut candidates = Candidates::new();
    for (backend, endpoint) in entries(world, frontend, packet) {
        // The checksum of SCTP does not allow a change of the port.
        if packet.protocol == Protocol::Sctp && backend.port != packet.port {
            continue;
        }
        let state = match endpoint {
            Endpoint { ready: true, .. } => State::Ready,
            Endpoint { serving: true, terminating: true, .. } => State::Draining,
            Endpoint { .. } => State::Unusable,
        };
        let is_local = endpoint.node.as_ref() == Some(&world.node.name);
        let candidate = candidates.entry(backend).or_insert_with(|| Candidate {
            state,
            is_local: false,
            zone_hints: BTreeSet::new(),
            node_hints: BTreeSet::new(),
        });
        candidate.is_local |= is_local;
        if state > candidate.state {
            candidate.state = state;
            candidate.zone_hints.clear();
            candidate.node_hints.clear();
        }
        if state == candidate.state {
            candidate.zone_hints.extend(endpoint.zone_hints.iter().cloned());
            candidate.node_hints.extend(endpoint.node_hints.iter().cloned());
        }
    }
    candidates
}

/// The entries of slices for a frontend. Slices of one Service can list an endpoint more than once.
fn entries<'a>(
    world: &'a World,
    frontend: Frontend<'_>,
    packet: &Packet,
) -> Vec<(Backend, &'a Endpoint)> {
    let is_used = |slice: &&Slice| {
        slice.service == frontend.service.name
            && slice.family == Family::of(packet.destination)
            && !slice.headless
            && slice.other_proxy.is_none()
    };
    let mut entries = Vec::new();
    for slice in world.slices.values().map(|slice| &**slice).filter(is_used) {
        for port in &slice.ports {
            if port.name == frontend.port.name && port.protocol == frontend.port.protocol {
                entries.extend(slice.endpoints.iter().map(|endpoint| {
                    (Backend { address: endpoint.address, port: port.port }, endpoint)
                }));
            }
        }
    }
    entries
}

/// Ready backends by the hints of topology, or those that serve while they terminate.
fn cluster_wide(world: &World, candidates: &Candidates) -> BTreeSet<Backend> {
    let ready = in_state(candidates, State::Ready, |_| true);
    if ready.is_empty() {
        return in_state(candidates, State::Draining, |_| true);
    }
    let (node, zone) = (&world.node.name, &world.node.zone);
    let for_node = |candidate: &Candidate| candidate.node_hints.contains(node);
    let for_zone = |candidate: &Candidate| {
        zone.as_ref().is_some_and(|zone| candidate.zone_hints.contains(zone))
    };
    // Hints count only if every ready backend has some.
    let have = |has: fn(&Candidate) -> bool| ready.iter().all(|backend| has(&candidates[backend]));
    let by_node = in_state(candidates, State::Ready, for_node);
    let by_zone = in_state(candidates, State::Ready, for_zone);
    if have(|candidate| !candidate.node_hints.is_empty()) && !by_node.is_empty() {
        by_node
    } else if have(|candidate| !candidate.zone_hints.is_empty()) && !by_zone.is_empty() {
        by_zone
    } else {
        ready
    }
}

/// Ready backends of the node, or those that serve while they terminate. Hints do not count.
fn local(candidates: &Candidates) -> BTreeSet<Backend> {
    let ready = in_state(candidates, State::Ready, |candidate| candidate.is_local);
    match ready.is_empty() {
        true => in_state(candidates, State::Draining, |candidate| candidate.is_local),
        false => ready,
    }
}

fn in_state(
    candidates: &Candidates,
    state: State,
    is_chosen: impl Fn(&Candidate) -> bool,
) -> BTreeSet<Backend> {
    let chosen = candidates.iter().filter(|(_, candidate)| candidate.state == state);
    chosen.filter(|(_, candidate)| is_chosen(candidate)).map(|(backend, _)| *backend).collect()
}

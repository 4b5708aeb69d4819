//! The reasons for which the endpoints of a Service are backends of a frontend, or not.

use super::{
    Index,
    choices::{Candidate, Rule, Selection, State, candidates, is_named, select, unused},
    claims_of, policies,
};
use crate::{EndpointUse, Explanation, MOST_BACKENDS, OutReason, Place, Use};
use service_objects::{Endpoint, Family, ObjectName, Protocol, Slice};
use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

impl Index {
    /// The places that a Service claims, and the other ports of its cluster IPs. Another Service may have such a place:
    /// see [`owner`](Self::owner). A Service that no node serves has none.
    pub fn places(&self, service: &ObjectName) -> Vec<Place> {
        let Some(service) = self.world.services.get(service) else { return Vec::new() };
        let claimed = claims_of(service).into_iter().map(|(place, _)| place);
        let is_own = |at: &IpAddr| {
            let mut services = self.cluster_ips.get(at).into_iter().flatten();
            services.any(|of| Arc::ptr_eq(&of.0, service))
        };
        let addresses = service.cluster_ips.iter().copied().filter(is_own);
        claimed.chain(addresses.map(Place::OtherPorts)).collect()
    }

    /// The slices of a Service.
    pub fn slices(&self, service: &ObjectName) -> impl Iterator<Item = &Arc<Slice>> {
        self.slices.get(service).into_iter().flatten().map(|slice| &slice.0)
    }

    /// Explains the choices of a place, as of the present objects. `None` for a place without a Service, and for the
    /// other ports of a cluster IP.
    pub fn explain(&self, place: &Place) -> Option<Explanation> {
        let (family, number) = match place {
            Place::Port(address, number, _) => (Family::of(*address), *number),
            Place::NodePort(family, number, _) => (*family, *number),
            Place::OtherPorts(_) => return None,
        };
        let claim = self.winner(place)?;
        let service = &claim.service;
        let port = service.ports.get(claim.position)?;
        let only_port = (port.protocol == Protocol::Sctp).then_some(number);
        let node = &self.world.node;
        let slices = || self.slices(&service.name);
        let candidates = candidates(node, slices(), port, family, only_port);
        let policies = policies(service, claim.kind);
        let selections = policies.map(|policy| select(node, &candidates, policy));
        let mut endpoints = Vec::new();
        for slice in slices() {
            let of = |endpoint: &Endpoint, port, uses: [Use; 2]| {
                let [inside, outside] = uses;
                let slice = slice.name.clone();
                EndpointUse { slice, endpoint: endpoint.clone(), port, inside, outside }
            };
            let ports = || slice.ports.iter().filter(|of| is_named(of, port));
            let without_port = ports().next().is_none().then_some(OutReason::NoSuchPort);
            if let Some(reason) = unused(slice, family).or(without_port) {
                let out = |endpoint| of(endpoint, None, [Use::Out(reason); 2]);
                endpoints.extend(slice.endpoints.iter().map(out));
                continue;
            }
            for slice_port in ports().map(|of| of.port) {
                for endpoint in &slice.endpoints {
                    let at = SocketAddr::new(endpoint.address, slice_port);
                    let uses = match only_port.is_none_or(|only| only == slice_port) {
                        true => selections
                            .each_ref()
                            .map(|selection| use_of(at, endpoint, candidates.get(&at), selection)),
                        false => [Use::Out(OutReason::OtherPort); 2],
                    };
                    endpoints.push(of(endpoint, Some(slice_port), uses));
                }
            }
        }
        let [inside, outside] = policies;
        Some(Explanation { port: port.clone(), inside, outside, endpoints })
    }
}

/// The use of an entry for the backend `at`. Another entry of the backend may make it usable.
fn use_of(
    at: SocketAddr,
    endpoint: &Endpoint,
    candidate: Option<&Candidate<'_>>,
    selection: &Selection,
) -> Use {
    let Some(candidate) = candidate else {
        return Use::Out(match endpoint.terminating {
            true => OutReason::Terminating,
            false => OutReason::NotReady,
        });
    };
    if let Ok(position) = selection.backends.binary_search(&at) {
        return match position < MOST_BACKENDS {
            true => Use::In,
            false => Use::Out(OutReason::BeyondLimit),
        };
    }
    Use::Out(match selection.rule {
        Rule::OnNode if !candidate.is_local => OutReason::OtherNode,
        // Within these rules, only the state excludes a backend.
        Rule::OnNode | Rule::BestState => OutReason::Draining,
        Rule::NodeHints | Rule::ZoneHints if candidate.state != State::Ready => OutReason::Draining,
        Rule::NodeHints => OutReason::NodeHint,
        Rule::ZoneHints => OutReason::ZoneHint,
    })
}

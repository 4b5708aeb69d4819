//! The choices of a Service's port in one family: for the policies Cluster and Local.

use crate::{Choice, MOST_BACKENDS, NodeView, OutReason};
use service_objects::{Endpoint, Family, ServicePort, Slice, SlicePort, TrafficPolicy};
use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

#[derive(Clone, Debug)]
pub(super) struct Choices {
    cluster: Choice,
    local: Choice,
    /// The number of endpoints without a place in the largest table.
    pub(super) left_out: usize,
}

impl Choices {
    pub(super) fn of(&self, policy: TrafficPolicy) -> &Choice {
        match policy {
            TrafficPolicy::Cluster => &self.cluster,
            TrafficPolicy::Local => &self.local,
        }
    }
}

/// An endpoint without a use is no candidate. The later state is better.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum State {
    /// Serving while it terminates.
    Draining,
    Ready,
}

/// The entries of slices for one backend.
pub(super) struct Candidate<'a> {
    pub(super) state: State,
    pub(super) is_local: bool,
    /// The entries in the best state, whose hints count.
    entries: Vec<&'a Endpoint>,
}

/// The rule by which backends are selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// Each ready backend has hints for nodes.
    NodeHints,
    /// Each ready backend has hints for zones.
    ZoneHints,
    /// The state alone.
    BestState,
    /// The policy Local.
    OnNode,
}

/// The backends for a policy.
pub(super) struct Selection {
    pub(super) rule: Rule,
    /// Sorted, and without a limit.
    pub(super) backends: Vec<SocketAddr>,
}

/// Computes the choices. With `only_port` backends at other ports do not count.
pub(super) fn choices<'a>(
    node: &NodeView,
    slices: impl Iterator<Item = &'a Arc<Slice>>,
    port: &ServicePort,
    family: Family,
    only_port: Option<u16>,
) -> Choices {
    let candidates = candidates(node, slices, port, family, only_port);
    if candidates.is_empty() {
        return Choices { cluster: Choice::NoEndpoints, local: Choice::NoEndpoints, left_out: 0 };
    }
    let cluster = select(node, &candidates, TrafficPolicy::Cluster).backends;
    let local = select(node, &candidates, TrafficPolicy::Local).backends;
    let left_out = cluster.len().max(local.len()).saturating_sub(MOST_BACKENDS);
    Choices { cluster: choice(cluster), local: choice(local), left_out }
}

/// The usable backends of a Service's port.
pub(super) fn candidates<'a>(
    node: &NodeView,
    slices: impl Iterator<Item = &'a Arc<Slice>>,
    port: &ServicePort,
    family: Family,
    only_port: Option<u16>,
) -> BTreeMap<SocketAddr, Candidate<'a>> {
    let mut candidates: BTreeMap<SocketAddr, Candidate<'a>> = BTreeMap::new();
    // A backend can be the node's by an entry that is not usable.
    let mut local: Vec<SocketAddr> = Vec::new();
    for slice in slices.filter(|slice| unused(slice, family).is_none()) {
        let ports = slice.ports.iter().filter(|of| is_named(of, port));
        for of in ports.filter(|of| only_port.is_none_or(|only| only == of.port)) {
            for endpoint in &slice.endpoints {
                let at = SocketAddr::new(endpoint.address, of.port);
                if endpoint.node.as_ref() == Some(&node.name) {
                    local.push(at);
                }
                if let Some(state) = state_of(endpoint) {
                    let new = || Candidate { state, is_local: false, entries: Vec::new() };
                    candidates.entry(at).or_insert_with(new).add(state, endpoint);
                }
            }
        }
    }
    for at in local {
        if let Some(candidate) = candidates.get_mut(&at) {
            candidate.is_local = true;
        }
    }
    candidates
}

/// The reason for which no frontend of a family uses a slice.
pub(super) fn unused(slice: &Slice, family: Family) -> Option<OutReason> {
    if slice.other_proxy.is_some() {
        Some(OutReason::OtherProxy)
    } else if slice.headless {
        Some(OutReason::Headless)
    } else {
        (slice.family != family).then_some(OutReason::OtherFamily)
    }
}

pub(super) fn is_named(of: &SlicePort, port: &ServicePort) -> bool {
    of.name == port.name && of.protocol == port.protocol
}

/// Selects the backends for a policy.
pub(super) fn select(
    node: &NodeView,
    candidates: &BTreeMap<SocketAddr, Candidate<'_>>,
    policy: TrafficPolicy,
) -> Selection {
    match policy {
        TrafficPolicy::Cluster => cluster_wide(node, candidates),
        TrafficPolicy::Local => Selection {
            rule: Rule::OnNode,
            backends: best(candidates.iter().filter(|(_, candidate)| candidate.is_local)),
        },
    }
}

fn state_of(endpoint: &Endpoint) -> Option<State> {
    if endpoint.ready {
        return Some(State::Ready);
    }
    (endpoint.serving && endpoint.terminating).then_some(State::Draining)
}

impl<'a> Candidate<'a> {
    fn add(&mut self, state: State, endpoint: &'a Endpoint) {
        if state > self.state {
            self.state = state;
            self.entries.clear();
        }
        if state == self.state {
            self.entries.push(endpoint);
        }
    }

    /// `None` without a hint for a node.
    fn is_for_node(&self, node: &NodeView) -> Option<bool> {
        let mut hints = self.entries.iter().flat_map(|entry| &entry.node_hints).peekable();
        hints.peek()?;
        Some(hints.any(|hint| *hint == node.name))
    }

    /// `None` without a hint for a zone.
    fn is_for_zone(&self, node: &NodeView) -> Option<bool> {
        let mut hints = self.entries.iter().flat_map(|entry| &entry.zone_hints).peekable();
        hints.peek()?;
        Some(hints.any(|hint| Some(hint) == node.zone.as_ref()))
    }
}

/// Ready backends by the hints of topology, or those that serve while they terminate.
fn cluster_wide(node: &NodeView, candidates: &BTreeMap<SocketAddr, Candidate<'_>>) -> Selection {
    let is_ready = |(_, candidate): &(&SocketAddr, &Candidate<'_>)| candidate.state == State::Ready;
    let ready = || candidates.iter().filter(is_ready);
    if let Some(backends) = hinted(ready().map(|(at, of)| (*at, of.is_for_node(node)))) {
        return Selection { rule: Rule::NodeHints, backends };
    }
    if let Some(backends) = hinted(ready().map(|(at, of)| (*at, of.is_for_zone(node)))) {
        return Selection { rule: Rule::ZoneHints, backends };
    }
    Selection { rule: Rule::BestState, backends: best(candidates.iter()) }
}

/// The backends that hints select. `None` if a backend has no hint, or if hints select no backend.
fn hinted(backends: impl Iterator<Item = (SocketAddr, Option<bool>)>) -> Option<Vec<SocketAddr>> {
    let mut selected = Vec::new();
    for (at, is_selected) in backends {
        if is_selected? {
            selected.push(at);
        }
    }
    (!selected.is_empty()).then_some(selected)
}

/// The backends in the best state.
fn best<'a>(
    candidates: impl Iterator<Item = (&'a SocketAddr, &'a Candidate<'a>)> + Clone,
) -> Vec<SocketAddr> {
    let state = candidates.clone().map(|(_, candidate)| candidate.state).max();
    let of_state = candidates.filter(|(_, candidate)| Some(candidate.state) == state);
    of_state.map(|(at, _)| *at).collect()
}

fn choice(mut backends: Vec<SocketAddr>) -> Choice {
    if backends.is_empty() {
        return Choice::NoLocalEndpoints;
    }
    backends.truncate(MOST_BACKENDS);
    Choice::Backends(backends.into())
}

//! The report about one Service: its frontends, their backends, and the reason for which each endpoint is in or out.

mod findings;
mod serving;
mod text;

pub(crate) use text::add_unread;

pub use serving::{AgentServices, InForce, Serving};

use serde::Serialize;
use service_core::{Choice, EndpointUse, Explanation, Index, OutReason, Place, Use, World};
use service_objects::{
    Family, Ingress, ObjectName, Problem, Protocol, Service, ServiceKind, ServicePort,
    TrafficPolicy,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};
use view_node::{Severity, Trouble};

/// The objects of the API server, and the state of a node's agent.
#[derive(Clone, Debug, Default)]
pub struct ServiceData {
    index: Index,
    /// The state of the agent of the world's node; `None` without a node.
    pub serving: Option<Serving>,
    /// Objects that a node cannot use, by the Service that they belong to.
    pub unusable: BTreeMap<ObjectName, Vec<Problem>>,
    /// Objects and states that could not be read.
    pub unread: Vec<String>,
}

impl ServiceData {
    /// Compiles the frontends of a world. A node without a name is no node. Then each node uses its own endpoints for
    /// the policy Local, and hints do not count.
    pub fn of(world: World) -> Self {
        let mut index = Index::of(world);
        index.take_changes();
        Self { index, ..Self::default() }
    }

    fn node(&self) -> Option<&str> {
        Some(self.index.world().node.name.as_str()).filter(|name| !name.is_empty())
    }

    /// The names of all Services.
    pub(crate) fn names(&self) -> impl Iterator<Item = &ObjectName> {
        self.index.world().services.keys()
    }
}

/// The report about one Service.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceReport {
    pub service: String,
    #[serde(rename = "type")]
    pub kind: ServiceKind,
    /// The node whose clients are meant; `None` without a node.
    pub node: Option<String>,
    pub zone: Option<String>,
    pub cluster_ips: Vec<IpAddr>,
    pub external_ips: Vec<IpAddr>,
    /// The addresses of the load balancer.
    pub ingress: Vec<Ingress>,
    pub ports: Vec<PortView>,
    pub internal_policy: TrafficPolicy,
    pub external_policy: TrafficPolicy,
    pub health_check_node_port: Option<u16>,
    /// Seconds for which a client keeps its backend; `None` without session affinity.
    pub affinity_seconds: Option<u32>,
    /// Clients of the load balancer's addresses; `None` is every client.
    pub source_ranges: Option<Vec<String>>,
    /// The reason if no node serves the Service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_served: Option<String>,
    pub endpoints: EndpointCount,
    pub frontends: Vec<FrontendView>,
    /// `None` without a node, and for a Service that no node serves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_force: Option<InForce>,
    /// Parts of objects that are not used.
    pub problems: Vec<Problem>,
    /// The worst first.
    pub troubles: Vec<Trouble>,
    /// Objects and states that could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<String>,
}

/// A port of the Service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PortView {
    pub name: String,
    pub port: u16,
    pub protocol: Protocol,
    pub node_port: Option<u16>,
}

/// The numbers of addresses in the slices of the first family of the Service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointCount {
    pub ready: usize,
    pub total: usize,
}

/// A destination of the Service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FrontendView {
    /// Such as `10.96.0.7:80/TCP` or `node port 30080/TCP (IPv4)`.
    pub at: String,
    /// The name of the Service's port.
    pub port: Option<String>,
    /// The Service that has the destination, if it is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taken_by: Option<String>,
    /// The clients that are served; `None` is every client.
    pub sources: Option<Vec<String>>,
    /// `None` if another Service has the destination.
    pub inside: Option<ClientView>,
    pub outside: Option<ClientView>,
    /// The entries of all slices; empty for the other ports of a cluster IP.
    pub endpoints: Vec<EndpointView>,
}

/// The answer to clients on the node, or from outside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientView {
    /// `None` for the other ports of a cluster IP.
    pub policy: Option<TrafficPolicy>,
    pub answer: Answer,
    pub backends: Vec<SocketAddr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Backends,
    /// Rejected.
    NoEndpoints,
    /// Dropped.
    NoLocalEndpoints,
    /// Rejected.
    NoSuchPort,
    /// Without a node: each node uses its own endpoints.
    EachNode,
}

/// An entry of a slice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointView {
    pub slice: String,
    pub address: IpAddr,
    /// `None` if the slice has no port for the frontend.
    pub port: Option<u16>,
    pub node: Option<String>,
    pub zone: Option<String>,
    pub ready: bool,
    pub serving: bool,
    pub terminating: bool,
    pub zone_hints: Vec<String>,
    pub node_hints: Vec<String>,
    /// `in`, or the reason.
    pub inside: &'static str,
    pub outside: &'static str,
    #[serde(skip)]
    uses: [Use; 2],
}

impl ServiceReport {
    /// The report about a Service of the data; `None` if it does not exist.
    pub fn of(data: &ServiceData, name: &ObjectName) -> Option<Self> {
        let index = &data.index;
        let service = index.world().services.get(name)?;
        let places: BTreeSet<Place> = index.places(name).into_iter().collect();
        let mut report = Self {
            service: name.to_string(),
            kind: service.kind,
            node: data.node().map(str::to_owned),
            zone: index.world().node.zone.clone(),
            cluster_ips: service.cluster_ips.clone(),
            external_ips: service.external_ips.clone(),
            ingress: service.ingress.clone(),
            ports: service.ports.iter().map(port).collect(),
            internal_policy: service.internal_policy,
            external_policy: service.external_policy,
            health_check_node_port: service.health_check_node_port,
            affinity_seconds: service.affinity.map(|affinity| affinity.timeout_seconds),
            source_ranges: service.source_ranges.as_deref().map(texts),
            not_served: not_served(service),
            endpoints: count(index, service),
            frontends: places.iter().map(|place| frontend(data, name, place)).collect(),
            in_force: None,
            problems: problems(data, service),
            troubles: Vec::new(),
            unread: data.unread.clone(),
        };
        let serving = data.serving.as_ref().filter(|_| report.not_served.is_none());
        report.in_force = serving.map(|serving| serving.of(name));
        let slices = index.slices(name).count();
        report.troubles = findings::troubles(&report, name, slices);
        Some(report)
    }

    /// The type in Kubernetes.
    pub(crate) fn kind_name(&self) -> &'static str {
        match self.kind {
            ServiceKind::ClusterIp => "ClusterIP",
            ServiceKind::NodePort => "NodePort",
            ServiceKind::LoadBalancer => "LoadBalancer",
            ServiceKind::ExternalName => "ExternalName",
        }
    }

    /// Returns true without a problem that needs a fix.
    pub fn is_good(&self) -> bool {
        self.troubles.iter().all(|trouble| trouble.severity != Severity::Trouble)
    }
}

impl FrontendView {
    /// Returns false for the other ports of a cluster IP.
    pub(crate) fn is_port(&self) -> bool {
        self.port.is_some() || self.taken_by.is_some()
    }
}

fn not_served(service: &Service) -> Option<String> {
    if let Some(proxy) = &service.other_proxy {
        Some(format!("the proxy {proxy} serves it"))
    } else if service.kind == ServiceKind::ExternalName {
        Some("ExternalName: a name in DNS".to_owned())
    } else {
        service.headless.then(|| "headless: clients use the endpoints themselves".to_owned())
    }
}

/// Parts of the Service and of its slices that are not used.
fn problems(data: &ServiceData, service: &Service) -> Vec<Problem> {
    let mut problems = service.problems.clone();
    for slice in data.index.slices(&service.name) {
        problems.extend(slice.problems.iter().map(|of| Problem {
            field: format!("EndpointSlice {}: {}", slice.name.name, of.field),
            cause: of.cause.clone(),
        }));
    }
    problems.extend(data.unusable.get(&service.name).into_iter().flatten().cloned());
    problems
}

fn count(index: &Index, service: &Service) -> EndpointCount {
    let first = index.slices(&service.name).next().map(|slice| slice.family);
    let family = service.cluster_ips.first().map(|at| Family::of(*at)).or(first);
    let mut states: BTreeMap<IpAddr, bool> = BTreeMap::new();
    for slice in index.slices(&service.name).filter(|slice| Some(slice.family) == family) {
        for endpoint in &slice.endpoints {
            *states.entry(endpoint.address).or_default() |= endpoint.ready;
        }
    }
    EndpointCount {
        ready: states.values().filter(|is_ready| **is_ready).count(),
        total: states.len(),
    }
}

fn frontend(data: &ServiceData, name: &ObjectName, place: &Place) -> FrontendView {
    let index = &data.index;
    let owner = index.owner(place).or_else(|| match place {
        // A cluster IP of another Service has all its ports.
        Place::Port(address, ..) => index.owner(&Place::OtherPorts(*address)),
        Place::NodePort(..) | Place::OtherPorts(_) => None,
    });
    let mut view = FrontendView {
        at: place.to_string(),
        port: None,
        taken_by: owner.filter(|owner| *owner != name).map(ToString::to_string),
        sources: None,
        inside: None,
        outside: None,
        endpoints: Vec::new(),
    };
    let compiled = index.frontends().get(place).filter(|_| view.taken_by.is_none());
    let Some(compiled) = compiled else { return view };
    let explanation = index.explain(place);
    let client = |choice: &Choice, policy| client(data, choice, policy);
    view.sources = compiled.sources.as_deref().map(texts);
    view.inside = Some(client(&compiled.inside, explanation.as_ref().map(|of| of.inside)));
    view.outside = Some(client(&compiled.outside, explanation.as_ref().map(|of| of.outside)));
    if let Some(Explanation { port, endpoints, .. }) = explanation {
        view.port = Some(port.name);
        view.endpoints = endpoints.into_iter().map(endpoint).collect();
    }
    view
}

fn port(of: &ServicePort) -> PortView {
    let ServicePort { name, protocol, port, node_port } = of;
    PortView { name: name.clone(), port: *port, protocol: *protocol, node_port: *node_port }
}

fn client(data: &ServiceData, choice: &Choice, policy: Option<TrafficPolicy>) -> ClientView {
    let each_node = data.node().is_none() && policy == Some(TrafficPolicy::Local);
    let (answer, backends) = match choice {
        Choice::NoEndpoints => (Answer::NoEndpoints, Vec::new()),
        Choice::NoSuchPort => (Answer::NoSuchPort, Vec::new()),
        Choice::NoLocalEndpoints | Choice::Backends(_) if each_node => {
            (Answer::EachNode, Vec::new())
        }
        Choice::NoLocalEndpoints => (Answer::NoLocalEndpoints, Vec::new()),
        Choice::Backends(backends) => (Answer::Backends, backends.to_vec()),
    };
    ClientView { policy, answer, backends }
}

fn endpoint(of: EndpointUse) -> EndpointView {
    let EndpointUse { slice, endpoint, port, inside, outside } = of;
    EndpointView {
        slice: slice.to_string(),
        address: endpoint.address,
        port,
        node: endpoint.node,
        zone: endpoint.zone,
        ready: endpoint.ready,
        serving: endpoint.serving,
        terminating: endpoint.terminating,
        zone_hints: endpoint.zone_hints,
        node_hints: endpoint.node_hints,
        inside: word(inside),
        outside: word(outside),
        uses: [inside, outside],
    }
}

fn word(of: Use) -> &'static str {
    match of {
        Use::In => "in",
        Use::Out(reason) => match reason {
            OutReason::OtherProxy => "other_proxy",
            OutReason::Headless => "headless",
            OutReason::OtherFamily => "other_family",
            OutReason::NoSuchPort => "no_such_port",
            OutReason::OtherPort => "other_port",
            OutReason::NotReady => "not_ready",
            OutReason::Terminating => "terminating",
            OutReason::Draining => "draining",
            OutReason::OtherNode => "other_node",
            OutReason::NodeHint => "node_hint",
            OutReason::ZoneHint => "zone_hint",
            OutReason::BeyondLimit => "beyond_limit",
        },
    }
}

fn texts<T: ToString>(all: &[T]) -> Vec<String> {
    all.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests;

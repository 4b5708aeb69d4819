//! Worlds, packets and routes as text.
//!
//! A comparison that fails prints its world in this form, and the vectors have it too: a finding becomes a vector by
//! copy and paste.

mod read;

pub use read::{Vector, read};

use service_core::{DropReason, NodeView, Packet, RejectReason, Route, World};
use service_objects::{
    Endpoint, Family, IngressMode, Service, ServicePort, Slice, SlicePort, TrafficPolicy,
};
use std::{
    fmt::{Display, Write},
    net::SocketAddr,
};

/// One object per line, with its ports and endpoints below it.
pub fn show_world(world: &World) -> String {
    let services = world.services.values().map(|service| show_service(service));
    let slices = world.slices.values().map(|slice| show_slice(slice));
    let objects: String = services.chain(slices).collect();
    show_node(&world.node) + &objects
}

pub fn show_node(node: &NodeView) -> String {
    let mut line = format!("node {}", node.name);
    value(&mut line, "zone", node.zone.as_ref());
    list(&mut line, "at", &node.addresses);
    line + "\n"
}

pub fn show_service(service: &Service) -> String {
    let mut line = format!("service {} {:?}", service.name, service.kind);
    value(&mut line, "created", Some(&service.created).filter(|text| !text.is_empty()));
    flag(&mut line, "headless", service.headless);
    value(&mut line, "other-proxy", service.other_proxy.as_ref());
    list(&mut line, "cluster", &service.cluster_ips);
    list(&mut line, "external", &service.external_ips);
    let ingress = |mode| service.ingress.iter().filter(move |ingress| ingress.mode == mode);
    list(&mut line, "vip", ingress(IngressMode::Vip).map(|ingress| ingress.address));
    list(&mut line, "proxied", ingress(IngressMode::Proxy).map(|ingress| ingress.address));
    match &service.source_ranges {
        Some(ranges) if ranges.is_empty() => flag(&mut line, "ranges=", true),
        ranges => list(&mut line, "ranges", ranges.iter().flatten()),
    }
    flag(&mut line, "internal-local", service.internal_policy == TrafficPolicy::Local);
    flag(&mut line, "external-local", service.external_policy == TrafficPolicy::Local);
    value(&mut line, "affinity", service.affinity.map(|affinity| affinity.timeout_seconds));
    line.push('\n');
    for ServicePort { name, protocol, port, node_port } in &service.ports {
        let name = if name.is_empty() { "-" } else { name };
        let _ = write!(line, "  port {name} {protocol} {port}");
        value(&mut line, "node-port", node_port.as_ref());
        line.push('\n');
    }
    line
}

pub fn show_slice(slice: &Slice) -> String {
    let family = match slice.family {
        Family::V4 => "IPv4",
        Family::V6 => "IPv6",
    };
    let mut line = format!("slice {} of {} {family}", slice.name, slice.service);
    flag(&mut line, "headless", slice.headless);
    value(&mut line, "other-proxy", slice.other_proxy.as_ref());
    line.push('\n');
    for SlicePort { name, protocol, port } in &slice.ports {
        let name = if name.is_empty() { "-" } else { name };
        let _ = writeln!(line, "  port {name} {protocol} {port}");
    }
    for endpoint in &slice.endpoints {
        show_endpoint(&mut line, endpoint);
    }
    line
}

fn show_endpoint(line: &mut String, endpoint: &Endpoint) {
    let _ = write!(line, "  endpoint {}", endpoint.address);
    flag(line, "ready", endpoint.ready);
    flag(line, "serving", endpoint.serving);
    flag(line, "terminating", endpoint.terminating);
    value(line, "node", endpoint.node.as_ref());
    value(line, "zone", endpoint.zone.as_ref());
    list(line, "for-zones", &endpoint.zone_hints);
    list(line, "for-nodes", &endpoint.node_hints);
    line.push('\n');
}

pub fn show_packet(packet: &Packet) -> String {
    let Packet { client, source, destination, port, protocol } = *packet;
    let client = match client {
        service_core::Client::Node => "node",
        service_core::Client::Outside => "outside",
    };
    format!("packet {client} {source} > {} {protocol}", SocketAddr::new(destination, port))
}

pub fn show_route(route: &Route) -> String {
    match route {
        Route::NotService => "not a Service".to_owned(),
        Route::Reject(RejectReason::NoEndpoints) => "reject: no endpoints".to_owned(),
        Route::Reject(RejectReason::NoSuchPort) => "reject: no such port".to_owned(),
        Route::Drop(DropReason::NoLocalEndpoints) => "drop: no local endpoints".to_owned(),
        Route::Drop(DropReason::SourceRange) => "drop: source range".to_owned(),
        Route::To(backends) => {
            let backends = backends.iter();
            let texts = backends.map(|to| SocketAddr::new(to.address, to.port).to_string());
            texts.collect::<Vec<_>>().join(" ")
        }
    }
}

fn flag(line: &mut String, name: &str, is_set: bool) {
    if is_set {
        let _ = write!(line, " {name}");
    }
}

fn value(line: &mut String, name: &str, value: Option<impl Display>) {
    if let Some(value) = value {
        let _ = write!(line, " {name}={value}");
    }
}

fn list(line: &mut String, name: &str, values: impl IntoIterator<Item = impl Display>) {
    let values: Vec<_> = values.into_iter().map(|value| value.to_string()).collect();
    value(line, name, Some(values.join(",")).filter(|text| !text.is_empty()));
}

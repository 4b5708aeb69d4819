//! Services and EndpointSlices as messages. Each object has one encoding. Its problems are not sent: the controller reports
//! them.

use crate::{
    decode::{Read, address, addresses, cidr, port_number},
    encode,
    proto::{self, change},
};
use service_objects::{
    ClientAffinity, Endpoint, Family, Ingress, IngressMode, ObjectName, Protocol, Service,
    ServiceKind, ServicePort, Slice, SlicePort, TrafficPolicy,
};

impl From<&Service> for proto::Change {
    fn from(service: &Service) -> Self {
        let ranges = service.source_ranges.as_ref();
        change::Of::Service(proto::Service {
            namespace: service.name.namespace.clone(),
            name: service.name.name.clone(),
            created: service.created.clone(),
            kind: match service.kind {
                ServiceKind::ClusterIp => proto::ServiceKind::ClusterIp,
                ServiceKind::NodePort => proto::ServiceKind::NodePort,
                ServiceKind::LoadBalancer => proto::ServiceKind::LoadBalancer,
                ServiceKind::ExternalName => proto::ServiceKind::ExternalName,
            }
            .into(),
            other_proxy: service.other_proxy.clone(),
            headless: service.headless,
            cluster_ips: service.cluster_ips.iter().map(encode::address).collect(),
            external_ips: service.external_ips.iter().map(encode::address).collect(),
            ingress: service.ingress.iter().map(ingress).collect(),
            has_source_ranges: ranges.is_some(),
            source_ranges: ranges.into_iter().flatten().map(encode::cidr).collect(),
            ports: service.ports.iter().map(service_port).collect(),
            internal_local: service.internal_policy == TrafficPolicy::Local,
            external_local: service.external_policy == TrafficPolicy::Local,
            health_check_node_port: service.health_check_node_port.unwrap_or(0).into(),
            affinity_seconds: service.affinity.map_or(0, |affinity| affinity.timeout_seconds),
        })
        .into()
    }
}

fn ingress(ingress: &Ingress) -> proto::Ingress {
    let is_proxied = ingress.mode == IngressMode::Proxy;
    proto::Ingress { address: encode::address(&ingress.address), is_proxied }
}

fn service_port(port: &ServicePort) -> proto::ServicePort {
    proto::ServicePort {
        name: port.name.clone(),
        protocol: protocol(port.protocol),
        port: port.port.into(),
        node_port: port.node_port.unwrap_or(0).into(),
    }
}

fn protocol(protocol: Protocol) -> i32 {
    match protocol {
        Protocol::Tcp => proto::Protocol::Tcp,
        Protocol::Udp => proto::Protocol::Udp,
        Protocol::Sctp => proto::Protocol::Sctp,
    }
    .into()
}

impl From<&Slice> for proto::Change {
    fn from(slice: &Slice) -> Self {
        change::Of::Slice(proto::EndpointSlice {
            namespace: slice.name.namespace.clone(),
            name: slice.name.name.clone(),
            service: slice.service.name.clone(),
            is_v6: slice.family == Family::V6,
            other_proxy: slice.other_proxy.clone(),
            headless: slice.headless,
            ports: slice.ports.iter().map(slice_port).collect(),
            endpoints: slice.endpoints.iter().map(endpoint).collect(),
            triggered_ms: slice.triggered_ms,
        })
        .into()
    }
}

fn slice_port(port: &SlicePort) -> proto::NamedPort {
    let SlicePort { name, protocol: of, port } = port;
    proto::NamedPort { name: name.clone(), protocol: protocol(*of), port: (*port).into() }
}

fn endpoint(endpoint: &Endpoint) -> proto::ServiceEndpoint {
    proto::ServiceEndpoint {
        address: encode::address(&endpoint.address),
        ready: endpoint.ready,
        serving: endpoint.serving,
        terminating: endpoint.terminating,
        node: endpoint.node.clone(),
        zone: endpoint.zone.clone(),
        zone_hints: endpoint.zone_hints.clone(),
        node_hints: endpoint.node_hints.clone(),
    }
}

/// Reads a Service. A newer controller may send kinds and protocols that are not known here. Such a Service or port is not
/// served, and the rest of the generation applies.
pub(crate) fn read_service(sent: &proto::Service) -> Read<Service> {
    let kind = match proto::ServiceKind::try_from(sent.kind) {
        Ok(proto::ServiceKind::ClusterIp) => ServiceKind::ClusterIp,
        Ok(proto::ServiceKind::NodePort) => ServiceKind::NodePort,
        Ok(proto::ServiceKind::LoadBalancer) => ServiceKind::LoadBalancer,
        Ok(proto::ServiceKind::ExternalName | proto::ServiceKind::Unspecified) | Err(_) => {
            ServiceKind::ExternalName
        }
    };
    let policy = |is_local| if is_local { TrafficPolicy::Local } else { TrafficPolicy::Cluster };
    let ingress = |sent: &proto::Ingress| {
        let mode = if sent.is_proxied { IngressMode::Proxy } else { IngressMode::Vip };
        Ok(Ingress { address: address(&sent.address)?, mode })
    };
    let ranges = sent.source_ranges.iter().map(cidr).collect::<Read<Vec<_>>>()?;
    let affinity = Some(sent.affinity_seconds).filter(|seconds| *seconds > 0);
    Ok(Service {
        name: ObjectName::new(&sent.namespace, &sent.name),
        created: sent.created.clone(),
        kind,
        other_proxy: sent.other_proxy.clone(),
        headless: sent.headless,
        cluster_ips: addresses(&sent.cluster_ips)?,
        external_ips: addresses(&sent.external_ips)?,
        ingress: sent.ingress.iter().map(ingress).collect::<Read<_>>()?,
        source_ranges: sent.has_source_ranges.then_some(ranges),
        ports: sent
            .ports
            .iter()
            .filter_map(|port| read_service_port(port).transpose())
            .collect::<Read<_>>()?,
        internal_policy: policy(sent.internal_local),
        external_policy: policy(sent.external_local),
        health_check_node_port: read_port(sent.health_check_node_port)?,
        affinity: affinity.map(|timeout_seconds| ClientAffinity { timeout_seconds }),
        problems: Vec::new(),
    })
}

fn read_service_port(sent: &proto::ServicePort) -> Read<Option<ServicePort>> {
    let Some(protocol) = read_protocol(sent.protocol) else { return Ok(None) };
    let (port, node_port) = (port_number(sent.port)?, read_port(sent.node_port)?);
    Ok(Some(ServicePort { name: sent.name.clone(), protocol, port, node_port }))
}

/// A port; `None` for 0.
fn read_port(sent: u32) -> Read<Option<u16>> {
    Ok(Some(port_number(sent)?).filter(|port| *port > 0))
}

/// `None` for a protocol that is not known here.
fn read_protocol(sent: i32) -> Option<Protocol> {
    match proto::Protocol::try_from(sent) {
        Ok(proto::Protocol::Tcp) => Some(Protocol::Tcp),
        Ok(proto::Protocol::Udp) => Some(Protocol::Udp),
        Ok(proto::Protocol::Sctp) => Some(Protocol::Sctp),
        Ok(proto::Protocol::Unspecified) | Err(_) => None,
    }
}

pub(crate) fn read_slice(sent: &proto::EndpointSlice) -> Read<Slice> {
    let port = |sent: &proto::NamedPort| {
        let (name, port) = (sent.name.clone(), port_number(sent.port)?);
        Ok(read_protocol(sent.protocol).map(|protocol| SlicePort { name, protocol, port }))
    };
    Ok(Slice {
        name: ObjectName::new(&sent.namespace, &sent.name),
        service: ObjectName::new(&sent.namespace, &sent.service),
        family: if sent.is_v6 { Family::V6 } else { Family::V4 },
        other_proxy: sent.other_proxy.clone(),
        headless: sent.headless,
        ports: sent.ports.iter().filter_map(|of| port(of).transpose()).collect::<Read<_>>()?,
        endpoints: sent.endpoints.iter().map(read_endpoint).collect::<Read<_>>()?,
        triggered_ms: sent.triggered_ms,
        problems: Vec::new(),
    })
}

fn read_endpoint(sent: &proto::ServiceEndpoint) -> Read<Endpoint> {
    Ok(Endpoint {
        address: address(&sent.address)?,
        ready: sent.ready,
        serving: sent.serving,
        terminating: sent.terminating,
        node: sent.node.clone(),
        zone: sent.zone.clone(),
        zone_hints: sent.zone_hints.clone(),
        node_hints: sent.node_hints.clone(),
    })
}

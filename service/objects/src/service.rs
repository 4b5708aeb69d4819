//! A Service.

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::{fmt, net::IpAddr};

/// Assigns a Service to another proxy than the node's.
pub const PROXY_LABEL: &str = "service.kubernetes.io/service-proxy-name";
/// Marks a Service whose clients use the endpoints' addresses, though it has a cluster IP.
pub const HEADLESS_LABEL: &str = "service.kubernetes.io/headless";

/// Namespace and name of a Service or of an EndpointSlice.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectName {
    pub namespace: String,
    pub name: String,
}

impl ObjectName {
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    #[default]
    Tcp,
    Udp,
    Sctp,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        })
    }
}

/// `spec.type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub enum ServiceKind {
    #[default]
    #[serde(rename = "ClusterIP")]
    ClusterIp,
    NodePort,
    LoadBalancer,
    /// A name in DNS, which no proxy serves.
    ExternalName,
}

/// `internalTrafficPolicy` or `externalTrafficPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub enum TrafficPolicy {
    #[default]
    Cluster,
    /// Only endpoints on the node that receives the packet.
    Local,
}

/// `status.loadBalancer.ingress[].ipMode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub enum IngressMode {
    /// The load balancer keeps its address as destination, so a node may serve it.
    #[default]
    #[serde(rename = "VIP")]
    Vip,
    /// The load balancer sends to node ports or pods. Packets to its address must reach it.
    Proxy,
}

/// An address of the Service's load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Ingress {
    pub address: IpAddr,
    pub mode: IngressMode,
}

/// `sessionAffinity: ClientIP`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ClientAffinity {
    /// A client without packets for so long gets a new choice.
    pub timeout_seconds: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ServicePort {
    /// Empty for the single unnamed port. Slices have the same name.
    pub name: String,
    pub protocol: Protocol,
    pub port: u16,
    pub node_port: Option<u16>,
}

/// A part of an object that is not used, and its cause.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Problem {
    /// The field, such as `spec.externalIPs[0]`.
    pub field: String,
    pub cause: String,
}

/// A Service as a proxy reads it. Target ports are not part of it: slices have resolved ports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    pub name: ObjectName,
    /// `metadata.creationTimestamp`, whose text sorts by time. An address that two Services claim belongs to the older one.
    pub created: String,
    pub kind: ServiceKind,
    /// The value of [`PROXY_LABEL`]. Another proxy serves the Service.
    pub other_proxy: Option<String>,
    /// `clusterIP: None`, or [`HEADLESS_LABEL`].
    pub headless: bool,
    /// At most one of each family.
    pub cluster_ips: Vec<IpAddr>,
    pub external_ips: Vec<IpAddr>,
    pub ingress: Vec<Ingress>,
    /// Clients of the load balancer's addresses. `None` is every client. Of each family only its own ranges count; a list
    /// without a valid range of a family admits no client of that family.
    pub source_ranges: Option<Vec<IpNet>>,
    pub ports: Vec<ServicePort>,
    pub internal_policy: TrafficPolicy,
    pub external_policy: TrafficPolicy,
    /// Set for a load balancer with external policy Local.
    pub health_check_node_port: Option<u16>,
    pub affinity: Option<ClientAffinity>,
    pub problems: Vec<Problem>,
}

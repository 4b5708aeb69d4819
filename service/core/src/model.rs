//! The input, and the answer for a packet.

use serde::Serialize;
use service_objects::{ObjectName, Protocol, Service, Slice};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

/// The node that receives the packets.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize)]
pub struct NodeView {
    pub name: String,
    /// The label `topology.kubernetes.io/zone`.
    pub zone: Option<String>,
    /// Addresses at which the node serves node ports: those of all its ENIs that are no pod's.
    pub addresses: BTreeSet<IpAddr>,
}

/// All objects of the cluster, and one node.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct World {
    pub node: NodeView,
    pub services: BTreeMap<ObjectName, Arc<Service>>,
    pub slices: BTreeMap<ObjectName, Arc<Slice>>,
}

/// The place of a packet's sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Client {
    /// A pod or a process of the node.
    Node,
    /// The packet came through an ENI.
    Outside,
}

/// The first packet of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Packet {
    pub client: Client,
    pub source: IpAddr,
    pub destination: IpAddr,
    pub port: u16,
    pub protocol: Protocol,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Backend {
    pub address: IpAddr,
    pub port: u16,
}

/// The client receives an error: a TCP reset, or ICMP port unreachable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum RejectReason {
    /// No endpoint in the cluster is ready, or serving while it terminates.
    NoEndpoints,
    /// A cluster IP without this port.
    NoSuchPort,
}

/// The packet disappears.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum DropReason {
    /// The policy is Local, and all endpoints are on other nodes. A load balancer then chooses another node.
    NoLocalEndpoints,
    /// The client is outside the load balancer's source ranges.
    SourceRange,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Route {
    /// No Service of this node has the destination.
    NotService,
    /// One of these, each with the same share; never empty.
    To(BTreeSet<Backend>),
    Reject(RejectReason),
    Drop(DropReason),
}

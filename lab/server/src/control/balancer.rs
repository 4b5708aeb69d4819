//! Messages about load balancers and the client outside the VPC.

use config_model::Span;
use lab_cloud::{HealthCheck, TargetState};
use lab_fabric::Transport;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A port of a load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listener {
    pub port: u16,
    /// The node port, or the port of targets that are addresses.
    pub target_port: u16,
    pub transport: Transport,
}

/// A load balancer to be made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BalancerSpec {
    pub name: String,
    pub listeners: Vec<Listener>,
    pub check: HealthCheck,
    pub deregistration_delay: Span,
    /// All nodes, or all addresses, such as those of pods; empty takes all nodes of the lab.
    pub targets: Vec<String>,
}

/// Action on the targets of a load balancer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "kebab-case")]
pub enum BalancerOrder {
    /// Give these targets new connections once they are healthy.
    Register { targets: Vec<String> },
    /// Give these targets no new connections.
    Deregister { targets: Vec<String> },
}

/// A load balancer as the lab shows it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BalancerView {
    pub name: String,
    pub address: Ipv4Addr,
    /// `None` in a VPC without IPv6.
    pub address_v6: Option<Ipv6Addr>,
    pub listeners: Vec<Listener>,
    pub check: HealthCheck,
    pub targets: Vec<TargetView>,
}

/// A target as the lab shows it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TargetView {
    /// Name of a node, or an address.
    pub target: String,
    /// The primary IPv4 address of a node, or the address of the target; none if the node is terminated.
    pub address: Option<IpAddr>,
    pub state: TargetState,
    /// True if new connections can get this target.
    pub receives: bool,
}

/// The client outside the VPC, and its ways to nodes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClientView {
    /// Addresses of the client's link.
    pub addresses: Vec<IpAddr>,
    /// Further addresses that a program there can bind.
    pub further: ipnet::Ipv4Net,
    pub nodes: Vec<PublicNode>,
}

/// A node as a client outside the VPC reaches it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PublicNode {
    pub node: String,
    pub address: Option<Ipv4Addr>,
}

//! Instance types and their network limits.

use serde::Serialize;

/// What runs under the instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Hypervisor {
    /// Nitro.
    Nitro,
    /// Xen.
    Xen,
    /// Nothing: bare metal has no hypervisor.
    None,
}

/// A network card of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct NetworkCard {
    /// Its index.
    pub index: u16,
    /// How many ENIs it takes.
    pub maximum_network_interfaces: u16,
}

/// An instance type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InstanceType {
    /// For example `c5.xlarge`.
    pub name: String,
    /// What runs under it.
    pub hypervisor: Hypervisor,
    /// Whether it is bare metal.
    pub bare_metal: bool,
    /// IPv4 addresses per ENI, the primary among them.
    pub ipv4_per_interface: u16,
    /// IPv6 addresses per ENI.
    pub ipv6_per_interface: u16,
    /// Its cards; every type has at least card 0.
    pub cards: Vec<NetworkCard>,
}

//! The host end of a pod's interface.

use crate::{EniId, Mac, Mark, TableId, registry};
use std::{collections::BTreeSet, net::IpAddr};

/// The host end of one interface of a pod: what a datapath attaches to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostLink {
    /// The link's name. It may change; `ifindex` does not.
    pub name: String,
    /// The link's number in the host's network namespace.
    pub ifindex: u32,
    /// The link's own Ethernet address, which the pod sees as its gateway's.
    pub mac: Option<Mac>,
    /// The pod's addresses on this interface.
    pub addresses: BTreeSet<IpAddr>,
    /// The interface's number in the pod: 0 has the default route in table main.
    pub number: u8,
    /// The route table of the ENI that carries the addresses; `None` where it is not known.
    pub table: Option<TableId>,
    /// The firewall mark that selects the table, where rules are compact.
    pub mark: Option<Mark>,
    /// The ENI; `None` where it is not known, for example after a restart of the agent.
    pub eni: Option<EniId>,
    /// Connection of the link on the host.
    pub host_end: HostEnd,
}

/// Connection of the host end of a pod's interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostEnd {
    /// The host routes to it.
    Routed,
    /// The host end is a port of a bridge.
    Bridged {
        /// The port's name on the bridge.
        port: String,
    },
}

/// Mode in which the host reaches its pods. The daemon decides it; plugin, planner and repair pass follow it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum HostEndMode {
    /// Host routes lead to the host veths.
    #[default]
    Routed,
    /// Host veths are ports of a bridge. Host routes lead to the bridge's gateway port.
    Bridged {
        /// The link's name. It is an internal port of the bridge without an address.
        gateway_port: String,
    },
}

impl HostEndMode {
    /// The mode bridged with the gateway port of a node whose host veths have this prefix.
    pub fn bridged(veth_prefix: &str) -> Self {
        Self::Bridged { gateway_port: format!("{veth_prefix}{}", registry::GATEWAY_PORT_SUFFIX) }
    }

    /// `None` in mode routed.
    pub fn gateway_port(&self) -> Option<&str> {
        match self {
            Self::Routed => None,
            Self::Bridged { gateway_port } => Some(gateway_port),
        }
    }
}

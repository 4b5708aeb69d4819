//! The content of the annotation of a pod with a branch ENI.

use config_model::{EniId, Mac};
use ipnet::{Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A branch ENI in the annotation of the VPC resource controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BranchEni {
    pub eni: EniId,
    pub mac: Mac,
    /// The pod's IPv4 address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Ipv4Addr>,
    /// The pod's IPv6 address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address_v6: Option<Ipv6Addr>,
    /// The VLAN on the trunk.
    pub vlan: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnet_cidr: Option<Ipv4Net>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnet_cidr_v6: Option<Ipv6Net>,
}

impl BranchEni {
    /// The pod's addresses of both families.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + use<> {
        let v4 = self.address.map(IpAddr::V4);
        v4.into_iter().chain(self.address_v6.map(IpAddr::V6))
    }
}

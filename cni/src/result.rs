//! The result of an ADD, in the words of each version of the specification.

use crate::version::SpecVersion;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// The result of an ADD. Later plugins of the chain may have added to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddResult {
    /// The links, host ends included.
    #[serde(default)]
    pub interfaces: Vec<Interface>,
    /// The addresses, each on one of the links.
    #[serde(default)]
    pub ips: Vec<IpConfig>,
    /// The routes in the pod.
    #[serde(default)]
    pub routes: Vec<Route>,
    /// DNS settings. Our results have none.
    #[serde(default)]
    pub dns: Dns,
}

/// One link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Its name in its namespace.
    pub name: String,
    /// Its hardware address; not always one, in results of other plugins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// Its MTU; from 1.1.0 on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// The path of its namespace; none for the host's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// The socket of a user-space interface; from 1.1.0 on.
    #[serde(default, rename = "socketPath", skip_serializing_if = "Option::is_none")]
    pub socket_path: Option<String>,
    /// The device behind it; from 1.1.0 on.
    #[serde(default, rename = "pciID", skip_serializing_if = "Option::is_none")]
    pub pci_id: Option<String>,
}

/// One address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IpConfig {
    /// `4` or `6`; written up to 0.4.0, read from anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The address with its prefix length.
    pub address: IpNet,
    /// The gateway of its subnet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// The index of its link in `interfaces`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    pub dst: IpNet,
    /// The next hop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gw: Option<IpAddr>,
    /// Its MTU; from 1.1.0 on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Its largest segment; from 1.1.0 on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advmss: Option<u32>,
    /// Its priority; from 1.1.0 on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// Its table; from 1.1.0 on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
    /// Its scope (253 is *link*); from 1.1.0 on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<u32>,
}

/// Name resolution, as other plugins of the chain put it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dns {
    /// Servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nameservers: Vec<String>,
    /// The local domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Search list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub search: Vec<String>,
    /// Resolver options.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

impl Route {
    /// A route by a next hop.
    pub fn via(dst: IpNet, gw: IpAddr) -> Self {
        Self { gw: Some(gw), ..Self::direct(dst) }
    }

    /// A route without a next hop.
    pub fn direct(dst: IpNet) -> Self {
        Self { dst, gw: None, mtu: None, advmss: None, priority: None, table: None, scope: None }
    }
}

impl AddResult {
    /// Appends what one plugin made to what the plugins before it made.
    pub fn append(&mut self, added: AddResult) {
        let shift = self.interfaces.len();
        self.interfaces.extend(added.interfaces);
        self.ips.extend(
            added
                .ips
                .into_iter()
                .map(|ip| IpConfig { interface: ip.interface.map(|index| index + shift), ..ip }),
        );
        self.routes.extend(added.routes);
    }

    /// The addresses on the pod's interface of this name; all of them if the result names no links.
    pub fn addresses_of(&self, ifname: &str) -> impl Iterator<Item = &IpConfig> {
        self.ips.iter().filter(move |ip| match ip.interface {
            None => true,
            Some(index) => self.interfaces.get(index).is_some_and(|link| {
                link.name == ifname && link.sandbox.as_deref().is_some_and(|path| !path.is_empty())
            }),
        })
    }

    /// The result as a runtime of this version reads it.
    pub fn to_json(&self, version: SpecVersion) -> Vec<u8> {
        #[derive(Serialize)]
        struct Versioned {
            #[serde(rename = "cniVersion")]
            cni_version: &'static str,
            #[serde(flatten)]
            result: AddResult,
        }
        let result = self.clone().in_words_of(version);
        serde_json::to_vec(&Versioned { cni_version: version.as_str(), result })
            .expect("a result holds nothing that JSON cannot")
    }

    fn in_words_of(mut self, version: SpecVersion) -> Self {
        for ip in &mut self.ips {
            let family = if ip.address.addr().is_ipv4() { "4" } else { "6" };
            ip.version = (version <= SpecVersion::V0_4_0).then(|| family.to_owned());
        }
        if version < SpecVersion::V1_1_0 {
            for link in &mut self.interfaces {
                (link.mtu, link.socket_path, link.pci_id) = (None, None, None);
            }
            for route in &mut self.routes {
                *route = Route { gw: route.gw, ..Route::direct(route.dst) };
            }
        }
        self
    }
}

#[cfg(test)]
mod tests;

//! The connectivity test of a whole cluster: its nodes, its tests and its results.

mod matrix;
mod sample;
mod steps;
mod table;

use serde::{Deserialize, Serialize};
use view_text::counted;

pub use matrix::{Chosen, Failure, Matrix, Row};
pub use sample::{for_nodes, sample};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Column {
    SameNode,
    OtherNodes,
    /// Packets of the size of the interface's MTU.
    Mtu,
    /// IPv6 addresses of pods and Services that also have an IPv4 address.
    Ipv6,
    Service,
    NodePort,
    /// An address of `spec.externalIPs` of a Service.
    ExternalIp,
    /// An address of a load balancer in the status of a Service.
    LoadBalancer,
    HostPort,
    /// Services, from a pod in the host's network.
    HostNetwork,
    Host,
    /// A DNS name of the cluster.
    Dns,
    /// A target outside the VPC.
    Internet,
}

impl Column {
    /// All columns in the order of the table.
    pub const ALL: [Self; 13] = [
        Self::SameNode,
        Self::OtherNodes,
        Self::Mtu,
        Self::Ipv6,
        Self::Service,
        Self::NodePort,
        Self::ExternalIp,
        Self::LoadBalancer,
        Self::HostPort,
        Self::HostNetwork,
        Self::Host,
        Self::Dns,
        Self::Internet,
    ];

    /// Returns the name in documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::SameNode => "same-node",
            Self::OtherNodes => "other-nodes",
            Self::Mtu => "mtu",
            Self::Ipv6 => "ipv6",
            Self::Service => "service",
            Self::NodePort => "node-port",
            Self::ExternalIp => "external-ip",
            Self::LoadBalancer => "load-balancer",
            Self::HostPort => "host-port",
            Self::HostNetwork => "host-network",
            Self::Host => "host",
            Self::Dns => "dns",
            Self::Internet => "internet",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum How {
    Tcp,
    /// HTTP to a probe.
    Http,
    /// Datagrams to a probe, with their round-trip time.
    Udp,
    /// A datagram to a probe of the size of the interface's MTU, which no router may fragment.
    Large,
    /// A DNS lookup.
    Dns,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Try {
    pub how: How,
    /// Host and port; for a lookup only the name.
    pub to: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Outcome {
    /// True if the test passed.
    pub good: bool,
    /// The answer or the error.
    pub said: String,
    /// The median round-trip time; `None` if the test does not measure it.
    pub micros: Option<u64>,
    /// The size of the largest packet that arrived; `None` if the test does not measure it.
    pub mtu: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Site {
    pub node: String,
    pub address: Option<String>,
    /// The name of the pod that runs the tests.
    pub probe: Option<String>,
    /// The addresses of the second pod on the node, which is only a target. Empty if it is not ready.
    pub targets: Vec<String>,
    /// The reason if one of the two pods is missing.
    pub why_not: Option<String>,
    /// The name of the pod in the host's network that runs tests, or the reason why there is none; `None` to skip the
    /// tests.
    pub host_probe: Option<Result<String, String>>,
}

/// Targets besides the probes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Around {
    pub port: u16,
    /// The addresses of the Service; a dual-stack Service has two.
    pub services: Vec<String>,
    pub service_port: u16,
    /// The external addresses of a Service.
    pub external: Vec<String>,
    /// The addresses of a Service's load balancer.
    pub balancer: Vec<String>,
    pub node_port: Option<u16>,
    /// A port of the nodes that leads to their targets; `None` to skip the test.
    pub host_port: Option<u16>,
    /// A name that the cluster's DNS resolves.
    pub name: String,
    /// Host and port outside the VPC; `None` to skip the test.
    pub internet: Option<String>,
}

/// Returns the tests of one site's probe.
pub fn tries(site: &Site, all: &[Site], around: &Around) -> Vec<(Column, Try)> {
    let mut tries = Vec::new();
    let mut add = |column, how, to: String| tries.push((column, Try { how, to }));
    for (column, address) in pods(site, all) {
        let to = host_and_port(address, around.port);
        add(column, How::Http, to.clone());
        add(column, How::Udp, to.clone());
        add(Column::Mtu, How::Large, to);
    }
    for (column, addresses) in [
        (Column::Service, &around.services),
        (Column::ExternalIp, &around.external),
        (Column::LoadBalancer, &around.balancer),
    ] {
        for (index, address) in addresses.iter().enumerate() {
            let column = if index == 0 { column } else { further(address, column) };
            add(column, How::Http, host_and_port(address, around.service_port));
        }
    }
    let next = others(site, all).find(|other| other.why_not.is_none());
    for (column, port) in
        [(Column::NodePort, around.node_port), (Column::HostPort, around.host_port)]
    {
        let Some(port) = port else { continue };
        for node in [Some(site), next].into_iter().flatten() {
            if let Some(address) = &node.address {
                add(column, How::Http, host_and_port(address, port));
            }
        }
    }
    if let Some(address) = &site.address {
        add(Column::Host, How::Tcp, host_and_port(address, KUBELET));
    }
    add(Column::Dns, How::Dns, around.name.clone());
    if let Some(internet) = &around.internet {
        add(Column::Internet, How::Tcp, internet.clone());
    }
    tries
}

/// Returns the tests of one site's pod in the host's network.
pub fn host_tries(site: &Site, all: &[Site], around: &Around) -> Vec<(Column, Try)> {
    let next = others(site, all).find(|other| other.why_not.is_none());
    let nodes = [Some(site), next].into_iter().flatten().filter_map(|node| node.address.as_ref());
    let node_ports =
        around.node_port.into_iter().flat_map(|port| nodes.clone().map(move |at| (at, port)));
    let services = [&around.services, &around.external, &around.balancer];
    let services = services.into_iter().flatten().map(|at| (at, around.service_port));
    let http = services
        .chain(node_ports)
        .map(|(at, port)| Try { how: How::Http, to: host_and_port(at, port) });
    let lookup = Try { how: How::Dns, to: around.name.clone() };
    http.chain([lookup]).map(|it| (Column::HostNetwork, it)).collect()
}

/// Returns the tests as failed for one reason.
pub fn failed(wanted: Vec<(Column, Try)>, why: &str) -> Vec<(Column, Try, Outcome)> {
    let outcome = Outcome { said: why.to_owned(), ..Outcome::default() };
    wanted.into_iter().map(|(column, what)| (column, what, outcome.clone())).collect()
}

/// Returns the pods that the site's probe connects to.
fn pods<'a>(site: &'a Site, all: &'a [Site]) -> impl Iterator<Item = (Column, &'a str)> {
    let of = |column, site: &'a Site| {
        site.targets.iter().enumerate().map(move |(index, address)| {
            let column = if index == 0 { column } else { further(address, column) };
            (column, address.as_str())
        })
    };
    let others = others(site, all).flat_map(move |other| of(Column::OtherNodes, other));
    of(Column::SameNode, site).chain(others)
}

/// Returns the column of a further address of a dual-stack pod or Service.
fn further(address: &str, column: Column) -> Column {
    if address.contains(':') { Column::Ipv6 } else { column }
}

/// Joins tests and results.
///
/// # Errors
/// A result is missing.
pub fn answered(
    wanted: Vec<(Column, Try)>,
    outcomes: Vec<Outcome>,
) -> Result<Vec<(Column, Try, Outcome)>, String> {
    let (requested, answered) = (wanted.len(), outcomes.len());
    if requested != answered {
        return Err(format!(
            "the probe answered {answered} of {}; use an image of this tool's version",
            counted(requested, "test", "tests")
        ));
    }
    Ok(wanted.into_iter().zip(outcomes).map(|((column, what), it)| (column, what, it)).collect())
}

/// Returns the nodes after this one in cyclic order. In a large cluster each node tests some, and all are tested.
fn others<'a>(site: &Site, all: &'a [Site]) -> impl Iterator<Item = &'a Site> + use<'a> {
    let here = all.iter().position(|it| it.node == site.node).unwrap_or_default();
    let count = all.len().saturating_sub(1).min(OTHERS);
    all.iter().cycle().skip(here + 1).take(count)
}

fn host_and_port(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// The kubelet's port on each node.
const KUBELET: u16 = 10250;
/// Limit of other nodes that each node tests.
const OTHERS: usize = 8;

#[cfg(test)]
mod tests;

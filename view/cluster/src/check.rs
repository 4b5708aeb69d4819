//! The connectivity test of a whole cluster: its tests and its results.

mod matrix;

use serde::{Deserialize, Serialize};

pub use matrix::{Failure, Matrix, Row};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Column {
    SameNode,
    OtherNodes,
    Service,
    NodePort,
    Host,
    /// A DNS name of the cluster.
    Dns,
    /// A target outside the VPC.
    Internet,
}

impl Column {
    /// All columns in the order of the table.
    pub const ALL: [Self; 7] = [
        Self::SameNode,
        Self::OtherNodes,
        Self::Service,
        Self::NodePort,
        Self::Host,
        Self::Dns,
        Self::Internet,
    ];
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum How {
    Tcp,
    /// HTTP to a probe.
    Http,
    Udp,
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
    pub millis: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Site {
    pub node: String,
    pub address: Option<String>,
    /// The name of the pod that runs the tests.
    pub probe: Option<String>,
    /// The address of the second pod on the node, which is only a target.
    pub target: Option<String>,
    /// The reason if one of the two pods is missing.
    pub why_not: Option<String>,
}

/// Targets besides the probes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Around {
    pub port: u16,
    pub service: Option<String>,
    pub service_port: u16,
    pub node_port: Option<u16>,
    /// A name that the cluster's DNS resolves.
    pub name: String,
    /// Host and port outside the VPC; `None` to skip the test.
    pub internet: Option<String>,
}

/// Returns the tests of one site's probe.
pub fn tries(site: &Site, all: &[Site], around: &Around) -> Vec<(Column, Try)> {
    let mut tries = Vec::new();
    let mut add = |column, how, to: String| tries.push((column, Try { how, to }));
    let mut both = |column, address: &str| {
        let to = host_and_port(address, around.port);
        add(column, How::Http, to.clone());
        add(column, How::Udp, to);
    };
    if let Some(target) = &site.target {
        both(Column::SameNode, target);
    }
    others(site, all).filter_map(|other| other.target.as_deref()).for_each(|target| {
        both(Column::OtherNodes, target);
    });
    if let Some(service) = &around.service {
        add(Column::Service, How::Http, host_and_port(service, around.service_port));
    }
    if let Some(port) = around.node_port {
        let next = others(site, all).find(|other| other.why_not.is_none());
        for address in [Some(site), next].into_iter().flatten().filter_map(|it| it.address.as_ref())
        {
            add(Column::NodePort, How::Http, host_and_port(address, port));
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
            "the probe answered {answered} of {requested} tests; use an image of this tool's version"
        ));
    }
    Ok(wanted.into_iter().zip(outcomes).map(|((column, what), it)| (column, what, it)).collect())
}

/// Returns the nodes after this one in cyclic order. In a large cluster each node tests some, and all are tested.
fn others<'a>(site: &Site, all: &'a [Site]) -> impl Iterator<Item = &'a Site> {
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

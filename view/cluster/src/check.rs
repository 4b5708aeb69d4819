//! The connectivity test of a whole cluster: who tries to reach what, and what came of it.

mod matrix;

use serde::{Deserialize, Serialize};

pub use matrix::{Failure, Matrix, Row};

/// What is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Column {
    /// A pod on the same node.
    SameNode,
    /// Pods on other nodes.
    OtherNodes,
    /// A Service's own address.
    Service,
    /// A Service's port on nodes.
    NodePort,
    /// The node itself.
    Host,
    /// A name of the cluster's.
    Dns,
    /// Beyond the VPC.
    Internet,
}

impl Column {
    /// All of them, as they stand in the table.
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

/// How something is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// A connection is there.
    Tcp,
    /// A probe answers over HTTP.
    Http,
    /// A datagram comes back.
    Udp,
    /// A name has an address.
    Dns,
}

/// One thing to try.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Try {
    /// How.
    pub how: How,
    /// Host and port; of a name, the name.
    pub to: String,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Outcome {
    /// Whether it was as it should be.
    pub good: bool,
    /// What was said, or went wrong.
    pub said: String,
    /// How long it took.
    pub millis: u64,
}

/// A node, and the probes on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// The node.
    pub node: String,
    /// Its own address.
    pub address: Option<String>,
    /// The pod that tries: its name.
    pub probe: Option<String>,
    /// The address of the pod that is tried, beside it.
    pub target: Option<String>,
    /// Why one of the two is missing.
    pub why_not: Option<String>,
}

/// What is there besides the probes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Around {
    /// Where probes listen.
    pub port: u16,
    /// The Service's address.
    pub service: Option<String>,
    /// The Service's port.
    pub service_port: u16,
    /// Its port on nodes.
    pub node_port: Option<u16>,
    /// A name that the cluster's DNS has.
    pub name: String,
    /// Host and port beyond the VPC, if it is to be tried.
    pub internet: Option<String>,
}

/// What the probe of a site is to try.
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

/// Joins what was asked with what was answered.
///
/// # Errors
/// Not every try has an answer.
pub fn answered(
    wanted: Vec<(Column, Try)>,
    outcomes: Vec<Outcome>,
) -> Result<Vec<(Column, Try, Outcome)>, String> {
    let (asked, said) = (wanted.len(), outcomes.len());
    if asked != said {
        return Err(format!(
            "it answered {said} of {asked} tries: its image is of another version than this tool"
        ));
    }
    Ok(wanted.into_iter().zip(outcomes).map(|((column, what), it)| (column, what, it)).collect())
}

/// The nodes after this one, round and round: in a large cluster each tries some, and all are tried.
fn others<'a>(site: &Site, all: &'a [Site]) -> impl Iterator<Item = &'a Site> {
    let here = all.iter().position(|it| it.node == site.node).unwrap_or_default();
    let count = all.len().saturating_sub(1).min(OTHERS);
    all.iter().cycle().skip(here + 1).take(count)
}

fn host_and_port(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Each node's kubelet listens there.
const KUBELET: u16 = 10250;
/// So many other nodes are tried from each.
const OTHERS: usize = 8;

#[cfg(test)]
mod tests;

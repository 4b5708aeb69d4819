//! The use of addresses: subnet, ENI, block, address, pod. And the faults in it.
//!
//! Nodes know their own addresses only. Other users of a subnet, such as load balancers, show up in EC2's count alone.

mod fragments;
mod judge;
mod text;

use crate::{
    affinity::excluded,
    forecast::Forecast,
    objects::{DaemonSet, Node, Pod},
    subnets::{SubnetState, subnets},
};
use fragments::{free_prefixes, size};
use serde::Serialize;
use std::{collections::BTreeMap, net::IpAddr};
use view_node::{Addresses, Eni, Severity, Trouble, UsedAddress};

/// The answers of the API server and the daemons.
#[derive(Clone, Debug, Default)]
pub struct AddressData {
    /// The pods of all namespaces; `None` if they may not be read.
    pub pods: Option<Vec<Pod>>,
    /// All nodes; `None` if they may not be read.
    pub nodes: Option<Vec<Node>>,
    /// The nodes that the user named; empty: all.
    pub named: Vec<String>,
    /// Ferrule's DaemonSets. They decide which nodes should have a daemon.
    pub daemon_sets: Vec<DaemonSet>,
    /// The daemons' documents by node, or the reasons why they were not read.
    pub answers: BTreeMap<String, Result<Addresses, String>>,
    /// Failed calls. They are shown, and nothing is concluded from them.
    pub unasked: Vec<String>,
}

#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AddressReport {
    /// By id.
    pub subnets: Vec<SubnetUse>,
    /// Worst first.
    pub findings: Vec<Trouble>,
    pub unasked: Vec<String>,
    /// The nodes whose daemons answered.
    pub nodes: usize,
}

/// A subnet with the addresses that nodes have there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SubnetUse {
    pub id: String,
    pub zone: Option<String>,
    pub cidr: Option<String>,
    /// EC2's newest count; `None` if no daemon has one.
    pub count: Option<Count>,
    /// Whole /28 that may be free: an upper bound from EC2's count and from the addresses of nodes and their ENIs.
    pub free_prefixes_at_most: Option<u64>,
    /// EC2 refused the last request for a prefix of at least one node.
    pub fragmented: bool,
    /// At least one node there requests prefixes.
    pub prefixes: bool,
    pub forecast: Option<Forecast>,
    pub nodes: usize,
    pub total: u64,
    pub assigned: u64,
    pub cooling: u64,
    pub free: u64,
    pub enis: Vec<EniUse>,
}

/// EC2's count of the addresses of a subnet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Count {
    pub available: u32,
    pub total: u64,
    pub seconds_ago: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EniUse {
    pub node: String,
    #[serde(flatten)]
    pub eni: Eni,
    /// The use of each block of [`Eni::blocks`].
    pub uses: Vec<BlockUse>,
}

/// A secondary address or a prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockUse {
    pub cidr: String,
    pub size: u64,
    pub used: Vec<UsedAddress>,
}

impl AddressReport {
    /// Judges the answers.
    pub fn of(data: &AddressData) -> Self {
        let answered = answered(data);
        let subnets = subnet_uses(&answered);
        let mut findings = judge::findings(data, &answered, &subnets);
        findings.sort_by(|a, b| {
            (a.severity, &a.kind, &a.object).cmp(&(b.severity, &b.kind, &b.object))
        });
        let failed = data.answers.iter().filter_map(|(node, answer)| {
            answer.as_ref().err().map(|why| format!("addresses of {node}: {why}"))
        });
        let unasked =
            data.unasked.iter().cloned().chain(failed).chain(without_daemon(data)).collect();
        Self { subnets, findings, unasked, nodes: answered.len() }
    }

    /// Returns the first of these subnets that no answer has.
    pub fn unknown_subnet<'a>(&self, ids: &'a [String]) -> Option<&'a String> {
        ids.iter().find(|id| self.subnets.iter().all(|subnet| subnet.id != **id))
    }

    /// Keeps the subnets with these ids, and the findings about them. Empty: all.
    #[must_use]
    pub fn only_subnets(mut self, ids: &[String]) -> Self {
        if ids.is_empty() {
            return self;
        }
        self.subnets.retain(|subnet| ids.contains(&subnet.id));
        let of_subnet = |finding: &Trouble| {
            self.subnets.iter().any(|subnet| {
                finding.object == subnet.id || subnet.enis.iter().any(|it| it.concerns(finding))
            })
        };
        let findings = self.findings.iter().filter(|it| of_subnet(it)).cloned().collect();
        self.findings = findings;
        self
    }

    /// Keeps the findings that a second look has too. In between, pods come and go. Without an answer in the second look
    /// no finding counts as over.
    #[must_use]
    pub fn confirmed_by(mut self, second: &Self) -> Self {
        let new: Vec<String> =
            second.unasked.iter().filter(|it| !self.unasked.contains(it)).cloned().collect();
        let (confirmed, others): (Vec<_>, Vec<_>) = self.findings.into_iter().partition(|it| {
            let same = |other: &Trouble| (&other.kind, &other.object) == (&it.kind, &it.object);
            second.findings.iter().any(same)
        });
        self.findings = confirmed;
        if !new.is_empty() {
            let open = others.iter();
            self.unasked
                .extend(open.map(|it| format!("a second look at {}: {}", it.object, it.cause)));
        }
        self.unasked.extend(new);
        self
    }

    /// Returns true if no action is necessary, as far as all calls succeeded.
    pub fn is_good(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity != Severity::Trouble)
    }
}

impl EniUse {
    fn concerns(&self, finding: &Trouble) -> bool {
        let address: Option<IpAddr> = finding.object.parse().ok();
        finding.object == self.eni.id
            || self.eni.blocks.contains(&finding.object)
            || address.is_some_and(|address| judge::holds(&self.eni, address))
    }
}

/// The documents by node. A daemon that starts does not know its addresses yet.
fn answered(data: &AddressData) -> BTreeMap<&str, &Addresses> {
    let answers = data.answers.iter();
    answers.filter_map(|(node, answer)| Some((node.as_str(), answer.as_ref().ok()?))).collect()
}

/// The nodes that should have a daemon and have none.
fn without_daemon(data: &AddressData) -> impl Iterator<Item = String> {
    let wanted = data.nodes.iter().flatten().filter(|node| {
        let name = &node.metadata.name;
        (data.named.is_empty() || data.named.contains(name)) && !data.answers.contains_key(name)
    });
    let missing = wanted.filter(|node| excluded(node, &data.daemon_sets).is_none());
    missing.map(|node| {
        let name = &node.metadata.name;
        format!("addresses of {name}: no Ferrule pod runs there; run ferrule status")
    })
}

fn subnet_uses(answered: &BTreeMap<&str, &Addresses>) -> Vec<SubnetUse> {
    let (states, _) = subnets(answered.values().map(|it| (it.subnets.as_slice(), None, None)));
    let mut uses: BTreeMap<String, SubnetUse> =
        states.into_iter().map(|state| (state.id.clone(), of_state(state))).collect();
    for (node, addresses) in answered {
        for eni in addresses.enis.iter().filter(|eni| eni.managed) {
            let of_subnet = uses.entry(eni.subnet.clone()).or_insert_with(|| SubnetUse {
                id: eni.subnet.clone(),
                cidr: eni.subnet_cidr.clone(),
                ..SubnetUse::default()
            });
            add_eni(of_subnet, node, eni, addresses);
        }
    }
    let mut uses: Vec<SubnetUse> = uses.into_values().collect();
    for subnet in &mut uses {
        let known = answered.values().flat_map(|it| &it.enis).filter(|it| it.subnet == subnet.id);
        let available = subnet.count.map(|count| count.available);
        subnet.free_prefixes_at_most = free_prefixes(subnet.cidr.as_deref(), available, known);
        let mut nodes: Vec<&str> = subnet.enis.iter().map(|eni| eni.node.as_str()).collect();
        nodes.dedup();
        subnet.nodes = nodes.len();
    }
    uses
}

fn of_state(state: SubnetState) -> SubnetUse {
    let SubnetState { id, zone, cidr, total, available, seconds_ago, fragmented, forecast, .. } =
        state;
    SubnetUse {
        id,
        zone: Some(zone),
        cidr: Some(cidr),
        count: Some(Count { available, total, seconds_ago }),
        fragmented,
        forecast,
        ..SubnetUse::default()
    }
}

fn add_eni(subnet: &mut SubnetUse, node: &str, eni: &Eni, addresses: &Addresses) {
    subnet.prefixes |= addresses.prefixes;
    subnet.total = subnet.total.saturating_add(eni.total);
    subnet.assigned += u64::from(eni.assigned);
    subnet.cooling += u64::from(eni.cooling);
    subnet.free = subnet.free.saturating_add(eni.free);
    let of_eni = |it: &&UsedAddress| it.eni.as_ref() == Some(&eni.id);
    let used: Vec<(IpAddr, &UsedAddress)> = addresses
        .used
        .iter()
        .filter(of_eni)
        .filter_map(|it| Some((it.address.parse().ok()?, it)))
        .collect();
    let uses = eni.blocks.iter().map(|cidr| {
        let mut here: Vec<_> =
            used.iter().filter(|(address, _)| judge::is_in(cidr, *address)).collect();
        here.sort_by_key(|(address, _)| *address);
        let used = here.into_iter().map(|(_, it)| (*it).clone()).collect();
        BlockUse { cidr: cidr.clone(), size: size(cidr), used }
    });
    subnet.enis.push(EniUse { node: node.to_owned(), eni: eni.clone(), uses: uses.collect() });
}

#[cfg(test)]
mod tests;

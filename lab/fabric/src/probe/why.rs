//! Explanation of a failed pair: missing rules and routes of the nodes, and the fabric's drops.

use super::{End, ProbePlan};
use crate::{Counters, EniSpec, Fabric, FabricError, tool};
use config_model::{EniId, TableId, registry};
use serde::Deserialize;
use std::{collections::BTreeMap, net::IpAddr};

/// Observations after the probe, compared with those before it.
pub(super) struct ProbeEvidence<'a> {
    plan: &'a ProbePlan,
    /// By node and whether it is IPv4's.
    nodes: BTreeMap<(String, bool), Routing>,
    dropped: Vec<String>,
    spoofed: Vec<(IpAddr, String)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Routing {
    rules: Vec<Rule>,
    routes: Vec<Route>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Rule {
    priority: u32,
    #[serde(default)]
    src: String,
    #[serde(default)]
    dst: String,
    #[serde(default)]
    table: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Route {
    dst: String,
    #[serde(default)]
    dev: String,
    /// Absent for table main.
    table: Option<String>,
}

impl<'a> ProbeEvidence<'a> {
    pub(super) fn gather(
        fabric: &Fabric,
        plan: &'a ProbePlan,
        before: &Counters,
    ) -> Result<Self, FabricError> {
        let mut nodes = BTreeMap::new();
        for node in fabric.nodes()?.into_iter().filter(crate::Node::is_up) {
            for (family, is_v4) in [("-4", true), ("-6", false)] {
                let routes = [family, "route", "show", "table", "all"];
                let routing = node.net_place().try_run(|| {
                    Ok(Routing {
                        rules: tool::ip_json(&[family, "rule", "show"], "list a node's rules")?,
                        routes: tool::ip_json(&routes, "list a node's routes")?,
                    })
                })?;
                nodes.insert((node.name().to_owned(), is_v4), routing);
            }
        }
        let after = fabric.counters()?;
        let dropped = after.drops.iter().filter_map(|(reason, count)| {
            let more = count.packets.saturating_sub(before.dropped(*reason));
            (more > 0).then(|| format!("the fabric dropped {more} packets for {reason}"))
        });
        Ok(Self { plan, nodes, dropped: dropped.collect(), spoofed: spoofed(&after, before, plan) })
    }

    /// Defects of either end. If there are none, the fabric's total drops.
    pub(super) fn explain(&self, from: &End, to: &End) -> Vec<String> {
        let mut because = Vec::new();
        for end in [from, to] {
            because.extend(self.misrouted(end));
            let spoofed = self.spoofed.iter().filter(|(source, _)| *source == end.address);
            because.extend(spoofed.map(|(_, text)| text.clone()));
        }
        if because.is_empty() {
            because.extend(self.dropped.iter().cloned());
        }
        because
    }

    fn misrouted(&self, end: &End) -> Vec<String> {
        let seen = (end.node.clone(), end.address.is_ipv4());
        let Some(routing) = self.nodes.get(&seen) else {
            return vec![format!("node {} is not running", end.node)];
        };
        let held =
            self.plan.enis.iter().find(|(_, eni)| eni.node == end.node && eni.holds(end.address));
        match held {
            Some((_, eni)) if is_own(eni, end.address) => Vec::new(),
            Some((_, eni)) => routing.lacks(end, eni),
            None => vec![format!("no ENI of node {} holds {}", end.node, end.address)],
        }
    }
}

impl Routing {
    /// Missing rules and routes of a pod with this address, in the layout of amazon-vpc-cni. Of rules that pods
    /// share, only the rule for traffic to the pod is checked.
    fn lacks(&self, pod: &End, eni: &EniSpec) -> Vec<String> {
        let (address, node) = (pod.address.to_string(), &pod.node);
        let table = TableId::of_eni(eni.card, eni.device);
        let has_rule = |priority, src: &str, dst: &str, table: Option<TableId>| {
            self.rules.iter().any(|rule| {
                rule.priority == priority
                    && (src.is_empty() || rule.src == src)
                    && (dst.is_empty() || rule.dst == dst)
                    && table.is_none_or(|table| rule.table == table.to_string())
            })
        };
        let has_route = |dst: &str, table: TableId| {
            self.routes.iter().any(|route| {
                let of = route.table.as_deref().unwrap_or("main");
                route.dst == dst && of == table.to_string() && !route.dev.is_empty()
            })
        };
        let mut lacks = Vec::new();
        let mut require = |holds: bool, text: String| {
            if !holds {
                lacks.push(text);
            }
        };
        let (to_pod, from_pod) = (registry::PREF_TO_POD, registry::PREF_FROM_POD);
        let shared = has_rule(to_pod, "", "", Some(TableId::PODS));
        let pods = if shared { TableId::PODS } else { TableId::MAIN };
        require(
            shared || has_rule(to_pod, "", &address, Some(TableId::MAIN)),
            format!("no rule {to_pod} to {address} on node {node}"),
        );
        require(
            has_route(&address, pods),
            format!("no route to {address} in table {pods} on node {node}"),
        );
        if table == TableId::MAIN {
            let strays = has_rule(from_pod, &address, "", None);
            require(!strays, format!("a rule {from_pod} from {address} on node {node}"));
        } else {
            require(
                shared || has_rule(from_pod, &address, "", Some(table)),
                format!("no rule {from_pod} from {address} to table {table} on node {node}"),
            );
            require(
                has_route("default", table),
                format!("no default route in table {table} on node {node}"),
            );
        }
        lacks
    }
}

/// True for the ENI's own address, false for a pod's.
fn is_own(eni: &EniSpec, address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => eni.primary == address,
        IpAddr::V6(address) => eni.ipv6.contains(&address),
    }
}

fn spoofed(after: &Counters, before: &Counters, plan: &ProbePlan) -> Vec<(IpAddr, String)> {
    let of = |eni: &crate::EniCounters| -> BTreeMap<IpAddr, u64> {
        let v4 = eni.spoofed.iter().map(|(source, count)| (IpAddr::V4(*source), count.packets));
        let v6 = eni.spoofed_v6.iter().map(|(source, count)| (IpAddr::V6(*source), count.packets));
        v4.chain(v6).collect()
    };
    let known = |eni: &EniId, source: &IpAddr| {
        before.enis.get(eni).and_then(|eni| of(eni).get(source).copied()).unwrap_or(0)
    };
    let place = |eni: &EniId| {
        let found = plan.enis.iter().find(|(id, _)| id == eni);
        found.map_or_else(String::new, |(_, eni)| {
            format!(", device {} of node {}", eni.device.0, eni.node)
        })
    };
    let mut all = Vec::new();
    for (eni, counters) in &after.enis {
        for (source, count) in &of(counters) {
            let more = count.saturating_sub(known(eni, source));
            if more > 0 {
                let place = place(eni);
                let text = format!(
                    "the source check dropped {more} packets from {source} that left by {eni}{place}"
                );
                all.push((*source, text));
            }
        }
    }
    all
}

//! Policy routing rules: foreign, duplicate and leftover ones.

use super::Check;
use crate::{Finding, Observation, Observed, RouteView, Routing, RuleView, Severity};
use config_model::{TableId, registry};
use ipnet::IpNet;
use std::collections::BTreeSet;

pub(super) fn foreign_tables(seen: &Observation) -> Observed<Vec<Finding>> {
    let routing = seen.routing.as_ref().map_err(String::clone)?;
    let ruled = routing.rules.iter().map(|rule| rule.table);
    let tables: BTreeSet<TableId> = ruled
        .chain(routing.routes.iter().map(|route| route.table))
        .filter(|table| NM_CLOUD_SETUP.contains(&table.0))
        .collect();
    let found = tables.into_iter().map(|table| {
        Check::ForeignTables.found(
            Severity::Fault,
            format!("table {table}"),
            format!("nm-cloud-setup created table {table}"),
            "its rules send packets of secondary addresses, also those of pods, to its own tables",
            format!(
                "systemctl disable --now nm-cloud-setup.timer nm-cloud-setup.service, then \
                 ip route flush table {table}, and ip rule del table {table} until none is left"
            ),
        )
    });
    Ok(found.collect())
}

pub(super) fn foreign_rules(seen: &Observation) -> Observed<Vec<Finding>> {
    let routing = seen.routing.as_ref().map_err(String::clone)?;
    let ruled = routing.rules.iter().filter_map(pod_of);
    // With compact rules the routes identify the pods.
    let routed = routing.routes.iter().filter(|route| route.table == TableId::PODS);
    let pods: Vec<IpNet> = ruled.chain(routed.map(|route| route.dst)).collect();
    let takes_pods = |rule: &&RuleView| {
        let sides = [rule.src, rule.dst];
        let of_family = |pod: &&IpNet| matches!(pod, IpNet::V6(_)) == rule.v6;
        let mut pods = pods.iter().filter(of_family);
        pods.any(|pod| sides.into_iter().flatten().all(|net| net.contains(pod)))
    };
    let found = routing
        .rules
        .iter()
        .filter(|rule| {
            rule.pref < registry::PREF_FROM_POD
                && !KNOWN_PREFS.contains(&rule.pref)
                && !rule.narrow
                && rule.table.0 != LOCAL
                && !NM_CLOUD_SETUP.contains(&rule.table.0)
        })
        .filter(takes_pods)
        .map(|rule| {
            Check::ForeignRules.found(
                Severity::Warning,
                &rule.text,
                format!("the rule {} has precedence over pods' rules", rule.text),
                "it matches packets of pods, which may then leave by an ENI without their address; the \
                 VPC drops them",
                format!(
                    "find its creator (ip -details rule), move it behind priority {}, or: \
                     ip{} rule del {}",
                    registry::PREF_FROM_POD,
                    family(rule),
                    rule.text
                ),
            )
        });
    Ok(found.collect())
}

pub(super) fn twins(seen: &Observation) -> Observed<Vec<Finding>> {
    let routing = seen.routing.as_ref().map_err(String::clone)?;
    let ours = |rule: &&RuleView| OUR_PREFS.contains(&rule.pref) && !rule.partial;
    let mut met = BTreeSet::new();
    let again = routing
        .rules
        .iter()
        .filter(ours)
        .filter(|rule| !met.insert((rule.v6, rule.pref, rule.text.clone())));
    let mut told = BTreeSet::new();
    let found = again.filter(|rule| told.insert((rule.v6, rule.text.clone()))).map(|rule| {
        let makers: Vec<String> = routing
            .rules
            .iter()
            .filter(|other| other.v6 == rule.v6 && other.text == rule.text)
            .map(|other| other.protocol.to_string())
            .collect();
        Check::TwinRules.found(
            Severity::Warning,
            &rule.text,
            format!(
                "the rule {} exists {} times, by the protocols {}",
                rule.text,
                makers.len(),
                makers.join(" and ")
            ),
            "a deletion removes one of them; the other stays, and misroutes the next pod with this \
             address",
            format!("delete one: ip{} rule del {}", family(rule), rule.text),
        )
    });
    Ok(found.collect())
}

pub(super) fn leftovers(seen: &Observation) -> Observed<Vec<Finding>> {
    let routing = seen.routing.as_ref().map_err(String::clone)?;
    let mut findings = Vec::new();
    for rule in &routing.rules {
        let without_pod = pod_of(rule).is_some_and(|pod| !has_host_route(routing, pod));
        let without_table = matches!(rule.pref, registry::PREF_FROM_POD | registry::PREF_FROM_ENI)
            && !routing.routes.iter().any(|route| route.table == rule.table && leads_out(route));
        let wrong = if without_pod {
            format!("the rule {} is for an address without a pod's route", rule.text)
        } else if without_table {
            format!("the rule {} leads to table {}, which has no default", rule.text, rule.table)
        } else {
            continue;
        };
        findings.push(Check::LeftoverRules.found(
            Severity::Warning,
            &rule.text,
            wrong,
            "it is left from a removed pod or ENI; the next pod with this address is \
             disconnected by it",
            format!(
                "make sure that the daemon runs, which removes its own rules, or: ip{} rule del {}",
                family(rule),
                rule.text
            ),
        ));
    }
    Ok(findings)
}

/// Returns the pod address of a rule.
fn pod_of(rule: &RuleView) -> Option<IpNet> {
    if rule.narrow || rule.partial {
        return None;
    }
    let net = match rule.pref {
        registry::PREF_TO_POD => rule.dst,
        registry::PREF_FROM_POD => rule.src,
        _ => None,
    };
    net.filter(|net| net.prefix_len() == net.max_prefix_len())
}

fn has_host_route(routing: &Routing, pod: IpNet) -> bool {
    let tables = [TableId::MAIN, TableId::PODS];
    routing.routes.iter().any(|route| tables.contains(&route.table) && route.dst == pod)
}

fn leads_out(route: &RouteView) -> bool {
    route.dst.prefix_len() == 0
}

fn family(rule: &RuleView) -> &'static str {
    if rule.v6 { " -6" } else { "" }
}

/// The kernel's table of local addresses. A lookup in it takes no packet of a pod, and some setups move its rule.
const LOCAL: u32 = 255;
/// The tables of nm-cloud-setup, one per link, from 30200 and from 30400.
const NM_CLOUD_SETUP: std::ops::Range<u32> = 30_200..30_600;
/// The priorities of amazon-vpc-cni's and Ferrule's rules.
const OUR_PREFS: [u32; 5] = [
    registry::PREF_TO_POD,
    registry::PREF_MARKED,
    1535,
    registry::PREF_FROM_POD,
    registry::PREF_FROM_ENI,
];
/// Priorities below the pods' rules that a healthy node has: the kernel's, branch ENIs' and Ferrule's.
const KNOWN_PREFS: [u32; 6] = [0, 10, 20, registry::PREF_TO_POD, registry::PREF_MARKED, 1535];

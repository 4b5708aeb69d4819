//! NetworkPolicy and ApplicationNetworkPolicy.

use super::address::block;
use super::names::domain;
use super::ports::{protocol, target};
use super::selector::{selector, wide};
use super::tree::{At, Doubt, Notes};
use crate::{
    Flavor, Meta, NetworkPeer, NetworkPolicy, NetworkPort, NetworkRule, PolicyType, Read, Selector,
    Subject, Unknown,
};

pub(super) fn policy(
    meta: Meta,
    flavor: Flavor,
    spec: &At<'_>,
    notes: &mut Notes,
) -> NetworkPolicy {
    let whole = spec.only(&["podSelector", "policyTypes", "ingress", "egress"]).err();
    if let Some(doubt) = &whole {
        notes.fail(
            doubt,
            "the policy isolates in both directions, and no rule of it allows anything",
        );
    }
    let ingress = rules(spec, PolicyType::Ingress, flavor, whole.as_ref(), notes);
    let egress = rules(spec, PolicyType::Egress, flavor, whole.as_ref(), notes);
    let given = types(spec, !egress.is_empty(), notes);
    // A part that is not understood may be a direction.
    let types = if whole.is_some() { BOTH.to_vec() } else { given };
    for (direction, rules) in [(PolicyType::Ingress, &ingress), (PolicyType::Egress, &egress)] {
        if !rules.is_empty() && !types.contains(&direction) {
            let text = format!("`{}` has no effect: policyTypes lack it", keys(direction).0);
            notes.warn(spec, text);
        }
    }
    NetworkPolicy { meta, flavor, subject: subject(spec, notes), types, ingress, egress }
}

fn subject(spec: &At<'_>, notes: &mut Notes) -> Subject<Selector> {
    if !spec.value.is_object() {
        let doubt = spec.doubt("it is no object");
        return Subject { selects: Selector::default(), doubt: Some(doubt.why()) };
    }
    let Some(at) = spec.get("podSelector") else {
        return Subject { selects: Selector::default(), doubt: None };
    };
    let (selects, doubt) = wide(&at, notes);
    if let Some(doubt) = &doubt {
        notes.fail(doubt, "the policy isolates all that it may have meant, and allows nothing");
    }
    Subject { selects, doubt: doubt.map(|doubt| doubt.why()) }
}

/// Both where they are not understood.
fn types(spec: &At<'_>, egress: bool, notes: &mut Notes) -> Vec<PolicyType> {
    match policy_types(spec, notes) {
        Ok(types) if !types.is_empty() => types,
        Ok(_) if egress => BOTH.to_vec(),
        Ok(_) => vec![PolicyType::Ingress],
        Err(doubt) => {
            notes.fail(&doubt, "the policy isolates in both directions");
            BOTH.to_vec()
        }
    }
}

fn policy_types(spec: &At<'_>, notes: &mut Notes) -> Result<Vec<PolicyType>, Doubt> {
    let mut types = Vec::new();
    for item in spec.items("policyTypes")? {
        let direction = match item.text()? {
            "Ingress" => PolicyType::Ingress,
            "Egress" => PolicyType::Egress,
            other => return Err(item.doubt(format!("`{other}` is neither Ingress nor Egress"))),
        };
        if types.contains(&direction) {
            notes.warn(&item, "it is there twice");
        } else {
            types.push(direction);
        }
    }
    types.sort_unstable();
    Ok(types)
}

fn rules(
    spec: &At<'_>,
    direction: PolicyType,
    flavor: Flavor,
    whole: Option<&Doubt>,
    notes: &mut Notes,
) -> Vec<Read<NetworkRule>> {
    let items = match spec.items(keys(direction).0) {
        Ok(items) => items,
        Err(doubt) => {
            notes.fail(&doubt, NOTHING);
            return vec![unknown(&doubt)];
        }
    };
    let mut rules = Vec::with_capacity(items.len());
    for item in items {
        rules.push(match (rule(&item, direction, flavor, notes), whole) {
            (_, Some(doubt)) => unknown(doubt),
            (Ok(rule), None) => Read::Known(rule),
            (Err(doubt), None) => {
                notes.fail(&doubt, NOTHING);
                unknown(&doubt)
            }
        });
    }
    rules
}

fn unknown(doubt: &Doubt) -> Read<NetworkRule> {
    Read::Unknown(Unknown { why: doubt.why(), name: None, action: None })
}

fn rule(
    at: &At<'_>,
    direction: PolicyType,
    flavor: Flavor,
    notes: &mut Notes,
) -> Result<NetworkRule, Doubt> {
    let side = keys(direction).1;
    at.only(&[side, "ports"])?;
    let peers = at.items(side)?.map(|item| peer(&item, direction, flavor, notes));
    let peers = peers.collect::<Result<_, _>>()?;
    let ports = at.items("ports")?.map(|item| port(&item, notes)).collect::<Result<_, _>>()?;
    Ok(NetworkRule { peers, ports })
}

fn peer(
    at: &At<'_>,
    direction: PolicyType,
    flavor: Flavor,
    notes: &mut Notes,
) -> Result<NetworkPeer, Doubt> {
    let names = flavor == Flavor::Aws && direction == PolicyType::Egress;
    let known = ["podSelector", "namespaceSelector", "ipBlock", "domainNames"];
    at.only(if names { &known } else { &known[..3] })?;
    let pods = at.get("podSelector");
    let namespaces = at.get("namespaceSelector");
    let domains = at.get("domainNames").filter(|_| names);
    let selects = pods.is_some() || namespaces.is_some();
    match (selects, at.get("ipBlock"), domains) {
        (true, None, None) => Ok(NetworkPeer::Pods {
            namespaces: namespaces.map(|at| selector(&at, notes)).transpose()?,
            pods: pods.map(|at| selector(&at, notes)).transpose()?,
        }),
        (false, Some(at), None) => Ok(NetworkPeer::Block(block(&at, notes)?)),
        (false, None, Some(list)) => {
            let domains: Vec<_> =
                at.items("domainNames")?.map(|item| domain(&item)).collect::<Result<_, _>>()?;
            if domains.is_empty() {
                Err(list.doubt("it is empty"))
            } else {
                Ok(NetworkPeer::Domains(domains))
            }
        }
        (false, None, None) => Err(at.doubt("the peer is empty: give it a selector or an ipBlock")),
        _ => Err(at.doubt("the peer mixes selectors, ipBlock or domainNames: use separate peers")),
    }
}

fn port(at: &At<'_>, notes: &mut Notes) -> Result<NetworkPort, Doubt> {
    at.only(&["protocol", "port", "endPort"])?;
    Ok(NetworkPort { protocol: protocol(at)?, port: target(at, notes)? })
}

fn keys(direction: PolicyType) -> (&'static str, &'static str) {
    match direction {
        PolicyType::Ingress => ("ingress", "from"),
        PolicyType::Egress => ("egress", "to"),
    }
}

const BOTH: [PolicyType; 2] = [PolicyType::Ingress, PolicyType::Egress];
const NOTHING: &str = "the rule allows nothing until that is fixed";

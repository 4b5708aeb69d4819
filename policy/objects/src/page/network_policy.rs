//! NetworkPolicies as API servers write them. What has anything odd is left to the slow way, so that
//! both never differ: here is no leniency and no note.

use super::meta::meta;
use super::scan::{Once, Scan};
use crate::read::{MANY, is_label_key, is_label_value, is_port_name, plain_cidr};
use crate::{
    Block, Cidr, Flavor, Meta, NetworkPeer, NetworkPolicy, NetworkPort, NetworkRule, Operator,
    PolicyType, PortRange, Protocol, Read, Requirement, Selector, Subject, TargetPort,
};
use std::collections::BTreeSet;

/// Reads a NetworkPolicy.
pub(super) fn policy(scan: &mut Scan<'_>) -> Option<NetworkPolicy> {
    let mut seen = Once::default();
    let (mut read, mut spec) = (None, None);
    scan.object(|scan, key| match key {
        "metadata" => {
            seen.see(0)?;
            read = Some(meta(scan, true, |scan, _| scan.skip())?);
            Some(())
        }
        "spec" => {
            seen.see(1)?;
            spec = Some(Spec::read(scan)?);
            Some(())
        }
        "apiVersion" | "kind" | "status" => scan.skip(),
        _ => None,
    })?;
    let mut spec: Spec = spec?;
    let types = types(spec.types.take(), spec.egress.is_empty())?;
    let dead =
        |rules: &[Read<NetworkRule>], direction| !rules.is_empty() && !types.contains(&direction);
    if dead(&spec.ingress, PolicyType::Ingress) || dead(&spec.egress, PolicyType::Egress) {
        return None;
    }
    Some(NetworkPolicy {
        meta: Meta::from(read?),
        flavor: Flavor::Kubernetes,
        subject: Subject { selects: spec.pods.unwrap_or_default(), doubt: None },
        types,
        ingress: spec.ingress,
        egress: spec.egress,
    })
}

#[derive(Default)]
struct Spec {
    pods: Option<Selector>,
    types: Option<(bool, bool)>,
    ingress: Vec<Read<NetworkRule>>,
    egress: Vec<Read<NetworkRule>>,
}

impl Spec {
    fn read(scan: &mut Scan<'_>) -> Option<Self> {
        let mut seen = Once::default();
        let mut spec = Self::default();
        scan.object(|scan, key| {
            match key {
                "podSelector" => {
                    seen.see(0)?;
                    spec.pods = selector(scan)?;
                }
                "policyTypes" => {
                    seen.see(1)?;
                    spec.types = said(scan)?;
                }
                "ingress" => {
                    seen.see(2)?;
                    scan.list(|scan| rule(scan, "from", &mut spec.ingress))?;
                }
                "egress" => {
                    seen.see(3)?;
                    scan.list(|scan| rule(scan, "to", &mut spec.egress))?;
                }
                _ => return None,
            }
            Some(())
        })?;
        Some(spec)
    }
}

/// Whether Ingress and Egress are said; `None` within if neither is.
fn said(scan: &mut Scan<'_>) -> Option<Option<(bool, bool)>> {
    let mut seen = Once::default();
    let (mut ingress, mut egress) = (false, false);
    scan.list(|scan| {
        match scan.text()? {
            "Ingress" => {
                seen.see(0)?;
                ingress = true;
            }
            "Egress" => {
                seen.see(1)?;
                egress = true;
            }
            _ => return None,
        }
        Some(())
    })?;
    Some((ingress || egress).then_some((ingress, egress)))
}

fn types(said: Option<(bool, bool)>, no_egress: bool) -> Option<Vec<PolicyType>> {
    Some(match said.unwrap_or((true, !no_egress)) {
        (true, true) => vec![PolicyType::Ingress, PolicyType::Egress],
        (true, false) => vec![PolicyType::Ingress],
        (false, true) => vec![PolicyType::Egress],
        (false, false) => return None,
    })
}

fn rule(scan: &mut Scan<'_>, side: &str, rules: &mut Vec<Read<NetworkRule>>) -> Option<()> {
    let mut seen = Once::default();
    let (mut peers, mut ports) = (Vec::new(), Vec::new());
    scan.object(|scan, key| match key {
        "ports" => {
            seen.see(0)?;
            scan.list(|scan| {
                ports.push(port(scan)?);
                Some(())
            })
        }
        _ if key == side => {
            seen.see(1)?;
            scan.list(|scan| {
                peers.push(peer(scan)?);
                Some(())
            })
        }
        _ => None,
    })?;
    rules.push(Read::Known(NetworkRule { peers, ports }));
    Some(())
}

fn peer(scan: &mut Scan<'_>) -> Option<NetworkPeer> {
    let mut seen = Once::default();
    let (mut namespaces, mut pods, mut range) = (None, None, None);
    scan.object(|scan, key| {
        match key {
            "podSelector" => {
                seen.see(0)?;
                pods = selector(scan)?;
            }
            "namespaceSelector" => {
                seen.see(1)?;
                namespaces = selector(scan)?;
            }
            "ipBlock" => {
                seen.see(2)?;
                range = Some(block(scan)?);
            }
            _ => return None,
        }
        Some(())
    })?;
    match (namespaces.is_some() || pods.is_some(), range) {
        (true, None) => Some(NetworkPeer::Pods { namespaces, pods }),
        (false, Some(block)) => Some(NetworkPeer::Block(block)),
        _ => None,
    }
}

fn block(scan: &mut Scan<'_>) -> Option<Block> {
    let mut seen = Once::default();
    let (mut cidr, mut except) = (None, Vec::new());
    scan.object(|scan, key| {
        match key {
            "cidr" => {
                seen.see(0)?;
                cidr = Some(plain_cidr(scan.text()?)?);
            }
            "except" => {
                seen.see(1)?;
                scan.list(|scan| {
                    except.push(plain_cidr(scan.text()?)?);
                    Some(())
                })?;
            }
            _ => return None,
        }
        Some(())
    })?;
    let cidr = cidr?;
    let hole = |hole: &Cidr| cidr.contains(hole) && !hole.contains(&cidr);
    if except.len() >= MANY || !except.iter().all(hole) {
        return None;
    }
    except.sort_unstable();
    except.dedup();
    Some(Block { cidr, except })
}

fn port(scan: &mut Scan<'_>) -> Option<NetworkPort> {
    let mut seen = Once::default();
    let (mut protocol, mut name, mut first, mut last) = (Protocol::Tcp, None, None, None);
    scan.object(|scan, key| {
        match key {
            "protocol" => {
                seen.see(0)?;
                protocol = super::protocol(scan)?;
            }
            "port" => {
                seen.see(1)?;
                if scan.is_text() {
                    name = Some(scan.text().filter(|name| is_port_name(name))?);
                } else {
                    first = Some(scan.port()?);
                }
            }
            "endPort" => {
                seen.see(2)?;
                last = Some(scan.port()?);
            }
            _ => return None,
        }
        Some(())
    })?;
    let port = match (name, first, last) {
        (None, None, None) => None,
        (Some(name), None, None) => Some(TargetPort::Named(name.to_owned())),
        (None, Some(first), None) => Some(TargetPort::Numbers(PortRange { first, last: first })),
        (None, Some(first), Some(last)) if last > first => {
            Some(TargetPort::Numbers(PortRange { first, last }))
        }
        _ => return None,
    };
    Some(NetworkPort { protocol, port })
}

/// The outer `None` is for what is odd.
fn selector(scan: &mut Scan<'_>) -> Option<Option<Selector>> {
    if scan.null() {
        return Some(None);
    }
    let mut seen = Once::default();
    let mut requirements = BTreeSet::new();
    scan.object(|scan, key| match key {
        "matchLabels" => {
            seen.see(0)?;
            if scan.null() {
                return Some(());
            }
            let mut keys: Vec<&str> = Vec::new();
            scan.object(|scan, key| {
                if keys.contains(&key) || !is_label_key(key) {
                    return None;
                }
                keys.push(key);
                let operator = Operator::In(BTreeSet::from([value(scan)?]));
                requirements.insert(Requirement { key: key.to_owned(), operator });
                Some(())
            })
        }
        "matchExpressions" => {
            seen.see(1)?;
            scan.list(|scan| {
                requirements.insert(expression(scan)?);
                Some(())
            })
        }
        _ => None,
    })?;
    Some(Some(Selector { requirements }))
}

fn expression(scan: &mut Scan<'_>) -> Option<Requirement> {
    let mut seen = Once::default();
    let (mut label, mut operator, mut values) = ("", "", BTreeSet::new());
    scan.object(|scan, key| {
        match key {
            "key" => {
                seen.see(0)?;
                label = scan.text().filter(|key| is_label_key(key))?;
            }
            "operator" => {
                seen.see(1)?;
                operator = scan.text()?;
            }
            "values" => {
                seen.see(2)?;
                scan.list(|scan| {
                    values.insert(value(scan)?);
                    Some(())
                })?;
            }
            _ => return None,
        }
        Some(())
    })?;
    let operator = match (operator, values.is_empty()) {
        ("In", false) => Operator::In(values),
        ("NotIn", false) => Operator::NotIn(values),
        ("Exists", true) => Operator::Exists,
        ("DoesNotExist", true) => Operator::DoesNotExist,
        _ => return None,
    };
    (!label.is_empty()).then(|| Requirement { key: label.to_owned(), operator })
}

fn value(scan: &mut Scan<'_>) -> Option<String> {
    scan.text().filter(|value| is_label_value(value)).map(str::to_owned)
}

//! NetworkPolicies as API servers write them. Any odd item is left to the slow reader, so that
//! the two readers never differ: this one has no leniency and no notes.

use super::borrowed::{
    OperatorView, PeerView, PolicyView, RequirementView, RuleView, SelectorView, ValuesView,
};
use super::meta::meta;
use super::scan::{Once, Scan};
use crate::read::{MANY, is_label_key, is_label_value, is_port_name, plain_cidr};
use crate::{Block, Cidr, NetworkPort, PortRange, Protocol, TargetPort};

/// Reads a NetworkPolicy.
pub(super) fn policy<'p>(scan: &mut Scan<'p>) -> Option<PolicyView<'p>> {
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
    let Spec { pods, types, ingress, egress } = spec?;
    let (lets_in, lets_out) = types.unwrap_or((true, !egress.is_empty()));
    // Rules of a direction that the policy lacks have no effect, which is worth a note.
    if !lets_in && !ingress.is_empty() || !lets_out && !egress.is_empty() {
        return None;
    }
    Some(PolicyView {
        meta: read?,
        subject: pods.unwrap_or_default(),
        ingress: lets_in.then_some(ingress),
        egress: lets_out.then_some(egress),
    })
}

#[derive(Default)]
struct Spec<'p> {
    pods: Option<SelectorView<'p>>,
    types: Option<(bool, bool)>,
    ingress: Vec<RuleView<'p>>,
    egress: Vec<RuleView<'p>>,
}

impl<'p> Spec<'p> {
    fn read(scan: &mut Scan<'p>) -> Option<Self> {
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
                    spec.types = policy_types(scan)?;
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

/// Returns whether Ingress and Egress are present; `None` within if neither is.
fn policy_types(scan: &mut Scan<'_>) -> Option<Option<(bool, bool)>> {
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

fn rule<'p>(scan: &mut Scan<'p>, side: &str, rules: &mut Vec<RuleView<'p>>) -> Option<()> {
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
    rules.push(RuleView { peers, ports });
    Some(())
}

fn peer<'p>(scan: &mut Scan<'p>) -> Option<PeerView<'p>> {
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
        (true, None) => Some(PeerView::Pods { namespaces, pods }),
        (false, Some(block)) => Some(PeerView::Block(block)),
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
fn selector<'p>(scan: &mut Scan<'p>) -> Option<Option<SelectorView<'p>>> {
    if scan.null() {
        return Some(None);
    }
    let mut seen = Once::default();
    let mut requirements = Vec::new();
    scan.object(|scan, key| match key {
        "matchLabels" => {
            seen.see(0)?;
            if scan.null() {
                return Some(());
            }
            let mut keys = Keys::default();
            scan.object(|scan, key| {
                keys.see(key)?;
                let operator = OperatorView::In(ValuesView::one(value(scan)?));
                requirements.push(RequirementView { key, operator });
                Some(())
            })
        }
        "matchExpressions" => {
            seen.see(1)?;
            scan.list(|scan| {
                requirements.push(expression(scan)?);
                Some(())
            })
        }
        _ => None,
    })?;
    Some(Some(SelectorView::new(requirements)))
}

/// Labels' keys that were there; the first takes no memory.
#[derive(Default)]
struct Keys<'p> {
    first: &'p str,
    others: Vec<&'p str>,
}

impl<'p> Keys<'p> {
    fn see(&mut self, key: &'p str) -> Option<()> {
        if self.first == key || self.others.contains(&key) || !is_label_key(key) {
            return None;
        }
        if self.first.is_empty() {
            self.first = key;
        } else {
            self.others.push(key);
        }
        Some(())
    }
}

fn expression<'p>(scan: &mut Scan<'p>) -> Option<RequirementView<'p>> {
    let mut seen = Once::default();
    let (mut key, mut operator, mut values) = ("", "", Vec::new());
    scan.object(|scan, field| {
        match field {
            "key" => {
                seen.see(0)?;
                key = scan.text().filter(|key| is_label_key(key))?;
            }
            "operator" => {
                seen.see(1)?;
                operator = scan.text()?;
            }
            "values" => {
                seen.see(2)?;
                scan.list(|scan| {
                    values.push(value(scan)?);
                    Some(())
                })?;
            }
            _ => return None,
        }
        Some(())
    })?;
    let operator = match (operator, values.is_empty()) {
        ("In", false) => OperatorView::In(ValuesView::many(values)),
        ("NotIn", false) => OperatorView::NotIn(ValuesView::many(values)),
        ("Exists", true) => OperatorView::Exists,
        ("DoesNotExist", true) => OperatorView::DoesNotExist,
        _ => return None,
    };
    (!key.is_empty()).then_some(RequirementView { key, operator })
}

fn value<'p>(scan: &mut Scan<'p>) -> Option<&'p str> {
    scan.text().filter(|value| is_label_value(value))
}

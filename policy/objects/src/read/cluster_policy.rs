//! ClusterNetworkPolicy, upstream's and AWS's.

use super::address::cidr;
use super::names::domain;
use super::ports::{number, port_name, protocol, range};
use super::selector::{selector, wide};
use super::tree::{At, Doubt, Notes};
use super::{becomes, is_silent, unknown};
use crate::{
    ClusterAction, ClusterPeer, ClusterPolicy, ClusterRule, ClusterTier, Dialect, Meta,
    NamespacedPods, PolicyType, PortRange, Protocol, ProtocolMatch, Read, Selector, Subject,
    Unknown,
};

pub(super) fn policy(
    meta: Meta,
    dialect: Dialect,
    spec: &At<'_>,
    notes: &mut Notes,
) -> ClusterPolicy {
    let odd = spec.only(&["tier", "priority", "subject", "ingress", "egress"]).err();
    let silent = odd.is_none() && is_silent(spec);
    let mut whole = odd.clone();
    let tier = tier(spec).unwrap_or_else(|doubt| {
        whole.get_or_insert(doubt);
        ClusterTier::Admin
    });
    let priority = priority(spec, notes).unwrap_or_else(|doubt| {
        whole.get_or_insert(doubt);
        i32::MIN
    });
    if let Some(doubt) = &whole {
        notes.fail(
            doubt,
            match (&odd, silent) {
                (Some(_), _) => "the policy denies all traffic of its subject in both directions",
                (None, true) => "the policy has no rule, and does nothing",
                (None, false) => {
                    "no rule of the policy is understood: Accept allows nothing, others deny all"
                }
            },
        );
    }
    let mut read = |direction| rules(spec, direction, dialect, whole.as_ref(), notes);
    let (mut ingress, mut egress) = (read(PolicyType::Ingress), read(PolicyType::Egress));
    // A part that is not understood may be rules.
    if let Some(doubt) = &odd {
        ingress.extend(lost(&ingress, doubt));
        egress.extend(lost(&egress, doubt));
    }
    let subject = subject(spec, dialect, silent, notes);
    ClusterPolicy { meta, dialect, tier, priority, subject, ingress, egress }
}

fn tier(spec: &At<'_>) -> Result<ClusterTier, Doubt> {
    let at = spec.get("tier").ok_or_else(|| spec.lacks("tier"))?;
    match at.text()? {
        "Admin" => Ok(ClusterTier::Admin),
        "Baseline" => Ok(ClusterTier::Baseline),
        other => Err(at.doubt(format!("`{other}` is no tier: Admin, Baseline"))),
    }
}

fn priority(spec: &At<'_>, notes: &mut Notes) -> Result<i32, Doubt> {
    let at = spec.get("priority").ok_or_else(|| spec.lacks("priority"))?;
    let number = at.integer()?;
    let priority =
        i32::try_from(number).map_err(|_| at.doubt(format!("{number} is not within 0 to 1000")))?;
    if !(0..=1000).contains(&priority) {
        notes.warn(&at, format!("{priority} is not within 0 to 1000: API servers refuse it"));
    }
    Ok(priority)
}

/// A rule that denies all, unless one of these does.
fn lost(rules: &[Read<ClusterRule>], doubt: &Doubt) -> Option<Read<ClusterRule>> {
    let denies = |rule: &Read<ClusterRule>| match rule {
        Read::Known(_) => false,
        Read::Unknown(unknown) => unknown.action.as_deref() != Some("Accept"),
    };
    let unknown = Unknown { why: doubt.why(), name: None, action: None };
    (!rules.iter().any(denies)).then_some(Read::Unknown(unknown))
}

fn subject(
    spec: &At<'_>,
    dialect: Dialect,
    silent: bool,
    notes: &mut Notes,
) -> Subject<NamespacedPods> {
    let everything = |doubt| (NamespacedPods::default(), Some(doubt));
    let (selects, doubt) = match spec.get("subject") {
        None => everything(spec.lacks("subject")),
        Some(at) => match at.only(&["namespaces", "pods"]) {
            Err(doubt) => everything(doubt),
            Ok(()) => match (at.get("namespaces"), at.get("pods")) {
                (Some(at), None) => {
                    let (namespaces, doubt) = wide(&inner(&at, notes), notes);
                    (NamespacedPods { namespaces, pods: Selector::default() }, doubt)
                }
                (None, Some(at)) => wide_pods(&at, dialect, notes),
                _ => everything(at.doubt("one of `namespaces` and `pods` must be there")),
            },
        },
    };
    if let Some(doubt) = &doubt {
        notes.fail(
            doubt,
            match silent {
                true => "the policy has no rule, and does nothing",
                false => {
                    "the policy allows nothing, and denies traffic of all pods that it may select"
                }
            },
        );
    }
    Subject { selects, doubt: doubt.map(|doubt| doubt.why()) }
}

fn wide_pods(at: &At<'_>, dialect: Dialect, notes: &mut Notes) -> (NamespacedPods, Option<Doubt>) {
    let mut doubt = complete(at, dialect).err();
    let mut side = |key| match at.get(key) {
        None => Selector::default(),
        Some(at) => {
            let (selector, why) = wide(&at, notes);
            doubt = doubt.take().or(why);
            selector
        }
    };
    let (namespaces, pods) = (side("namespaceSelector"), side("podSelector"));
    (NamespacedPods { namespaces, pods }, doubt)
}

fn complete(at: &At<'_>, dialect: Dialect) -> Result<(), Doubt> {
    at.only(&["namespaceSelector", "podSelector"])?;
    if at.get("podSelector").is_none() {
        return Err(at.lacks("podSelector"));
    }
    if dialect == Dialect::Aws && at.get("namespaceSelector").is_none() {
        return Err(at.lacks("namespaceSelector"));
    }
    Ok(())
}

/// The old form `namespaces: {namespaceSelector: …}` means its selector; API servers of today drop it.
fn inner<'s>(at: &'s At<'s>, notes: &mut Notes) -> At<'s> {
    match at.get("namespaceSelector") {
        Some(old) if at.only(&["namespaceSelector"]).is_ok() => {
            notes.warn(&old, "the form of v1alpha1: write the selector in `namespaces` itself");
            old
        }
        _ => *at,
    }
}

fn rules(
    spec: &At<'_>,
    direction: PolicyType,
    dialect: Dialect,
    whole: Option<&Doubt>,
    notes: &mut Notes,
) -> Vec<Read<ClusterRule>> {
    let key = match direction {
        PolicyType::Ingress => "ingress",
        PolicyType::Egress => "egress",
    };
    if !spec.value.is_object() {
        return vec![Read::Unknown(unknown(spec, &spec.doubt("it is no object")))];
    }
    let items = match spec.items(key) {
        Ok(items) => items,
        Err(doubt) => {
            notes.fail(&doubt, becomes(None));
            return vec![Read::Unknown(Unknown { why: doubt.why(), name: None, action: None })];
        }
    };
    limit(spec, key, items.len(), dialect, notes);
    let mut rules = Vec::with_capacity(items.len());
    for item in items {
        let read = rule(&item, direction, dialect, notes);
        rules.push(match (read, whole) {
            (Ok(rule), None) => Read::Known(rule),
            (_, Some(doubt)) => Read::Unknown(unknown(&item, doubt)),
            (Err(doubt), None) => {
                notes.fail(&doubt, becomes(Some(&item)));
                Read::Unknown(unknown(&item, &doubt))
            }
        });
    }
    rules
}

fn limit(at: &At<'_>, key: &str, count: usize, dialect: Dialect, notes: &mut Notes) {
    let most = match dialect {
        Dialect::Upstream => 25,
        Dialect::Aws => 100,
    };
    if count > most {
        notes.warn(at, format!("{count} items in `{key}`: API servers take {most} at most"));
    }
}

fn rule(
    at: &At<'_>,
    direction: PolicyType,
    dialect: Dialect,
    notes: &mut Notes,
) -> Result<ClusterRule, Doubt> {
    let side = match direction {
        PolicyType::Ingress => "from",
        PolicyType::Egress => "to",
    };
    let ports = match dialect {
        Dialect::Upstream => "protocols",
        Dialect::Aws => "ports",
    };
    at.only(&["name", "action", side, ports])?;
    let action = action(at)?;
    let peers = several(at, side, dialect, notes)?;
    let peers: Vec<_> = peers
        .iter()
        .map(|item| peer(item, direction, dialect, action, notes))
        .collect::<Result<_, _>>()?;
    let protocols = if at.get(ports).is_some() {
        let items = several(at, ports, dialect, notes)?;
        let read = |item: &At<'_>| match dialect {
            Dialect::Upstream => upstream_port(item, notes),
            Dialect::Aws => aws_port(item, notes),
        };
        items.iter().map(read).collect::<Result<_, _>>()?
    } else {
        Vec::new()
    };
    let named = protocols.iter().any(|port| matches!(port, ProtocolMatch::Named(_)));
    if named && peers.iter().any(|peer| !matches!(peer, ClusterPeer::Pods(_))) {
        notes.warn(
            at,
            "ports have names at pods alone: by a name, networks and domain names match pods that \
             have such a port and no other address, nodes match nothing; give numbers for those",
        );
    }
    Ok(ClusterRule { name: name(at)?, action, peers, protocols })
}

fn name(at: &At<'_>) -> Result<Option<String>, Doubt> {
    let name = at.get("name").map(|at| at.text().map(str::to_owned)).transpose()?;
    Ok(name.filter(|name| !name.is_empty()))
}

fn action(at: &At<'_>) -> Result<ClusterAction, Doubt> {
    let at = at.get("action").ok_or_else(|| at.lacks("action"))?;
    match at.text()? {
        "Accept" => Ok(ClusterAction::Accept),
        "Deny" => Ok(ClusterAction::Deny),
        "Pass" => Ok(ClusterAction::Pass),
        other => Err(at.doubt(format!("`{other}` is no action: Accept, Deny, Pass"))),
    }
}

/// The items of a list that has at least one.
fn several<'s>(
    at: &'s At<'s>,
    key: &'s str,
    dialect: Dialect,
    notes: &mut Notes,
) -> Result<Vec<At<'s>>, Doubt> {
    let items: Vec<_> = at.items(key)?.collect();
    if items.is_empty() {
        return Err(at.doubt(format!("`{key}` needs at least one item")));
    }
    limit(at, key, items.len(), dialect, notes);
    Ok(items)
}

fn peer(
    at: &At<'_>,
    direction: PolicyType,
    dialect: Dialect,
    action: ClusterAction,
    notes: &mut Notes,
) -> Result<ClusterPeer, Doubt> {
    let known: &[&str] = match (direction, dialect) {
        (PolicyType::Ingress, _) => &["namespaces", "pods"],
        (PolicyType::Egress, Dialect::Aws) => &["namespaces", "pods", "networks", "domainNames"],
        (PolicyType::Egress, Dialect::Upstream) => {
            &["namespaces", "pods", "networks", "domainNames", "nodes"]
        }
    };
    at.only(known)?;
    let mut said = known.iter().filter_map(|key| Some((*key, at.get(key)?)));
    let (Some((key, field)), None) = (said.next(), said.next()) else {
        return Err(at.doubt(format!("a peer is one of {}", known.join(", "))));
    };
    Ok(match key {
        "namespaces" => {
            let namespaces = selector(&inner(&field, notes), notes)?;
            ClusterPeer::Pods(NamespacedPods { namespaces, pods: Selector::default() })
        }
        "pods" => ClusterPeer::Pods(pods(&field, dialect, notes)?),
        "nodes" => ClusterPeer::Nodes(selector(&field, notes)?),
        "networks" => {
            let items = several(at, "networks", Dialect::Upstream, notes)?;
            let mut networks =
                items.iter().map(|item| cidr(item, notes)).collect::<Result<Vec<_>, _>>()?;
            networks.sort_unstable();
            networks.dedup();
            ClusterPeer::Networks(networks)
        }
        _ => {
            if action != ClusterAction::Accept {
                return Err(field.doubt("domain names can be accepted, not denied or passed"));
            }
            let items = several(at, "domainNames", Dialect::Upstream, notes)?;
            ClusterPeer::Domains(items.iter().map(domain).collect::<Result<_, _>>()?)
        }
    })
}

fn pods(at: &At<'_>, dialect: Dialect, notes: &mut Notes) -> Result<NamespacedPods, Doubt> {
    match wide_pods(at, dialect, notes) {
        (pods, None) => Ok(pods),
        (_, Some(doubt)) => Err(doubt),
    }
}

fn upstream_port(at: &At<'_>, notes: &mut Notes) -> Result<ProtocolMatch, Doubt> {
    let known = ["tcp", "udp", "sctp", "destinationNamedPort"];
    at.only(&known)?;
    let mut said = known.iter().filter_map(|key| Some((*key, at.get(key)?)));
    let (Some((key, field)), None) = (said.next(), said.next()) else {
        return Err(at.doubt(format!("it is one of {}", known.join(", "))));
    };
    let protocol = match key {
        "tcp" => Protocol::Tcp,
        "udp" => Protocol::Udp,
        "sctp" => Protocol::Sctp,
        _ => return Ok(ProtocolMatch::Named(port_name(&field)?)),
    };
    field.only(&["destinationPort"])?;
    let Some(port) = field.get("destinationPort") else {
        notes.warn(
            &field,
            "no port is given, so every port matches; API servers require 1 to 65535",
        );
        return Ok(ProtocolMatch::Ports(protocol, None));
    };
    port.only(&["number", "range"])?;
    let range = match (port.get("number"), port.get("range")) {
        (Some(at), None) => one(number(&at)?),
        (None, Some(at)) => {
            at.only(&["start", "end"])?;
            span(&at, notes)?
        }
        _ => return Err(port.doubt("it is one of number, range")),
    };
    Ok(ProtocolMatch::Ports(protocol, Some(range)))
}

fn aws_port(at: &At<'_>, notes: &mut Notes) -> Result<ProtocolMatch, Doubt> {
    let known = ["portNumber", "portRange", "namedPort"];
    at.only(&known)?;
    match (at.get("portNumber"), at.get("portRange"), at.get("namedPort")) {
        (Some(at), None, None) => {
            at.only(&["protocol", "port"])?;
            let port = number(&at.get("port").ok_or_else(|| at.lacks("port"))?)?;
            Ok(ProtocolMatch::Ports(protocol(&at)?, Some(one(port))))
        }
        (None, Some(at), None) => {
            at.only(&["protocol", "start", "end"])?;
            Ok(ProtocolMatch::Ports(protocol(&at)?, Some(span(&at, notes)?)))
        }
        (None, None, Some(at)) => Ok(ProtocolMatch::Named(port_name(&at)?)),
        _ => Err(at.doubt(format!("it is one of {}", known.join(", ")))),
    }
}

fn span(at: &At<'_>, notes: &mut Notes) -> Result<PortRange, Doubt> {
    let start = at.get("start").ok_or_else(|| at.lacks("start"))?;
    let end = at.get("end").ok_or_else(|| at.lacks("end"))?;
    range(&start, Some(&end), notes)
}

fn one(port: u16) -> PortRange {
    PortRange { first: port, last: port }
}

//! AdminNetworkPolicy and BaselineAdminNetworkPolicy, which became ClusterNetworkPolicy.

use super::{ConvertError, chosen};
use crate::Note;
use crate::read::tree::At;
use serde_json::{Map, Value, json};

pub(super) fn spec(
    spec: &At<'_>,
    baseline: bool,
    notes: &mut Vec<Note>,
) -> Result<Value, ConvertError> {
    spec.only(if baseline { &FIELDS[1..] } else { &FIELDS })?;
    let priority = if baseline {
        notes.push(chosen(
            "spec.priority",
            "1000 was chosen: what else is in tier Baseline may come before",
        ));
        Value::from(1000)
    } else {
        let at = spec.get("priority").ok_or_else(|| spec.lacks("priority"))?;
        if !(0..=1000).contains(&at.integer()?) {
            return Err(at.doubt("it is not within 0 to 1000").into());
        }
        at.value.clone()
    };
    let subject = spec.get("subject").ok_or_else(|| spec.lacks("subject"))?;
    let mut converted = Map::new();
    converted.insert("tier".to_owned(), Value::from(if baseline { "Baseline" } else { "Admin" }));
    converted.insert("priority".to_owned(), priority);
    converted.insert("subject".to_owned(), pods_or_namespaces(&subject, &["namespaces", "pods"])?);
    for (key, side) in [("ingress", "from"), ("egress", "to")] {
        let items = few(spec, key)?;
        let rules = items.iter().map(|item| rule(item, side, baseline, notes));
        let rules = rules.collect::<Result<Vec<_>, _>>()?;
        if !rules.is_empty() {
            converted.insert(key.to_owned(), Value::Array(rules));
        }
    }
    Ok(Value::Object(converted))
}

fn rule(
    at: &At<'_>,
    side: &str,
    baseline: bool,
    notes: &mut Vec<Note>,
) -> Result<Value, ConvertError> {
    at.only(&["name", "action", side, "ports"])?;
    let action = at.get("action").ok_or_else(|| at.lacks("action"))?;
    let mut converted = Map::new();
    if let Some(name) = at.get("name") {
        if name.text()?.chars().count() > 100 {
            return Err(name.doubt("it is longer than 100 characters").into());
        }
        converted.insert("name".to_owned(), name.value.clone());
    }
    let word = match action.text()? {
        "Allow" => "Accept",
        "Deny" => "Deny",
        "Pass" if !baseline => "Pass",
        other => return Err(action.doubt(format!("`{other}` is no action of it")).into()),
    };
    converted.insert("action".to_owned(), Value::from(word));
    let mut peers = Vec::new();
    for item in several(at, side)? {
        peers.push(peer(&item, side, word, notes)?);
    }
    converted.insert(side.to_owned(), Value::Array(peers));
    if at.get("ports").is_some() {
        let ports = several(at, "ports")?;
        let ports = ports.iter().map(port).collect::<Result<Vec<_>, _>>()?;
        converted.insert("protocols".to_owned(), Value::Array(ports));
    }
    Ok(Value::Object(converted))
}

fn peer(
    at: &At<'_>,
    side: &str,
    action: &str,
    notes: &mut Vec<Note>,
) -> Result<Value, ConvertError> {
    let known: &[&str] = match side {
        "from" => &["namespaces", "pods"],
        _ => &["namespaces", "pods", "networks", "nodes", "domainNames"],
    };
    if at.get("domainNames").is_some() && action != "Accept" {
        return Err(at.doubt("domain names can be accepted alone").into());
    }
    for key in ["nodes", "domainNames"] {
        if let Some(field) = at.get(key) {
            let text = "only the experimental form of the CRD has this peer";
            notes.push(chosen(&field.path(), text));
        }
    }
    if at.get("networks").is_some() || at.get("domainNames").is_some() {
        few(at, "networks")?;
        few(at, "domainNames")?;
    }
    pods_or_namespaces(at, known)
}

/// A subject or a peer: one of the known fields, with selectors as they are written today.
fn pods_or_namespaces(at: &At<'_>, known: &[&str]) -> Result<Value, ConvertError> {
    at.only(known)?;
    let mut present = known.iter().filter_map(|key| Some((*key, at.get(key)?)));
    let (Some((key, field)), None) = (present.next(), present.next()) else {
        return Err(at.doubt(format!("it is one of {}", known.join(", "))).into());
    };
    let value = match key {
        "namespaces" => namespaces(&field)?,
        "pods" => pods(&field)?,
        _ => field.value.clone(),
    };
    Ok(json!({ key: value }))
}

/// A selector, or in older releases an object that has one.
fn namespaces(at: &At<'_>) -> Result<Value, ConvertError> {
    for key in ["sameLabels", "notSameLabels"] {
        if let Some(field) = at.get(key) {
            return Err(field.doubt("namespaces can no longer be compared by their labels").into());
        }
    }
    match at.get("namespaceSelector") {
        Some(selector) => {
            at.only(&["namespaceSelector"])?;
            Ok(selector.value.clone())
        }
        None => {
            at.only(&["matchLabels", "matchExpressions"])?;
            Ok(at.value.clone())
        }
    }
}

fn pods(at: &At<'_>) -> Result<Value, ConvertError> {
    at.only(&["namespaces", "namespaceSelector", "podSelector"])?;
    let pods = at.get("podSelector").ok_or_else(|| at.lacks("podSelector"))?;
    let namespaces = match (at.get("namespaceSelector"), at.get("namespaces")) {
        (Some(selector), None) => selector.value.clone(),
        (None, Some(older)) => namespaces(&older)?,
        (None, None) => return Err(at.lacks("namespaceSelector").into()),
        (Some(_), Some(_)) => {
            return Err(at.doubt("it has both `namespaces` and `namespaceSelector`").into());
        }
    };
    Ok(json!({"namespaceSelector": namespaces, "podSelector": pods.value}))
}

fn port(at: &At<'_>) -> Result<Value, ConvertError> {
    at.only(&["portNumber", "portRange", "namedPort"])?;
    match (at.get("portNumber"), at.get("portRange"), at.get("namedPort")) {
        (Some(at), None, None) => {
            at.only(&["protocol", "port"])?;
            let port = at.get("port").ok_or_else(|| at.lacks("port"))?;
            Ok(with_protocol(&at, json!({"number": port.value}))?)
        }
        (None, Some(at), None) => {
            at.only(&["protocol", "start", "end"])?;
            let start = at.get("start").ok_or_else(|| at.lacks("start"))?;
            let end = at.get("end").ok_or_else(|| at.lacks("end"))?;
            let port = if start.value == end.value {
                json!({"number": start.value})
            } else {
                json!({"range": {"start": start.value, "end": end.value}})
            };
            Ok(with_protocol(&at, port)?)
        }
        (None, None, Some(name)) => Ok(json!({"destinationNamedPort": name.text()?})),
        _ => Err(at.doubt("it is one of portNumber, portRange, namedPort").into()),
    }
}

fn with_protocol(at: &At<'_>, port: Value) -> Result<Value, ConvertError> {
    let protocol = match at.get("protocol") {
        None => "tcp",
        Some(at) => match at.text()? {
            "TCP" => "tcp",
            "UDP" => "udp",
            "SCTP" => "sctp",
            other => return Err(at.doubt(format!("`{other}` is no protocol with ports")).into()),
        },
    };
    Ok(json!({ protocol: {"destinationPort": port} }))
}

fn several<'s>(at: &'s At<'s>, key: &'s str) -> Result<Vec<At<'s>>, ConvertError> {
    let items = few(at, key)?;
    if items.is_empty() {
        return Err(at.doubt(format!("`{key}` needs at least one item")).into());
    }
    Ok(items)
}

/// The items of a list that the current version has room for.
fn few<'s>(at: &'s At<'s>, key: &'s str) -> Result<Vec<At<'s>>, ConvertError> {
    let items: Vec<_> = at.items(key)?.collect();
    if items.len() > MOST {
        let count = items.len();
        let cause = format!(
            "{count} items in `{key}`, where {MOST} have room: split the policy or the rule"
        );
        return Err(at.doubt(cause).into());
    }
    Ok(items)
}

const FIELDS: [&str; 4] = ["priority", "subject", "ingress", "egress"];

const MOST: usize = 25;

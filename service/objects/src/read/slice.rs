//! Reads an EndpointSlice.

use super::{Problems, RawMeta, ReadError, unusable};
use crate::{
    Endpoint, Family, HEADLESS_LABEL, ObjectName, PROXY_LABEL, Protocol, SERVICE_LABEL, Slice,
    SlicePort, TRIGGER_ANNOTATION, time::milliseconds,
};
use serde::Deserialize;
use serde_json::Value;
use std::net::IpAddr;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Raw {
    metadata: RawMeta,
    #[serde(default)]
    address_type: String,
    /// The API server omits an empty list.
    #[serde(default)]
    ports: Option<Vec<RawPort>>,
    #[serde(default)]
    endpoints: Option<Vec<RawEndpoint>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawPort {
    name: Option<String>,
    protocol: Option<String>,
    port: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawEndpoint {
    addresses: Vec<String>,
    conditions: RawConditions,
    node_name: Option<String>,
    zone: Option<String>,
    hints: Option<RawHints>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawConditions {
    ready: Option<bool>,
    serving: Option<bool>,
    terminating: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawHints {
    for_zones: Vec<RawName>,
    for_nodes: Vec<RawName>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawName {
    name: String,
}

impl Slice {
    /// Reads one object.
    ///
    /// # Errors
    /// The object has no name or Service, has addresses of another kind, or a field has another JSON type.
    pub fn read(object: &Value) -> Result<Self, ReadError> {
        let Raw { metadata, address_type, ports, endpoints } = Raw::deserialize(object)?;
        let name = metadata.object_name()?;
        let label = metadata.labels.get(SERVICE_LABEL).filter(|label| !label.is_empty());
        let service = label.ok_or(ReadError::Missing("label kubernetes.io/service-name"))?;
        let family = match address_type.as_str() {
            "IPv4" => Family::V4,
            "IPv6" => Family::V6,
            _ => return Err(ReadError::AddressType(address_type)),
        };
        let mut problems = Problems::default();
        let ports = ports.unwrap_or_default();
        let endpoints = endpoints.unwrap_or_default().into_iter().enumerate();
        Ok(Self {
            service: ObjectName::new(name.namespace.clone(), service.clone()),
            name,
            family,
            other_proxy: metadata.labels.get(PROXY_LABEL).cloned(),
            headless: metadata.labels.contains_key(HEADLESS_LABEL),
            ports: ports
                .into_iter()
                .enumerate()
                .filter_map(|(at, raw)| port(at, raw, &mut problems))
                .collect(),
            endpoints: endpoints
                .filter_map(|(at, raw)| endpoint(at, raw, family, &mut problems))
                .collect(),
            triggered_ms: metadata
                .annotations
                .get(TRIGGER_ANNOTATION)
                .and_then(|text| milliseconds(text)),
            problems: problems.0,
        })
    }
}

fn port(at: usize, raw: RawPort, problems: &mut Problems) -> Option<SlicePort> {
    // A port without a number is every port, which a proxy cannot translate.
    let port = problems.port(|| format!("ports[{at}].port"), raw.port?)?;
    let protocol = match raw.protocol.as_deref() {
        None | Some("TCP") => Protocol::Tcp,
        Some("UDP") => Protocol::Udp,
        Some("SCTP") => Protocol::Sctp,
        Some(other) => {
            problems.add(format!("ports[{at}].protocol"), format!("unknown protocol {other:?}"));
            return None;
        }
    };
    Some(SlicePort { name: raw.name.unwrap_or_default(), protocol, port })
}

fn endpoint(
    at: usize,
    raw: RawEndpoint,
    family: Family,
    problems: &mut Problems,
) -> Option<Endpoint> {
    let field = || format!("endpoints[{at}].addresses[0]");
    let Some(text) = raw.addresses.first() else {
        problems.add(format!("endpoints[{at}].addresses"), "no address");
        return None;
    };
    let read = text.parse::<IpAddr>().map_err(|error| format!("{text:?}: {error}"));
    let address = problems.ok(field, read)?;
    if Family::of(address) != family {
        problems.add(field(), format!("{address} in a slice of the other family"));
        return None;
    }
    if let Some(cause) = unusable(address) {
        problems.add(field(), format!("{address} {cause}"));
        return None;
    }
    let hints = raw.hints.unwrap_or_default();
    let names = |hints: Vec<RawName>| hints.into_iter().map(|hint| hint.name).collect();
    let ready = raw.conditions.ready.unwrap_or(true);
    Some(Endpoint {
        address,
        ready,
        serving: raw.conditions.serving.unwrap_or(ready),
        terminating: raw.conditions.terminating.unwrap_or(false),
        node: raw.node_name.filter(|name| !name.is_empty()),
        zone: raw.zone.filter(|zone| !zone.is_empty()),
        zone_hints: names(hints.for_zones),
        node_hints: names(hints.for_nodes),
    })
}

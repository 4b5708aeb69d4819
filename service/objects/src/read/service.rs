//! Reads a Service.

use super::{Problems, RawMeta, ReadError, unusable};
use crate::{
    ClientAffinity, HEADLESS_LABEL, Ingress, IngressMode, PROXY_LABEL, Protocol, Service,
    ServicePort,
};
use ipnet::IpNet;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use std::net::IpAddr;

/// The default of Kubernetes: three hours.
const AFFINITY_SECONDS: u32 = 10_800;
/// One day.
const AFFINITY_MAX: i64 = 86_400;
/// The field of the ranges before `spec.loadBalancerSourceRanges`, as an annotation with commas.
const RANGES_ANNOTATION: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

#[derive(Debug, Deserialize)]
struct Raw {
    metadata: RawMeta,
    #[serde(default)]
    spec: RawSpec,
    #[serde(default)]
    status: RawStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawSpec {
    r#type: String,
    #[serde(rename = "clusterIP")]
    cluster_ip: String,
    #[serde(rename = "clusterIPs")]
    cluster_ips: Vec<String>,
    #[serde(rename = "externalIPs")]
    external_ips: Vec<String>,
    load_balancer_source_ranges: Vec<String>,
    ports: Vec<RawPort>,
    internal_traffic_policy: String,
    external_traffic_policy: String,
    health_check_node_port: i64,
    session_affinity: String,
    session_affinity_config: RawAffinity,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawPort {
    name: String,
    protocol: String,
    port: i64,
    #[serde(rename = "nodePort")]
    node_port: i64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawAffinity {
    #[serde(rename = "clientIP")]
    client_ip: RawClientIp,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawClientIp {
    timeout_seconds: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawStatus {
    load_balancer: RawLoadBalancer,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawLoadBalancer {
    ingress: Vec<RawIngress>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawIngress {
    ip: String,
    #[serde(rename = "ipMode")]
    mode: String,
}

impl Service {
    /// Reads one object.
    ///
    /// # Errors
    /// The object has no name, or a field has another JSON type.
    pub fn read(object: &Value) -> Result<Self, ReadError> {
        let Raw { metadata, spec, status } = Raw::deserialize(object)?;
        let name = metadata.object_name()?;
        let mut problems = Problems::default();
        let headless = metadata.labels.contains_key(HEADLESS_LABEL)
            || spec.cluster_ip == "None"
            || spec.cluster_ips.iter().any(|address| address == "None");
        let ranges = ranges(object, &spec, &mut problems);
        Ok(Self {
            name,
            created: metadata.creation_timestamp.unwrap_or_default(),
            kind: word("spec.type", &spec.r#type, &mut problems),
            other_proxy: metadata.labels.get(PROXY_LABEL).cloned(),
            headless,
            cluster_ips: if headless { Vec::new() } else { cluster_ips(&spec, &mut problems) },
            external_ips: addresses("spec.externalIPs", &spec.external_ips, &mut problems),
            ingress: ingress(&status.load_balancer.ingress, &mut problems),
            source_ranges: ranges,
            ports: ports(&spec.ports, &mut problems),
            internal_policy: word(
                "spec.internalTrafficPolicy",
                &spec.internal_traffic_policy,
                &mut problems,
            ),
            external_policy: word(
                "spec.externalTrafficPolicy",
                &spec.external_traffic_policy,
                &mut problems,
            ),
            health_check_node_port: health_check_node_port(&spec, &mut problems),
            affinity: affinity(&spec, &mut problems),
            problems: problems.0,
        })
    }
}

/// A value of a fixed set. An empty one, and an unknown one with a problem, is the default.
fn word<T: DeserializeOwned + Default>(field: &str, text: &str, problems: &mut Problems) -> T {
    if text.is_empty() {
        return T::default();
    }
    let known =
        T::deserialize(serde::de::value::StrDeserializer::<serde::de::value::Error>::new(text));
    problems.ok(|| field.to_owned(), known).unwrap_or_default()
}

fn addresses(field: &str, texts: &[String], problems: &mut Problems) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    for (at, text) in texts.iter().enumerate() {
        let field = || format!("{field}[{at}]");
        let read = text.parse::<IpAddr>().map_err(|error| format!("{text:?}: {error}"));
        let Some(address) = problems.ok(field, read) else { continue };
        if let Some(cause) = unusable(address) {
            problems.add(field(), format!("{address} {cause}"));
        } else if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses
}

fn cluster_ips(spec: &RawSpec, problems: &mut Problems) -> Vec<IpAddr> {
    if spec.cluster_ips.is_empty() && !spec.cluster_ip.is_empty() {
        return addresses("spec.clusterIP", std::slice::from_ref(&spec.cluster_ip), problems);
    }
    addresses("spec.clusterIPs", &spec.cluster_ips, problems)
}

fn ingress(raw: &[RawIngress], problems: &mut Problems) -> Vec<Ingress> {
    let mut found: Vec<Ingress> = Vec::new();
    for (at, raw) in raw.iter().enumerate().filter(|(_, raw)| !raw.ip.is_empty()) {
        let field = format!("status.loadBalancer.ingress[{at}]");
        let mode: IngressMode = match raw.mode.as_str() {
            "" | "VIP" => IngressMode::Vip,
            "Proxy" => IngressMode::Proxy,
            other => {
                // Packets to the load balancer are right with every mode.
                problems.add(format!("{field}.ipMode"), format!("unknown mode {other:?}"));
                IngressMode::Proxy
            }
        };
        let address = addresses(&format!("{field}.ip"), std::slice::from_ref(&raw.ip), problems);
        found.extend(address.into_iter().map(|address| Ingress { address, mode }));
    }
    found
}

fn ranges(object: &Value, spec: &RawSpec, problems: &mut Problems) -> Option<Vec<IpNet>> {
    let annotation = object["metadata"]["annotations"][RANGES_ANNOTATION].as_str();
    let (field, texts): (&str, Vec<&str>) = match annotation {
        _ if !spec.load_balancer_source_ranges.is_empty() => {
            let ranges = spec.load_balancer_source_ranges.iter();
            ("spec.loadBalancerSourceRanges", ranges.map(String::as_str).collect())
        }
        Some(text) if !text.trim().is_empty() => (RANGES_ANNOTATION, text.split(',').collect()),
        _ => return None,
    };
    let mut ranges = Vec::new();
    for (at, text) in texts.into_iter().map(str::trim).enumerate() {
        let read = text.parse::<IpNet>().map_err(|error| format!("{text:?}: {error}"));
        ranges.extend(problems.ok(|| format!("{field}[{at}]"), read).map(|net| net.trunc()));
    }
    Some(ranges)
}

fn ports(raw: &[RawPort], problems: &mut Problems) -> Vec<ServicePort> {
    let mut ports = Vec::new();
    for (at, raw) in raw.iter().enumerate() {
        let Some(port) = problems.port(|| format!("spec.ports[{at}].port"), raw.port) else {
            continue;
        };
        let field = format!("spec.ports[{at}].protocol");
        let known = problems.0.len();
        let protocol: Protocol = word(&field, &raw.protocol, problems);
        if problems.0.len() > known {
            continue;
        }
        let node_port = match raw.node_port {
            0 => None,
            number => problems.port(|| format!("spec.ports[{at}].nodePort"), number),
        };
        ports.push(ServicePort { name: raw.name.clone(), protocol, port, node_port });
    }
    ports
}

fn health_check_node_port(spec: &RawSpec, problems: &mut Problems) -> Option<u16> {
    match spec.health_check_node_port {
        0 => None,
        number => problems.port(|| "spec.healthCheckNodePort".to_owned(), number),
    }
}

fn affinity(spec: &RawSpec, problems: &mut Problems) -> Option<ClientAffinity> {
    match spec.session_affinity.as_str() {
        "" | "None" => return None,
        "ClientIP" => {}
        other => {
            problems.add("spec.sessionAffinity", format!("unknown affinity {other:?}"));
            return None;
        }
    }
    let seconds = spec.session_affinity_config.client_ip.timeout_seconds;
    let timeout_seconds = match seconds {
        None => AFFINITY_SECONDS,
        Some(seconds @ 1..=AFFINITY_MAX) => u32::try_from(seconds).unwrap_or(AFFINITY_SECONDS),
        Some(seconds) => {
            let field = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
            problems.add(field, format!("{seconds} is not from 1 to {AFFINITY_MAX}"));
            AFFINITY_SECONDS
        }
    };
    Some(ClientAffinity { timeout_seconds })
}

#[cfg(test)]
mod tests {
    use super::word;
    use crate::{ServiceKind, TrafficPolicy, read::Problems};

    #[test]
    fn words_are_those_of_kubernetes() {
        let mut problems = Problems::default();
        let kinds = ["", "ClusterIP", "NodePort", "LoadBalancer", "ExternalName"]
            .map(|text| word::<ServiceKind>("spec.type", text, &mut problems));
        let expected = [
            ServiceKind::ClusterIp,
            ServiceKind::ClusterIp,
            ServiceKind::NodePort,
            ServiceKind::LoadBalancer,
            ServiceKind::ExternalName,
        ];
        assert_eq!(kinds, expected);
        assert!(problems.0.is_empty());
        let policy: TrafficPolicy = word("spec.externalTrafficPolicy", "Loacl", &mut problems);
        assert_eq!((policy, problems.0.len()), (TrafficPolicy::Cluster, 1));
    }
}

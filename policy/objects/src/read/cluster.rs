//! Pods, namespaces, nodes, Services.

use super::address::address;
use super::meta::text;
use super::ports::{is_name, number, port_name, protocol};
use super::tree::{At, Doubt, Notes};
use crate::{
    ContainerPort, Meta, NAME_LABEL, Namespace, Node, Operator, Phase, Pod, Requirement, Selector,
    Service, ServicePort, ServiceTarget,
};
use std::collections::BTreeSet;
use std::net::IpAddr;

pub(super) fn pod(meta: Meta, spec: &At<'_>, status: &At<'_>, notes: &mut Notes) -> Pod {
    let account = text(spec, "serviceAccountName", notes);
    Pod {
        meta,
        node: text(spec, "nodeName", notes),
        host_network: spec.get("hostNetwork").is_some_and(|at| at.value.as_bool() == Some(true)),
        service_account: if account.is_empty() { "default".to_owned() } else { account },
        phase: match text(status, "phase", notes).as_str() {
            "Succeeded" | "Failed" => Phase::Ended,
            _ => Phase::Live,
        },
        addresses: pod_addresses(status, notes),
        ports: container_ports(spec, notes),
    }
}

pub(super) fn namespace(mut meta: Meta) -> Namespace {
    meta.labels.insert(NAME_LABEL.to_owned(), meta.name.clone());
    Namespace { meta }
}

pub(super) fn node(meta: Meta, status: &At<'_>, notes: &mut Notes) -> Node {
    let mut addresses = Vec::new();
    for item in items(status, "addresses", notes) {
        let kind = item.value.get("type").and_then(|kind| kind.as_str());
        if matches!(kind, Some("InternalIP" | "ExternalIP"))
            && let Some(at) = item.get("address")
        {
            push(address(&at), &mut addresses, notes);
        }
    }
    Node { meta, addresses }
}

pub(super) fn service(meta: Meta, spec: &At<'_>, notes: &mut Notes) -> Service {
    let mut cluster_ips = Vec::new();
    let several = spec.get("clusterIPs").is_some_and(|at| at.value.get(0).is_some());
    if several {
        for at in items(spec, "clusterIPs", notes) {
            cluster_ip(&at, &mut cluster_ips, notes);
        }
    } else if let Some(at) = spec.get("clusterIP") {
        cluster_ip(&at, &mut cluster_ips, notes);
    }
    let mut ports = Vec::new();
    for item in items(spec, "ports", notes) {
        push(service_port(&item), &mut ports, notes);
    }
    Service { meta, selector: service_selector(spec, notes), cluster_ips, ports }
}

fn cluster_ip(at: &At<'_>, addresses: &mut Vec<IpAddr>, notes: &mut Notes) {
    if !matches!(at.value.as_str(), Some("None" | "")) {
        push(address(at), addresses, notes);
    }
}

fn service_selector(spec: &At<'_>, notes: &mut Notes) -> Option<Selector> {
    let at = spec.get("selector")?;
    let read = at.entries().and_then(|entries| {
        let equal = |(key, value): (&str, At<'_>)| {
            let values = BTreeSet::from([value.text()?.to_owned()]);
            Ok(Requirement { key: key.to_owned(), operator: Operator::In(values) })
        };
        entries.map(equal).collect::<Result<BTreeSet<_>, Doubt>>()
    });
    match read {
        Ok(requirements) if requirements.is_empty() => None,
        Ok(requirements) => Some(Selector { requirements }),
        Err(doubt) => {
            notes.fail(&doubt, "the Service is read as one without a selector");
            None
        }
    }
}

fn service_port(item: &At<'_>) -> Result<ServicePort, Doubt> {
    let target = match item.get("targetPort") {
        None => None,
        Some(at) if is_name(&at) => Some(ServiceTarget::Name(port_name(&at)?)),
        Some(at) if at.value.as_i64() == Some(0) => None,
        Some(at) => Some(ServiceTarget::Number(number(&at)?)),
    };
    Ok(ServicePort {
        name: item.get("name").map_or(Ok(""), |at| at.text())?.to_owned(),
        protocol: protocol(item)?,
        port: number(&item.get("port").ok_or_else(|| item.lacks("port"))?)?,
        target,
    })
}

fn pod_addresses(status: &At<'_>, notes: &mut Notes) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    for item in items(status, "podIPs", notes) {
        if let Some(at) = item.get("ip") {
            push(address(&at), &mut addresses, notes);
        }
    }
    if addresses.is_empty()
        && let Some(at) = status.get("podIP").filter(|at| at.value.as_str() != Some(""))
    {
        push(address(&at), &mut addresses, notes);
    }
    addresses
}

fn container_ports(spec: &At<'_>, notes: &mut Notes) -> Vec<ContainerPort> {
    let mut ports = Vec::new();
    for container in items(spec, "containers", notes) {
        named(&container, &mut ports, notes);
    }
    for container in items(spec, "initContainers", notes) {
        if container.get("restartPolicy").is_some_and(|at| at.value.as_str() == Some("Always")) {
            named(&container, &mut ports, notes);
        }
    }
    ports
}

fn named(container: &At<'_>, ports: &mut Vec<ContainerPort>, notes: &mut Notes) {
    for item in items(container, "ports", notes) {
        let Some(name) = item.get("name").filter(|at| at.value.as_str() != Some("")) else {
            continue;
        };
        let port = container_port(&item, &name);
        if let Ok(port) = &port
            && ports.iter().any(|other: &ContainerPort| other.name == port.name)
        {
            notes.warn(&name, format!("`{}` is the name of another port too", port.name));
        }
        push(port, ports, notes);
    }
}

fn container_port(item: &At<'_>, name: &At<'_>) -> Result<ContainerPort, Doubt> {
    let port = item.get("containerPort").ok_or_else(|| item.lacks("containerPort"))?;
    Ok(ContainerPort {
        name: name.text()?.to_owned(),
        protocol: protocol(item)?,
        port: number(&port)?,
    })
}

/// The items of a list; none where it is not understood, which is noted.
fn items<'s>(at: &'s At<'s>, key: &'s str, notes: &mut Notes) -> Vec<At<'s>> {
    match at.items(key) {
        Ok(items) => items.collect(),
        Err(doubt) => {
            notes.fail(&doubt, "it is not read");
            Vec::new()
        }
    }
}

fn push<T>(read: Result<T, Doubt>, into: &mut Vec<T>, notes: &mut Notes) {
    match read {
        Ok(item) => into.push(item),
        Err(doubt) => notes.fail(&doubt, "it is not read"),
    }
}

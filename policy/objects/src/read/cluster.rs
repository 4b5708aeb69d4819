//! Pods, namespaces, nodes, Services.

use super::address::address;
use super::meta::text;
use super::ports::{is_name, number, port_name, protocol};
use super::tree::{At, Doubt, Notes};
use crate::{
    ContainerPort, Meta, NAME_LABEL, Namespace, Node, Operator, Phase, Pod, Read, Requirement,
    Selector, Service, ServicePort, ServiceTarget, Unknown,
};
use std::collections::BTreeSet;
use std::net::IpAddr;

pub(super) fn pod(meta: Meta, spec: &At<'_>, status: &At<'_>, notes: &mut Notes) -> Pod {
    is_object(spec, notes);
    is_object(status, notes);
    Pod {
        meta,
        node: text(spec, "nodeName", notes),
        host_network: host_network(spec, notes),
        service_account: service_account(spec, notes),
        phase: phase(status, notes),
        addresses: pod_addresses(status, notes),
        ports: container_ports(spec, notes),
    }
}

/// A pod that policies are about by mistake is protected; one that they pass over is not.
fn host_network(spec: &At<'_>, notes: &mut Notes) -> bool {
    spec.get("hostNetwork").is_some_and(|at| match at.flag() {
        Ok(flag) => flag,
        Err(doubt) => {
            notes.fail(&doubt, "the pod is read as one with a network of its own");
            false
        }
    })
}

/// `serviceAccount` is the old name of `serviceAccountName`; API servers write both.
fn service_account(spec: &At<'_>, notes: &mut Notes) -> String {
    let account = text(spec, "serviceAccountName", notes);
    let old = text(spec, "serviceAccount", notes);
    match (account.is_empty(), old.is_empty()) {
        (true, true) => "default".to_owned(),
        (true, false) => old,
        (false, _) => {
            if let Some(at) =
                spec.get("serviceAccount").filter(|_| !old.is_empty() && old != account)
            {
                notes.warn(&at, format!("`serviceAccountName` is `{account}`, and holds"));
            }
            account
        }
    }
}

fn phase(status: &At<'_>, notes: &mut Notes) -> Phase {
    match text(status, "phase", notes).as_str() {
        "Succeeded" | "Failed" => return Phase::Ended,
        "" | "Pending" | "Running" | "Unknown" => {}
        other => {
            if let Some(at) = status.get("phase") {
                notes
                    .warn(&at, format!("`{other}` is no phase: the pod is read as one that lives"));
            }
        }
    }
    Phase::Live
}

pub(super) fn namespace(mut meta: Meta) -> Namespace {
    meta.labels.insert(NAME_LABEL.to_owned(), meta.name.clone());
    Namespace { meta }
}

pub(super) fn node(
    meta: Meta,
    metadata: &At<'_>,
    spec: &At<'_>,
    status: &At<'_>,
    notes: &mut Notes,
) -> Node {
    is_object(status, notes);
    let mut addresses = Vec::new();
    for item in items(status, "addresses", notes) {
        match node_address(&item).transpose() {
            None => {}
            Some(read) => push(read, &mut addresses, notes),
        }
    }
    let taints = items(spec, "taints", notes);
    let is_leaving = metadata.get("deletionTimestamp").is_some()
        || taints.iter().any(|taint| taint.value["key"] == TO_BE_DELETED);
    Node { meta, addresses, is_leaving }
}

/// The key of the taint that the cluster autoscaler sets before it deletes a node.
const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";

/// Names have no address.
fn node_address(item: &At<'_>) -> Result<Option<IpAddr>, Doubt> {
    let kind = item.get("type").ok_or_else(|| item.lacks("type"))?;
    Ok(match kind.text()? {
        "InternalIP" | "ExternalIP" => {
            Some(address(&item.get("address").ok_or_else(|| item.lacks("address"))?)?)
        }
        _ => None,
    })
}

pub(super) fn service(meta: Meta, spec: &At<'_>, status: &At<'_>, notes: &mut Notes) -> Service {
    let mut ports = Vec::new();
    for item in items(spec, "ports", notes) {
        push(service_port(&item), &mut ports, notes);
    }
    let selector =
        known(service_selector(spec), "rules about its pods allow nothing or deny all", notes);
    let cluster_ips =
        known(cluster_ips(spec), "rules with its address allow nothing or deny all", notes);
    Service { meta, selector, cluster_ips, outer_ips: outer_ips(spec, status, notes), ports }
}

/// Skips parts that are not understood: no policy reads them.
fn outer_ips(spec: &At<'_>, status: &At<'_>, notes: &mut Notes) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    for item in values(spec, "externalIPs", notes) {
        push(address(&item), &mut addresses, notes);
    }
    if let Some(balancer) = status.get("loadBalancer") {
        for item in items(&balancer, "ingress", notes) {
            // Others have a name alone.
            if let Some(at) = item.get("ip").filter(|at| at.value.as_str() != Some("")) {
                push(address(&at), &mut addresses, notes);
            }
        }
    }
    addresses
}

fn cluster_ips(spec: &At<'_>) -> Result<Vec<IpAddr>, Doubt> {
    let one = |at: &At<'_>| match at.value.as_str() {
        Some("None" | "") => Ok(None),
        _ => address(at).map(Some),
    };
    let several: Vec<_> = spec.items("clusterIPs")?.collect();
    let read: Vec<_> = match spec.get("clusterIP") {
        Some(at) if several.is_empty() => vec![one(&at)],
        _ => several.iter().map(one).collect(),
    };
    read.into_iter().filter_map(Result::transpose).collect()
}

fn service_selector(spec: &At<'_>) -> Result<Option<Selector>, Doubt> {
    if !spec.value.is_object() {
        return Err(spec.doubt("it is no object"));
    }
    let Some(at) = spec.get("selector") else { return Ok(None) };
    let equal = |(key, value): (&str, At<'_>)| {
        let values = BTreeSet::from([value.text()?.to_owned()]);
        Ok(Requirement { key: key.to_owned(), operator: Operator::In(values) })
    };
    let requirements = at.entries()?.map(equal).collect::<Result<BTreeSet<_>, Doubt>>()?;
    Ok(Some(Selector { requirements }).filter(|selector| !selector.requirements.is_empty()))
}

/// Adds a note with the effect if the value is not understood.
fn known<T>(read: Result<T, Doubt>, becomes: &str, notes: &mut Notes) -> Read<T> {
    match read {
        Ok(known) => Read::Known(known),
        Err(doubt) => {
            notes.fail(&doubt, becomes);
            Read::Unknown(Unknown { why: doubt.why(), name: None, action: None })
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
        let read = item.get("ip").ok_or_else(|| item.lacks("ip")).and_then(|at| address(&at));
        push(read, &mut addresses, notes);
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
        if text(&container, "restartPolicy", notes) == "Always" {
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

/// Adds a note if the value is not an object; the fields in it then count as absent.
fn is_object(at: &At<'_>, notes: &mut Notes) -> bool {
    let is = at.value.is_object();
    if !is {
        notes.fail(&at.unlike("an object"), "it is not read");
    }
    is
}

/// The objects of a list; what is none is noted.
fn items<'s>(at: &'s At<'s>, key: &'s str, notes: &mut Notes) -> Vec<At<'s>> {
    let mut items = values(at, key, notes);
    items.retain(|item| is_object(item, notes));
    items
}

/// The items of a list; none where it is not understood, which is noted.
fn values<'s>(at: &'s At<'s>, key: &'s str, notes: &mut Notes) -> Vec<At<'s>> {
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

//! The bodies of introspection: amazon-vpc-cni's shapes, so that support tools go on working, and
//! what only Ferrule tells.

use super::wall::{NEVER, rfc3339};
use crate::{repair::PassReport, view::View};
use config_settings::{RandomizeSnat, Settings};
use ipamd_core::{EniView, PodView};
use serde_json::{Map, Value, json};
use std::net::IpAddr;

/// Go's `net.IPMask` of a single address.
const MASK_32: &str = "/////w==";

/// `/v1/enis`: by network card. Container ids and interface names are blank, since whoever knows
/// them can ask for a DEL.
pub(super) fn enis(view: &View) -> Value {
    let mut cards: Map<String, Value> = Map::new();
    for eni in view.snapshot.enis.iter().filter(|eni| eni.managed) {
        let card = cards
            .entry(eni.card.0.to_string())
            .or_insert_with(|| json!({ "TotalIPs": 0, "AssignedIPs": 0, "ENIs": {} }));
        for (name, count) in
            [("TotalIPs", eni.counts.total), ("AssignedIPs", u64::from(eni.counts.assigned))]
        {
            let so_far = card[name].as_u64().unwrap_or_default();
            card[name] = json!(so_far + count);
        }
        card["ENIs"][eni.id.as_str()] = one_eni(eni, view);
    }
    Value::Object(cards)
}

fn one_eni(eni: &EniView, view: &View) -> Value {
    let cidrs: Map<String, Value> =
        eni.blocks.iter().map(|block| (block.to_string(), cidr(block.addr(), view))).collect();
    json!({
        "ID": eni.id.as_str(),
        "IsPrimary": eni.device.0 == 0 && eni.card.0 == 0,
        "IsTrunk": false,
        "IsEFA": false,
        "DeviceNumber": eni.device.0,
        "AvailableIPv4Cidrs": cidrs,
        "IPv6Cidrs": {},
        "IsExcludedForPodIPs": false,
        "RouteTableID": eni.table.0,
        "SubnetID": eni.subnet.as_str(),
    })
}

fn cidr(address: IpAddr, view: &View) -> Value {
    let holder = view
        .snapshot
        .pods
        .iter()
        .find(|pod| pod.addresses.iter().any(|held| held.address == address));
    let cooling = view.snapshot.cooling.iter().find(|cooling| cooling.address == address);
    // As there, only addresses that were ever used are listed.
    let mut used = Map::new();
    if holder.is_some() || cooling.is_some() {
        let assigned = holder.map_or_else(|| NEVER.to_owned(), |pod| rfc3339(pod.since, view.now));
        let released =
            cooling.map_or_else(|| NEVER.to_owned(), |cool| rfc3339(cool.released, view.now));
        let text = address.to_string();
        let entry = json!({
            "Address": text,
            "IPAMKey": {
                "networkName": holder.map(|pod| pod.key.network.as_str()).unwrap_or_default(),
                "containerID": "",
                "ifName": "",
            },
            "IPAMMetadata": metadata(holder),
            "AssignedTime": assigned,
            "UnassignedTime": released,
        });
        used.insert(text, entry);
    }
    json!({
        "Cidr": { "IP": address.to_string(), "Mask": MASK_32 },
        "IPAddresses": used,
        "IsPrefix": false,
        "AddressFamily": "4",
    })
}

fn metadata(holder: Option<&PodView>) -> Value {
    holder.map_or_else(
        || json!({}),
        |pod| {
            json!({
                "k8sPodNamespace": pod.pod.namespace,
                "k8sPodName": pod.pod.name,
                "interfacesCount": 1,
            })
        },
    )
}

/// `/v1/ipamd-env-settings`.
pub(super) fn ipamd_settings(settings: &Settings) -> Value {
    json!({
        "WARM_IP_TARGET": settings.warm.ips,
        "WARM_ENI_TARGET": settings.warm.enis,
        "AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG": false,
        "AWS_MANAGE_ENIS_NON_SCHEDULABLE": settings.manage_enis_non_schedulable,
        "ENABLE_SUBNET_DISCOVERY": settings.subnet_discovery,
    })
}

/// `/v1/networkutils-env-settings`.
pub(super) fn network_settings(settings: &Settings) -> Value {
    let texts = |nets: &[ipnet::Ipv4Net]| nets.iter().map(ToString::to_string).collect::<Vec<_>>();
    json!({
        "AWS_VPC_K8S_CNI_CONNMARK": settings.connmark.value,
        "AWS_VPC_K8S_CNI_EXCLUDE_SNAT_CIDRS": texts(&settings.exclude_snat_cidrs),
        "AWS_VPC_K8S_CNI_EXTERNALSNAT": settings.external_snat,
        "AWS_EXTERNAL_SERVICE_CIDRS": texts(&settings.external_service_cidrs),
        "AWS_VPC_ENI_MTU": settings.eni_mtu,
        "AWS_VPC_K8S_CNI_VETHPREFIX": settings.veth_prefix,
        "AWS_VPC_CNI_NODE_PORT_SUPPORT": settings.node_port_support,
        "AWS_VPC_K8S_CNI_RANDOMIZESNAT": match settings.randomize_snat {
            RandomizeSnat::None => 0,
            RandomizeSnat::Hash => 1,
            RandomizeSnat::Prng => 2,
        },
    })
}

/// `/v1/ferrule/pods`: who holds what.
pub(super) fn pods(view: &View) -> Value {
    let each = view.snapshot.pods.iter();
    let each = each.flat_map(|pod| pod.addresses.iter().map(move |held| (pod, held)));
    let pods = each.map(|(pod, held)| {
        json!({
            "namespace": pod.pod.namespace,
            "name": pod.pod.name,
            "network": pod.key.network,
            "address": held.address,
            "eni": held.eni.as_str(),
            "device": held.device.0,
            "card": held.card.0,
            "table": held.table.0,
            "confirmed": pod.confirmed,
            "hostInterface": pod.host_interface,
            "since": rfc3339(pod.since, view.now),
        })
    });
    Value::Array(pods.collect())
}

/// `/v1/ferrule/explain`: how the pool is, what the planner waits for, and why.
pub(super) fn explain(view: &View, report: &PassReport) -> Value {
    let counts = &view.snapshot.counts;
    let waiting = view.snapshot.waiting.iter().map(|waiting| {
        json!({
            "what": waiting.what,
            "why": waiting.why,
            "until": waiting.until.map(|until| rfc3339(until, view.now)),
        })
    });
    let notices = view.notices.iter().map(|(when, notice)| {
        json!({
            "at": rfc3339(*when, view.now),
            "severity": format!("{:?}", notice.severity).to_lowercase(),
            "topic": notice.topic.name(),
            "object": notice.object,
            "cause": notice.cause,
            "nextStep": notice.next_step,
        })
    });
    let troubles = view
        .troubles()
        .into_iter()
        .map(|trouble| json!({ "reason": trouble.reason, "text": trouble.text }));
    let enis = view.snapshot.enis.iter().map(|eni| {
        json!({
            "eni": eni.id.as_str(),
            "device": eni.device.0,
            "ready": eni.ready,
            "managed": eni.managed,
            "leaving": eni.leaving,
            "missing": eni.missing,
            "addresses": eni.counts.total,
        })
    });
    json!({
        "phase": view.phase.to_string(),
        "pool": {
            "enis": counts.enis, "maxEnis": counts.max_enis, "total": counts.total,
            "assigned": counts.assigned, "reserved": counts.reserved, "cooling": counts.cooling,
            "free": counts.free, "usable": counts.usable, "waitingAdds": counts.waiting,
            "calls": counts.calls, "warmShort": view.warm_short(),
        },
        "troubles": troubles.collect::<Vec<_>>(),
        "waiting": waiting.collect::<Vec<_>>(),
        "enis": enis.collect::<Vec<_>>(),
        "hostNetworking": {
            "passes": report.number,
            "lastPassMs": u64::try_from(report.took.as_millis()).unwrap_or(u64::MAX),
            "unsettledPasses": report.unsettled,
            "trouble": report.trouble,
            "notes": report.notes,
        },
        "notices": notices.collect::<Vec<_>>(),
    })
}

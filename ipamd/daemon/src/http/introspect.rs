//! The bodies of introspection: amazon-vpc-cni's formats, so that support tools keep working, and Ferrule's own.

use super::wall::{NEVER, rfc3339};
use crate::{cluster::Cluster, pass_report::PassReport, view::View};
use config_model::{EniId, Time};
use config_settings::{RandomizeSnat, Settings};
use ipamd_core::{BranchEni, EniKind, EniView, PodView, PoolConfig};
use ipamd_kube::ConcernState;
use ipnet::IpNet;
use serde_json::{Map, Value, json};
use std::net::IpAddr;

/// `/v1/enis`: by network card. Container IDs and interface names are blank, because they suffice for a DEL.
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
    let of = |v4: bool| -> Map<String, Value> {
        let blocks = eni.blocks.iter().filter(|block| matches!(block, IpNet::V4(_)) == v4);
        blocks.map(|block| (block.to_string(), cidr(block, view))).collect()
    };
    json!({
        "ID": eni.id.as_str(),
        "IsPrimary": eni.device.0 == 0 && eni.card.0 == 0,
        "IsTrunk": eni.kind == Some(EniKind::Trunk),
        "IsEFA": matches!(eni.kind, Some(EniKind::Efa | EniKind::EfaOnly)),
        "DeviceNumber": eni.device.0,
        "AvailableIPv4Cidrs": of(true),
        "IPv6Cidrs": of(false),
        "IsExcludedForPodIPs": eni.excluded,
        "RouteTableID": eni.table.0,
        "SubnetID": eni.subnet.as_str(),
    })
}

/// As in amazon-vpc-cni, only addresses that were used at least once are listed.
fn cidr(block: &IpNet, view: &View) -> Value {
    let mut used = Map::new();
    for pod in &view.snapshot.pods {
        for held in pod.addresses.iter().filter(|held| block.contains(&held.address)) {
            let text = held.address.to_string();
            used.insert(text, address(held.address, Some(pod), None, view));
        }
    }
    for cooling in view.snapshot.cooling.iter().filter(|it| block.contains(&it.address)) {
        let released = Some(cooling.released);
        let shown = address(cooling.address, None, released, view);
        used.insert(cooling.address.to_string(), shown);
    }
    json!({
        "Cidr": { "IP": block.network().to_string(), "Mask": mask(block) },
        "IPAddresses": used,
        "IsPrefix": block.prefix_len() < block.max_prefix_len(),
        "AddressFamily": if matches!(block, IpNet::V4(_)) { "4" } else { "6" },
    })
}

fn address(
    address: IpAddr,
    holder: Option<&PodView>,
    released: Option<Time>,
    view: &View,
) -> Value {
    let at = |time: Option<Time>| time.map_or_else(|| NEVER.to_owned(), |it| rfc3339(it, view.now));
    json!({
        "Address": address.to_string(),
        "IPAMKey": {
            "networkName": holder.map(|pod| pod.key.network.as_str()).unwrap_or_default(),
            "containerID": "",
            "ifName": "",
        },
        "IPAMMetadata": metadata(holder),
        "AssignedTime": at(holder.map(|pod| pod.since)),
        "UnassignedTime": at(released),
    })
}

/// Go's `net.IPMask` in its JSON encoding, for the lengths that EC2 assigns.
fn mask(block: &IpNet) -> &'static str {
    match (block, block.prefix_len()) {
        (IpNet::V4(_), 28) => "////8A==",
        (IpNet::V4(_), _) => "/////w==",
        (IpNet::V6(_), 80) => "/////////////wAAAAAAAA==",
        (IpNet::V6(_), _) => "/////////////////////w==",
    }
}

fn metadata(holder: Option<&PodView>) -> Value {
    holder.map_or_else(
        || json!({}),
        |pod| {
            json!({
                "k8sPodNamespace": pod.pod.namespace,
                "k8sPodName": pod.pod.name,
                "interfacesCount": pod.addresses.len(),
            })
        },
    )
}

/// `/v1/ipamd-env-settings`.
pub(super) fn ipamd_settings(settings: &Settings) -> Value {
    json!({
        "WARM_IP_TARGET": settings.warm.ips,
        "WARM_ENI_TARGET": settings.warm.enis,
        "AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG": settings.custom_networking.is_some(),
        "AWS_MANAGE_ENIS_NON_SCHEDULABLE": settings.manage_enis_non_schedulable,
        "ENABLE_SUBNET_DISCOVERY": settings.subnet_discovery,
    })
}

fn modes(targets: &PoolConfig) -> Value {
    json!({
        "family": format!("{:?}", targets.family).to_lowercase(),
        "prefixes": targets.prefixes,
        "customNetworking": targets.custom_networking,
        "subnetDiscovery": targets.subnet_discovery,
        "multiNic": targets.multi_nic,
        "podEnis": targets.pod_enis,
        "provisioning": targets.provisioning,
        "imdsOnly": targets.imds_only,
        "manageUntagged": targets.manage_untagged,
        "manageUnschedulable": targets.manage_unschedulable,
        "collectLeaks": targets.collect_leaks,
        "maxPods": targets.max_pods,
    })
}

/// The state of each concern; `null` without an API server.
fn kubernetes(cluster: &Cluster) -> Value {
    let concern_states = cluster.concern_states().into_iter().map(|(concern, standing)| {
        let text = match standing {
            ConcernState::Good => "good".to_owned(),
            ConcernState::Waiting(what) => format!("waiting for {what}"),
            ConcernState::Failing(why) => format!("failing: {why}"),
        };
        (concern.name().to_owned(), Value::String(text))
    });
    let concern_states: Map<String, Value> = concern_states.collect();
    if concern_states.is_empty() { Value::Null } else { Value::Object(concern_states) }
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

/// `/v1/ferrule/pods`: reservations by pod.
pub(super) fn pods(view: &View) -> Value {
    let each = view.snapshot.pods.iter();
    let branches = each.clone().filter_map(|pod| Some(branch(pod, pod.branch.as_ref()?, view)));
    let each = each.flat_map(|pod| pod.addresses.iter().map(move |held| (pod, held)));
    let pods = each.map(|(pod, held)| {
        json!({
            "namespace": pod.pod.namespace,
            "name": pod.pod.name,
            "network": pod.key.network,
            "address": held.address,
            "eni": held.source.eni().map(EniId::as_str),
            "device": held.device.0,
            "card": held.card.0,
            "table": held.table.0,
            "confirmed": pod.confirmed,
            "hostInterface": pod.host_interface,
            "since": rfc3339(pod.since, view.now),
        })
    });
    Value::Array(pods.chain(branches).collect())
}

/// A pod with a branch ENI and without an address of the pool.
fn branch(pod: &PodView, branch: &BranchEni, view: &View) -> Value {
    json!({
        "namespace": pod.pod.namespace,
        "name": pod.pod.name,
        "network": pod.key.network,
        "address": branch.address.map(IpAddr::V4).or(branch.address_v6.map(IpAddr::V6)),
        "eni": branch.eni.as_str(),
        "branch": {
            "mac": branch.mac.to_string(),
            "vlan": branch.vlan,
            "ipv4": branch.address,
            "ipv6": branch.address_v6,
            "subnetCidr": branch.subnet_cidr,
            "subnetV6Cidr": branch.subnet_cidr_v6,
        },
        "confirmed": pod.confirmed,
        "hostInterface": pod.host_interface,
        "since": rfc3339(pod.since, view.now),
    })
}

/// `/v1/ferrule/explain`: the pool, the planner's obstacles, and their causes.
pub(super) fn explain(view: &View, cluster: &Cluster, report: &PassReport) -> Value {
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
    let budgets = view.snapshot.budgets.iter().map(|budget| {
        json!({
            "action": budget.action.name(),
            "milliTokens": budget.milli_tokens,
            "milliPerSecond": budget.rate_milli_per_second,
            "burst": budget.burst,
        })
    });
    let enis = view.snapshot.enis.iter().map(|eni| {
        json!({
            "eni": eni.id.as_str(),
            "card": eni.card.0,
            "kind": eni.kind.map(|kind| format!("{kind:?}").to_lowercase()),
            "excluded": eni.excluded,
            "blocks": eni.blocks.len(),
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
            "calls": counts.calls, "warmShort": view.snapshot.short,
        },
        "troubles": troubles.collect::<Vec<_>>(),
        "waiting": waiting.collect::<Vec<_>>(),
        "enis": enis.collect::<Vec<_>>(),
        "budgets": budgets.collect::<Vec<_>>(),
        "modes": view.targets.as_ref().map(modes),
        "kubernetes": kubernetes(cluster),
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

//! The document that `ferrule ip` reads from each node.

use super::{subnets, wall::rfc3339};
use crate::view::View;
use config_settings::Settings;
use ipamd_core::{CoolingView, EniView, PodView};
use std::net::IpAddr;
use view_node::{Addresses, Eni, PodRef, UsedAddress};

pub(super) fn addresses(view: &View, settings: &Settings) -> Addresses {
    let snapshot = &view.snapshot;
    let assigned = snapshot.pods.iter().flat_map(|pod| assigned(pod, view));
    let cooling = snapshot.cooling.iter().map(|it| cooling(it, view));
    Addresses {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        node: settings.node_name.clone(),
        at: rfc3339(view.now, view.now),
        phase: view.phase.to_string(),
        prefixes: subnets::prefixes(view),
        subnets: subnets::subnets(view),
        enis: snapshot.enis.iter().map(eni).collect(),
        pod_cidrs: snapshot.node_cidrs.iter().map(|it| it.cidr.to_string()).collect(),
        used: assigned.chain(cooling).collect(),
    }
}

fn eni(eni: &EniView) -> Eni {
    Eni {
        id: eni.id.as_str().to_owned(),
        subnet: eni.subnet.as_str().to_owned(),
        subnet_cidr: eni.subnet_cidr.map(|cidr| cidr.to_string()),
        card: eni.card.0,
        device: eni.device.0,
        kind: eni.kind.map(|kind| format!("{kind:?}").to_lowercase()),
        primary_address: eni.primary_address.map(|address| address.to_string()),
        blocks: eni.blocks.iter().map(ToString::to_string).collect(),
        managed: eni.managed,
        excluded: eni.excluded,
        leaving: eni.leaving,
        missing: eni.missing,
        lost: eni.lost.iter().map(ToString::to_string).collect(),
        total: eni.counts.total,
        assigned: eni.counts.assigned,
        cooling: eni.counts.cooling,
        free: eni.counts.free,
    }
}

/// The addresses of the pool only: a branch ENI belongs to its pod, not to the node.
fn assigned(pod: &PodView, view: &View) -> impl Iterator<Item = UsedAddress> {
    let seconds = view.now.since(pod.since).0 / 1000;
    pod.addresses.iter().map(move |held| UsedAddress {
        address: held.address.to_string(),
        eni: held.source.eni().map(|eni| eni.as_str().to_owned()),
        pod: Some(PodRef {
            namespace: pod.pod.namespace.clone(),
            name: pod.pod.name.clone(),
            confirmed: pod.confirmed,
        }),
        seconds,
        stuck_seconds: None,
    })
}

fn cooling(cooling: &CoolingView, view: &View) -> UsedAddress {
    let over = view.now.since(cooling.until).0 / 1000;
    UsedAddress {
        address: cooling.address.to_string(),
        eni: eni_of(cooling.address, view),
        pod: None,
        seconds: view.now.since(cooling.released).0 / 1000,
        stuck_seconds: Some(over).filter(|over| *over > 0 && !cooling.kernel_clean),
    }
}

fn eni_of(address: IpAddr, view: &View) -> Option<String> {
    let has = |eni: &&EniView| eni.blocks.iter().any(|block| block.contains(&address));
    view.snapshot.enis.iter().find(has).map(|eni| eni.id.as_str().to_owned())
}

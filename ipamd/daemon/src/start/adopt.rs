//! Pods that run although the checkpoint does not know them.

use config_model::{PodKey, PodName, Time, registry};
use ipamd_core::{
    Checkpoint, Notice, RECORD_FORMAT, Record, SeenAttachment, SeenEni, Severity, Topic,
};
use ipnet::IpNet;
use routing_plan::{Link, Observed};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
};

/// Adds to the checkpoint every interface whose host end carries its key and has a route to an
/// address of one of the ENIs. Tells which.
pub(super) fn pods_in_kernel(
    mut checkpoint: Checkpoint,
    observed: &Observed,
    enis: &[SeenEni],
    boot_id: &str,
    now: Time,
) -> (Checkpoint, Vec<Notice>) {
    let mut notices = Vec::new();
    let known = confirmed(&checkpoint);
    for (key, link, address) in pods(observed) {
        // What is left of the checkpoint tells more of it than the kernel.
        if known.contains(&(key.clone(), address)) {
            continue;
        }
        let Some((eni, records)) = holding(&key, link, address, enis, now) else { continue };
        if notices.is_empty() {
            // What the kernel shows is of this boot.
            checkpoint.apply(&Record::Boot { format: RECORD_FORMAT, boot_id: boot_id.to_owned() });
        }
        records.iter().for_each(|record| checkpoint.apply(record));
        notices.push(Notice {
            severity: Severity::Warning,
            topic: Topic::Restored,
            object: key.to_string(),
            pod: None,
            cause: format!(
                "it was found in the kernel and not in the checkpoint: {} holds {address} of {}",
                link.name, eni.id
            ),
            next_step: String::new(),
        });
    }
    (checkpoint, notices)
}

/// The pods' addresses that none of the ENIs has, as far as they were seen.
pub(super) fn unplaced(observed: &Observed, enis: &[SeenEni]) -> Vec<String> {
    let addresses = pods(observed).map(|(_, _, address)| address);
    let nowhere = addresses.filter(|address| place(*address, enis).is_none());
    nowhere.map(|address| address.to_string()).collect()
}

/// Every interface whose host end carries its key and leads to an address.
fn pods(observed: &Observed) -> impl Iterator<Item = (PodKey, &Link, Ipv4Addr)> {
    let links = observed.links.values().filter(|link| link.group != registry::GROUP_REAP);
    links.filter_map(|link| {
        let mut routes = observed.routes.iter().filter(|route| route.dev == Some(link.index));
        Some((link.key()?, link, routes.find_map(routing_plan::Route::host_address)?))
    })
}

fn confirmed(checkpoint: &Checkpoint) -> BTreeSet<(PodKey, Ipv4Addr)> {
    let (mut reserved, mut confirmed) = (BTreeMap::new(), BTreeSet::new());
    for record in checkpoint.compact() {
        if let Record::Reserved { key, address, .. } = record {
            reserved.insert(key, address);
        } else if let Record::Confirmed { key, .. } = record {
            confirmed.extend(reserved.remove_entry(&key));
        }
    }
    confirmed
}

fn place(address: Ipv4Addr, enis: &[SeenEni]) -> Option<(&SeenEni, &SeenAttachment)> {
    let has = |eni: &&SeenEni| eni.blocks.contains(&IpNet::from(IpAddr::V4(address)));
    enis.iter().filter(has).find_map(|eni| Some((eni, eni.attachment.as_ref()?)))
}

fn holding<'a>(
    key: &PodKey,
    link: &Link,
    address: Ipv4Addr,
    enis: &'a [SeenEni],
    now: Time,
) -> Option<(&'a SeenEni, [Record; 2])> {
    let (eni, place) = place(address, enis)?;
    let reserved = Record::Reserved {
        key: key.clone(),
        pod: unnamed(&link.name),
        address,
        eni: eni.id.clone(),
        card: place.card,
        device: place.device,
        more: Vec::new(),
        lapses: now,
    };
    let confirmed = Record::Confirmed { key: key.clone(), host_interface: link.name.clone() };
    Some((eni, [reserved, confirmed]))
}

/// A host end's name is a digest of the pod's, which does not tell it. The repair pass finds the
/// link by its key.
fn unnamed(link: &str) -> PodName {
    PodName { namespace: "(unknown)".to_owned(), name: format!("(pod behind {link})") }
}

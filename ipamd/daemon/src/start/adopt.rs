//! Running pods that the checkpoint does not list.

use super::vpc_cni::Allocation;
use config_model::{PodKey, PodName, Span, Time, VethName, registry};
use ipamd_core::{
    BlockSource, Checkpoint, HeldAddress, Notice, RECORD_FORMAT, Record, SeenEni, Severity, Topic,
};
use routing_plan::{Link, LinkKind, Observed};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

/// A pod interface that the kernel shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) key: PodKey,
    pub(super) pod: PodName,
    /// The first of its host ends.
    pub(super) link: String,
    /// One per host end.
    pub(super) addresses: Vec<IpAddr>,
    /// amazon-vpc-cni built it, so its host end has no alias.
    pub(super) adopted: bool,
}

/// The pod interfaces whose host end has an alias with a key and a route to an address. The addresses of a pod's
/// further interfaces belong to the key of its first, as they were reserved.
pub(super) fn marked(observed: &Observed) -> Vec<Found> {
    let mut found: BTreeMap<PodKey, Found> = BTreeMap::new();
    let alive = observed.links.values().filter(|link| link.group != registry::GROUP_REAP);
    let mut ends: Vec<(PodKey, &Link, IpAddr)> =
        alive.filter_map(|link| Some((link.key()?, link, leads_to(link, observed)?))).collect();
    ends.sort_by_key(|(key, ..)| key.number());
    for (key, link, address) in ends {
        if key.number() == 0 {
            let (pod, link) = (unnamed(&link.name), link.name.clone());
            let addresses = vec![address];
            let first = Found { key: key.clone(), pod, link, addresses, adopted: false };
            found.insert(key, first);
            continue;
        }
        let sandbox = (&key.network, &key.container_id);
        let of_sandbox =
            |first: &&mut Found| (&first.key.network, &first.key.container_id) == sandbox;
        if let Some(first) = found.values_mut().find(of_sandbox) {
            first.addresses.push(address);
        }
    }
    found.into_values().collect()
}

/// The entries of the amazon-vpc-cni checkpoint that the kernel confirms. Their host end with the pod's name has no
/// alias of ours, and a route to the address. Other entries belong to deleted pods.
pub(super) fn confirmed_entries(
    allocations: &[Allocation],
    observed: &Observed,
    veth_prefix: &str,
) -> (Vec<Found>, Vec<Notice>) {
    let (mut found, mut stale): (BTreeMap<&PodKey, Found>, Vec<&Allocation>) = Default::default();
    for allocation in allocations {
        let Allocation { key, pod, address } = allocation;
        let of_pod = |pod: &PodName| {
            let index = found.get(key).map_or(0, |found| found.addresses.len());
            let name = VethName::of(veth_prefix, pod, u8::try_from(index).ok()?);
            observed.links.values().find(|link| link.name == name.as_str())
        };
        let link = match pod {
            Some(pod) => of_pod(pod),
            None => observed.links.values().find(|link| leads_to(link, observed) == Some(*address)),
        };
        let fits =
            |link: &&Link| link.alias.is_none() && leads_to(link, observed) == Some(*address);
        let Some(link) = link.filter(fits) else {
            stale.push(allocation);
            continue;
        };
        let interface = found.entry(key).or_insert_with(|| Found {
            key: key.clone(),
            pod: pod.clone().unwrap_or_else(|| unnamed(&link.name)),
            link: link.name.clone(),
            addresses: Vec::new(),
            adopted: true,
        });
        interface.addresses.push(*address);
    }
    let notices = stale.first().map(|first| Notice {
        severity: Severity::Info,
        topic: Topic::Restored,
        object: first.key.to_string(),
        cause: format!(
            "{} of {} entries of the amazon-vpc-cni checkpoint belong to deleted pods: for example, \
             the kernel has no route to {}",
            stale.len(),
            allocations.len(),
            first.address
        ),
        next_step: String::new(),
        pod: None,
    });
    (found.into_values().collect(), notices.into_iter().collect())
}

/// Host ends of pods outside `found`, with their addresses. Pods may run behind them.
pub(super) fn unclaimed<'a>(
    found: &[Found],
    observed: &'a Observed,
    veth_prefix: &str,
) -> Vec<(&'a str, IpAddr)> {
    let claimed: BTreeSet<IpAddr> =
        found.iter().flat_map(|found| found.addresses.iter().copied()).collect();
    let unmarked = observed.links.values().filter(|link| {
        link.kind == LinkKind::Veth && link.alias.is_none() && link.name.starts_with(veth_prefix)
    });
    unmarked
        .filter_map(|link| Some((link.name.as_str(), leads_to(link, observed)?)))
        .filter(|(_, address)| !claimed.contains(address))
        .collect()
}

/// Puts unconfirmed addresses of the amazon-vpc-cni checkpoint into cooldown: an ADD of its plugin may still use
/// one.
pub(super) fn cool(
    mut checkpoint: Checkpoint,
    allocations: &[Allocation],
    found: &[Found],
    enis: &[SeenEni],
    boot_id: &str,
    (now, cooldown): (Time, Span),
) -> Checkpoint {
    let held: BTreeSet<IpAddr> =
        found.iter().flat_map(|found| found.addresses.iter().copied()).collect();
    let rest = allocations.iter().map(|allocation| allocation.address);
    let rest = rest.filter(|address| !held.contains(address));
    let cooling: Vec<Record> = rest
        .filter_map(|address| Some((address, place(address, enis)?.source)))
        .map(|(address, source)| Record::cooling(address, source, now, now + cooldown))
        .collect();
    if !cooling.is_empty() {
        checkpoint.apply(&Record::Boot { format: RECORD_FORMAT, boot_id: boot_id.to_owned() });
    }
    cooling.iter().for_each(|record| checkpoint.apply(record));
    checkpoint
}

/// Adds the interfaces whose addresses belong to a known ENI to the checkpoint, with a notice for each.
pub(super) fn take_over(
    mut checkpoint: Checkpoint,
    found: &[Found],
    enis: &[SeenEni],
    boot_id: &str,
    now: Time,
) -> (Checkpoint, Vec<Notice>) {
    let mut notices = Vec::new();
    let known = confirmed(&checkpoint);
    for Found { key, pod, link, addresses, adopted } in found {
        // The rest of a damaged checkpoint has more information than the kernel.
        if addresses.iter().all(|address| known.contains(&(key.clone(), *address))) {
            continue;
        }
        let held: Option<Vec<HeldAddress>> =
            addresses.iter().map(|address| place(*address, enis)).collect();
        let Some(held) = held else { continue };
        let on: Vec<String> =
            held.iter().map(|held| format!("{} of {}", held.address, held.source)).collect();
        let Some(reserved) = Record::reserved(key.clone(), pod.clone(), held, now) else {
            continue;
        };
        if notices.is_empty() {
            // The kernel's objects belong to this boot.
            checkpoint.apply(&Record::Boot { format: RECORD_FORMAT, boot_id: boot_id.to_owned() });
        }
        checkpoint.apply(&reserved);
        let host_interface = link.clone();
        let (key, marked) = (key.clone(), !*adopted);
        checkpoint.apply(&Record::Confirmed { key: key.clone(), host_interface, marked });
        notices.push(Notice {
            severity: Severity::Warning,
            topic: Topic::Restored,
            object: key.to_string(),
            pod: None,
            cause: format!(
                "recovered from the kernel, absent from the checkpoint: {link} holds {}",
                on.join(", ")
            ),
            next_step: String::new(),
        });
    }
    (checkpoint, notices)
}

/// The addresses that no listed ENI has.
pub(super) fn unplaced(found: &[Found], enis: &[SeenEni]) -> Vec<String> {
    let addresses = found.iter().flat_map(|found| &found.addresses);
    let nowhere = addresses.filter(|address| place(**address, enis).is_none());
    nowhere.map(ToString::to_string).collect()
}

/// The address to which the host has a route over this link.
fn leads_to(link: &Link, observed: &Observed) -> Option<IpAddr> {
    let mut routes = observed.routes.iter().filter(|route| route.dev == Some(link.index));
    routes.find_map(routing_plan::Route::host_address)
}

fn confirmed(checkpoint: &Checkpoint) -> BTreeSet<(PodKey, IpAddr)> {
    let (mut reserved, mut confirmed) = (BTreeMap::new(), BTreeSet::new());
    for record in checkpoint.compact() {
        if let Record::Reserved { key, address, more, .. } = record {
            let more = more.into_iter().map(|held| held.address);
            let all: Vec<IpAddr> = std::iter::once(IpAddr::V4(address)).chain(more).collect();
            reserved.insert(key, all);
        } else if let Record::ReservedV6 { key, addresses, .. }
        | Record::ReservedCidr { key, addresses, .. } = record
        {
            reserved.insert(key, addresses.into_iter().map(|held| held.address).collect());
        } else if let Record::Confirmed { key, .. } = record {
            let addresses = reserved.remove(&key).unwrap_or_default();
            confirmed.extend(addresses.into_iter().map(|address| (key.clone(), address)));
        }
    }
    confirmed
}

fn place(address: IpAddr, enis: &[SeenEni]) -> Option<HeldAddress> {
    let has = |eni: &&SeenEni| eni.blocks.iter().any(|block| block.contains(&address));
    enis.iter().filter(has).find_map(|eni| {
        let place = eni.attachment.as_ref()?;
        let (card, device) = (place.card, place.device);
        let source = BlockSource::Eni(eni.id.clone());
        Some(HeldAddress { address, source, card, device })
    })
}

/// The namespace of pods whose name is not known. No namespace can have this name.
pub(crate) const UNKNOWN_NAMESPACE: &str = "(unknown)";

/// The name of a host end is a digest of the pod's name and does not reveal it. The repair pass finds the link by
/// its key.
fn unnamed(link: &str) -> PodName {
    PodName { namespace: UNKNOWN_NAMESPACE.to_owned(), name: format!("(pod behind {link})") }
}

//! amazon-vpc-cni's checkpoint (`vpc-cni-ipam/1`): parsed before a takeover, written for a rollback.

use crate::{Assignment, File, Refusal, refusal::UNSEEN};
use config_model::{CardIndex, PodKey, PodName, registry};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

/// The only version.
const VERSION: &str = "vpc-cni-ipam/1";
/// The network of entries that predate the file and have only a sandbox ID.
const MIGRATED: &str = "_migrated-from-cri";
const FIRST_INTERFACE: &str = "eth0";

/// An assigned address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Allocation {
    pub(crate) key: PodKey,
    pub(crate) pod: Option<PodName>,
    pub(crate) address: IpAddr,
}

#[derive(Deserialize, Serialize)]
struct Checkpoint {
    version: String,
    allocations: Option<Vec<Entry>>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    network_name: String,
    #[serde(rename = "containerID")]
    container_id: String,
    if_name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ipv4: Option<IpAddr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ipv6: Option<IpAddr>,
    #[serde(default)]
    allocation_timestamp: u64,
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
struct Metadata {
    #[serde(rename = "k8sPodNamespace", default, skip_serializing_if = "String::is_empty")]
    namespace: String,
    #[serde(rename = "k8sPodName", default, skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(rename = "interfacesCount", default, skip_serializing_if = "is_zero")]
    interfaces: usize,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// Returns the name of a network card's checkpoint.
pub(crate) fn file_name(card: CardIndex) -> String {
    if card.0 == 0 { "ipam.json".to_owned() } else { format!("ipam-nic-{}.json", card.0) }
}

/// Returns the entries of all files, those of card 0 first.
pub(crate) fn allocations(files: &[File]) -> Result<Vec<Allocation>, Vec<Refusal>> {
    let mut files: Vec<&File> = files.iter().collect();
    // `ipam-nic-10` comes after `ipam-nic-2`, and `ipam.json` before both.
    files.sort_by_key(|file| (file.name != file_name(CardIndex(0)), file.name.len(), &file.name));
    let (mut found, mut refusals) = (Vec::new(), Vec::new());
    for file in files {
        let read = file.bytes.as_ref().map_err(|why| (why.clone(), UNSEEN));
        match read.and_then(|bytes| parse(bytes).map_err(|why| (why, MISREAD))) {
            Ok(allocations) => found.extend(allocations),
            Err((cause, next)) => {
                refusals.push(Refusal { object: file.name.clone(), cause, next: next.to_owned() });
            }
        }
    }
    let mut holders: BTreeMap<IpAddr, &PodKey> = BTreeMap::new();
    for Allocation { key, address, .. } in &found {
        if let Some(other) = holders.insert(*address, key) {
            refusals.push(Refusal {
                object: address.to_string(),
                cause: format!("the checkpoint gives it to two interfaces, {other} and {key}"),
                next: "delete one of the two pods, and let amazon-vpc-cni's agent start once more"
                    .to_owned(),
            });
        }
    }
    if refusals.is_empty() { Ok(found) } else { Err(refusals) }
}

/// The next step if a checkpoint is not understood.
const MISREAD: &str = "start amazon-vpc-cni's agent once more, which writes the file anew; if it \
                       does not start either, its log tells why";

fn parse(bytes: &[u8]) -> Result<Vec<Allocation>, String> {
    let checkpoint = read(bytes)?;
    let entries = checkpoint.allocations.unwrap_or_default();
    let numbered = (1..).zip(entries);
    numbered
        .map(|(at, entry)| allocation(entry).map_err(|why| format!("its entry {at}: {why}")))
        .collect()
}

fn read(bytes: &[u8]) -> Result<Checkpoint, String> {
    #[derive(Deserialize)]
    struct Head {
        version: String,
    }
    let cut = |error: serde_json::Error| format!("it is no whole checkpoint: {error}");
    // The version is checked first: entries of another version have an unknown meaning.
    let head: Head = serde_json::from_slice(bytes).map_err(cut)?;
    if head.version != VERSION {
        return Err(format!("its version is {:?} and not {VERSION:?}", head.version));
    }
    serde_json::from_slice(bytes).map_err(cut)
}

fn allocation(entry: Entry) -> Result<Allocation, String> {
    let address = match (entry.ipv4, entry.ipv6) {
        (Some(address @ IpAddr::V4(_)), None) | (None, Some(address @ IpAddr::V6(_))) => address,
        (None, None) => return Err("it holds no address".to_owned()),
        (Some(_), _) | (_, Some(_)) => {
            return Err("it does not hold one address in its family's place".to_owned());
        }
    };
    let key = match entry.network_name.as_str() {
        MIGRATED => PodKey::new(registry::CNI_NETWORK, entry.container_id, FIRST_INTERFACE),
        network => PodKey::new(network, entry.container_id, entry.if_name),
    };
    let key = key.map_err(|invalid| invalid.to_string())?;
    let Metadata { namespace, name, .. } = entry.metadata;
    let pod = (!namespace.is_empty() && !name.is_empty()).then_some(PodName { namespace, name });
    Ok(Allocation { key, pod, address })
}

/// Returns amazon-vpc-cni's files by name. The file of card 0 is always written.
pub(crate) fn written(held: &[Assignment], unix_nanos: u64) -> BTreeMap<String, Vec<u8>> {
    let mut entries: BTreeMap<String, Vec<Entry>> = BTreeMap::new();
    entries.insert(file_name(CardIndex(0)), Vec::new());
    for Assignment { key, pod, addresses, .. } in held {
        let metadata = Metadata {
            namespace: pod.as_ref().map(|pod| pod.namespace.clone()).unwrap_or_default(),
            name: pod.as_ref().map(|pod| pod.name.clone()).unwrap_or_default(),
            interfaces: addresses.len(),
        };
        for (address, card, _) in addresses {
            entries.entry(file_name(*card)).or_default().push(Entry {
                network_name: key.network.clone(),
                container_id: key.container_id.clone(),
                if_name: key.ifname.clone(),
                ipv4: Some(*address).filter(IpAddr::is_ipv4),
                ipv6: Some(*address).filter(IpAddr::is_ipv6),
                allocation_timestamp: unix_nanos,
                metadata: metadata.clone(),
            });
        }
    }
    let text = |allocations| {
        let checkpoint = Checkpoint { version: VERSION.to_owned(), allocations: Some(allocations) };
        serde_json::to_vec(&checkpoint).expect("it holds text, numbers and addresses")
    };
    entries.into_iter().map(|(name, allocations)| (name, text(allocations))).collect()
}

/// Returns true if both have the same entries in any order and at any time.
pub fn same_allocations(one: &[u8], other: &[u8]) -> bool {
    let entries = |bytes| -> Option<BTreeSet<String>> {
        let entries = read(bytes).ok()?.allocations.unwrap_or_default();
        let dateless = |entry: Entry| Entry { allocation_timestamp: 0, ..entry };
        entries.into_iter().map(|entry| serde_json::to_string(&dateless(entry)).ok()).collect()
    };
    entries(one).is_some_and(|one| entries(other) == Some(one))
}

/// Returns a checkpoint without entries.
pub(crate) fn empty() -> Vec<u8> {
    format!(r#"{{"version":"{VERSION}","allocations":[]}}"#).into_bytes()
}

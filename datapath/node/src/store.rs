//! The records of the policy journal. A file starts with the node's state at the last rewrite, in the same
//! records as later changes.

mod frame;

pub use frame::HEADER;
pub use runtime_frame::{Damage, Recovered, decode, encode};

use crate::{LocalPod, PodId};
use control_wire::{
    Entry, NodeSnapshot, entry, parts,
    proto::{self, AnnounceRequest, Bookmark, Part},
};
use prost::Message as _;
use std::{collections::BTreeMap, net::IpAddr};

/// A change of the node's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A session of a replica started.
    Begun {
        /// The replica's epoch.
        epoch: Vec<u8>,
    },
    /// A part of a generation, in its wire encoding.
    Part(Vec<u8>),
    /// A bookmark, in its wire encoding.
    Bookmark(Vec<u8>),
    /// A pod was started on this node.
    Started(LocalPod),
    /// A pod was deleted.
    Ended { uid: String },
}

/// The sum of a file's records.
#[derive(Debug, Default)]
pub struct Replayed {
    pub held: NodeSnapshot,
    /// The pods that were started on this node, by UID.
    pub local: BTreeMap<String, LocalPod>,
    /// The error of the first record that does not fit. Only the records before it count.
    pub stopped: Option<String>,
}

/// The records of the whole state, for a rewrite.
pub fn image(held: &NodeSnapshot, local: &BTreeMap<String, LocalPod>) -> Vec<Record> {
    let mut records = Vec::new();
    if !held.epoch.is_empty() {
        records.push(Record::Begun { epoch: held.epoch.clone() });
        let objects: Vec<Entry> = held.objects().map(|(_, object)| entry(&object)).collect();
        let parts = parts(held.generation, &objects);
        records.extend(parts.into_iter().map(|part| Record::Part(part.to_vec())));
        let reached = held
            .reached
            .iter()
            .map(|(kind, version)| proto::Reached { kind: kind.clone(), version: *version });
        let generation = held.generation;
        let reached = reached.collect();
        let bookmark = Bookmark { generation, reached, reports_to: String::new() };
        records.push(Record::Bookmark(bookmark.encode_to_vec()));
    }
    records.extend(local.values().cloned().map(Record::Started));
    records
}

/// Adds up records, oldest first.
pub fn replay(records: impl IntoIterator<Item = Record>) -> Replayed {
    let mut replayed = Replayed::default();
    for record in records {
        if let Err(why) = take(&mut replayed, record) {
            replayed.stopped = Some(why);
            break;
        }
    }
    // Parts of an incomplete generation do not count.
    let epoch = replayed.held.epoch.clone();
    replayed.held.start_stream(&epoch);
    replayed
}

fn take(replayed: &mut Replayed, record: Record) -> Result<(), String> {
    match record {
        Record::Begun { epoch } => replayed.held.start_stream(&epoch),
        Record::Part(bytes) => {
            let part = Part::decode(&*bytes).map_err(|error| error.to_string())?;
            replayed.held.receive(part).map_err(|fault| fault.to_string())?;
        }
        Record::Bookmark(bytes) => {
            let bookmark = Bookmark::decode(&*bytes).map_err(|error| error.to_string())?;
            replayed.held.apply_bookmark(&bookmark);
        }
        Record::Started(pod) => drop(replayed.local.insert(pod.pod.uid.clone(), pod)),
        Record::Ended { uid } => drop(replayed.local.remove(&uid)),
    }
    Ok(())
}

/// The encoding of a started pod.
#[derive(Clone, PartialEq, prost::Message)]
struct Started {
    #[prost(message, optional, tag = "1")]
    pod: Option<AnnounceRequest>,
    #[prost(string, tag = "2")]
    container: String,
}

/// The announcement of a pod to the replicas.
pub fn announcement(local: &LocalPod) -> AnnounceRequest {
    let bytes = |address: &IpAddr| match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    AnnounceRequest {
        uid: local.pod.uid.clone(),
        namespace: local.pod.namespace.clone(),
        name: local.pod.name.clone(),
        addresses: local.addresses.iter().map(bytes).collect(),
    }
}

fn started(sent: Started) -> Option<LocalPod> {
    let Started { pod: Some(sent), container } = sent else { return None };
    let address = |bytes: &Vec<u8>| {
        let four = <[u8; 4]>::try_from(bytes.as_slice()).ok().map(IpAddr::from);
        four.or_else(|| <[u8; 16]>::try_from(bytes.as_slice()).ok().map(IpAddr::from))
    };
    let addresses = sent.addresses.iter().map(address).collect::<Option<_>>()?;
    let pod = PodId { uid: sent.uid, namespace: sent.namespace, name: sent.name };
    Some(LocalPod { pod, container, addresses })
}

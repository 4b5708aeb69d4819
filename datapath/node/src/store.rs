//! What lies on the disk: records, one after the other, each with its length and checksum. A file begins with
//! what was held when it was written anew, in the same records as what came afterwards.

mod frame;

pub use frame::{Damage, HEADER, Recovered, decode, encode};

use crate::{LocalPod, PodId};
use control_wire::{
    Entry, NodeSnapshot, entry, parts,
    proto::{self, AnnounceRequest, Bookmark, Part},
};
use prost::Message as _;
use std::{collections::BTreeMap, net::IpAddr};

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A stream began, of a replica's run.
    Begun {
        /// Which run.
        epoch: Vec<u8>,
    },
    /// A part of a generation, as it is sent.
    Part(Vec<u8>),
    /// How far the cluster was read, as it is sent.
    Bookmark(Vec<u8>),
    /// A pod was started here.
    Started(LocalPod),
    /// It has ended.
    Ended {
        /// Its UID.
        uid: String,
    },
}

/// What a file came to.
#[derive(Debug, Default)]
pub struct Replayed {
    /// What was held.
    pub held: NodeSnapshot,
    /// The pods that were started here.
    pub local: BTreeMap<String, LocalPod>,
    /// Where the records made no sense any more, and why; all before counts.
    pub stopped: Option<String>,
}

/// The records of all that is held: what a file is written anew with.
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

/// Goes through records from the first.
pub fn replay(records: impl IntoIterator<Item = Record>) -> Replayed {
    let mut replayed = Replayed::default();
    for record in records {
        if let Err(why) = take(&mut replayed, record) {
            replayed.stopped = Some(why);
            break;
        }
    }
    // Parts of a generation that is not whole are nothing.
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

/// A pod that was started, as it lies on the disk.
#[derive(Clone, PartialEq, prost::Message)]
struct Started {
    #[prost(message, optional, tag = "1")]
    pod: Option<AnnounceRequest>,
    #[prost(string, tag = "2")]
    container: String,
}

/// A pod of this node, as replicas are told of it.
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

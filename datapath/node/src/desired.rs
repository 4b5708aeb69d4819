//! What a backend is to put into force, and what it says came of it.

use crate::PodId;
use control_wire::{Held, ObjectId, told::Policy};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

/// A pod that was started here, as the plugin has told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalPod {
    /// Which.
    pub pod: PodId,
    /// Its sandbox's container ID; empty if that is not known.
    pub container: String,
    /// Its addresses: known here before the cluster tells them.
    pub addresses: BTreeSet<IpAddr>,
}

/// All that is to be in force, at one moment.
#[derive(Clone, Debug)]
pub struct Desired {
    /// Which state this is; it counts this process's own, since generations are a replica's.
    pub revision: u64,
    /// What the controller has told, of one generation.
    pub held: Arc<Held>,
    /// The pods that were started here, by the UID that the runtime knows: of a static pod that is the
    /// [`runtime_uid`](control_wire::told::Pod::runtime_uid) of its entry ([`Held::entry`]).
    pub local: Arc<BTreeMap<String, LocalPod>>,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied {
    /// It is in force, but for these policies, by UID, each with the reason.
    Done(BTreeMap<String, String>),
    /// Nothing of it is sure to be in force, and why; it is tried again.
    Failed(String),
}

/// The policies of which something is about this pod.
pub(crate) fn policies_of<'a>(held: &'a Held, uid: &str) -> Vec<&'a Policy> {
    let about = |group: &policy_core::index::GroupId| {
        held.applied.get(group).is_some_and(|members| members.contains(uid))
    };
    let concerns = |policy: &&Policy| {
        let closed = policy.isolation.iter().flat_map(|isolation| &isolation.applied);
        closed.chain(policy.rules.iter().flat_map(|rule| &rule.applied)).any(about)
    };
    held.policies.values().map(AsRef::as_ref).filter(concerns).collect()
}

/// Which pods' entries are among these objects.
pub(crate) fn pods_among(objects: &BTreeSet<ObjectId>) -> impl Iterator<Item = &str> {
    objects.iter().filter_map(|object| match object {
        ObjectId::Pod(uid) => Some(uid.as_str()),
        ObjectId::Policy(_) | ObjectId::Address(_) | ObjectId::Applied(_) | ObjectId::Node => None,
    })
}

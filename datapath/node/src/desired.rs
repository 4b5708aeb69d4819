//! The state that a backend puts into force.

use crate::PodId;
use config_model::HostLink;
use control_wire::{KnownId, NodeSnapshot, ObjectId, ObjectKind, SharedMap, model::Policy};
use service_objects::{ObjectName, Service, Slice};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

/// A pod that was started on this node, as the plugin reported it. It is persisted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalPod {
    pub pod: PodId,
    /// The container ID of its sandbox; empty if unknown.
    pub container: String,
    /// From the plugin, before the controller sends them.
    pub addresses: BTreeSet<IpAddr>,
}

/// A pod of this node with its links: what a backend attaches to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The pod, its sandbox and its addresses.
    pub pod: LocalPod,
    /// The host ends of its interfaces, sent by the plugin or observed by alias. They are never read from the disk.
    /// Empty if they are not known: a backend that attaches to links then reports the endpoint as not in force.
    pub links: Vec<HostLink>,
}

/// The endpoints of this node by the UID that the runtime knows: for a static pod that is the
/// [`runtime_uid`](control_wire::model::Pod::runtime_uid) of its entry ([`NodeSnapshot::entry`]).
pub type Endpoints = BTreeMap<String, Arc<Endpoint>>;

/// This node, as EndpointSlices name it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeIdentity {
    pub name: String,
    /// The label `topology.kubernetes.io/zone`, which the controller sends.
    pub zone: Option<String>,
}

/// The Services and EndpointSlices of the cluster. They are empty until a source has sent them: each cluster has the
/// Service `kubernetes`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Services {
    pub services: SharedMap<ObjectName, Arc<Service>>,
    pub slices: SharedMap<ObjectName, Arc<Slice>>,
}

impl Services {
    pub fn is_empty(&self) -> bool {
        self.services.is_empty()
    }
}

/// The Services and slices that were added, changed or removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceChanges {
    pub services: BTreeSet<ObjectName>,
    pub slices: BTreeSet<ObjectName>,
}

impl ServiceChanges {
    /// The Services and slices among changes of a snapshot.
    pub(crate) fn among(changed: &control_wire::Changed) -> Self {
        let of_kind = |kind| changed.of_kind(kind).filter_map(|(id, _)| id.object_name()).collect();
        Self { services: of_kind(ObjectKind::SERVICE), slices: of_kind(ObjectKind::SLICE) }
    }
}

/// The whole state that is to be in force.
#[derive(Clone, Debug)]
pub struct Desired {
    /// Counts the states of this process. Generations are a replica's own and are no order.
    pub revision: u64,
    /// The snapshot of one generation that a replica sent.
    pub state: Arc<NodeSnapshot>,
    /// The node itself.
    pub node: Arc<NodeIdentity>,
    /// The pods of this node.
    pub endpoints: Arc<Endpoints>,
    /// The cluster's Services.
    pub services: Arc<Services>,
    /// The objects that may differ from the last state that this process handed to the backend. `None` requires a full
    /// pass: the first state, a retry, or drift.
    pub changed: Option<Changed>,
}

/// A set of changes between two states.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// The revision of the earlier state.
    pub since: u64,
    /// Objects of the snapshot that were added, changed or removed.
    pub objects: control_wire::Changed,
    /// UIDs of endpoints that were added, changed or removed.
    pub endpoints: BTreeSet<String>,
    pub services: ServiceChanges,
}

/// The policies that apply to this pod.
pub(crate) fn policies_of<'a>(held: &'a NodeSnapshot, uid: &str) -> Vec<&'a Policy> {
    let about = |group: &policy_core::index::GroupId| {
        held.applied.get(group).is_some_and(|members| members.contains(uid))
    };
    let concerns = |policy: &&Policy| {
        let closed = policy.isolation.iter().flat_map(|isolation| &isolation.applied);
        closed.chain(policy.rules.iter().flat_map(|rule| &rule.applied)).any(about)
    };
    held.policies.values().map(AsRef::as_ref).filter(concerns).collect()
}

/// The UIDs of the pods whose entries are among these objects.
pub(crate) fn pods_among(objects: &BTreeSet<ObjectId>) -> impl Iterator<Item = &str> {
    objects.iter().filter_map(|object| match object.known()? {
        KnownId::Pod(uid) => Some(uid),
        KnownId::Policy(_)
        | KnownId::Address(_)
        | KnownId::Applied(_)
        | KnownId::Node
        | KnownId::Service(_)
        | KnownId::Slice(_) => None,
    })
}

//! The objects that a node holds.

use crate::{
    Changed, DecodeError, Difference, Digest, Features, KINDS, KnownId, ObjectId, ObjectKind,
    SERVICE_KINDS, SharedMap, VERSIONS, decode, digest_of, encode,
    model::{AddressGroup, AppliedGroup, Pod, Policy},
    proto::{self, change},
    services::{read_service, read_slice},
};
use policy_core::index::{GroupId, MemberKey};
use service_objects::{ObjectName, Service, Slice};
use std::{
    collections::{BTreeMap, BTreeSet},
    mem::take,
    net::IpAddr,
    sync::Arc,
};
use thiserror::Error;

/// The objects that a replica has sent to a node, as of one generation. Clones share their objects: a clone costs a few
/// reference counts, and the next generation copies as much as it changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeSnapshot {
    /// The run of the replica that sent it; empty before the first stream.
    pub epoch: Vec<u8>,
    /// The generation, as that replica counts.
    pub generation: u64,
    /// The resource version up to which each kind was read for this generation.
    pub reached: BTreeMap<String, u64>,
    /// Policies by UID.
    pub policies: SharedMap<String, Arc<Policy>>,
    /// The peers of rules.
    pub addresses: SharedMap<GroupId, Arc<AddressGroup>>,
    /// The subjects of policies among this node's pods.
    pub applied: SharedMap<GroupId, Arc<AppliedGroup>>,
    /// All pods of this node by UID.
    pub pods: SharedMap<String, Arc<Pod>>,
    /// The addresses of the node itself; `None` until they are received.
    pub node: Option<Arc<[IpAddr]>>,
    /// The node's label `topology.kubernetes.io/zone`.
    pub zone: Option<Arc<str>>,
    /// True if the node is about to be deleted, or has no Node object.
    pub is_leaving: bool,
    /// The Services of the cluster, for an agent that serves them.
    pub services: SharedMap<ObjectName, Arc<Service>>,
    pub slices: SharedMap<ObjectName, Arc<Slice>>,
    /// The parts received so far of the next generation.
    parts: Vec<proto::Part>,
    /// No generation of this stream was applied yet: the first may have the number of the one that is held.
    fresh: bool,
}

/// The result of receiving a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The generation has more parts; the snapshot has not changed.
    Incomplete,
    /// The node holds the next generation, with these changes to the one before.
    Applied(Changed),
}

/// The reason for refusing a generation. The node keeps the one before, and resyncs by digests.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Fault {
    /// A message cannot be decoded.
    #[error("generation {generation} cannot be read: {why}")]
    Unreadable {
        /// The generation that is refused.
        generation: u64,
        /// The cause.
        why: DecodeError,
    },
    /// A change to an object that the node does not hold.
    #[error("generation {generation} changes {object}, which this node does not hold")]
    Unknown {
        /// The generation that is refused.
        generation: u64,
        /// The missing object.
        object: ObjectId,
    },
    /// A part of another generation than the one under way, or of a past one.
    #[error("a part of generation {generation} came where one after {held} was due")]
    OutOfOrder {
        /// The generation of the part.
        generation: u64,
        /// The generation that is held, or of which parts were received.
        held: u64,
    },
}

impl NodeSnapshot {
    /// Receives a part. The last part of a generation applies all of the generation at once, or nothing of it.
    pub fn receive(&mut self, part: proto::Part) -> Result<Progress, Fault> {
        let fits = match self.parts.first() {
            Some(first) => part.generation == first.generation,
            None if self.fresh => part.generation >= self.generation,
            None => part.generation > self.generation,
        };
        if !fits {
            let held = self.parts.first().map_or(self.generation, |first| first.generation);
            self.parts.clear();
            return Err(Fault::OutOfOrder { generation: part.generation, held });
        }
        let (last, generation) = (part.last, part.generation);
        self.parts.push(part);
        if !last {
            return Ok(Progress::Incomplete);
        }
        let parts = take(&mut self.parts);
        let mut next = self.shared_objects();
        let (mut touched, mut ignored) = (BTreeSet::new(), 0);
        let mut members: BTreeMap<GroupId, BTreeSet<MemberKey>> = BTreeMap::new();
        for change in parts.iter().flat_map(|part| &part.changes) {
            let Some(id) = next.change(change).map_err(|cause| cause.of(generation))? else {
                ignored += 1;
                continue;
            };
            if let Some(KnownId::Address(group)) = id.known() {
                let is_whole = touched.contains(&id) && !members.contains_key(&group);
                match members_of(change) {
                    Some(of) if !is_whole => members.entry(group).or_default().extend(of),
                    Some(_) | None => drop(members.remove(&group)),
                }
            }
            touched.insert(id);
        }
        let mut changed = Changed { ignored, members, ..Changed::default() };
        for id in touched {
            let difference = match (self.holds(&id), next.holds(&id)) {
                (false, true) => Difference::Added,
                (true, true) => Difference::Changed,
                (true | false, false) => Difference::Removed,
            };
            changed.insert(id, difference);
        }
        let (epoch, reached) = (take(&mut self.epoch), take(&mut self.reached));
        *self = Self { epoch, generation, reached, ..next };
        Ok(Progress::Applied(changed))
    }

    /// A snapshot with the same objects, without the position in the stream. It allocates nothing.
    fn shared_objects(&self) -> Self {
        Self {
            policies: self.policies.clone(),
            addresses: self.addresses.clone(),
            applied: self.applied.clone(),
            pods: self.pods.clone(),
            node: self.node.clone(),
            zone: self.zone.clone(),
            is_leaving: self.is_leaving,
            services: self.services.clone(),
            slices: self.slices.clone(),
            ..Self::default()
        }
    }

    /// Starts a stream: drops the parts of an incomplete generation. Another epoch counts its generations from 0.
    pub fn start_stream(&mut self, epoch: &[u8]) {
        self.parts.clear();
        self.fresh = true;
        if self.epoch != epoch {
            self.epoch = epoch.to_vec();
            self.generation = 0;
        }
    }

    /// Takes the read positions of a bookmark, if it is about the generation that is held or an earlier one.
    pub fn apply_bookmark(&mut self, bookmark: &proto::Bookmark) {
        if bookmark.generation <= self.generation {
            let positions = bookmark.reached.iter();
            // All of them: a kind that the cluster no longer has is not waited for.
            self.reached = positions.map(|at| (at.kind.clone(), at.version)).collect();
        }
    }

    /// The entry of a pod by the UID that its runtime knows: the pod's own or, for a static pod, the kubelet's. The
    /// name must match as well, as the mirror object of a static pod may name any UID.
    pub fn entry(&self, uid: &str, namespace: &str, name: &str) -> Option<&Pod> {
        let is_named = |pod: &&Pod| pod.namespace == namespace && pod.name == name;
        let is_static = |pod: &&Pod| pod.runtime_uid == uid && !uid.is_empty() && is_named(pod);
        let own = self.pods.get(uid).map(|pod| &**pod).filter(is_named);
        own.or_else(|| self.pods.values().map(|pod| &**pod).find(is_static))
    }

    /// The first message of a stream: this snapshot, and what this version of the node can hold. Services and slices are
    /// among it if the node serves them.
    pub fn hello(&self, take_behind: bool, serves: bool) -> proto::Hello {
        let is_held = |kind: &ObjectKind| serves || !SERVICE_KINDS.contains(kind);
        let digest = |(id, digest): (ObjectId, Digest)| proto::Digest {
            id: Some(id.to_proto()),
            hash: digest.0.to_vec(),
        };
        let reached = self.reached.iter();
        let reached =
            reached.map(|(kind, version)| proto::Reached { kind: kind.clone(), version: *version });
        proto::Hello {
            versions: Some(proto::Versions { oldest: *VERSIONS.start(), newest: *VERSIONS.end() }),
            epoch: self.epoch.clone(),
            generation: self.generation,
            reached: reached.collect(),
            holds: self
                .digests()
                .into_iter()
                .filter(|(id, _)| is_held(&id.kind))
                .map(digest)
                .collect(),
            take_behind,
            kinds: KINDS.iter().filter(|kind| is_held(kind)).map(|kind| kind.0).collect(),
            features: Features::supported().iter().collect(),
        }
    }

    /// The digests of all objects, in the order of ids.
    pub fn digests(&self) -> Vec<(ObjectId, Digest)> {
        self.objects().map(|(id, object)| (id, digest_of(&object))).collect()
    }

    /// All objects as they are sent, in the order of ids.
    pub fn objects(&self) -> impl Iterator<Item = (ObjectId, proto::Change)> + '_ {
        let policies = self.policies.iter();
        let policies = policies.map(|(uid, of)| (ObjectId::policy(uid), (&**of).into()));
        let addresses = self.addresses.iter();
        let addresses =
            addresses.map(|(id, of)| (ObjectId::address(*id), encode::address_group(*id, of)));
        let applied = self.applied.iter();
        let applied =
            applied.map(|(id, of)| (ObjectId::applied(*id), encode::applied_group(*id, of)));
        let pods = self.pods.iter().map(|(uid, of)| (ObjectId::pod(uid), (&**of).into()));
        let zone = self.zone.as_deref();
        let leaving = self.is_leaving;
        let node =
            self.node.iter().map(move |of| (ObjectId::node(), encode::node(of, zone, leaving)));
        let services = self.services.iter();
        let services = services.map(|(name, of)| (ObjectId::service(name), (&**of).into()));
        let slices = self.slices.iter();
        let slices = slices.map(|(name, of)| (ObjectId::slice(name), (&**of).into()));
        let policies = policies.chain(addresses).chain(applied).chain(pods).chain(node);
        policies.chain(services).chain(slices)
    }

    /// True if the node holds the object.
    pub fn holds(&self, id: &ObjectId) -> bool {
        match id.known() {
            Some(KnownId::Policy(uid)) => self.policies.contains_key(uid),
            Some(KnownId::Address(id)) => self.addresses.contains_key(&id),
            Some(KnownId::Applied(id)) => self.applied.contains_key(&id),
            Some(KnownId::Pod(uid)) => self.pods.contains_key(uid),
            Some(KnownId::Node) => self.node.is_some(),
            Some(KnownId::Service(_)) => {
                id.object_name().is_some_and(|name| self.services.contains_key(&name))
            }
            Some(KnownId::Slice(_)) => {
                id.object_name().is_some_and(|name| self.slices.contains_key(&name))
            }
            None => false,
        }
    }

    /// Applies a change. `None`: its kind is unknown here. Replicas do not send these, and one that does must not keep
    /// the rest of its generation from this node.
    fn change(&mut self, change: &proto::Change) -> Result<Option<ObjectId>, Cause> {
        let Some(of) = change.of.as_ref() else { return Ok(None) };
        let id = match of {
            change::Of::Policy(sent) => {
                let policy = decode::policy(sent)?;
                let id = ObjectId::policy(&policy.uid);
                self.policies.insert(policy.uid.clone(), Arc::new(policy));
                id
            }
            change::Of::Pod(sent) => {
                let pod = decode::pod(sent)?;
                let id = ObjectId::pod(&pod.uid);
                self.pods.insert(pod.uid.clone(), Arc::new(pod));
                id
            }
            change::Of::AddressGroup(sent) => {
                let (id, group) = decode::address_group(sent)?;
                self.addresses.insert(id, Arc::new(group));
                ObjectId::address(id)
            }
            change::Of::AddressChange(sent) => self.address_change(sent)?,
            change::Of::AppliedGroup(sent) => {
                let id = decode::group(&sent.id)?;
                self.applied.insert(id, Arc::new(sent.members.iter().cloned().collect()));
                ObjectId::applied(id)
            }
            change::Of::AppliedChange(sent) => {
                let id = decode::group(&sent.id)?;
                let unknown = || Cause::Unknown(ObjectId::applied(id));
                let mut group = self.applied.get(&id).cloned().ok_or_else(unknown)?;
                let members = Arc::make_mut(&mut group);
                sent.removed.iter().for_each(|uid| _ = members.remove(uid));
                members.extend(sent.added.iter().cloned());
                self.applied.insert(id, group);
                ObjectId::applied(id)
            }
            change::Of::Node(sent) => {
                self.node = Some(decode::addresses(&sent.addresses)?.into());
                self.zone = Some(sent.zone.as_str()).filter(|zone| !zone.is_empty()).map(Arc::from);
                self.is_leaving = sent.leaving;
                ObjectId::node()
            }
            change::Of::Service(sent) => {
                let service = read_service(sent)?;
                let id = ObjectId::service(&service.name);
                self.services.insert(service.name.clone(), Arc::new(service));
                id
            }
            change::Of::Slice(sent) => {
                let slice = read_slice(sent)?;
                let id = ObjectId::slice(&slice.name);
                self.slices.insert(slice.name.clone(), Arc::new(slice));
                id
            }
            change::Of::Removed(sent) => {
                if !KINDS.contains(&ObjectKind(sent.kind)) {
                    return Ok(None);
                }
                let id = ObjectId::read(sent)?;
                self.remove(&id);
                id
            }
        };
        Ok(Some(id))
    }

    fn remove(&mut self, id: &ObjectId) {
        match id.known() {
            Some(KnownId::Policy(uid)) => drop(self.policies.remove(uid)),
            Some(KnownId::Address(id)) => drop(self.addresses.remove(&id)),
            Some(KnownId::Applied(id)) => drop(self.applied.remove(&id)),
            Some(KnownId::Pod(uid)) => drop(self.pods.remove(uid)),
            Some(KnownId::Node) => (self.node, self.zone, self.is_leaving) = (None, None, false),
            Some(KnownId::Service(_)) => {
                id.object_name().map(|name| self.services.remove(&name));
            }
            Some(KnownId::Slice(_)) => {
                id.object_name().map(|name| self.slices.remove(&name));
            }
            None => {}
        }
    }

    fn address_change(&mut self, sent: &proto::AddressChange) -> Result<ObjectId, Cause> {
        let id = decode::group(&sent.id)?;
        let unknown = || Cause::Unknown(ObjectId::address(id));
        let mut shared = self.addresses.get(&id).cloned().ok_or_else(unknown)?;
        let group = Arc::make_mut(&mut shared);
        for key in &sent.removed {
            group.members.remove(&decode::key(key));
        }
        for member in &sent.added {
            let (key, member) = decode::member(member)?;
            group.members.insert(key, member);
        }
        if let Some(holds) = &sent.holds {
            group.holds = decode::holds(holds)?.into();
        }
        self.addresses.insert(id, shared);
        Ok(ObjectId::address(id))
    }
}

/// The members that a change of a group is about; `None` if it is about the whole group.
fn members_of(change: &proto::Change) -> Option<impl Iterator<Item = MemberKey>> {
    let Some(change::Of::AddressChange(sent)) = &change.of else { return None };
    let added = sent.added.iter().filter_map(|member| member.key.as_ref());
    sent.holds.is_none().then(|| added.chain(&sent.removed).map(decode::key))
}

enum Cause {
    Unreadable(DecodeError),
    Unknown(ObjectId),
}

impl Cause {
    fn of(self, generation: u64) -> Fault {
        match self {
            Self::Unreadable(why) => Fault::Unreadable { generation, why },
            Self::Unknown(object) => Fault::Unknown { generation, object },
        }
    }
}

impl From<DecodeError> for Cause {
    fn from(why: DecodeError) -> Self {
        Self::Unreadable(why)
    }
}

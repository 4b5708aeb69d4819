//! What a node holds.

use crate::{
    Digest, ObjectId, Unreadable, decode, digest_of, encode,
    proto::{self, change},
    told::{AddressGroup, AppliedGroup, Member, Pod, Policy},
};
use policy_core::index::{GroupId, Holds, MemberKey};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};
use thiserror::Error;

/// All that a node has been told, of one generation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Held {
    /// The run of the replica that told it; empty before anything was told.
    pub epoch: Vec<u8>,
    /// Its generation.
    pub generation: u64,
    /// How far each kind had been read for it.
    pub reached: BTreeMap<String, u64>,
    /// Policies by UID.
    pub policies: BTreeMap<String, Arc<Policy>>,
    /// With whom.
    pub addresses: BTreeMap<GroupId, AddressGroup>,
    /// Whom policies are about, among this node's pods.
    pub applied: BTreeMap<GroupId, AppliedGroup>,
    /// Every pod of this node, by UID.
    pub pods: BTreeMap<String, Pod>,
    /// The addresses of the node itself, once they are told.
    pub node: Option<Vec<IpAddr>>,
    /// The parts of the next generation that are there.
    parts: Vec<proto::Part>,
    /// No generation of this stream was applied yet: the first may be the one that is held.
    fresh: bool,
}

/// What became of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More parts of its generation are to come; nothing has changed.
    Waits,
    /// The node holds the next generation. These objects are others now, or gone.
    Holds(BTreeSet<ObjectId>),
}

/// Why a generation was refused. The node still holds the one before: it follows anew and compares.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Fault {
    /// A message that cannot be read.
    #[error("generation {generation} cannot be read: {why}")]
    Unreadable {
        /// Which.
        generation: u64,
        /// Why not.
        why: Unreadable,
    },
    /// A change of something that is not there.
    #[error("generation {generation} changes {object}, which this node does not hold")]
    Unknown {
        /// Which.
        generation: u64,
        /// What is missing.
        object: ObjectId,
    },
    /// Parts of two generations, or one that is over.
    #[error("a part of generation {generation} came where one after {held} was due")]
    OutOfOrder {
        /// Which.
        generation: u64,
        /// The one that is held, or of which parts are there.
        held: u64,
    },
}

impl Held {
    /// Takes in a part. With the last part of a generation all of it is applied at once; if anything of it
    /// cannot be, nothing is.
    pub fn take(&mut self, part: proto::Part) -> Result<Progress, Fault> {
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
            return Ok(Progress::Waits);
        }
        let parts = std::mem::take(&mut self.parts);
        // Groups are large and change a little: what changes is put aside, not the whole.
        let mut undo = Undo::default();
        let mut touched = BTreeSet::new();
        for change in parts.iter().flat_map(|part| &part.changes) {
            match self.change(change, &mut undo) {
                Ok(object) => drop(touched.insert(object)),
                Err(fault) => {
                    undo.undo(self);
                    return Err(fault.of(generation));
                }
            }
        }
        (self.generation, self.fresh) = (generation, false);
        Ok(Progress::Holds(touched))
    }

    /// A new stream begins: parts of a generation that broke off are forgotten. Of another epoch, generations
    /// are counted anew.
    pub fn begin(&mut self, epoch: &[u8]) {
        self.parts.clear();
        self.fresh = true;
        if self.epoch != epoch {
            self.epoch = epoch.to_vec();
            self.generation = 0;
        }
    }

    /// How far the cluster was read for the generation that is held.
    pub fn mark(&mut self, bookmark: &proto::Bookmark) {
        if bookmark.generation <= self.generation {
            let told = bookmark.reached.iter();
            // All of it: a kind that the cluster does not have any more is not waited for.
            self.reached = told.map(|told| (told.kind.clone(), told.version)).collect();
        }
    }

    /// A pod's entry, by the UID that a runtime gives it: its own or, of a static pod, the kubelet's. The name must be
    /// the pod's as well, as what stands for a static pod may say any UID.
    pub fn entry(&self, uid: &str, namespace: &str, name: &str) -> Option<&Pod> {
        let is_named = |pod: &&Pod| pod.namespace == namespace && pod.name == name;
        let is_static = |pod: &&Pod| pod.runtime_uid == uid && !uid.is_empty() && is_named(pod);
        let own = self.pods.get(uid).filter(is_named);
        own.or_else(|| self.pods.values().find(is_static))
    }

    /// The digests of everything that is held, in the order of ids.
    pub fn digests(&self) -> Vec<(ObjectId, Digest)> {
        self.objects().map(|(id, object)| (id, digest_of(&object))).collect()
    }

    /// Everything that is held, as it is sent.
    pub fn objects(&self) -> impl Iterator<Item = (ObjectId, proto::Change)> + '_ {
        let policies = self.policies.iter();
        let policies = policies.map(|(uid, of)| (ObjectId::Policy(uid.clone()), (&**of).into()));
        let addresses = self.addresses.iter();
        let addresses =
            addresses.map(|(id, of)| (ObjectId::Address(*id), encode::address_group(*id, of)));
        let applied = self.applied.iter();
        let applied =
            applied.map(|(id, of)| (ObjectId::Applied(*id), encode::applied_group(*id, of)));
        let pods = self.pods.iter().map(|(uid, of)| (ObjectId::Pod(uid.clone()), of.into()));
        let node = self.node.iter().map(|of| (ObjectId::Node, encode::node(of)));
        policies.chain(addresses).chain(applied).chain(pods).chain(node)
    }

    fn change(&mut self, change: &proto::Change, undo: &mut Undo) -> Result<ObjectId, Why> {
        let of = change.of.as_ref();
        match of.ok_or_else(|| Unreadable("a change of nothing that is known here".to_owned()))? {
            change::Of::Policy(sent) => {
                let policy = decode::policy(sent)?;
                let id = ObjectId::Policy(policy.uid.clone());
                undo.policy(self, &policy.uid);
                self.policies.insert(policy.uid.clone(), Arc::new(policy));
                Ok(id)
            }
            change::Of::Pod(sent) => {
                let pod = decode::pod(sent)?;
                let id = ObjectId::Pod(pod.uid.clone());
                undo.pod(self, &pod.uid);
                self.pods.insert(pod.uid.clone(), pod);
                Ok(id)
            }
            change::Of::AddressGroup(sent) => {
                let (id, group) = decode::address_group(sent)?;
                undo.address(self, id);
                self.addresses.insert(id, group);
                Ok(ObjectId::Address(id))
            }
            change::Of::AddressChange(sent) => self.address_change(sent, undo),
            change::Of::AppliedGroup(sent) => {
                let id = decode::group(&sent.id)?;
                undo.applied(self, id);
                self.applied.insert(id, sent.members.iter().cloned().collect());
                Ok(ObjectId::Applied(id))
            }
            change::Of::AppliedChange(sent) => {
                let id = decode::group(&sent.id)?;
                undo.applied(self, id);
                let unknown = || Why::Unknown(ObjectId::Applied(id));
                let group = self.applied.get_mut(&id).ok_or_else(unknown)?;
                sent.removed.iter().for_each(|uid| _ = group.remove(uid));
                group.extend(sent.added.iter().cloned());
                Ok(ObjectId::Applied(id))
            }
            change::Of::Node(sent) => {
                let addresses = decode::addresses(&sent.addresses)?;
                undo.steps.push(Step::Node(self.node.replace(addresses)));
                Ok(ObjectId::Node)
            }
            change::Of::Removed(sent) => {
                let id = ObjectId::read(sent)?;
                match &id {
                    ObjectId::Policy(uid) => {
                        undo.policy(self, uid);
                        self.policies.remove(uid);
                    }
                    ObjectId::Address(id) => {
                        undo.address(self, *id);
                        self.addresses.remove(id);
                    }
                    ObjectId::Applied(id) => {
                        undo.applied(self, *id);
                        self.applied.remove(id);
                    }
                    ObjectId::Pod(uid) => {
                        undo.pod(self, uid);
                        self.pods.remove(uid);
                    }
                    ObjectId::Node => undo.steps.push(Step::Node(self.node.take())),
                }
                Ok(id)
            }
        }
    }

    fn address_change(
        &mut self,
        sent: &proto::AddressChange,
        undo: &mut Undo,
    ) -> Result<ObjectId, Why> {
        let id = decode::group(&sent.id)?;
        let Some(group) = self.addresses.get_mut(&id) else {
            return Err(Why::Unknown(ObjectId::Address(id)));
        };
        for key in &sent.removed {
            let key = decode::key(key);
            let was = group.members.remove(&key);
            undo.steps.push(Step::Member(id, key, was));
        }
        for member in &sent.added {
            let (key, member) = decode::member(member)?;
            let was = group.members.insert(key.clone(), member);
            undo.steps.push(Step::Member(id, key, was));
        }
        if let Some(holds) = &sent.holds {
            let was = std::mem::replace(&mut group.holds, decode::holds(holds)?);
            undo.steps.push(Step::Holds(id, was));
        }
        Ok(ObjectId::Address(id))
    }
}

enum Why {
    Unreadable(Unreadable),
    Unknown(ObjectId),
}

impl Why {
    fn of(self, generation: u64) -> Fault {
        match self {
            Self::Unreadable(why) => Fault::Unreadable { generation, why },
            Self::Unknown(object) => Fault::Unknown { generation, object },
        }
    }
}

impl From<Unreadable> for Why {
    fn from(why: Unreadable) -> Self {
        Self::Unreadable(why)
    }
}

/// What was there before each change, the last first to be put back.
#[derive(Default)]
struct Undo {
    steps: Vec<Step>,
}

enum Step {
    Policy(String, Option<Arc<Policy>>),
    Pod(String, Option<Pod>),
    Address(GroupId, Option<AddressGroup>),
    Applied(GroupId, Option<AppliedGroup>),
    Member(GroupId, MemberKey, Option<Member>),
    Holds(GroupId, Holds),
    Node(Option<Vec<IpAddr>>),
}

impl Undo {
    fn policy(&mut self, held: &Held, uid: &str) {
        self.steps.push(Step::Policy(uid.to_owned(), held.policies.get(uid).cloned()));
    }

    fn pod(&mut self, held: &Held, uid: &str) {
        self.steps.push(Step::Pod(uid.to_owned(), held.pods.get(uid).cloned()));
    }

    /// The whole group: it is about to be replaced.
    fn address(&mut self, held: &Held, id: GroupId) {
        self.steps.push(Step::Address(id, held.addresses.get(&id).cloned()));
    }

    fn applied(&mut self, held: &Held, id: GroupId) {
        self.steps.push(Step::Applied(id, held.applied.get(&id).cloned()));
    }

    fn undo(self, held: &mut Held) {
        for step in self.steps.into_iter().rev() {
            match step {
                Step::Policy(uid, was) => put(&mut held.policies, uid, was),
                Step::Pod(uid, was) => put(&mut held.pods, uid, was),
                Step::Address(id, was) => put(&mut held.addresses, id, was),
                Step::Applied(id, was) => put(&mut held.applied, id, was),
                Step::Member(id, key, was) => {
                    if let Some(group) = held.addresses.get_mut(&id) {
                        put(&mut group.members, key, was);
                    }
                }
                Step::Holds(id, was) => {
                    if let Some(group) = held.addresses.get_mut(&id) {
                        group.holds = was;
                    }
                }
                Step::Node(was) => held.node = was,
            }
        }
    }
}

fn put<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) {
    match value {
        Some(value) => drop(map.insert(key, value)),
        None => drop(map.remove(&key)),
    }
}

//! The identity of objects that nodes hold, and their digests.

use crate::{DecodeError, Digest, group, proto};
use policy_core::index::GroupId;
use prost::Message as _;
use service_objects::ObjectName;
use smallvec::SmallVec;
use std::{fmt, str};

/// A kind of object by its number in [`proto::ObjectKind`]. A newer peer may name kinds that this crate does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKind(pub i32);

impl ObjectKind {
    /// A policy; its key is a UID.
    pub const POLICY: Self = Self(proto::ObjectKind::Policy as i32);
    /// An address group; its key is 16 bytes.
    pub const ADDRESS_GROUP: Self = Self(proto::ObjectKind::AddressGroup as i32);
    /// An applied-to group; its key is 16 bytes.
    pub const APPLIED_GROUP: Self = Self(proto::ObjectKind::AppliedGroup as i32);
    /// A pod; its key is a UID.
    pub const POD: Self = Self(proto::ObjectKind::Pod as i32);
    /// The node itself; its key is empty.
    pub const NODE: Self = Self(proto::ObjectKind::Node as i32);
    /// A Service; its key is namespace and name with a slash between.
    pub const SERVICE: Self = Self(proto::ObjectKind::Service as i32);
    /// An EndpointSlice; its key has the same form.
    pub const SLICE: Self = Self(proto::ObjectKind::Slice as i32);
}

/// An object: its kind, and a key within that kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    pub kind: ObjectKind,
    /// The key of a group is held inline. A replica copies ids of groups for each node and stream.
    key: SmallVec<[u8; 16]>,
}

/// An [`ObjectId`] of a kind that [`NodeSnapshot`](crate::NodeSnapshot) holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownId<'a> {
    /// A policy by its UID.
    Policy(&'a str),
    /// An address group.
    Address(GroupId),
    /// An applied-to group.
    Applied(GroupId),
    /// A pod by its UID.
    Pod(&'a str),
    /// The node itself.
    Node,
    /// A Service by namespace/name.
    Service(&'a str),
    /// An EndpointSlice by namespace/name.
    Slice(&'a str),
}

/// The digest of an object.
pub fn digest_of(object: &proto::Change) -> Digest {
    if let Some(proto::change::Of::AddressGroup(of)) = &object.of
        && let Some(digest) = group::of_whole(of)
    {
        return digest;
    }
    Digest::of(&object.encode_to_vec())
}

impl ObjectId {
    /// An object of any kind.
    pub fn new(kind: ObjectKind, key: &[u8]) -> Self {
        Self { kind, key: SmallVec::from_slice(key) }
    }

    /// A policy by its UID.
    pub fn policy(uid: &str) -> Self {
        Self::new(ObjectKind::POLICY, uid.as_bytes())
    }

    /// An address group.
    pub fn address(id: GroupId) -> Self {
        Self::new(ObjectKind::ADDRESS_GROUP, &id.0)
    }

    /// An applied-to group.
    pub fn applied(id: GroupId) -> Self {
        Self::new(ObjectKind::APPLIED_GROUP, &id.0)
    }

    /// A pod by its UID.
    pub fn pod(uid: &str) -> Self {
        Self::new(ObjectKind::POD, uid.as_bytes())
    }

    /// The node itself.
    pub fn node() -> Self {
        Self::new(ObjectKind::NODE, &[])
    }

    /// A Service by its name, whose text has one slash.
    pub fn service(name: &ObjectName) -> Self {
        Self::new(ObjectKind::SERVICE, name.to_string().as_bytes())
    }

    /// An EndpointSlice by its name.
    pub fn slice(name: &ObjectName) -> Self {
        Self::new(ObjectKind::SLICE, name.to_string().as_bytes())
    }

    /// The name of a Service or an EndpointSlice; `None` for other objects.
    pub fn object_name(&self) -> Option<ObjectName> {
        let (KnownId::Service(name) | KnownId::Slice(name)) = self.known()? else { return None };
        let (namespace, name) = name.split_once('/')?;
        Some(ObjectName::new(namespace, name))
    }

    /// The key within the kind.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The object, if it is of a kind that this crate knows and its key is of that kind's form.
    pub fn known(&self) -> Option<KnownId<'_>> {
        let text = || str::from_utf8(&self.key).ok();
        let is_name = |text: &&str| text.split('/').count() == 2;
        let group = || <[u8; 16]>::try_from(&*self.key).ok().map(GroupId);
        match self.kind {
            ObjectKind::POLICY => text().map(KnownId::Policy),
            ObjectKind::ADDRESS_GROUP => group().map(KnownId::Address),
            ObjectKind::APPLIED_GROUP => group().map(KnownId::Applied),
            ObjectKind::POD => text().map(KnownId::Pod),
            ObjectKind::NODE => self.key.is_empty().then_some(KnownId::Node),
            ObjectKind::SERVICE => text().filter(is_name).map(KnownId::Service),
            ObjectKind::SLICE => text().filter(is_name).map(KnownId::Slice),
            ObjectKind(_) => None,
        }
    }

    /// The message.
    pub fn to_proto(&self) -> proto::ObjectId {
        proto::ObjectId { kind: self.kind.0, id: self.key.to_vec() }
    }

    /// Reads a message. An object of an unknown kind is accepted with any key.
    ///
    /// # Errors
    /// If there is no kind, or the key is not of its kind's form.
    pub fn read(sent: &proto::ObjectId) -> Result<Self, DecodeError> {
        let id = Self::new(ObjectKind(sent.kind), &sent.id);
        if sent.kind == 0 {
            return Err(DecodeError("the id of an object names no kind".to_owned()));
        }
        if crate::KINDS.contains(&id.kind) && id.known().is_none() {
            let length = sent.id.len();
            let why =
                format!("a key of {length} bytes cannot name an object of kind {}", sent.kind);
            return Err(DecodeError(why));
        }
        Ok(id)
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.known() {
            Some(KnownId::Policy(uid)) => write!(f, "policy {uid}"),
            Some(KnownId::Address(id)) => write!(f, "address group {id}"),
            Some(KnownId::Applied(id)) => write!(f, "applied-to group {id}"),
            Some(KnownId::Pod(uid)) => write!(f, "pod {uid}"),
            Some(KnownId::Node) => f.write_str("the node"),
            Some(KnownId::Service(name)) => write!(f, "Service {name}"),
            Some(KnownId::Slice(name)) => write!(f, "EndpointSlice {name}"),
            None => write!(f, "object {:?} of kind {}", self.key, self.kind.0),
        }
    }
}

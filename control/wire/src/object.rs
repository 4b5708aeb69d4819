//! The objects that a node is told of, and their digests.

use crate::{Unreadable, proto};
use policy_core::index::GroupId;
use prost::Message as _;
use sha1::{Digest as _, Sha1};
use std::fmt;

/// Which object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectId {
    /// A policy, by its UID.
    Policy(String),
    /// An address group.
    Address(GroupId),
    /// An applied-to group.
    Applied(GroupId),
    /// A pod, by its UID.
    Pod(String),
    /// The node itself: it has one.
    Node,
}

/// The first half of SHA-1 over an object's encoding, of a large group's over those of its buckets
/// ([`group`](crate::group)): what differs has another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 16]);

/// The digest of an object.
pub fn digest_of(object: &proto::Change) -> Digest {
    if let Some(proto::change::Of::AddressGroup(group)) = &object.of
        && let Some(digest) = crate::group::of_whole(group)
    {
        return digest;
    }
    Digest::of(&object.encode_to_vec())
}

impl Digest {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut digest = [0; 16];
        digest.copy_from_slice(&Sha1::digest(bytes)[..16]);
        Self(digest)
    }
}

impl ObjectId {
    /// As it is sent.
    pub fn to_proto(&self) -> proto::ObjectId {
        let (kind, id) = match self {
            Self::Policy(uid) => (proto::ObjectKind::Policy, uid.as_bytes().to_vec()),
            Self::Address(id) => (proto::ObjectKind::AddressGroup, id.0.to_vec()),
            Self::Applied(id) => (proto::ObjectKind::AppliedGroup, id.0.to_vec()),
            Self::Pod(uid) => (proto::ObjectKind::Pod, uid.as_bytes().to_vec()),
            Self::Node => (proto::ObjectKind::Node, Vec::new()),
        };
        proto::ObjectId { kind: kind.into(), id }
    }

    /// As it was sent.
    pub fn read(sent: &proto::ObjectId) -> Result<Self, Unreadable> {
        let text = || {
            let text = String::from_utf8(sent.id.clone());
            text.map_err(|_| Unreadable("the id of an object is no text".to_owned()))
        };
        match sent.kind() {
            proto::ObjectKind::Policy => text().map(Self::Policy),
            proto::ObjectKind::Pod => text().map(Self::Pod),
            proto::ObjectKind::AddressGroup => crate::decode::group(&sent.id).map(Self::Address),
            proto::ObjectKind::AppliedGroup => crate::decode::group(&sent.id).map(Self::Applied),
            proto::ObjectKind::Node => Ok(Self::Node),
            proto::ObjectKind::Unspecified => {
                Err(Unreadable(format!("kind {} of an object is not known here", sent.kind)))
            }
        }
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(uid) => write!(f, "policy {uid}"),
            Self::Address(id) => write!(f, "address group {id}"),
            Self::Applied(id) => write!(f, "applied-to group {id}"),
            Self::Pod(uid) => write!(f, "pod {uid}"),
            Self::Node => write!(f, "the node"),
        }
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

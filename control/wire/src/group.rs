//! The digest of an address group with many members.
//!
//! Members are put into buckets by their keys, and the digest covers the buckets' digests. With cached bucket
//! digests a change costs one bucket, however large the group is.

use crate::{Digest, encode, proto};
use policy_core::index::{GroupId, MemberKey};
use prost::Message as _;
use proto::change;

/// Maximum number of members of a group without buckets.
pub const FEW: usize = 256;
/// Number of buckets of a larger group.
pub const BUCKETS: usize = 256;

/// Returns the bucket of a member. It also depends on the UID, which is random, so a user cannot fill one bucket
/// by a choice of names.
pub fn bucket_of(key: &MemberKey) -> usize {
    of_key(&encode::member_key(key))
}

fn of_key(key: &proto::MemberKey) -> usize {
    let Digest([first, ..]) = Digest::of(&key.encode_to_vec());
    usize::from(first)
}

/// A bucket of a group, as a change that adds its members: these in the order of their keys.
pub fn bucket(id: GroupId, members: Vec<proto::Member>) -> proto::Change {
    of_members(&id.0, members)
}

fn of_members(id: &[u8], added: Vec<proto::Member>) -> proto::Change {
    let (removed, holds) = (Vec::new(), None);
    change::Of::AddressChange(proto::AddressChange { id: id.to_vec(), added, removed, holds })
        .into()
}

/// The digest of a group of many members: from that of the group without them, and those of all buckets; an
/// empty one has none.
pub fn digest_of_many(
    without: Digest,
    buckets: impl IntoIterator<Item = Option<Digest>>,
) -> Digest {
    // No encoding starts with this byte, so none is mistaken for such a list.
    let mut all = Vec::with_capacity(1 + (1 + BUCKETS) * without.0.len());
    all.push(0);
    all.extend(without.0);
    for bucket in buckets {
        all.extend(bucket.map_or([0; 32], |digest| digest.0));
    }
    Digest::of(&all)
}

/// The digest of a group, if it has many members.
pub(crate) fn of_whole(group: &proto::AddressGroup) -> Option<Digest> {
    if group.members.len() <= FEW {
        return None;
    }
    let mut buckets = vec![Vec::new(); BUCKETS];
    for member in &group.members {
        buckets[of_key(member.key.as_ref().unwrap_or(&NOBODY))].push(member.clone());
    }
    let (id, holds) = (group.id.clone(), group.holds.clone());
    let without = proto::AddressGroup { id, members: Vec::new(), holds };
    let without = of_change(&change::Of::AddressGroup(without).into());
    let digest = |members: Vec<proto::Member>| {
        (!members.is_empty()).then(|| of_change(&of_members(&group.id, members)))
    };
    Some(digest_of_many(without, buckets.into_iter().map(digest)))
}

fn of_change(change: &proto::Change) -> Digest {
    Digest::of(&change.encode_to_vec())
}

const NOBODY: proto::MemberKey =
    proto::MemberKey { namespace: String::new(), name: String::new(), uid: String::new() };

//! Whole encoded address groups for nodes that lack them, and their digests for new streams.
//!
//! A group is encoded on its first request. A change of a large group is recorded and costs one bucket at the next
//! request; a small group is encoded again.

use control_wire::{
    Digest, Entry, encode, entry,
    group::{BUCKETS, FEW, bucket, bucket_of, digest_of_many},
    model,
    proto::{self, change},
};
use policy_core::index::{GroupDelta, GroupId, GroupState, Holds, Member, MemberKey};
use std::{collections::BTreeMap, sync::Arc};

/// Bound on the cached encoded groups, in bytes. Beyond it a group is encoded for each request.
const KEPT_BYTES: usize = 64 << 20;
/// Maximum number of changed members since the last request of a group; beyond it the group is encoded again.
const MAX_CHANGES: usize = 4_096;

/// A group in the encoding that nodes receive.
#[derive(Clone, Debug)]
pub(crate) struct EncodedGroup {
    pub(crate) digest: Digest,
    pub(crate) entries: Arc<[Entry]>,
}

#[derive(Debug, Default)]
pub(crate) struct GroupCache {
    small: BTreeMap<GroupId, EncodedGroup>,
    large: BTreeMap<GroupId, LargeGroup>,
    bytes: usize,
}

#[derive(Debug)]
struct LargeGroup {
    encoded: EncodedGroup,
    /// The group without members.
    head: Part,
    buckets: Vec<Option<Part>>,
    members: usize,
    /// Members that changed since the last request.
    changes: BTreeMap<MemberKey, Option<Arc<Member>>>,
    holds: Option<Holds>,
}

#[derive(Clone, Debug)]
struct Part {
    entry: Entry,
    digest: Digest,
}

impl Part {
    fn new(change: &proto::Change) -> Self {
        let entry = entry(change);
        Self { digest: entry.digest(), entry }
    }
}

impl GroupCache {
    pub(crate) fn change(&mut self, delta: &GroupDelta) {
        let Some(large) = self.large.get_mut(&delta.id) else { return self.forget(delta.id) };
        // Removals are first: a new member may have the key of a removed one.
        large.changes.extend(delta.removed.iter().map(|key| (key.clone(), None)));
        let added = delta.added.iter().map(|member| (member.key(), Some(member.clone())));
        large.changes.extend(added);
        if delta.holds.is_some() {
            large.holds.clone_from(&delta.holds);
        }
        if large.changes.len() > MAX_CHANGES.min(large.members) {
            self.forget(delta.id);
        }
    }

    /// Drops the encoding of a removed or replaced group.
    pub(crate) fn forget(&mut self, id: GroupId) {
        let small = self.small.remove(&id);
        let large = self.large.remove(&id).map(|large| large.encoded);
        self.bytes -= small.iter().chain(&large).map(EncodedGroup::bytes).sum::<usize>();
    }

    /// Returns the current encoding of a group. `state` reads the group if it has to be encoded.
    pub(crate) fn get(
        &mut self,
        id: GroupId,
        state: impl FnOnce() -> Option<GroupState>,
    ) -> Option<EncodedGroup> {
        if let Some(encoded) = self.small.get(&id) {
            return Some(encoded.clone());
        }
        if let Some(large) = self.large.get_mut(&id) {
            let before = large.encoded.bytes();
            if large.refresh(id).is_some() {
                let encoded = large.encoded.clone();
                self.bytes = self.bytes - before + encoded.bytes();
                if self.bytes > KEPT_BYTES {
                    self.forget(id);
                }
                return Some(encoded);
            }
            self.forget(id);
        }
        let state = state()?;
        if state.members.len() > FEW {
            let large = LargeGroup::new(id, &state);
            let encoded = large.encoded.clone();
            if self.has_room(&encoded) {
                self.large.insert(id, large);
            }
            return Some(encoded);
        }
        let encoded = small(id, &state);
        if self.has_room(&encoded) {
            self.small.insert(id, encoded.clone());
        }
        Some(encoded)
    }

    fn has_room(&mut self, encoded: &EncodedGroup) -> bool {
        let bytes = self.bytes + encoded.bytes();
        let fits = bytes <= KEPT_BYTES;
        if fits {
            self.bytes = bytes;
        }
        fits
    }
}

impl EncodedGroup {
    fn bytes(&self) -> usize {
        self.entries.iter().map(Entry::len).sum()
    }
}

impl LargeGroup {
    fn new(id: GroupId, state: &GroupState) -> Self {
        let mut members = vec![Vec::new(); BUCKETS];
        for (key, member) in &state.members {
            members[bucket_of(key)].push(sent_member(member));
        }
        let part = |members: Vec<proto::Member>| {
            (!members.is_empty()).then(|| Part::new(&bucket(id, members)))
        };
        let head = head(id, &state.holds);
        let buckets: Vec<_> = members.into_iter().map(part).collect();
        let (members, changes) = (state.members.len(), BTreeMap::new());
        let encoded = assemble(&head, &buckets);
        Self { encoded, head, buckets, members, changes, holds: None }
    }

    /// Applies the recorded changes. `None` if the group has few members now or cannot be read.
    fn refresh(&mut self, id: GroupId) -> Option<()> {
        if self.changes.is_empty() && self.holds.is_none() {
            return Some(());
        }
        if let Some(holds) = self.holds.take() {
            self.head = head(id, &holds);
        }
        let mut by_bucket: BTreeMap<usize, Vec<_>> = BTreeMap::new();
        for (key, member) in std::mem::take(&mut self.changes) {
            by_bucket.entry(bucket_of(&key)).or_default().push((key, member));
        }
        for (at, changes) in by_bucket {
            let part = self.buckets[at].as_ref();
            let was = part.map_or(Some(Vec::new()), |part| part.entry.added())?;
            self.members -= was.len();
            let mut members: BTreeMap<MemberKey, proto::Member> =
                was.into_iter().filter_map(|member| Some((key(&member)?, member))).collect();
            for (key, member) in changes {
                match member {
                    Some(member) => drop(members.insert(key, sent_member(&member))),
                    None => drop(members.remove(&key)),
                }
            }
            self.members += members.len();
            let members: Vec<_> = members.into_values().collect();
            self.buckets[at] = (!members.is_empty()).then(|| Part::new(&bucket(id, members)));
        }
        if self.members <= FEW {
            return None;
        }
        self.encoded = assemble(&self.head, &self.buckets);
        Some(())
    }
}

fn assemble(head: &Part, buckets: &[Option<Part>]) -> EncodedGroup {
    let digests = buckets.iter().map(|part| part.as_ref().map(|part| part.digest));
    let digest = digest_of_many(head.digest, digests);
    let parts = [head].into_iter().chain(buckets.iter().flatten());
    EncodedGroup { digest, entries: parts.map(|part| part.entry.clone()).collect() }
}

fn small(id: GroupId, state: &GroupState) -> EncodedGroup {
    let part = Part::new(&group(id, &state.holds, state.members.values()));
    EncodedGroup { digest: part.digest, entries: [part.entry].into() }
}

fn head(id: GroupId, holds: &Holds) -> Part {
    Part::new(&group(id, holds, []))
}

fn group<'a>(
    id: GroupId,
    holds: &Holds,
    members: impl IntoIterator<Item = &'a Arc<Member>>,
) -> proto::Change {
    let members = members.into_iter().map(|member| sent_member(member)).collect();
    let holds = Some(encode::holds(holds));
    change::Of::AddressGroup(proto::AddressGroup { id: id.0.to_vec(), members, holds }).into()
}

fn key(member: &proto::Member) -> Option<MemberKey> {
    let proto::MemberKey { namespace, name, uid } = member.key.clone()?;
    Some(MemberKey { namespace, name, uid })
}

/// Returns a member in the form that nodes receive.
pub(crate) fn sent_member(member: &Member) -> proto::Member {
    let (addresses, ports) = (member.addresses.clone(), member.ports.clone());
    encode::member(&member.key(), &model::Member { addresses, ports })
}

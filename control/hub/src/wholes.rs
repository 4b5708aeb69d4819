//! Encoded whole address groups for nodes that lack them, and their digests for new streams.
//!
//! A group is encoded on its first request. A change of a large group is put aside and costs one bucket at the next
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
const NEWS: usize = 4_096;

/// A group as it is sent.
#[derive(Clone, Debug)]
pub(crate) struct Whole {
    pub(crate) digest: Digest,
    pub(crate) entries: Arc<[Entry]>,
}

/// Cached groups.
#[derive(Debug, Default)]
pub(crate) struct Wholes {
    few: BTreeMap<GroupId, Whole>,
    many: BTreeMap<GroupId, Many>,
    bytes: usize,
}

#[derive(Debug)]
struct Many {
    whole: Whole,
    /// The group without members.
    head: Part,
    buckets: Vec<Option<Part>>,
    members: usize,
    /// Members that changed since the last request.
    news: BTreeMap<MemberKey, Option<Arc<Member>>>,
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

impl Wholes {
    /// A group changed.
    pub(crate) fn change(&mut self, delta: &GroupDelta) {
        let Some(many) = self.many.get_mut(&delta.id) else { return self.forget(delta.id) };
        // In the order in which the index has it: a member may come in place of another of its name.
        many.news.extend(delta.removed.iter().map(|key| (key.clone(), None)));
        let added = delta.added.iter().map(|member| (member.key(), Some(member.clone())));
        many.news.extend(added);
        if delta.holds.is_some() {
            many.holds.clone_from(&delta.holds);
        }
        if many.news.len() > NEWS.min(many.members) {
            self.forget(delta.id);
        }
    }

    /// A group is gone, or another.
    pub(crate) fn forget(&mut self, id: GroupId) {
        let few = self.few.remove(&id);
        let many = self.many.remove(&id).map(|many| many.whole);
        self.bytes -= few.iter().chain(&many).map(Whole::bytes).sum::<usize>();
    }

    /// A group as it is now.
    pub(crate) fn get(
        &mut self,
        id: GroupId,
        state: impl FnOnce() -> Option<GroupState>,
    ) -> Option<Whole> {
        if let Some(whole) = self.few.get(&id) {
            return Some(whole.clone());
        }
        if let Some(many) = self.many.get_mut(&id) {
            let before = many.whole.bytes();
            if many.renew(id).is_some() {
                let whole = many.whole.clone();
                self.bytes = self.bytes - before + whole.bytes();
                if self.bytes > KEPT_BYTES {
                    self.forget(id);
                }
                return Some(whole);
            }
            self.forget(id);
        }
        let state = state()?;
        if state.members.len() > FEW {
            let many = Many::new(id, &state);
            let whole = many.whole.clone();
            if self.has_room(&whole) {
                self.many.insert(id, many);
            }
            return Some(whole);
        }
        let whole = few(id, &state);
        if self.has_room(&whole) {
            self.few.insert(id, whole.clone());
        }
        Some(whole)
    }

    fn has_room(&mut self, whole: &Whole) -> bool {
        let bytes = self.bytes + whole.bytes();
        let fits = bytes <= KEPT_BYTES;
        if fits {
            self.bytes = bytes;
        }
        fits
    }
}

impl Whole {
    fn bytes(&self) -> usize {
        self.entries.iter().map(Entry::len).sum()
    }
}

impl Many {
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
        let (members, news) = (state.members.len(), BTreeMap::new());
        let whole = put_together(&head, &buckets);
        Self { whole, head, buckets, members, news, holds: None }
    }

    /// Takes in what changed. `None`: it has few members now, or cannot be read.
    fn renew(&mut self, id: GroupId) -> Option<()> {
        if self.news.is_empty() && self.holds.is_none() {
            return Some(());
        }
        if let Some(holds) = self.holds.take() {
            self.head = head(id, &holds);
        }
        let mut by_bucket: BTreeMap<usize, Vec<_>> = BTreeMap::new();
        for (key, member) in std::mem::take(&mut self.news) {
            by_bucket.entry(bucket_of(&key)).or_default().push((key, member));
        }
        for (at, news) in by_bucket {
            let part = self.buckets[at].as_ref();
            let was = part.map_or(Some(Vec::new()), |part| part.entry.added())?;
            self.members -= was.len();
            let mut members: BTreeMap<MemberKey, proto::Member> =
                was.into_iter().filter_map(|member| Some((key(&member)?, member))).collect();
            for (key, member) in news {
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
        self.whole = put_together(&self.head, &self.buckets);
        Some(())
    }
}

fn put_together(head: &Part, buckets: &[Option<Part>]) -> Whole {
    let digests = buckets.iter().map(|part| part.as_ref().map(|part| part.digest));
    let digest = digest_of_many(head.digest, digests);
    let parts = [head].into_iter().chain(buckets.iter().flatten());
    Whole { digest, entries: parts.map(|part| part.entry.clone()).collect() }
}

fn few(id: GroupId, state: &GroupState) -> Whole {
    let part = Part::new(&group(id, &state.holds, state.members.values()));
    Whole { digest: part.digest, entries: [part.entry].into() }
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

/// A member in the words of the nodes.
pub(crate) fn sent_member(member: &Member) -> proto::Member {
    let (addresses, ports) = (member.addresses.clone(), member.ports.clone());
    encode::member(&member.key(), &model::Member { addresses, ports })
}

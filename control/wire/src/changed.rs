//! The set of changes between two states of a node.

use crate::{KnownId, ObjectId, ObjectKind};
use policy_core::index::{GroupId, MemberKey};
use std::collections::{BTreeMap, BTreeSet};

/// The difference of one object between two states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// The earlier state does not have the object.
    Added,
    /// Both states have the object, and a message about it was received.
    Changed,
    /// The later state does not have the object. The earlier one need not have had it either.
    Removed,
}

/// The objects that differ between two states of a node, by kind and key. A consumer that applies them to the earlier
/// state reaches the later one at the cost of the changes. Consumers use `Option<Changed>`, where `None` means that
/// everything may differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    pub(crate) objects: BTreeMap<ObjectId, Difference>,
    /// Of a changed address group, the members that were received, if nothing else of it was. A changed group without
    /// an entry may differ as a whole.
    pub members: BTreeMap<GroupId, BTreeSet<MemberKey>>,
    /// Changes of kinds that this version does not know, which were skipped.
    pub ignored: usize,
}

impl Changed {
    /// Records the difference of one object.
    pub fn insert(&mut self, id: ObjectId, difference: Difference) {
        self.objects.insert(id, difference);
    }

    /// The difference of an object; `None` if it is the same in both states.
    pub fn get(&self, id: &ObjectId) -> Option<Difference> {
        self.objects.get(id).copied()
    }

    /// All objects that differ, in the order of kinds and keys.
    pub fn iter(&self) -> impl Iterator<Item = (&ObjectId, Difference)> {
        self.objects.iter().map(|(id, difference)| (id, *difference))
    }

    /// The objects of one kind that differ.
    pub fn of_kind(&self, kind: ObjectKind) -> impl Iterator<Item = (&ObjectId, Difference)> {
        self.iter().filter(move |(id, _)| id.kind == kind)
    }

    /// The UIDs of pods whose entries differ.
    pub fn pods(&self) -> impl Iterator<Item = (&str, Difference)> {
        self.of_kind(ObjectKind::POD).filter_map(|(id, difference)| match id.known()? {
            KnownId::Pod(uid) => Some((uid, difference)),
            KnownId::Policy(_)
            | KnownId::Address(_)
            | KnownId::Applied(_)
            | KnownId::Node
            | KnownId::Service(_)
            | KnownId::Slice(_) => None,
        })
    }

    /// The number of objects that differ.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// True if both states are the same.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Appends the changes of the next state: the result is from this one's earlier state to that one's later state.
    pub fn merge(&mut self, later: Self) {
        use Difference::{Added, Changed, Removed};
        self.ignored += later.ignored;
        merge_members(&mut self.members, later.members, &later.objects, |id| {
            self.objects.contains_key(id)
        });
        for (id, difference) in later.objects {
            let merged = match (self.objects.get(&id), difference) {
                (None, difference) => difference,
                (Some(Added), Added | Changed) => Added,
                (Some(Changed | Removed), Added | Changed) => Changed,
                (Some(Added | Changed | Removed), Removed) => Removed,
            };
            self.objects.insert(id, merged);
        }
    }
}

/// Appends the members of later changes. A group that one of the changes has as a whole has no entry.
fn merge_members(
    members: &mut BTreeMap<GroupId, BTreeSet<MemberKey>>,
    mut later: BTreeMap<GroupId, BTreeSet<MemberKey>>,
    objects: &BTreeMap<ObjectId, Difference>,
    is_known: impl Fn(&ObjectId) -> bool,
) {
    for id in objects.keys() {
        let Some(KnownId::Address(group)) = id.known() else { continue };
        let is_whole = is_known(id) && !members.contains_key(&group);
        match later.remove(&group) {
            Some(of) if !is_whole => members.entry(group).or_default().extend(of),
            Some(_) | None => drop(members.remove(&group)),
        }
    }
}

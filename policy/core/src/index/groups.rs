//! Groups, the policies that use them, and the nodes that need them.
//!
//! A group's span is stored where it is determined: an applied-to group counts its pods by node. The
//! span of a policy is the union of those of its applied-to groups. The span of an address group is the
//! union of those of its policies. If all these policies have the same applied-to group, the span refers to that
//! group. Otherwise it has counts of its own.

use super::{
    delta::{GroupId, Holds, Role},
    ids::Ids,
    source::MembersOf,
    table::Keyed,
};
use policy_objects::Named;

#[derive(Debug)]
pub(super) struct Group {
    pub(super) id: GroupId,
    pub(super) makeup: Makeup,
    pub(super) applied: Option<Applied>,
    pub(super) address: Option<Address>,
}

#[derive(Debug)]
pub(super) enum Makeup {
    Selection(u32),
    Members(Box<Members>),
    Service(Box<Vips>),
}

/// A Service, and in what it holds the addresses that are its own now.
#[derive(Debug)]
pub(super) struct Vips {
    pub(super) of: Named,
    pub(super) holds: Holds,
}

#[derive(Debug)]
pub(super) struct Members {
    pub(super) of: MembersOf,
    pub(super) selections: Ids,
    pub(super) holds: [Holds; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum GroupKey<'a> {
    Selection(u32),
    Members(&'a MembersOf),
    Service(&'a Named),
}

impl Keyed for Group {
    type Key<'a> = GroupKey<'a>;

    fn key(&self) -> GroupKey<'_> {
        match &self.makeup {
            Makeup::Selection(selection) => GroupKey::Selection(*selection),
            Makeup::Members(members) => GroupKey::Members(&members.of),
            Makeup::Service(service) => GroupKey::Service(&service.of),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Applied {
    pub(super) policies: Ids,
    pub(super) pods: Counts,
}

/// For policies that have it as a peer.
#[derive(Debug, Default)]
pub(super) struct Address {
    pub(super) policies: Ids,
    pub(super) span: Span,
}

/// Counts by node; sorted, without zeros.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts(Vec<(u32, u32)>);

#[derive(Debug, Default)]
pub(super) enum Span {
    #[default]
    Nowhere,
    /// The span of an applied-to group, and the number of policies that refer to it.
    Same(u32, u32),
    /// By node how many uses, a policy's applied-to group each; and how many uses there are.
    Counted(Counts, u32),
}

impl Counts {
    pub(super) const NONE: Self = Self(Vec::new());

    pub(super) fn has(&self, node: u32) -> bool {
        self.0.binary_search_by_key(&node, |(node, _)| *node).is_ok()
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = u32> {
        self.0.iter().map(|(node, _)| *node)
    }

    /// Returns true if the node had no count before.
    pub(super) fn add(&mut self, node: u32, more: u32) -> bool {
        match self.0.binary_search_by_key(&node, |(node, _)| *node) {
            Ok(at) => {
                self.0[at].1 += more;
                false
            }
            Err(at) => {
                self.0.insert(at, (node, more));
                more > 0
            }
        }
    }

    /// Returns true if the node's count is now zero.
    pub(super) fn take(&mut self, node: u32, less: u32) -> bool {
        let Ok(at) = self.0.binary_search_by_key(&node, |(node, _)| *node) else { return false };
        self.0[at].1 = self.0[at].1.saturating_sub(less);
        let none = self.0[at].1 == 0;
        if none {
            self.0.remove(at);
        }
        none
    }

    fn times(&self, uses: u32) -> Self {
        Self(self.0.iter().map(|(node, _)| (*node, uses)).collect())
    }
}

impl Span {
    /// One use more, by a policy that is about an applied-to group, whose pods are here: the nodes that did
    /// not need it.
    pub(super) fn add(
        &mut self,
        group: u32,
        pods: &Counts,
        first: &Counts,
        entered: impl FnMut(u32),
    ) {
        match self {
            Self::Nowhere => {
                *self = Self::Same(group, 1);
                pods.nodes().for_each(entered);
            }
            Self::Same(same, uses) if *same == group => *uses += 1,
            Self::Same(_, uses) => {
                let uses = *uses;
                *self = Self::Counted(first.times(uses), uses);
                self.add(group, pods, first, entered);
            }
            Self::Counted(counts, uses) => {
                *uses += 1;
                pods.nodes().filter(|node| counts.add(*node, 1)).for_each(entered);
            }
        }
    }

    /// One use less: the nodes that need it no longer.
    pub(super) fn take(&mut self, pods: &Counts) -> Vec<u32> {
        match self {
            Self::Nowhere => Vec::new(),
            Self::Same(_, 1) | Self::Counted(_, 1) => {
                *self = Self::Nowhere;
                pods.nodes().collect()
            }
            Self::Same(_, uses) => {
                *uses -= 1;
                Vec::new()
            }
            Self::Counted(counts, uses) => {
                *uses -= 1;
                pods.nodes().filter(|node| counts.take(*node, 1)).collect()
            }
        }
    }

    /// Counts a node that gains or loses its pods of an applied-to group, for one use. Returns whether this span
    /// changes, or `None` if it refers to that group.
    pub(super) fn count(&mut self, node: u32, way: i32) -> Option<bool> {
        match self {
            Self::Nowhere => Some(false),
            Self::Same(..) => None,
            Self::Counted(counts, _) if way > 0 => Some(counts.add(node, 1)),
            Self::Counted(counts, _) => Some(counts.take(node, 1)),
        }
    }

    /// The applied-to group whose span it has.
    pub(super) fn same(&self) -> Option<u32> {
        match self {
            Self::Same(group, _) => Some(*group),
            Self::Nowhere | Self::Counted(..) => None,
        }
    }
}

impl Group {
    pub(super) fn new(id: GroupId, makeup: Makeup) -> Self {
        Self { id, makeup, applied: None, address: None }
    }

    pub(super) fn has(&self, role: Role) -> bool {
        match role {
            Role::Applied => self.applied.is_some(),
            Role::Address => self.address.is_some(),
        }
    }

    pub(super) fn policies(&self, role: Role) -> &[u32] {
        let policies = match role {
            Role::Applied => self.applied.as_ref().map(|applied| &applied.policies),
            Role::Address => self.address.as_ref().map(|address| &address.policies),
        };
        policies.map_or(&[], Ids::as_slice)
    }

    pub(super) fn selections(&self) -> &[u32] {
        match &self.makeup {
            Makeup::Selection(selection) => std::slice::from_ref(selection),
            Makeup::Members(members) => members.selections.as_slice(),
            Makeup::Service(_) => &[],
        }
    }

    pub(super) fn holds(&self, role: Role) -> Holds {
        match &self.makeup {
            Makeup::Selection(_) => Holds::default(),
            Makeup::Members(members) => members.holds[role as usize].clone(),
            Makeup::Service(service) => service.holds.clone(),
        }
    }

    /// True if the selected pods are members for a role: a group that is not usable has no peers.
    pub(super) fn lists(&self, role: Role) -> bool {
        match (&self.makeup, role) {
            (Makeup::Selection(_) | Makeup::Service(_), _) | (_, Role::Applied) => true,
            (Makeup::Members(members), Role::Address) => {
                members.holds[role as usize].unusable.is_none()
            }
        }
    }
}

//! One ENI of the address book: its facts, its state and its blocks.

use super::BlockSet;
use crate::{EniKind, Want};
use config_model::{
    AttachmentId, CardIndex, DeviceIndex, EniId, Mac, SecurityGroupId, Span, SubnetId, TableId,
    Time,
};
use ipnet::{Ipv4Net, Ipv6Net};
use std::net::{Ipv4Addr, Ipv6Addr};

/// The facts of an attached ENI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EniFacts {
    pub(crate) id: EniId,
    pub(crate) mac: Mac,
    pub(crate) card: CardIndex,
    pub(crate) device: DeviceIndex,
    pub(crate) subnet: SubnetId,
    pub(crate) subnet_cidr: Option<Ipv4Net>,
    pub(crate) subnet_cidr_v6: Option<Ipv6Net>,
    pub(crate) primary_address: Option<Ipv4Addr>,
    pub(crate) primary_v6: Option<Ipv6Addr>,
    /// `None` until EC2 has shown it.
    pub(crate) kind: Option<EniKind>,
    /// The groups in EC2's last answer.
    pub(crate) groups: Option<Vec<SecurityGroupId>>,
    pub(crate) attachment: Option<AttachmentId>,
    /// The instance's first ENI, which is never freed.
    pub(crate) is_primary: bool,
    /// Pods may use it. Other ENIs only occupy a place.
    pub(crate) managed: bool,
    /// Pods get no new addresses of it; assigned ones stay.
    pub(crate) excluded: bool,
    /// The daemon created it, or its tags show so. Other ENIs are never freed.
    pub(crate) ours: bool,
    /// Its tags do not show yet that the node uses it.
    pub(crate) untagged: bool,
    /// EC2 has shown that it is deleted with the instance.
    pub(crate) kept: bool,
}

impl EniFacts {
    pub(crate) fn table(&self) -> TableId {
        TableId::of_eni(self.card, self.device)
    }
}

/// The host's ability to send and receive through the ENI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// A repair pass found link and routing as desired.
    Ready,
    /// `since`: the start of this state.
    NotReady { since: Time, why: Option<String>, reported: bool },
}

/// The call under way for an ENI; there is at most one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    Idle,
    Assign,
    Unassign,
    Describe,
    Keep,
    Tag,
    SetGroups,
}

/// The return of an ENI's leaving blocks to EC2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ReturnState {
    /// No call has failed.
    #[default]
    Open,
    /// EC2 refused the call. The blocks that it still shows stay.
    Refused,
    /// A reply was lost. The blocks cannot be kept.
    Lost,
}

/// An answer to a question asked so soon after a change may not show the change.
pub(crate) const KEEP_LAG: Span = Span::seconds(10);

#[derive(Clone, Debug)]
pub(crate) struct Eni {
    pub(crate) facts: EniFacts,
    pub(crate) known_since: Time,
    pub(crate) readiness: Readiness,
    pub(crate) ever_ready: bool,
    /// This process attached it, so this process may give it up if it never becomes ready.
    pub(crate) attached_here: bool,
    /// Two witnesses lack it, but pods still use its addresses.
    pub(crate) missing: bool,
    pub(crate) task: Task,
    /// The request under way. If its reply is lost, it stays until EC2 has described the ENI.
    pub(crate) coming: Option<Want>,
    /// A reply was lost. EC2 must describe the ENI before the next request.
    pub(crate) unsure: bool,
    /// EC2 reported the limit of its addresses; no request before this time.
    pub(crate) full_until: Option<Time>,
    pub(crate) giving_back: ReturnState,
    /// The time when EC2 accepted `DeleteOnTermination`, until an answer shows it.
    pub(crate) keep_asked: Option<Time>,
    /// The times when EC2 accepted its tags and its security groups. Older answers do not count.
    pub(crate) tagged_at: Option<Time>,
    pub(crate) groups_set: Option<Time>,
    /// Its security groups differ from the primary ENI's.
    pub(crate) groups_differ: bool,
    pub(crate) blocks: BlockSet,
}

impl Eni {
    pub(crate) fn new(facts: EniFacts, now: Time) -> Self {
        Self {
            facts,
            known_since: now,
            readiness: Readiness::NotReady { since: now, why: None, reported: false },
            ever_ready: false,
            attached_here: false,
            missing: false,
            task: Task::Idle,
            coming: None,
            unsure: false,
            full_until: None,
            giving_back: ReturnState::Open,
            keep_asked: None,
            tagged_at: None,
            groups_set: None,
            groups_differ: false,
            blocks: BlockSet::default(),
        }
    }

    /// Returns whether its addresses are part of the pool: managed, present and open to pods.
    pub(crate) fn counts(&self) -> bool {
        self.facts.managed && !self.facts.excluded && !self.missing
    }

    /// Returns whether a pod may get one of its addresses now.
    pub(crate) fn serves(&self) -> bool {
        self.counts() && self.readiness == Readiness::Ready
    }

    /// The number of blocks that EC2 would still assign if the limit is `per_eni` blocks of either kind.
    pub(crate) fn room(&self, per_eni: u32) -> u32 {
        let coming = self.coming.map_or(0, |want| u32::from(want.blocks()));
        per_eni.saturating_sub(self.blocks.len().saturating_add(coming))
    }

    /// The number of addresses in the request under way.
    pub(crate) fn coming_addresses(&self) -> u64 {
        self.coming.map_or(0, Want::addresses)
    }

    /// Returns whether the ENI needs any attention. It is called at every event and takes constant time.
    pub(crate) fn needs_maintenance(&self) -> bool {
        self.missing || !self.ever_ready || self.unsure || self.blocks.has_leaving()
    }

    /// Returns whether it lacks a tag, a security group or `DeleteOnTermination`.
    pub(crate) fn has_chores(&self) -> bool {
        self.wants_keeping() || self.facts.untagged || self.groups_differ
    }

    /// Returns whether EC2 must be asked to delete it with the instance.
    pub(crate) fn wants_keeping(&self) -> bool {
        self.facts.ours && !self.facts.kept && self.keep_asked.is_none()
    }

    /// Takes the `DeleteOnTermination` of an answer to a question of `started`. Returns true if an accepted change was
    /// lost.
    pub(crate) fn shown_kept(&mut self, kept: Option<bool>, started: Time) -> bool {
        if kept == Some(true) {
            self.facts.kept = true;
            self.keep_asked = None;
        }
        let late = |asked: &Time| started >= *asked + KEEP_LAG;
        kept == Some(false) && self.keep_asked.take_if(|asked| late(asked)).is_some()
    }
}

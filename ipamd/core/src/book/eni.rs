//! One ENI of the address book: its blocks and their use.

use super::{
    block::{address_at, block_size, is_prefix, offset_in},
    free_ranges::FreeRanges,
};
use crate::{EniKind, Want};
use config_model::{
    AttachmentId, CardIndex, DeviceIndex, EniId, Mac, SecurityGroupId, Span, SubnetId, TableId,
    Time,
};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

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

/// Whether the host can send and receive through the ENI.
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

/// A range of addresses that EC2 assigns as a unit: a single address or a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) known_since: Time,
    pub(crate) state: BlockState,
    used: u64,
    room: FreeRanges,
}

/// Whether a block stays. Only the addresses of one that stays are assigned to pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockState {
    Stays,
    /// It is being returned to EC2.
    Leaving,
    /// EC2 removed it while pods used it. The book removes it with its last pod.
    Lost {
        since: Time,
    },
}

impl Block {
    pub(crate) fn leaving(&self) -> bool {
        self.state == BlockState::Leaving
    }

    /// The time of the loss.
    pub(crate) fn lost(&self) -> Option<Time> {
        match self.state {
            BlockState::Lost { since } => Some(since),
            BlockState::Stays | BlockState::Leaving => None,
        }
    }
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
    blocks: BTreeMap<IpNet, Block>,
    /// Blocks with free addresses, in the order of use: the preferred kind, then the fullest, then the lowest.
    open: BTreeSet<(bool, Reverse<u64>, IpNet)>,
    prefixes_first: bool,
    pub(crate) held: u32,
    pub(crate) cooling: u32,
    /// Blocks by kind, without leaving ones.
    singles: BlockCounts,
    prefixes: BlockCounts,
    /// The number of leaving blocks.
    leaving: u32,
}

/// Blocks of one kind in numbers.
#[derive(Clone, Copy, Debug, Default)]
struct BlockCounts {
    size: u64,
    /// Used addresses.
    used: u64,
    /// Blocks without a used address.
    idle: u32,
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
            blocks: BTreeMap::new(),
            open: BTreeSet::new(),
            prefixes_first: false,
            held: 0,
            cooling: 0,
            singles: BlockCounts::default(),
            prefixes: BlockCounts::default(),
            leaving: 0,
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

    /// The number of addresses, without those of leaving blocks.
    pub(crate) fn total(&self) -> u64 {
        self.singles.size + self.prefixes.size
    }

    pub(crate) fn free(&self) -> u64 {
        self.total().saturating_sub(u64::from(self.held) + u64::from(self.cooling))
    }

    /// The number of blocks that EC2 would still assign if the limit is `per_eni` blocks of either kind.
    pub(crate) fn room(&self, per_eni: u32) -> u32 {
        let coming = self.coming.map_or(0, |want| u32::from(want.blocks()));
        let there = u32::try_from(self.blocks.len()).unwrap_or(u32::MAX);
        per_eni.saturating_sub(there.saturating_add(coming))
    }

    /// The number of addresses in the request under way.
    pub(crate) fn coming_addresses(&self) -> u64 {
        self.coming.map_or(0, Want::addresses)
    }

    /// Free addresses in single blocks and in prefixes.
    pub(crate) fn free_by_kind(&self) -> (u64, u64) {
        let free = |tally: &BlockCounts| tally.size.saturating_sub(tally.used);
        (free(&self.singles), free(&self.prefixes))
    }

    /// Unused single addresses and unused prefixes, without leaving ones.
    pub(crate) fn idle_by_kind(&self) -> (u32, u32) {
        (self.singles.idle, self.prefixes.idle)
    }

    pub(crate) fn blocks(&self) -> impl Iterator<Item = (IpNet, &Block)> {
        self.blocks.iter().map(|(net, block)| (*net, block))
    }

    pub(crate) fn block(&self, net: IpNet) -> Option<&Block> {
        self.blocks.get(&net)
    }

    /// Returns whether the ENI needs any attention. It is called at every event and takes constant time.
    pub(crate) fn needs_maintenance(&self) -> bool {
        self.missing || !self.ever_ready || self.unsure || self.leaving > 0
    }

    /// Returns whether it lacks a tag, a security group or `DeleteOnTermination`.
    pub(crate) fn has_chores(&self) -> bool {
        self.wants_keeping() || self.facts.untagged || self.groups_differ
    }

    /// Returns whether a block is leaving.
    pub(crate) fn gives_back(&self) -> bool {
        self.leaving > 0
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

    pub(crate) fn has_block(&self, net: IpNet) -> bool {
        self.blocks.contains_key(&net)
    }

    /// Blocks without a used address, highest first: the order of their return.
    pub(crate) fn idle_blocks(&self) -> impl Iterator<Item = IpNet> {
        self.blocks
            .iter()
            .rev()
            .filter(|(_, b)| b.used == 0 && b.state == BlockState::Stays)
            .map(|(net, _)| *net)
    }

    /// Sets the preferred kind, before the first block is added.
    pub(super) fn prefer(&mut self, prefixes: bool) {
        self.prefixes_first = prefixes;
    }

    /// The lowest free address of the first block with a free one, and whether the block is of the other kind than the
    /// preferred one.
    pub(super) fn first_open(&self) -> Option<(bool, IpAddr)> {
        let (second_choice, _, net) = self.open.first()?;
        let offset = self.blocks.get(net)?.room.first()?;
        Some((*second_choice, address_at(*net, offset)))
    }

    #[cfg(test)]
    pub(super) fn runs_of(&self, net: IpNet) -> usize {
        self.blocks.get(&net).map_or(0, |block| block.room.runs())
    }

    pub(super) fn add_block(&mut self, net: IpNet, now: Time) {
        let room = FreeRanges::whole(block_size(net));
        let block = Block { known_since: now, state: BlockState::Stays, used: 0, room };
        if self.blocks.insert(net, block).is_none() {
            self.enlist(net);
        }
    }

    pub(super) fn remove_block(&mut self, net: IpNet) {
        self.strike(net);
        if self.blocks.remove(&net).is_some_and(|block| block.leaving()) {
            self.leaving -= 1;
        }
    }

    pub(super) fn set_block_state(&mut self, net: IpNet, state: BlockState) {
        self.strike(net);
        if let Some(block) = self.blocks.get_mut(&net) {
            self.leaving -= u32::from(block.leaving());
            block.state = state;
            self.leaving += u32::from(block.leaving());
        }
        self.enlist(net);
    }

    /// Counts an address of the block as used or as free.
    pub(super) fn count_use(&mut self, net: IpNet, address: IpAddr, used: bool) {
        self.strike(net);
        if let Some(block) = self.blocks.get_mut(&net) {
            let offset = offset_in(net, address);
            if used {
                block.used += 1;
                block.room.take(offset);
            } else {
                block.used = block.used.saturating_sub(1);
                block.room.put(offset);
            }
        }
        self.enlist(net);
    }

    /// Removes the block from the indexes by use.
    fn strike(&mut self, net: IpNet) {
        let Some((block, share)) = self.share_of(net) else { return };
        self.open.remove(&(self.second_choice(net), Reverse(block.used), net));
        let tally = self.tally(net);
        tally.size -= share.size;
        tally.used -= share.used;
        tally.idle -= share.idle;
    }

    /// Adds the block to the indexes by use.
    fn enlist(&mut self, net: IpNet) {
        let Some((block, share)) = self.share_of(net) else { return };
        if block.used < block_size(net) && block.state == BlockState::Stays {
            self.open.insert((self.second_choice(net), Reverse(block.used), net));
        }
        let tally = self.tally(net);
        tally.size += share.size;
        tally.used += share.used;
        tally.idle += share.idle;
    }

    /// The share of a block in the counts of its kind. A lost block counts only what pods use.
    fn share_of(&self, net: IpNet) -> Option<(&Block, BlockCounts)> {
        let block = self.blocks.get(&net)?;
        let used = block.used;
        let share = match block.state {
            BlockState::Stays => {
                BlockCounts { size: block_size(net), used, idle: u32::from(used == 0) }
            }
            BlockState::Lost { .. } => BlockCounts { size: used, used, idle: 0 },
            BlockState::Leaving => return None,
        };
        Some((block, share))
    }

    fn tally(&mut self, net: IpNet) -> &mut BlockCounts {
        if is_prefix(net) { &mut self.prefixes } else { &mut self.singles }
    }

    /// Returns whether the block is of another kind than the preferred one.
    fn second_choice(&self, net: IpNet) -> bool {
        is_prefix(net) != self.prefixes_first
    }
}

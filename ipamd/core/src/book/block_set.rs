//! The blocks of one owner and their use: those of an ENI, or the node's pod CIDRs.

use super::{
    AddressUse,
    block::{address_at, block_size, is_prefix, offset_in},
    free_ranges::FreeRanges,
};
use config_model::Time;
use ipnet::IpNet;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    ops::RangeInclusive,
};

/// A range of addresses that is added and removed as a unit: a single address, a prefix, or a pod CIDR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) known_since: Time,
    pub(crate) state: BlockState,
    /// The offsets of the addresses that pods may get.
    offsets: RangeInclusive<u64>,
    used: u64,
    room: FreeRanges,
}

/// The state of a block. Only the addresses of one that stays are assigned to pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockState {
    Stays,
    /// The block is being returned to EC2.
    Leaving,
    /// EC2 or the node's specification removed it while pods used it. The book removes it with its last pod.
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

    /// The number of addresses that pods may get.
    pub(crate) fn size(&self) -> u64 {
        self.offsets.end().saturating_sub(*self.offsets.start()).saturating_add(1)
    }

    /// The number of its addresses that are assigned or cool.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }
}

/// Blocks with their use in numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct BlockSet {
    blocks: BTreeMap<IpNet, Block>,
    /// Blocks with free addresses, in the order of use: the preferred kind, then the fullest, then the lowest.
    open: BTreeSet<(bool, Reverse<u64>, IpNet)>,
    prefixes_first: bool,
    held: u32,
    cooling: u32,
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

impl BlockSet {
    /// The number of assigned addresses.
    pub(crate) fn held(&self) -> u32 {
        self.held
    }

    pub(crate) fn cooling(&self) -> u32 {
        self.cooling
    }

    /// Returns whether no address is assigned or cools.
    pub(crate) fn is_unused(&self) -> bool {
        self.held == 0 && self.cooling == 0
    }

    /// The number of addresses, without those of leaving blocks.
    pub(crate) fn total(&self) -> u64 {
        self.singles.size.saturating_add(self.prefixes.size)
    }

    pub(crate) fn free(&self) -> u64 {
        self.total().saturating_sub(u64::from(self.held) + u64::from(self.cooling))
    }

    /// The number of blocks in any state.
    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.blocks.len()).unwrap_or(u32::MAX)
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

    pub(crate) fn iter(&self) -> impl Iterator<Item = (IpNet, &Block)> {
        self.blocks.iter().map(|(net, block)| (*net, block))
    }

    pub(crate) fn get(&self, net: IpNet) -> Option<&Block> {
        self.blocks.get(&net)
    }

    pub(crate) fn has(&self, net: IpNet) -> bool {
        self.blocks.contains_key(&net)
    }

    /// Returns whether a block is leaving.
    pub(crate) fn has_leaving(&self) -> bool {
        self.leaving > 0
    }

    /// Blocks without a used address, highest first: the order of their return.
    pub(crate) fn idle(&self) -> impl Iterator<Item = IpNet> {
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
    pub(super) fn first_open(&self) -> Option<(bool, IpNet, IpAddr)> {
        let (second_choice, _, net) = self.open.first()?;
        let offset = self.blocks.get(net)?.room.first()?;
        Some((*second_choice, *net, address_at(*net, offset)))
    }

    #[cfg(test)]
    pub(super) fn runs_of(&self, net: IpNet) -> usize {
        self.blocks.get(&net).map_or(0, |block| block.room.runs())
    }

    /// Adds a block all of whose addresses are for pods.
    pub(super) fn add(&mut self, net: IpNet, now: Time) {
        self.add_part(net, 0..=block_size(net).saturating_sub(1), now);
    }

    /// Adds a block of which pods may get the addresses at these offsets, at least one.
    pub(super) fn add_part(&mut self, net: IpNet, offsets: RangeInclusive<u64>, now: Time) {
        let room = FreeRanges::of(&offsets);
        let block = Block { known_since: now, state: BlockState::Stays, offsets, used: 0, room };
        if self.blocks.insert(net, block).is_none() {
            self.enlist(net);
        }
    }

    pub(super) fn remove(&mut self, net: IpNet) {
        self.strike(net);
        if self.blocks.remove(&net).is_some_and(|block| block.leaving()) {
            self.leaving -= 1;
        }
    }

    pub(super) fn set_state(&mut self, net: IpNet, state: BlockState) {
        self.strike(net);
        if let Some(block) = self.blocks.get_mut(&net) {
            self.leaving -= u32::from(block.leaving());
            block.state = state;
            self.leaving += u32::from(block.leaving());
        }
        self.enlist(net);
    }

    /// Counts one use of an address of the block: as new if `more`, otherwise as ended. An address that no pod may get
    /// does not count.
    pub(super) fn count(&mut self, net: IpNet, address: IpAddr, usage: &AddressUse, more: bool) {
        let offset = offset_in(net, address);
        if !self.blocks.get(&net).is_some_and(|block| block.offsets.contains(&offset)) {
            return;
        }
        let counter = match usage {
            AddressUse::Assigned(_) => &mut self.held,
            AddressUse::Cooling(_) => &mut self.cooling,
        };
        *counter = if more { *counter + 1 } else { counter.saturating_sub(1) };
        self.strike(net);
        if let Some(block) = self.blocks.get_mut(&net) {
            if more {
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
        tally.size = tally.size.saturating_sub(share.size);
        tally.used -= share.used;
        tally.idle -= share.idle;
    }

    /// Adds the block to the indexes by use.
    fn enlist(&mut self, net: IpNet) {
        let Some((block, share)) = self.share_of(net) else { return };
        if block.used < block.size() && block.state == BlockState::Stays {
            self.open.insert((self.second_choice(net), Reverse(block.used), net));
        }
        let tally = self.tally(net);
        tally.size = tally.size.saturating_add(share.size);
        tally.used += share.used;
        tally.idle += share.idle;
    }

    /// The share of a block in the counts of its kind. A lost block counts only what pods use.
    fn share_of(&self, net: IpNet) -> Option<(&Block, BlockCounts)> {
        let block = self.blocks.get(&net)?;
        let used = block.used;
        let share = match block.state {
            BlockState::Stays => {
                BlockCounts { size: block.size(), used, idle: u32::from(used == 0) }
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

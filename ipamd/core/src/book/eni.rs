//! One ENI in the book: its blocks, and how full it is.

use config_model::{AttachmentId, CardIndex, DeviceIndex, EniId, Mac, SubnetId, TableId, Time};
use ipnet::Ipv4Net;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
};

/// What is fixed about an ENI while it is attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EniFacts {
    pub(crate) id: EniId,
    pub(crate) mac: Mac,
    pub(crate) card: CardIndex,
    pub(crate) device: DeviceIndex,
    pub(crate) subnet: SubnetId,
    pub(crate) subnet_cidr: Ipv4Net,
    pub(crate) primary_address: Ipv4Addr,
    pub(crate) attachment: Option<AttachmentId>,
    /// The node's first ENI, which is never freed.
    pub(crate) is_primary: bool,
    /// Pods may use it. Others only occupy a place.
    pub(crate) managed: bool,
    /// We made it, or its tags say so: only such an ENI is ever freed.
    pub(crate) ours: bool,
    /// It goes with the instance, or that is not ours to decide.
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
    /// A repair pass found link and routing right.
    Ready,
    /// Not yet, or not any more, since then.
    NotReady { since: Time, why: Option<String>, reported: bool },
}

/// The call under way for an ENI: one at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    Idle,
    Assign,
    Unassign,
    Describe,
    Keep,
}

/// A run of addresses that EC2 gives and takes as one: a single address, later also a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) known_since: Time,
    /// On its way back to EC2: nothing of it is given out.
    pub(crate) leaving: bool,
    used: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Eni {
    pub(crate) facts: EniFacts,
    pub(crate) known_since: Time,
    pub(crate) readiness: Readiness,
    pub(crate) ever_ready: bool,
    /// This process attached it, so this process may judge that it never came.
    pub(crate) attached_here: bool,
    /// Two witnesses lack it, but pods still hold addresses of it.
    pub(crate) missing: bool,
    pub(crate) task: Task,
    /// Addresses asked for and not seen yet; stays until a lost reply is looked up.
    pub(crate) coming: u32,
    /// A reply was lost: look before asking again.
    pub(crate) unsure: bool,
    /// EC2 says that it holds no more addresses, whatever we counted; until then.
    pub(crate) full_until: Option<Time>,
    blocks: BTreeMap<Ipv4Net, Block>,
    /// Blocks with room, fullest first, then lowest.
    open: BTreeSet<(Reverse<u32>, Ipv4Net)>,
    pub(crate) held: u32,
    pub(crate) cooling: u32,
    size: u32,
    leaving: u32,
}

pub(crate) fn block_size(net: Ipv4Net) -> u32 {
    1u32.checked_shl(u32::from(32 - net.prefix_len())).unwrap_or(u32::MAX)
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
            coming: 0,
            unsure: false,
            full_until: None,
            blocks: BTreeMap::new(),
            open: BTreeSet::new(),
            held: 0,
            cooling: 0,
            size: 0,
            leaving: 0,
        }
    }

    /// Whether its addresses count: managed, there, and given to pods.
    pub(crate) fn counts(&self) -> bool {
        self.facts.managed && !self.missing
    }

    /// Whether a pod may get an address of it now.
    pub(crate) fn serves(&self) -> bool {
        self.counts() && self.readiness == Readiness::Ready
    }

    /// Addresses that stay: all but those on their way back.
    pub(crate) fn total(&self) -> u32 {
        self.size - self.leaving
    }

    pub(crate) fn free(&self) -> u32 {
        self.total().saturating_sub(self.held + self.cooling)
    }

    /// How many addresses EC2 would still add, if it holds `per_eni` at most.
    pub(crate) fn room(&self, per_eni: u32) -> u32 {
        per_eni.saturating_sub(self.size + self.coming)
    }

    pub(crate) fn blocks(&self) -> impl Iterator<Item = (Ipv4Net, &Block)> {
        self.blocks.iter().map(|(net, block)| (*net, block))
    }

    pub(crate) fn block(&self, net: Ipv4Net) -> Option<&Block> {
        self.blocks.get(&net)
    }

    /// Whether anything about it is not as it should stay. Asked at every event, so it is quick.
    pub(crate) fn needs_tending(&self) -> bool {
        let undecided = self.missing || !self.ever_ready || self.unsure || self.leaving > 0;
        undecided || (self.facts.ours && !self.facts.kept)
    }

    pub(crate) fn has_block(&self, net: Ipv4Net) -> bool {
        self.blocks.contains_key(&net)
    }

    /// Blocks of which nothing is used, highest first: those to give back first.
    pub(crate) fn idle_blocks(&self) -> impl Iterator<Item = Ipv4Net> {
        self.blocks.iter().rev().filter(|(_, b)| b.used == 0 && !b.leaving).map(|(net, _)| *net)
    }

    /// The fullest block with room.
    pub(super) fn first_open(&self) -> Option<Ipv4Net> {
        self.open.first().map(|(_, net)| *net)
    }

    pub(super) fn add_block(&mut self, net: Ipv4Net, now: Time) {
        let block = Block { known_since: now, leaving: false, used: 0 };
        if self.blocks.insert(net, block).is_none() {
            self.size += block_size(net);
            self.open.insert((Reverse(0), net));
        }
    }

    pub(super) fn remove_block(&mut self, net: Ipv4Net) {
        let Some(block) = self.blocks.remove(&net) else { return };
        self.open.remove(&(Reverse(block.used), net));
        self.size -= block_size(net);
        if block.leaving {
            self.leaving -= block_size(net);
        }
    }

    pub(super) fn set_leaving(&mut self, net: Ipv4Net, leaving: bool) {
        let Some(block) = self.blocks.get_mut(&net) else { return };
        if block.leaving == leaving {
            return;
        }
        block.leaving = leaving;
        if leaving {
            self.leaving += block_size(net);
            self.open.remove(&(Reverse(block.used), net));
        } else {
            self.leaving -= block_size(net);
            if block.used < block_size(net) {
                self.open.insert((Reverse(block.used), net));
            }
        }
    }

    /// One address of the block came into use (`true`) or fell out of use.
    pub(super) fn count_use(&mut self, net: Ipv4Net, used: bool) {
        let Some(block) = self.blocks.get_mut(&net) else { return };
        self.open.remove(&(Reverse(block.used), net));
        block.used = if used { block.used + 1 } else { block.used.saturating_sub(1) };
        if block.used < block_size(net) && !block.leaving {
            self.open.insert((Reverse(block.used), net));
        }
    }
}

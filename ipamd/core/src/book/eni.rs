//! One ENI in the book: its blocks, and how full it is.

use super::{
    block::{address_at, block_size, is_prefix, offset_in},
    room::Room,
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

/// What is fixed about an ENI while it is attached.
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
    /// As EC2 sorts it, once it has told.
    pub(crate) kind: Option<EniKind>,
    /// As EC2 showed them last.
    pub(crate) groups: Option<Vec<SecurityGroupId>>,
    pub(crate) attachment: Option<AttachmentId>,
    /// The node's first ENI, which is never freed.
    pub(crate) is_primary: bool,
    /// Pods may use it. Others only occupy a place.
    pub(crate) managed: bool,
    /// Pods get no new addresses of it; held ones stay.
    pub(crate) excluded: bool,
    /// We made it, or its tags say so: only such an ENI is ever freed.
    pub(crate) ours: bool,
    /// Its tags should say that it is in use here, and do not.
    pub(crate) untagged: bool,
    /// EC2 was seen to let it go with the instance.
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
    Tag,
    SetGroups,
}

/// How the return of what is on its way back to EC2 stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Return {
    /// Nothing speaks against it.
    #[default]
    Open,
    /// EC2 refused it: what it still shows then stays.
    Refused,
    /// A reply was lost: there is no way back.
    Lost,
}

/// A run of addresses that EC2 gives and takes as one: a single address or a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) known_since: Time,
    pub(crate) stand: Stand,
    used: u64,
    room: Room,
}

/// Whether a block is there to stay. Only of one that is, addresses are given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stand {
    Stays,
    /// On its way back to EC2.
    Leaving,
    /// EC2 took it while pods held addresses of it; it goes with the last of them.
    Lost {
        since: Time,
    },
}

impl Block {
    pub(crate) fn leaving(&self) -> bool {
        self.stand == Stand::Leaving
    }

    /// Since when it is lost.
    pub(crate) fn lost(&self) -> Option<Time> {
        match self.stand {
            Stand::Lost { since } => Some(since),
            Stand::Stays | Stand::Leaving => None,
        }
    }
}

/// Answers asked for so soon after a change may not show it yet.
pub(crate) const KEEP_LAG: Span = Span::seconds(10);

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
    /// What was asked for and not seen yet; stays until a lost reply is looked up.
    pub(crate) coming: Option<Want>,
    /// A reply was lost: look before asking again.
    pub(crate) unsure: bool,
    /// EC2 says that it holds no more addresses, whatever we counted; until then.
    pub(crate) full_until: Option<Time>,
    pub(crate) giving_back: Return,
    /// When EC2 accepted that it goes with the instance; nobody has seen it yet.
    pub(crate) keep_asked: Option<Time>,
    /// When EC2 accepted its tags, and its security groups: older answers say nothing of them.
    pub(crate) tagged_at: Option<Time>,
    pub(crate) groups_set: Option<Time>,
    /// Its security groups are not the primary ENI's.
    pub(crate) groups_differ: bool,
    blocks: BTreeMap<IpNet, Block>,
    /// Blocks with room: those of the kind that the mode wants first, of these the fullest, then
    /// the lowest.
    open: BTreeSet<(bool, Reverse<u64>, IpNet)>,
    prefixes_first: bool,
    pub(crate) held: u32,
    pub(crate) cooling: u32,
    /// Blocks by kind, without those on their way back.
    singles: Tally,
    prefixes: Tally,
    /// Blocks on their way back.
    leaving: u32,
}

/// Blocks of one kind in numbers.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    /// Addresses.
    size: u64,
    /// Those of them that are used.
    used: u64,
    /// Blocks of which nothing is used.
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
            giving_back: Return::Open,
            keep_asked: None,
            tagged_at: None,
            groups_set: None,
            groups_differ: false,
            blocks: BTreeMap::new(),
            open: BTreeSet::new(),
            prefixes_first: false,
            held: 0,
            cooling: 0,
            singles: Tally::default(),
            prefixes: Tally::default(),
            leaving: 0,
        }
    }

    /// Whether its addresses count: managed, there, and given to pods.
    pub(crate) fn counts(&self) -> bool {
        self.facts.managed && !self.facts.excluded && !self.missing
    }

    /// Whether a pod may get an address of it now.
    pub(crate) fn serves(&self) -> bool {
        self.counts() && self.readiness == Readiness::Ready
    }

    /// Addresses that stay: all but those on their way back.
    pub(crate) fn total(&self) -> u64 {
        self.singles.size + self.prefixes.size
    }

    pub(crate) fn free(&self) -> u64 {
        self.total().saturating_sub(u64::from(self.held) + u64::from(self.cooling))
    }

    /// How many blocks EC2 would still add, if it holds `per_eni` at most, of either kind.
    pub(crate) fn room(&self, per_eni: u32) -> u32 {
        let coming = self.coming.map_or(0, |want| u32::from(want.blocks()));
        let there = u32::try_from(self.blocks.len()).unwrap_or(u32::MAX);
        per_eni.saturating_sub(there.saturating_add(coming))
    }

    /// Addresses asked for and not seen yet.
    pub(crate) fn coming_addresses(&self) -> u64 {
        self.coming.map_or(0, Want::addresses)
    }

    /// Free addresses in single blocks, and those in prefixes.
    pub(crate) fn free_by_kind(&self) -> (u64, u64) {
        let free = |tally: &Tally| tally.size.saturating_sub(tally.used);
        (free(&self.singles), free(&self.prefixes))
    }

    /// Single addresses of which nothing is used, and prefixes; without those on their way back.
    pub(crate) fn idle_by_kind(&self) -> (u32, u32) {
        (self.singles.idle, self.prefixes.idle)
    }

    pub(crate) fn blocks(&self) -> impl Iterator<Item = (IpNet, &Block)> {
        self.blocks.iter().map(|(net, block)| (*net, block))
    }

    pub(crate) fn block(&self, net: IpNet) -> Option<&Block> {
        self.blocks.get(&net)
    }

    /// Whether anything about it is not as it should stay. Asked at every event, so it is quick.
    pub(crate) fn needs_tending(&self) -> bool {
        self.missing || !self.ever_ready || self.unsure || self.leaving > 0
    }

    /// Whether EC2 is to be told something about it that its addresses do not hang on.
    pub(crate) fn has_chores(&self) -> bool {
        self.wants_keeping() || self.facts.untagged || self.groups_differ
    }

    /// Whether some block is on its way back.
    pub(crate) fn gives_back(&self) -> bool {
        self.leaving > 0
    }

    /// Whether EC2 is to be told that it goes with the instance.
    pub(crate) fn wants_keeping(&self) -> bool {
        self.facts.ours && !self.facts.kept && self.keep_asked.is_none()
    }

    /// An answer asked for at `started` shows whether it goes with the instance. True if what EC2
    /// had accepted did not last.
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

    /// Blocks of which nothing is used, highest first: those to give back first.
    pub(crate) fn idle_blocks(&self) -> impl Iterator<Item = IpNet> {
        self.blocks
            .iter()
            .rev()
            .filter(|(_, b)| b.used == 0 && b.stand == Stand::Stays)
            .map(|(net, _)| *net)
    }

    /// The kind that the mode wants; before the first block is added.
    pub(super) fn prefer(&mut self, prefixes: bool) {
        self.prefixes_first = prefixes;
    }

    /// The lowest unused address of the first block with room, and whether that is of a kind that
    /// is to be replaced.
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
        let room = Room::whole(block_size(net));
        let block = Block { known_since: now, stand: Stand::Stays, used: 0, room };
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

    pub(super) fn set_stand(&mut self, net: IpNet, stand: Stand) {
        self.strike(net);
        if let Some(block) = self.blocks.get_mut(&net) {
            self.leaving -= u32::from(block.leaving());
            block.stand = stand;
            self.leaving += u32::from(block.leaving());
        }
        self.enlist(net);
    }

    /// The address, which lies in the block, came into use (`true`) or fell out of use.
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

    /// Takes the block out of all that is kept about blocks by their use.
    fn strike(&mut self, net: IpNet) {
        let Some((block, share)) = self.share_of(net) else { return };
        self.open.remove(&(self.second_choice(net), Reverse(block.used), net));
        let tally = self.tally(net);
        tally.size -= share.size;
        tally.used -= share.used;
        tally.idle -= share.idle;
    }

    /// Puts the block into all that is kept about blocks by their use.
    fn enlist(&mut self, net: IpNet) {
        let Some((block, share)) = self.share_of(net) else { return };
        if block.used < block_size(net) && block.stand == Stand::Stays {
            self.open.insert((self.second_choice(net), Reverse(block.used), net));
        }
        let tally = self.tally(net);
        tally.size += share.size;
        tally.used += share.used;
        tally.idle += share.idle;
    }

    /// What a block adds to the tally of its kind: a lost one no more than its pods hold.
    fn share_of(&self, net: IpNet) -> Option<(&Block, Tally)> {
        let block = self.blocks.get(&net)?;
        let used = block.used;
        let share = match block.stand {
            Stand::Stays => Tally { size: block_size(net), used, idle: u32::from(used == 0) },
            Stand::Lost { .. } => Tally { size: used, used, idle: 0 },
            Stand::Leaving => return None,
        };
        Some((block, share))
    }

    fn tally(&mut self, net: IpNet) -> &mut Tally {
        if is_prefix(net) { &mut self.prefixes } else { &mut self.singles }
    }

    /// Whether the block is of a kind that is to be replaced.
    fn second_choice(&self, net: IpNet) -> bool {
        is_prefix(net) != self.prefixes_first
    }
}

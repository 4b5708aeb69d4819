//! Blocks and ENIs that were removed lately. An older answer can still show them.

use crate::{Record, book::is_prefix, ctx::Ctx, schedule::SETTLING};
use config_model::{EniId, Span, Time};
use ipnet::IpNet;
use std::collections::BTreeMap;

/// The time for which a removal is remembered. Every answer on its way arrives within it.
const GONE_MEMORY: Span = Span::seconds(180);

#[derive(Debug, Default)]
pub(crate) struct RecentRemovals {
    blocks: BTreeMap<IpNet, Time>,
    enis: BTreeMap<EniId, Time>,
}

impl RecentRemovals {
    pub(crate) fn block_gone(&mut self, block: IpNet, now: Time) {
        self.blocks.insert(block, now);
    }

    pub(crate) fn eni_gone(&mut self, eni: EniId, now: Time) {
        self.enis.insert(eni, now);
    }

    /// Forgets what overlaps a block that EC2 assigned again, and returns it.
    pub(crate) fn block_back(&mut self, block: IpNet) -> Vec<IpNet> {
        let back: Vec<IpNet> = self.overlapping(block).map(|(net, _)| net).collect();
        for net in &back {
            self.blocks.remove(net);
        }
        back
    }

    /// Returns whether an answer to a question of `started` can show an ENI that is gone.
    pub(crate) fn may_be_stale(&self, eni: &EniId, started: Time) -> bool {
        self.enis.get(eni).is_some_and(|gone| started < *gone + SETTLING)
    }

    /// Returns whether an answer to a question of `started` can show a block that is gone.
    pub(crate) fn may_be_stale_of(&self, block: IpNet, started: Time) -> bool {
        self.overlapping(block).any(|(_, gone)| started < gone + SETTLING)
    }

    fn overlapping(&self, block: IpNet) -> impl Iterator<Item = (IpNet, Time)> {
        let overlaps = move |net: &IpNet| net.contains(&block) || block.contains(net);
        self.blocks.iter().filter(move |(net, _)| overlaps(net)).map(|(net, at)| (*net, *at))
    }

    /// Forgets the removals that no answer can contradict any longer, and returns their blocks.
    fn expire(&mut self, now: Time) -> Vec<IpNet> {
        let is_over = |gone: Time| now >= gone + GONE_MEMORY;
        self.enis.retain(|_, gone| !is_over(*gone));
        let over: Vec<IpNet> =
            self.blocks.iter().filter(|(_, gone)| is_over(**gone)).map(|(net, _)| *net).collect();
        for block in &over {
            self.blocks.remove(block);
        }
        over
    }
}

impl Ctx {
    pub(crate) fn expire_removals(&mut self) {
        let over = self.removed.expire(self.now);
        let (prefixes, singles): (Vec<IpNet>, Vec<IpNet>) =
            over.into_iter().partition(|block| is_prefix(*block));
        for blocks in [prefixes, singles].into_iter().filter(|blocks| !blocks.is_empty()) {
            self.persist(Record::settled(blocks));
        }
    }

    /// The blocks without those that an answer to a question of `started` may show only because it is old.
    pub(crate) fn not_stale(&self, blocks: &[IpNet], started: Time) -> Vec<IpNet> {
        let fresh = |block: &&IpNet| !self.removed.may_be_stale_of(**block, started);
        blocks.iter().filter(fresh).copied().collect()
    }
}

//! The return of free addresses and unused ENIs.

mod removal;
mod surplus;

use removal::EniRemoval;
use surplus::CardSurplus;

use crate::{
    Action, Record,
    book::{BlockState, Eni, Task, is_prefix},
    ctx::Ctx,
    growth::Growth,
    places::OccupiedPlace,
    warm::{Pool, Surplus, Unit},
};
use config_model::{CardIndex, EniId, Span, Time};
use ipnet::IpNet;
use std::{cmp::Reverse, collections::BTreeMap};

/// The least lifetime of an ENI.
const MIN_ENI_LIFE: Span = Span::seconds(60);

/// The return of blocks and ENIs to EC2.
#[derive(Debug, Default)]
pub(crate) struct Shrink {
    /// ENIs that are being detached and deleted.
    removals: BTreeMap<EniId, EniRemoval>,
    surplus: BTreeMap<CardIndex, CardSurplus>,
}

impl Shrink {
    /// Continues the removal of an ENI that an earlier process started.
    pub(crate) fn resume(&mut self, eni: EniId) {
        self.removals.insert(eni, EniRemoval::resumed());
    }

    pub(crate) fn is_leaving(&self, eni: &EniId) -> bool {
        self.removals.contains_key(eni)
    }

    /// Returns whether no ENI is being removed.
    pub(crate) fn is_idle(&self) -> bool {
        self.removals.is_empty()
    }

    /// The ENIs under removal, as they were in the book.
    pub(crate) fn leaving(&self) -> impl Iterator<Item = &Eni> {
        self.removals.values().filter_map(|removal| removal.eni.as_ref())
    }

    /// The places that ENIs under removal still occupy.
    pub(crate) fn places(&self) -> impl Iterator<Item = OccupiedPlace> {
        self.removals.values().filter_map(EniRemoval::place)
    }

    /// Returns what the targets do not need, if no ENI or block is under way.
    pub(crate) fn give_back(&mut self, ctx: &mut Ctx, growth: &Growth) {
        let busy = !ctx.queue.is_empty()
            || !growth.is_idle()
            || ctx.book.enis().any(|eni| eni.coming.is_some() || eni.unsure);
        if busy || !self.removals.is_empty() {
            return;
        }
        self.empty_excluded(ctx);
        for card in ctx.targets.cards().to_vec() {
            let pool = growth.pool(ctx, card);
            if let Some(id) = self.eni_to_free(ctx, card, pool) {
                self.free_eni(ctx, &id);
                return;
            }
            let over = ctx.targets.over(card, pool);
            self.give_blocks_back(ctx, card, over);
        }
    }

    /// The number of addresses that were returned too early, if a request is made now.
    pub(crate) fn missed(&self, ctx: &Ctx, card: CardIndex) -> u32 {
        match ctx.targets.unit() {
            Unit::Address => self.surplus.get(&card).map_or(0, |surplus| surplus.missed(ctx.now)),
            Unit::Prefix | Unit::Ipv6Prefix => 0,
        }
    }

    /// Marks the last return as too early because addresses are requested now.
    pub(crate) fn regret(&mut self, card: CardIndex, now: Time) {
        if let Some(surplus) = self.surplus.get_mut(&card) {
            surplus.addresses_requested(now);
        }
    }

    /// The removable ENI of the card with the highest device number.
    fn eni_to_free(&mut self, ctx: &mut Ctx, card: CardIndex, pool: Pool) -> Option<EniId> {
        let of_card = |eni: &&Eni| {
            let here = eni.facts.card == card && eni.facts.managed && !eni.missing;
            here && unused(eni)
        };
        // An excluded ENI is not part of the pool, so its place is worth more than the ENI.
        let goes = |eni: &&Eni| {
            eni.facts.excluded || ctx.targets.hold_without(card, pool, ctx.share(eni, ctx.now))
        };
        let mut idle: Vec<&Eni> = ctx.book.enis().filter(of_card).filter(goes).collect();
        idle.sort_by_key(|eni| Reverse(eni.facts.device));
        let idle: Vec<(EniId, Time)> =
            idle.into_iter().map(|eni| (eni.facts.id.clone(), eni.known_since)).collect();
        for (id, known_since) in idle {
            if ctx.reached(known_since + MIN_ENI_LIFE) && kernel_clean_of(ctx, &id) {
                return Some(id);
            }
        }
        None
    }

    /// Makes one round: the highest blocks, of one kind, of the ENIs with the fewest pods.
    fn give_blocks_back(&mut self, ctx: &mut Ctx, card: CardIndex, over: Surplus) {
        let (prefixes, count) =
            if over.prefixes > 0 { (true, over.prefixes) } else { (false, over.singles) };
        let surplus = self.surplus.entry(card).or_default();
        let Some((count, next_round)) = surplus.due(count, ctx.now) else { return };
        if !ctx.reached(next_round) || !ctx.may(Action::Unassign) {
            return;
        }
        let idle = |eni: &&Eni| {
            let calm = eni.task == Task::Idle && !eni.blocks.has_leaving();
            eni.facts.card == card && eni.counts() && calm
        };
        let mut enis: Vec<&Eni> = ctx.book.enis().filter(idle).collect();
        enis.sort_by_key(|eni| {
            (eni.facts.is_primary, eni.blocks.held(), Reverse(eni.facts.device))
        });
        let ids: Vec<EniId> = enis.into_iter().map(|eni| eni.facts.id.clone()).collect();
        let mut left = usize::try_from(count).unwrap_or(usize::MAX);
        for id in ids {
            let blocks = blocks_to_give(ctx, &id, prefixes, left);
            if blocks.is_empty() {
                continue;
            }
            left -= blocks.len();
            let given = u32::try_from(blocks.len()).unwrap_or(u32::MAX);
            self.surplus.entry(card).or_default().gave(given, ctx.now);
            self.return_blocks(ctx, &id, blocks);
        }
    }

    /// Returns the unused blocks of ENIs whose addresses pods no longer get. Used blocks follow after their pods.
    fn empty_excluded(&mut self, ctx: &mut Ctx) {
        let idle = |eni: &&Eni| {
            let calm = eni.task == Task::Idle && !eni.blocks.has_leaving() && !eni.unsure;
            eni.facts.excluded && eni.facts.managed && !eni.missing && calm
        };
        let has_idle = |eni: &&Eni| eni.blocks.idle_by_kind() != (0, 0);
        let excluded: Vec<EniId> =
            ctx.book.enis().filter(idle).filter(has_idle).map(|eni| eni.facts.id.clone()).collect();
        for id in excluded {
            let kinds =
                [true, false].map(|prefixes| blocks_to_give(ctx, &id, prefixes, usize::MAX));
            let Some(blocks) = kinds.into_iter().find(|blocks| !blocks.is_empty()) else {
                continue;
            };
            if ctx.may(Action::Unassign) {
                self.return_blocks(ctx, &id, blocks);
            }
        }
    }

    fn return_blocks(&mut self, ctx: &mut Ctx, id: &EniId, blocks: Vec<IpNet>) {
        for block in &blocks {
            ctx.book.set_block_state(*block, BlockState::Leaving);
        }
        ctx.persist(Record::leaving(id.clone(), blocks.clone()));
        ctx.unassign(id, blocks);
    }
}

fn unused(eni: &Eni) -> bool {
    eni.facts.ours
        && !eni.facts.is_primary
        && eni.task == Task::Idle
        && !eni.unsure
        && eni.blocks.is_unused()
}

fn kernel_clean_of(ctx: &Ctx, id: &EniId) -> bool {
    ctx.book.eni(id).is_some_and(|eni| {
        let blocks = eni.blocks.iter().map(|(net, _)| net);
        ctx.book.kernel_clean_of(eni.known_since, blocks)
    })
}

fn blocks_to_give(ctx: &Ctx, id: &EniId, prefixes: bool, at_most: usize) -> Vec<IpNet> {
    let Some(eni) = ctx.book.eni(id) else { return Vec::new() };
    // A /80 costs nothing and stays.
    let of_v4 = |net: &IpNet| matches!(net, IpNet::V4(_));
    eni.blocks
        .idle()
        .filter(of_v4)
        .filter(|net| is_prefix(*net) == prefixes)
        .filter(|net| {
            let since = eni.blocks.get(*net).map(|block| block.known_since);
            let only = || std::iter::once(*net);
            since.is_some_and(|since| ctx.book.kernel_clean_of(since, only()))
        })
        .take(at_most)
        .collect()
}

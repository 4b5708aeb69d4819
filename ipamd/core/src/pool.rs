//! A card's pool in numbers: present, under way and in demand.

use crate::{
    book::{Eni, Readiness},
    ctx::Ctx,
    growth::{Growth, READY_PATIENCE},
    warm::{Pool, Unit},
};
use config_model::{CardIndex, Time};

impl Growth {
    /// The pool of a card for the targets; requests under way count as present.
    pub(crate) fn pool(&self, ctx: &mut Ctx, card: CardIndex) -> Pool {
        let (pool, changes) = self.pool_at(ctx, card, ctx.now);
        ctx.wake_by(changes);
        pool
    }

    /// The pool at `now`, and the time of its next change without an event.
    pub(crate) fn pool_at(&self, ctx: &Ctx, card: CardIndex, now: Time) -> (Pool, Option<Time>) {
        let mut pool = Pool::default();
        let mut unready = Vec::new();
        for eni in ctx.book.enis().filter(|eni| eni.facts.card == card && eni.counts()) {
            let share = ctx.share(eni, now);
            pool.total += share.total;
            pool.held += share.held;
            pool.cooling += share.cooling;
            pool.stuck += share.stuck;
            pool.stale += share.stale;
            pool.idle_singles += share.idle_singles;
            pool.idle_prefixes += share.idle_prefixes;
            if let Readiness::NotReady { since, .. } = &eni.readiness
                && now < *since + READY_PATIENCE
            {
                unready.push(*since + READY_PATIENCE);
            }
        }
        pool.total += self.coming(card);
        pool.waiting = ctx.queue.waiting_on(card);
        if card == CardIndex(0) {
            pool.expected = ctx.cluster.expected();
        }
        (pool, unready.into_iter().min())
    }
}

impl Ctx {
    /// The share of one ENI in its card's pool.
    pub(crate) fn share(&self, eni: &Eni, now: Time) -> Pool {
        let (free_singles, free_in_prefixes) = eni.blocks.free_by_kind();
        let (idle_singles, idle_prefixes) = eni.blocks.idle_by_kind();
        let stuck = match &eni.readiness {
            Readiness::NotReady { since, .. } => now >= *since + READY_PATIENCE,
            Readiness::Ready => false,
        };
        // Addresses of an ENI that is not ready are unavailable, whatever their kind.
        let stale = match self.targets.unit() {
            _ if stuck => 0,
            Unit::Address => free_in_prefixes,
            // Single addresses count fully if the subnet has no prefixes.
            Unit::Prefix if self.subnets.fragmented(&eni.facts.subnet) => 0,
            Unit::Prefix => free_singles,
            Unit::Ipv6Prefix => 0,
        };
        Pool {
            total: eni.blocks.total() + eni.coming_addresses(),
            held: eni.blocks.held(),
            cooling: eni.blocks.cooling(),
            stuck: if stuck { eni.blocks.free() + eni.coming_addresses() } else { 0 },
            stale,
            idle_singles,
            idle_prefixes,
            ..Pool::default()
        }
    }
}

//! What can go? Single free addresses, and ENIs that nobody uses.

mod departure;
mod excess;

pub(crate) use departure::Departure;
pub(crate) use excess::Excess;

use crate::{
    Action, Core, Record,
    book::{Eni, Stand, Task, is_prefix},
    warm::{Over, Pool, Unit},
};
use config_model::{CardIndex, EniId, Span, Time};
use ipnet::IpNet;
use std::cmp::Reverse;

/// An ENI lives at least so long.
const MIN_ENI_LIFE: Span = Span::seconds(60);

impl Core {
    /// Gives back what the targets do not need, once nothing is on its way in.
    pub(crate) fn give_back(&mut self, now: Time) {
        let busy = !self.queue.is_empty()
            || !self.makings.is_empty()
            || self.book.enis().any(|eni| eni.coming.is_some() || eni.unsure);
        if busy || !self.departures.is_empty() {
            return;
        }
        self.empty_excluded(now);
        for card in self.targets.cards().to_vec() {
            let pool = self.pool(card, now);
            if let Some(id) = self.eni_to_free(card, pool, now) {
                self.depart(&id, now);
                return;
            }
            self.give_blocks_back(card, self.targets.over(card, pool), now);
        }
    }

    /// How many addresses were given back too soon, if some are asked for now.
    pub(crate) fn missed(&self, card: CardIndex, now: Time) -> u32 {
        match self.targets.unit() {
            Unit::Address => self.excess.get(&card).map_or(0, |excess| excess.missed(now)),
            Unit::Prefix | Unit::Ipv6Prefix => 0,
        }
    }

    /// Addresses are asked for: what was given back a moment ago is missed.
    pub(crate) fn regret(&mut self, card: CardIndex, now: Time) {
        if let Some(excess) = self.excess.get_mut(&card) {
            excess.regret(now);
        }
    }

    /// The last ENI of the card by place that may go.
    fn eni_to_free(&mut self, card: CardIndex, pool: Pool, now: Time) -> Option<EniId> {
        let of_card = |eni: &&Eni| {
            let here = eni.facts.card == card && eni.facts.managed && !eni.missing;
            here && self.unused(eni)
        };
        // An excluded ENI is no part of the pool: its place is worth more than it.
        let goes = |eni: &&Eni| {
            eni.facts.excluded || self.targets.hold_without(card, pool, self.share(eni, now))
        };
        let mut idle: Vec<&Eni> = self.book.enis().filter(of_card).filter(goes).collect();
        idle.sort_by_key(|eni| Reverse(eni.facts.device));
        let idle: Vec<(EniId, Time)> =
            idle.into_iter().map(|eni| (eni.facts.id.clone(), eni.known_since)).collect();
        for (id, known_since) in idle {
            if self.reached(known_since + MIN_ENI_LIFE, now) && self.kernel_clean_of(&id) {
                return Some(id);
            }
        }
        None
    }

    fn unused(&self, eni: &Eni) -> bool {
        eni.facts.ours
            && !eni.facts.is_primary
            && eni.task == Task::Idle
            && !eni.unsure
            && eni.held == 0
            && eni.cooling == 0
    }

    fn kernel_clean_of(&self, id: &EniId) -> bool {
        self.book.eni(id).is_some_and(|eni| {
            let blocks = eni.blocks().map(|(net, _)| net);
            self.book.kernel_clean_of(eni.known_since, blocks)
        })
    }

    /// One round: from the ENIs that fewest pods use, the highest blocks, of one kind.
    fn give_blocks_back(&mut self, card: CardIndex, over: Over, now: Time) {
        let (prefixes, count) =
            if over.prefixes > 0 { (true, over.prefixes) } else { (false, over.singles) };
        let excess = self.excess.entry(card).or_default();
        let Some((count, next_round)) = excess.due(count, now) else { return };
        if !self.reached(next_round, now) || !self.may(Action::Unassign, now) {
            return;
        }
        let idle = |eni: &&Eni| {
            let calm = eni.task == Task::Idle && !eni.gives_back();
            eni.facts.card == card && eni.counts() && calm
        };
        let mut enis: Vec<&Eni> = self.book.enis().filter(idle).collect();
        enis.sort_by_key(|eni| (eni.facts.is_primary, eni.held, Reverse(eni.facts.device)));
        let ids: Vec<EniId> = enis.into_iter().map(|eni| eni.facts.id.clone()).collect();
        let mut left = usize::try_from(count).unwrap_or(usize::MAX);
        for id in ids {
            let blocks = self.blocks_to_give(&id, prefixes, left);
            if blocks.is_empty() {
                continue;
            }
            left -= blocks.len();
            let given = u32::try_from(blocks.len()).unwrap_or(u32::MAX);
            self.excess.entry(card).or_default().gave(given, now);
            self.return_blocks(&id, blocks, now);
        }
    }

    /// What pods will not get any more lies about in vain: free addresses of ENIs that give them
    /// none. What their pods hold follows when they have gone.
    fn empty_excluded(&mut self, now: Time) {
        let idle = |eni: &&Eni| {
            let calm = eni.task == Task::Idle && !eni.gives_back() && !eni.unsure;
            eni.facts.excluded && eni.facts.managed && !eni.missing && calm
        };
        let has_idle = |eni: &&Eni| eni.idle_by_kind() != (0, 0);
        let excluded: Vec<EniId> = self
            .book
            .enis()
            .filter(idle)
            .filter(has_idle)
            .map(|eni| eni.facts.id.clone())
            .collect();
        for id in excluded {
            let kinds =
                [true, false].map(|prefixes| self.blocks_to_give(&id, prefixes, usize::MAX));
            let Some(blocks) = kinds.into_iter().find(|blocks| !blocks.is_empty()) else {
                continue;
            };
            if self.may(Action::Unassign, now) {
                self.return_blocks(&id, blocks, now);
            }
        }
    }

    fn return_blocks(&mut self, id: &EniId, blocks: Vec<IpNet>, now: Time) {
        for block in &blocks {
            self.book.set_stand(*block, Stand::Leaving);
        }
        self.persist(Record::leaving(id.clone(), blocks.clone()));
        self.unassign(id, blocks, now);
    }

    fn blocks_to_give(&self, id: &EniId, prefixes: bool, at_most: usize) -> Vec<IpNet> {
        let Some(eni) = self.book.eni(id) else { return Vec::new() };
        // A /80 costs nothing, and is asked for once.
        let of_v4 = |net: &IpNet| matches!(net, IpNet::V4(_));
        eni.idle_blocks()
            .filter(of_v4)
            .filter(|net| is_prefix(*net) == prefixes)
            .filter(|net| {
                let since = eni.block(*net).map(|block| block.known_since);
                let only = || std::iter::once(*net);
                since.is_some_and(|since| self.book.kernel_clean_of(since, only()))
            })
            .take(at_most)
            .collect()
    }
}

//! What can go? Single free addresses, and ENIs that nobody uses.

mod departure;

pub(crate) use departure::Departure;

use crate::{
    Action, Core, Record,
    book::{Eni, Task, single},
    warm::Pool,
};
use config_model::{EniId, Span, Time};
use std::{cmp::Reverse, net::Ipv4Addr};

/// An ENI lives at least so long.
const MIN_ENI_LIFE: Span = Span::seconds(60);
/// Addresses are given back at most once in so long.
const DECREASE_INTERVAL: Span = Span::seconds(30);

impl Core {
    /// Gives back what the targets do not need, once nothing is on its way in.
    pub(crate) fn give_back(&mut self, now: Time) {
        let busy = !self.queue.is_empty()
            || !self.makings.is_empty()
            || self.book.enis().any(|eni| eni.coming > 0 || eni.unsure);
        if busy || !self.departures.is_empty() {
            return;
        }
        let pool = self.pool(now);
        if let Some(id) = self.eni_to_free(pool, now) {
            self.depart(&id, now);
        } else {
            self.give_addresses_back(self.targets.over(pool), now);
        }
    }

    /// The last ENI by place that may go.
    fn eni_to_free(&mut self, pool: Pool, now: Time) -> Option<EniId> {
        let goes = |eni: &&Eni| self.unused(eni) && self.targets.hold_without(pool, eni.total());
        let mut idle: Vec<&Eni> =
            self.book.enis().filter(|eni| eni.counts()).filter(goes).collect();
        idle.sort_by_key(|eni| Reverse((eni.facts.card, eni.facts.device)));
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
            && eni.held == 0
            && eni.cooling == 0
    }

    fn kernel_clean_of(&self, id: &EniId) -> bool {
        self.book.eni(id).is_some_and(|eni| {
            let addresses = eni.blocks().map(|(net, _)| net.network());
            self.book.kernel_clean_of(eni.known_since, addresses)
        })
    }

    /// One round: from the ENIs that fewest pods use, the highest addresses.
    fn give_addresses_back(&mut self, over: u32, now: Time) {
        if over == 0 {
            return;
        }
        let next_round = self.last_decrease.map_or(now, |last| last + DECREASE_INTERVAL);
        if !self.reached(next_round, now) || !self.may(Action::Unassign, now) {
            return;
        }
        let mut enis: Vec<&Eni> =
            self.book.enis().filter(|eni| eni.counts() && eni.task == Task::Idle).collect();
        enis.sort_by_key(|eni| (eni.facts.is_primary, eni.held, Reverse(eni.facts.device)));
        let ids: Vec<EniId> = enis.into_iter().map(|eni| eni.facts.id.clone()).collect();
        let mut left = usize::try_from(over).unwrap_or(usize::MAX);
        for id in ids {
            let addresses = self.addresses_to_give(&id, left);
            if addresses.is_empty() {
                continue;
            }
            left -= addresses.len();
            self.last_decrease = Some(now);
            for address in &addresses {
                self.book.set_leaving(single(*address), true);
            }
            self.persist(Record::Leaving { eni: id.clone(), addresses: addresses.clone() });
            self.unassign(&id, addresses, now);
        }
    }

    fn addresses_to_give(&self, id: &EniId, at_most: usize) -> Vec<Ipv4Addr> {
        let Some(eni) = self.book.eni(id) else { return Vec::new() };
        eni.idle_blocks()
            .map(|net| net.network())
            .filter(|address| {
                let since = eni.block(single(*address)).map(|block| block.known_since);
                let only = || std::iter::once(*address);
                since.is_some_and(|since| self.book.kernel_clean_of(since, only()))
            })
            .take(at_most)
            .collect()
    }
}

//! What can go? Single free addresses, and ENIs that nobody uses.

mod departure;

pub(crate) use departure::Departure;

use crate::{
    Action, Core, Record,
    book::{Eni, Task},
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
        for id in self.enis_by_place().into_iter().rev() {
            let Some(eni) = self.book.eni(&id) else { continue };
            if !self.unused(eni) || !self.targets.hold_without(pool, eni.total()) {
                continue;
            }
            let old_enough = eni.known_since + MIN_ENI_LIFE;
            if self.reached(old_enough, now) && self.kernel_clean_of(&id) {
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
                self.book.set_leaving(crate::book::single(*address), true);
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
                let block = crate::book::single(*address);
                let since = eni.blocks().find(|(net, _)| *net == block).map(|(_, b)| b.known_since);
                since.is_some_and(|since| {
                    self.book.kernel_clean_of(since, std::iter::once(*address))
                })
            })
            .take(at_most)
            .collect()
    }
}

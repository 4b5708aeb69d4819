//! Who waits for an address: first come, first served.

use crate::{Cards, Ticket};
use config_model::{PodKey, PodName, Time};
use std::collections::{BTreeMap, BTreeSet};

/// More Reserves than this do not wait: the kubelet tries again.
pub(crate) const MAX_WAITING: usize = 1024;

/// A Reserve that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waiter {
    pub(crate) ticket: Ticket,
    pub(crate) key: PodKey,
    pub(crate) pod: PodName,
    pub(crate) cards: Cards,
    pub(crate) branch: bool,
    pub(crate) give_up_at: Time,
}

/// The queue.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    arrivals: u64,
    waiters: BTreeMap<u64, Waiter>,
    by_ticket: BTreeMap<Ticket, u64>,
    by_deadline: BTreeSet<(Time, u64)>,
}

impl Queue {
    pub(crate) fn len(&self) -> usize {
        self.waiters.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Queues a Reserve; false if the queue is full.
    pub(crate) fn push(&mut self, waiter: Waiter) -> bool {
        if self.waiters.len() >= MAX_WAITING {
            return false;
        }
        self.arrivals += 1;
        self.by_ticket.insert(waiter.ticket, self.arrivals);
        self.by_deadline.insert((waiter.give_up_at, self.arrivals));
        self.waiters.insert(self.arrivals, waiter);
        true
    }

    pub(crate) fn first(&self) -> Option<&Waiter> {
        self.waiters.first_key_value().map(|(_, waiter)| waiter)
    }

    pub(crate) fn pop(&mut self) -> Option<Waiter> {
        let arrival = *self.waiters.first_key_value()?.0;
        self.take(arrival)
    }

    pub(crate) fn remove(&mut self, ticket: Ticket) -> Option<Waiter> {
        let arrival = *self.by_ticket.get(&ticket)?;
        self.take(arrival)
    }

    /// Takes out all who wait for this key.
    pub(crate) fn remove_key(&mut self, key: &PodKey) -> Vec<Waiter> {
        let of_key = |(arrival, waiter): (&u64, &Waiter)| (waiter.key == *key).then_some(*arrival);
        let arrivals: Vec<u64> = self.waiters.iter().filter_map(of_key).collect();
        arrivals.into_iter().filter_map(|arrival| self.take(arrival)).collect()
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.by_deadline.first().map(|(at, _)| *at)
    }

    /// One who waits no longer.
    pub(crate) fn pop_overdue(&mut self, now: Time) -> Option<Waiter> {
        let (_, arrival) = *self.by_deadline.first().filter(|(at, _)| *at <= now)?;
        self.take(arrival)
    }

    fn take(&mut self, arrival: u64) -> Option<Waiter> {
        let waiter = self.waiters.remove(&arrival)?;
        self.by_ticket.remove(&waiter.ticket);
        self.by_deadline.remove(&(waiter.give_up_at, arrival));
        Some(waiter)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

    use super::*;

    fn waiter(number: u64, give_up_at: u64) -> Waiter {
        Waiter {
            ticket: Ticket(number),
            key: PodKey::new("aws-cni", format!("sandbox{}", number % 2000), "eth0").unwrap(),
            pod: PodName { namespace: "default".into(), name: format!("web-{number}") },
            cards: Cards::First,
            branch: false,
            give_up_at: Time(give_up_at),
        }
    }

    #[test]
    fn first_come_first_served_and_the_impatient_leave_in_between() {
        let mut queue = Queue::default();
        for (number, give_up_at) in [(1, 50), (2, 10), (3, 50)] {
            assert!(queue.push(waiter(number, give_up_at)));
        }
        assert_eq!(queue.pop_overdue(Time(9)), None);
        assert_eq!(queue.pop_overdue(Time(10)).unwrap().ticket, Ticket(2));
        assert_eq!(queue.pop().unwrap().ticket, Ticket(1));
        assert_eq!(queue.first().unwrap().ticket, Ticket(3));
        assert_eq!(queue.next_deadline(), Some(Time(50)));
    }

    #[test]
    fn the_queue_is_bounded_and_has_room_again_when_somebody_leaves() {
        let mut queue = Queue::default();
        let bound = u64::try_from(MAX_WAITING).unwrap();
        assert!((0..bound).all(|number| queue.push(waiter(number, 1))));
        assert!(!queue.push(waiter(bound, 1)));
        assert!(queue.remove(Ticket(5)).is_some());
        assert!(queue.push(waiter(bound, 1)));
        assert_eq!(queue.len(), MAX_WAITING);
    }

    #[test]
    fn a_key_leaves_with_all_its_tickets() {
        let mut queue = Queue::default();
        for number in [7, 8, 2007] {
            queue.push(waiter(number, 1));
        }
        let key = waiter(7, 1).key;
        assert_eq!(queue.remove_key(&key).len(), 2);
        assert_eq!(queue.len(), 1);
    }
}

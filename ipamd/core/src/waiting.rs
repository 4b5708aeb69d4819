//! The queue of requests for addresses, first come, first served.

use crate::{Cards, Ticket};
use config_model::{CardIndex, PodKey, PodName, Time};
use std::collections::{BTreeMap, BTreeSet};

/// The limit of the queue. The kubelet retries the requests above it.
pub(crate) const MAX_WAITING: usize = 1024;

/// A Reserve that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waiter {
    pub(crate) ticket: Ticket,
    pub(crate) key: PodKey,
    pub(crate) pod: PodName,
    pub(crate) cards: Cards,
    /// The UID of a pod that waits for its branch ENI.
    pub(crate) branch: Option<String>,
    pub(crate) give_up_at: Time,
}

/// The waiting requests, with one queue per kind of request.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    arrivals: u64,
    waiters: BTreeMap<u64, Waiter>,
    /// Requests for an address of card 0, by arrival.
    one: BTreeSet<u64>,
    /// Requests for an address of every card.
    all: BTreeSet<u64>,
    /// Requests for a pod's branch ENI, which is unordered.
    branch: BTreeSet<((PodName, String), u64)>,
    by_ticket: BTreeMap<Ticket, u64>,
    by_deadline: BTreeSet<(Time, u64)>,
    by_key: BTreeSet<(PodKey, u64)>,
    by_pod: BTreeSet<(PodName, u64)>,
}

impl Queue {
    pub(crate) fn len(&self) -> usize {
        self.waiters.len()
    }

    /// The number of requests for an address of the card.
    pub(crate) fn waiting_on(&self, card: CardIndex) -> u32 {
        let first = if card == CardIndex(0) { self.one.len() } else { 0 };
        u32::try_from(first + self.all.len()).unwrap_or(u32::MAX)
    }

    /// The number of requests for an address of every card.
    pub(crate) fn waiting_on_all(&self) -> u64 {
        u64::try_from(self.all.len()).unwrap_or(u64::MAX)
    }

    /// Returns whether no request for an address waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.one.is_empty() && self.all.is_empty()
    }

    /// The first requests, at most `most`.
    pub(crate) fn eldest(&self, most: usize) -> impl Iterator<Item = &Waiter> {
        self.waiters.values().take(most)
    }

    /// Returns whether a sandbox of the pod waits.
    pub(crate) fn has_pod(&self, pod: &PodName) -> bool {
        of(&self.by_pod, pod).next().is_some()
    }

    /// Adds a Reserve. Returns false if the queue is full.
    pub(crate) fn push(&mut self, waiter: Waiter) -> bool {
        if self.waiters.len() >= MAX_WAITING {
            return false;
        }
        self.arrivals += 1;
        let arrival = self.arrivals;
        self.by_ticket.insert(waiter.ticket, arrival);
        self.by_deadline.insert((waiter.give_up_at, arrival));
        self.by_key.insert((waiter.key.clone(), arrival));
        self.by_pod.insert((waiter.pod.clone(), arrival));
        match (&waiter.branch, waiter.cards) {
            (Some(uid), _) => {
                self.branch.insert(((waiter.pod.clone(), uid.clone()), arrival));
            }
            (None, Cards::First) => {
                self.one.insert(arrival);
            }
            (None, Cards::All) => {
                self.all.insert(arrival);
            }
        }
        self.waiters.insert(arrival, waiter);
        true
    }

    /// The first request for an address of card 0 alone.
    pub(crate) fn first(&self) -> Option<&Waiter> {
        self.waiters.get(self.one.first()?)
    }

    /// The first request for an address of every card, and whether no request waits longer.
    pub(crate) fn first_of_all(&self) -> Option<(&Waiter, bool)> {
        let arrival = self.all.first()?;
        let eldest = self.one.first().is_none_or(|one| arrival < one);
        Some((self.waiters.get(arrival)?, eldest))
    }

    /// The first request for this pod's branch ENI.
    pub(crate) fn first_for_branch(&self, pod: &PodName, uid: &str) -> Option<&Waiter> {
        let arrival = of(&self.branch, &(pod.clone(), uid.to_owned())).next()?;
        self.waiters.get(&arrival)
    }

    /// The pods of the requests for branch ENIs, with their UIDs.
    pub(crate) fn branch_pods(&self) -> impl Iterator<Item = (&PodName, &str)> {
        self.branch.iter().map(|((pod, uid), _)| (pod, uid.as_str()))
    }

    pub(crate) fn pop(&mut self) -> Option<Waiter> {
        let arrival = *self.waiters.first_key_value()?.0;
        self.take(arrival)
    }

    pub(crate) fn remove(&mut self, ticket: Ticket) -> Option<Waiter> {
        let arrival = *self.by_ticket.get(&ticket)?;
        self.take(arrival)
    }

    /// Removes all requests of this key.
    pub(crate) fn remove_key(&mut self, key: &PodKey) -> Vec<Waiter> {
        let arrivals: Vec<u64> = of(&self.by_key, key).collect();
        arrivals.into_iter().filter_map(|arrival| self.take(arrival)).collect()
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.by_deadline.first().map(|(at, _)| *at)
    }

    /// Removes a request whose deadline is over.
    pub(crate) fn pop_overdue(&mut self, now: Time) -> Option<Waiter> {
        let (_, arrival) = *self.by_deadline.first().filter(|(at, _)| *at <= now)?;
        self.take(arrival)
    }

    /// Removes a request for an address of card 0 whose deadline is before `help`; any such request if it is `None`.
    pub(crate) fn pop_hopeless(&mut self, help: Option<Time>) -> Option<Waiter> {
        let too_early = |give_up_at: &Time| help.is_none_or(|help| *give_up_at < help);
        let (_, arrival) = *self
            .by_deadline
            .iter()
            .take_while(|(at, _)| too_early(at))
            .find(|(_, arrival)| self.one.contains(arrival))?;
        self.take(arrival)
    }

    fn take(&mut self, arrival: u64) -> Option<Waiter> {
        let waiter = self.waiters.remove(&arrival)?;
        self.one.remove(&arrival);
        self.all.remove(&arrival);
        if let Some(uid) = &waiter.branch {
            self.branch.remove(&((waiter.pod.clone(), uid.clone()), arrival));
        }
        self.by_ticket.remove(&waiter.ticket);
        self.by_deadline.remove(&(waiter.give_up_at, arrival));
        self.by_key.remove(&(waiter.key.clone(), arrival));
        self.by_pod.remove(&(waiter.pod.clone(), arrival));
        Some(waiter)
    }
}

/// The arrivals of one entry, earliest first.
fn of<'a, T: Ord + Clone>(
    index: &'a BTreeSet<(T, u64)>,
    of: &'a T,
) -> impl Iterator<Item = u64> + 'a {
    let from = index.range((of.clone(), 0)..);
    from.take_while(move |(one, _)| one == of).map(|(_, arrival)| *arrival)
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
            branch: None,
            give_up_at: Time(give_up_at),
        }
    }

    #[test]
    fn requests_are_served_in_order_and_expire_at_their_deadline() {
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
    fn the_queue_is_bounded_and_accepts_requests_after_a_removal() {
        let mut queue = Queue::default();
        let bound = u64::try_from(MAX_WAITING).unwrap();
        assert!((0..bound).all(|number| queue.push(waiter(number, 1))));
        assert!(!queue.push(waiter(bound, 1)));
        assert!(queue.remove(Ticket(5)).is_some());
        assert!(queue.push(waiter(bound, 1)));
        assert_eq!(queue.len(), MAX_WAITING);
    }

    #[test]
    fn a_key_is_removed_with_all_its_tickets() {
        let mut queue = Queue::default();
        for number in [7, 8, 2007] {
            queue.push(waiter(number, 1));
        }
        let key = waiter(7, 1).key;
        assert_eq!(queue.remove_key(&key).len(), 2);
        assert_eq!(queue.len(), 1);
    }

    #[test]
    fn requests_for_all_cards_and_for_branches_have_their_own_queues() {
        let mut queue = Queue::default();
        queue.push(Waiter { branch: Some("u1".into()), ..waiter(1, 9) });
        queue.push(waiter(2, 9));
        queue.push(Waiter { cards: Cards::All, ..waiter(3, 9) });
        assert_eq!([0, 1].map(|card| queue.waiting_on(CardIndex(card))), [2, 1]);
        assert_eq!(queue.first().unwrap().ticket, Ticket(2));
        assert!(queue.first_of_all().is_some_and(|(all, eldest)| all.ticket.0 == 3 && !eldest));
        queue.remove(Ticket(2));
        assert!(queue.first_of_all().is_some_and(|(_, eldest)| eldest));
        let pod = waiter(1, 9).pod;
        assert!(queue.has_pod(&pod));
        assert!(queue.first_for_branch(&pod, "u2").is_none());
        assert_eq!(queue.first_for_branch(&pod, "u1").unwrap().ticket, Ticket(1));
        assert_eq!(queue.branch_pods().collect::<Vec<_>>(), [(&pod, "u1")]);
        queue.remove(Ticket(1));
        assert!(queue.first_for_branch(&pod, "u1").is_none() && !queue.has_pod(&pod));
        queue.remove(Ticket(3));
        assert!(queue.is_empty());
    }
}

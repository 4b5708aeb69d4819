//! Effects that wait until the records before them are durable.

use ipamd_core::{Effect, Record};
use std::collections::VecDeque;

/// The number of durable records, of all that this process ever passed to the writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Durable(pub u64);

/// The queue of the core's effects in order: an effect leaves only after the records before it are durable. All
/// records that arrive during a write go into the next write.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Records that are in no batch yet.
    gathered: Vec<Record>,
    /// The number of all records.
    recorded: u64,
    /// The number of records passed to the writer.
    handed: u64,
    durable: u64,
    held: VecDeque<(u64, Effect)>,
}

impl Outbox {
    /// Takes effects. Returns those that need not wait, in order.
    pub fn take_in(&mut self, effects: Vec<Effect>) -> Vec<Effect> {
        let mut at_once = Vec::new();
        for effect in effects {
            match effect {
                Effect::Persist(record) => {
                    self.gathered.push(record);
                    self.recorded += 1;
                }
                effect @ (Effect::Reply { .. } | Effect::Cloud { .. }) => {
                    self.held.push_back((self.recorded, effect));
                }
                effect @ (Effect::Look { .. }
                | Effect::NodeChanged
                | Effect::AskForTrunk
                | Effect::Forget { .. }
                | Effect::Report(_)) => {
                    at_once.push(effect);
                }
            }
        }
        at_once
    }

    /// The next batch to write; `None` while a write is under way or without records.
    pub fn batch(&mut self) -> Option<Vec<Record>> {
        if self.durable < self.handed || self.gathered.is_empty() {
            return None;
        }
        self.handed = self.recorded;
        Some(std::mem::take(&mut self.gathered))
    }

    /// Sets the number of durable records.
    pub fn settle(&mut self, durable: Durable) {
        self.durable = durable.0;
    }

    /// The next effect that may leave, in order.
    pub fn release(&mut self) -> Option<Effect> {
        let (after, _) = self.held.front()?;
        if *after > self.durable {
            return None;
        }
        self.held.pop_front().map(|(_, effect)| effect)
    }

    /// Returns whether everything is durable and has left.
    pub fn is_empty(&self) -> bool {
        self.durable == self.recorded && self.held.is_empty()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;
    use ipamd_core::{Answer, Ticket};

    fn record(number: u16) -> Effect {
        Effect::Persist(Record::EniSettled { token: number.to_string() })
    }

    fn reply(number: u64) -> Effect {
        Effect::Reply { ticket: Ticket(number), answer: Answer::Confirmed { confirmed: true } }
    }

    fn tickets(outbox: &mut Outbox) -> Vec<u64> {
        std::iter::from_fn(|| outbox.release())
            .map(|effect| {
                let Effect::Reply { ticket, .. } = effect else { panic!("{effect:?}") };
                ticket.0
            })
            .collect()
    }

    #[test]
    fn a_reply_waits_for_the_records_before_it_and_for_no_others() {
        let mut outbox = Outbox::default();
        outbox.take_in(vec![reply(1), record(1), reply(2), record(2), reply(3)]);
        assert_eq!(tickets(&mut outbox), [1]);
        assert_eq!(outbox.batch().unwrap().len(), 2);
        outbox.settle(Durable(1));
        assert_eq!(tickets(&mut outbox), [2]);
        outbox.settle(Durable(2));
        assert_eq!(tickets(&mut outbox), [3]);
        assert!(outbox.is_empty());
    }

    #[test]
    fn records_gather_while_a_write_is_under_way() {
        let mut outbox = Outbox::default();
        outbox.take_in(vec![record(1)]);
        assert_eq!(outbox.batch().unwrap().len(), 1);
        outbox.take_in(vec![record(2), reply(2)]);
        outbox.take_in(vec![record(3), reply(3)]);
        assert_eq!(outbox.batch(), None, "one write at a time");
        outbox.settle(Durable(1));
        assert_eq!(tickets(&mut outbox), [0; 0]);
        assert_eq!(outbox.batch().unwrap().len(), 2, "both go in one write");
        outbox.settle(Durable(3));
        assert_eq!(tickets(&mut outbox), [2, 3]);
    }
}

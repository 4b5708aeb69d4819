//! Pending changes that happen at a set time without a call.

use config_model::{AttachmentId, EniId, InstanceId, Time};
use std::collections::BTreeMap;

/// A change that waits for its time. A transition that no longer applies by then is skipped.
#[derive(Clone, Debug)]
pub(crate) enum Transition {
    EniCreated(EniId),
    Attached(EniId, AttachmentId),
    Detached(EniId, AttachmentId),
    Running(InstanceId),
    Stopped(InstanceId),
    Terminated(InstanceId),
    Forgotten(InstanceId),
}

/// Transitions by due time, then in the order of their start.
#[derive(Debug, Default)]
pub(crate) struct TransitionQueue {
    due: BTreeMap<(Time, u64), Transition>,
    count: u64,
}

impl TransitionQueue {
    pub(crate) fn add(&mut self, at: Time, transition: Transition) {
        self.count += 1;
        self.due.insert((at, self.count), transition);
    }

    pub(crate) fn next_at(&self) -> Option<Time> {
        self.due.first_key_value().map(|((at, _), _)| *at)
    }

    pub(crate) fn pop(&mut self, until: Time) -> Option<(Time, Transition)> {
        let entry = self.due.first_entry().filter(|entry| entry.key().0 <= until)?;
        let ((at, _), transition) = entry.remove_entry();
        Some((at, transition))
    }
}

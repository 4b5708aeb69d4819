//! State of each kind, logged on changes, and the conditions of readiness.

use crate::{fault::Fault, kinds::Resource};
use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard},
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KindState {
    /// The first list is not read.
    Waiting,
    /// The cluster does not have the kind, for this reason.
    Absent(String),
    /// The kind is listed or watched.
    Good,
    /// The kind cannot be read now. The objects read before stay valid.
    Failing(String),
}

#[derive(Debug)]
struct Entry {
    state: KindState,
    /// The first list was read, or the kind is absent.
    is_listed: bool,
    objects: usize,
}

/// All kinds.
#[derive(Debug)]
pub(crate) struct Readiness {
    entries: Mutex<BTreeMap<Resource, Entry>>,
}

impl Readiness {
    /// Creates the state in which none of these kinds is listed.
    pub(crate) fn new(kinds: Vec<Resource>) -> Self {
        let waiting = || Entry { state: KindState::Waiting, is_listed: false, objects: 0 };
        let entries = kinds.into_iter().map(|kind| (kind, waiting())).collect();
        Self { entries: Mutex::new(entries) }
    }

    /// Records a successful list or watch.
    pub(crate) fn good(&self, kind: Resource, objects: usize) {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(&kind) else { return };
        entry.objects = objects;
        match std::mem::replace(&mut entry.state, KindState::Good) {
            KindState::Good => {}
            KindState::Waiting => tracing::debug!(kind = kind.text(), objects, "listed"),
            KindState::Absent(_) => {
                tracing::info!(kind = kind.text(), objects, "kind available")
            }
            KindState::Failing(_) => {
                tracing::info!(kind = kind.text(), objects, "kind readable again")
            }
        }
    }

    pub(crate) fn absent(&self, kind: Resource, why: &str) {
        let state = KindState::Absent(why.to_owned());
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(&kind) else { return };
        entry.objects = 0;
        if entry.state != state {
            tracing::info!(
                kind = kind.text(),
                why,
                "kind absent from the cluster; waiting for its definition"
            );
            entry.state = state;
        }
    }

    pub(crate) fn failing(&self, kind: Resource, fault: &Fault) {
        let state = KindState::Failing(fault.cause.clone());
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(&kind) else { return };
        if entry.state != state {
            let Fault { cause, next_step, .. } = fault;
            tracing::warn!(kind = kind.text(), cause, next_step, "cannot read kind");
            entry.state = state;
        }
    }

    /// Records that the first list was read or that the kind is absent. Calls `all` once, for the last of all kinds.
    pub(crate) fn listed(&self, kind: Resource, all: impl FnOnce()) {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(&kind) else { return };
        let is_first = !std::mem::replace(&mut entry.is_listed, true);
        // The lock is held, so that no request gets "ready" before `all` returns.
        if is_first && entries.values().all(|entry| entry.is_listed) {
            all();
        }
    }

    /// Returns a line for each kind that is not listed yet.
    pub(crate) fn waits_for(&self) -> Vec<String> {
        let entries = self.entries();
        let waits = entries.iter().filter(|(_, entry)| !entry.is_listed);
        waits.map(|(kind, entry)| format!("{}: {}", kind.text(), words(entry))).collect()
    }

    /// Returns a line for each kind.
    pub(crate) fn lines(&self) -> Vec<String> {
        let entries = self.entries();
        entries.iter().map(|(kind, entry)| format!("{}: {}", kind.text(), words(entry))).collect()
    }

    /// Returns the number of objects of each kind.
    pub(crate) fn objects(&self) -> Vec<(Resource, usize)> {
        self.entries().iter().map(|(kind, entry)| (*kind, entry.objects)).collect()
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<Resource, Entry>> {
        runtime_lock::lock(&self.entries)
    }
}

fn words(entry: &Entry) -> String {
    match &entry.state {
        KindState::Waiting => "waiting for its first list".to_owned(),
        KindState::Absent(why) => format!("absent: {why}"),
        KindState::Good => format!("{} objects", entry.objects),
        KindState::Failing(why) => format!("failing: {why}"),
    }
}

/// Returns true if a kind may be absent.
pub(crate) fn may_be_absent(kind: Resource) -> bool {
    !kind.is_built_in()
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy_objects::Kind;
    use std::cell::Cell;

    #[test]
    fn the_callback_runs_once_after_the_last_kind() {
        let (readiness, times) = (Readiness::new(Resource::all(true)), Cell::new(0));
        let all = || times.set(times.get() + 1);
        for kind in Resource::all(true) {
            assert_eq!(times.get(), 0, "{kind:?} is not listed yet");
            readiness.listed(kind, all);
        }
        readiness.listed(Resource::Policy(Kind::Pod), all);
        assert_eq!((times.get(), readiness.waits_for()), (1, Vec::new()));
    }

    #[test]
    fn a_failing_kind_is_reported_with_its_cause() {
        let readiness = Readiness::new(Resource::all(false));
        readiness.failing(Resource::Policy(Kind::Node), &Fault::late("list", "nodes"));
        let waits = readiness.waits_for();
        assert_eq!(waits.len(), Kind::ALL.len());
        assert!(waits.contains(&"Node: failing: cannot list nodes: no answer in time".to_owned()));
    }
}

//! How each kind stands: told once when it changes, and what readiness waits for.

use crate::{fault::Fault, kinds};
use policy_objects::Kind;
use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// How a kind stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nothing has come of it yet.
    Waiting,
    /// The cluster does not have it, for this reason.
    Absent(String),
    /// It is read.
    Good,
    /// It cannot be read now; what was read before stands.
    Failing(String),
}

#[derive(Debug)]
struct Entry {
    standing: Standing,
    /// Its first list was read, or it is known to be absent.
    is_listed: bool,
    objects: usize,
}

/// All kinds.
#[derive(Debug)]
pub(crate) struct Readiness {
    entries: Mutex<BTreeMap<Kind, Entry>>,
}

impl Readiness {
    pub(crate) fn new() -> Self {
        let waiting = || Entry { standing: Standing::Waiting, is_listed: false, objects: 0 };
        let entries = Kind::ALL.into_iter().map(|kind| (kind, waiting())).collect();
        Self { entries: Mutex::new(entries) }
    }

    /// It is read.
    pub(crate) fn good(&self, kind: Kind, objects: usize) {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(&kind) else { return };
        entry.objects = objects;
        match std::mem::replace(&mut entry.standing, Standing::Good) {
            Standing::Good => {}
            Standing::Waiting => tracing::debug!(kind = kind.text(), objects, "listed"),
            Standing::Absent(_) => {
                tracing::info!(kind = kind.text(), objects, "the kind is there now")
            }
            Standing::Failing(_) => tracing::info!(kind = kind.text(), objects, "it is read again"),
        }
    }

    /// The cluster does not have it.
    pub(crate) fn absent(&self, kind: Kind, why: &str) {
        let standing = Standing::Absent(why.to_owned());
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(&kind) else { return };
        entry.objects = 0;
        if entry.standing != standing {
            tracing::info!(
                kind = kind.text(),
                why,
                "the cluster does not have this kind; it is watched for"
            );
            entry.standing = standing;
        }
    }

    /// It cannot be read now.
    pub(crate) fn failing(&self, kind: Kind, fault: &Fault) {
        let standing = Standing::Failing(fault.cause.clone());
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(&kind) else { return };
        if entry.standing != standing {
            let Fault { cause, next_step, .. } = fault;
            tracing::warn!(kind = kind.text(), cause, next_step, "it is not read now");
            entry.standing = standing;
        }
    }

    /// Its first list was read, or there is none. Does this, once, when that was the last of all kinds.
    pub(crate) fn listed(&self, kind: Kind, all: impl FnOnce()) {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(&kind) else { return };
        let is_first = !std::mem::replace(&mut entry.is_listed, true);
        // Under the lock, so that nobody says "ready" before it is done.
        if is_first && entries.values().all(|entry| entry.is_listed) {
            all();
        }
    }

    /// What is waited for before anything is served, in words.
    pub(crate) fn waits_for(&self) -> Vec<String> {
        let entries = self.entries();
        let waits = entries.iter().filter(|(_, entry)| !entry.is_listed);
        waits.map(|(kind, entry)| format!("{}: {}", kind.text(), words(entry))).collect()
    }

    /// How each kind stands, in words.
    pub(crate) fn lines(&self) -> Vec<String> {
        let entries = self.entries();
        entries.iter().map(|(kind, entry)| format!("{}: {}", kind.text(), words(entry))).collect()
    }

    /// How many objects there are of each kind.
    pub(crate) fn objects(&self) -> Vec<(Kind, usize)> {
        self.entries().iter().map(|(kind, entry)| (*kind, entry.objects)).collect()
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<Kind, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn words(entry: &Entry) -> String {
    match &entry.standing {
        Standing::Waiting => "waits for its first list".to_owned(),
        Standing::Absent(why) => format!("absent: {why}"),
        Standing::Good => format!("{} objects", entry.objects),
        Standing::Failing(why) => format!("failing: {why}"),
    }
}

/// Returns true if a kind may be absent.
pub(crate) fn may_be_absent(kind: Kind) -> bool {
    !kinds::is_built_in(kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn all_are_listed_once_the_last_is_and_only_once() {
        let (board, times) = (Readiness::new(), Cell::new(0));
        let all = || times.set(times.get() + 1);
        for kind in Kind::ALL {
            assert_eq!(times.get(), 0, "{kind:?} is not listed yet");
            board.listed(kind, all);
        }
        board.listed(Kind::Pod, all);
        assert_eq!((times.get(), board.waits_for()), (1, Vec::new()));
    }

    #[test]
    fn what_is_waited_for_says_why() {
        let board = Readiness::new();
        board.failing(Kind::Node, &Fault::late("list", "nodes"));
        let waits = board.waits_for();
        assert_eq!(waits.len(), Kind::ALL.len());
        assert!(waits.contains(&"Node: failing: cannot list nodes: no answer in time".to_owned()));
    }
}

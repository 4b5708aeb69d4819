//! Pods that wait at their start until policy holds for them.

use config_model::{EnforcingMode, Span, Time};
use std::{collections::BTreeMap, fmt};

/// The longest that a pod waits.
pub const WAIT: Span = Span::seconds(2);
/// As many wait at once; one more is answered at once that nothing is known yet. A node has 737 pods at the utmost.
pub const WAITING_MAX: usize = 1024;

/// Which pod. The UID decides: another pod of the same name is another pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodId {
    /// Its UID.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl fmt::Display for PodId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} (UID {})", self.namespace, self.name, self.uid)
    }
}

/// What a pod that starts is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// What policy says of it is in force.
    Enforced,
    /// It may start, and is open; why.
    Open(String),
    /// It may not start; why.
    Refused(String),
}

/// One question. Whoever asks twice has two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// One that waits.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub(crate) pod: PodId,
    pub(crate) mode: EnforcingMode,
    pub(crate) until: Time,
    /// The revision that has its entry and its addresses; nothing while it has no entry.
    pub(crate) needs: Option<u64>,
}

impl Waiting {
    /// The answer if it has waited long enough.
    pub(crate) fn given_up(&self, why: String) -> Answer {
        match self.mode {
            EnforcingMode::Standard => Answer::Open(why),
            EnforcingMode::Strict => Answer::Refused(why),
        }
    }
}

/// The first moment at which one of these gives up.
pub(crate) fn first_end(waiting: &BTreeMap<Ticket, Waiting>) -> Option<Time> {
    waiting.values().map(|one| one.until).min()
}

//! Pods that wait at their start until their policies are in force.

use config_model::{EnforcingMode, Span, Time};
use std::{collections::BTreeMap, fmt};

/// The longest that a pod waits.
pub const WAIT: Span = Span::seconds(2);
/// The number of pods that may wait at once; one more is refused immediately. A node has at most 737 pods.
pub const WAITING_MAX: usize = 1024;

/// A pod. The UID identifies it: another pod of the same name is a different pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodId {
    /// The UID that the runtime knows; for a static pod that is not the one in the API.
    pub uid: String,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
}

impl fmt::Display for PodId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} (UID {})", self.namespace, self.name, self.uid)
    }
}

/// The answer for a pod that starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Its policies are in force.
    Enforced,
    /// The pod may start without its policies; the text is the reason why they are not in force.
    Open(String),
    /// The pod may not start; the text is the reason.
    Refused(String),
}

/// Identifies one admission. A pod that is admitted twice has two tickets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// A pod that waits.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub(crate) pod: PodId,
    pub(crate) mode: EnforcingMode,
    pub(crate) until: Time,
    /// The revision that contains the pod's entry and addresses; `None` while there is no entry.
    pub(crate) needs: Option<u64>,
}

impl Waiting {
    /// The answer at the end of the wait.
    pub(crate) fn answer_at_end(&self, why: String) -> Answer {
        match self.mode {
            EnforcingMode::Standard => Answer::Open(why),
            EnforcingMode::Strict => Answer::Refused(why),
        }
    }
}

/// The end of the wait that ends first.
pub(crate) fn first_end(waiting: &BTreeMap<Ticket, Waiting>) -> Option<Time> {
    waiting.values().map(|one| one.until).min()
}

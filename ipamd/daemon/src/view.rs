//! What the daemon shows of itself: to metrics, health and introspection.

use config_model::Time;
use ipamd_core::{Limits, Notice, PoolConfig, Snapshot};
use std::{collections::VecDeque, fmt, time::Duration};

/// How far the daemon is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// There is no address book yet; the text says what is waited for.
    Starting(String),
    /// It serves.
    Running,
    /// It is about to end.
    Stopping,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Starting(why) => write!(f, "starting: {why}"),
            Self::Running => f.write_str("running"),
            Self::Stopping => f.write_str("stopping"),
        }
    }
}

/// The whole state at one moment.
#[derive(Clone, Debug)]
pub(crate) struct View {
    /// When.
    pub(crate) now: Time,
    /// How far the daemon is.
    pub(crate) phase: Phase,
    /// The address book; empty before there is one.
    pub(crate) snapshot: Snapshot,
    /// What the instance type allows, once known.
    pub(crate) limits: Option<Limits>,
    /// The pool's targets, once there is a pool.
    pub(crate) targets: Option<PoolConfig>,
    /// Why the checkpoint cannot be written, if so.
    pub(crate) checkpoint_trouble: Option<String>,
    /// Requests that wait for the address book to be there.
    pub(crate) queued: usize,
    /// How long the Reserves of the snapshot have waited, in its order.
    pub(crate) waited: Vec<Duration>,
    /// The last notices, oldest first.
    pub(crate) notices: VecDeque<(Time, Notice)>,
}

/// Why pods cannot be served, or may soon not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// A stable word.
    pub(crate) reason: &'static str,
    /// The details.
    pub(crate) text: String,
}

/// The kernel refuses what all pods need; told by the repair pass.
pub(crate) const HOST_NETWORKING: &str = "host_networking";

/// A mode needs the API server, and it has not been heard yet.
pub(crate) const KUBERNETES: &str = "kubernetes";

/// The words of [`Trouble::reason`].
pub(crate) const REASONS: [&str; 6] =
    ["starting", "stopping", "checkpoint", "no_usable_address", KUBERNETES, HOST_NETWORKING];

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.text)
    }
}

impl View {
    /// What keeps the pool from serving now, if anything.
    pub(crate) fn troubles(&self) -> Vec<Trouble> {
        let mut found = Vec::new();
        let mut tell = |reason, text: String| found.push(Trouble { reason, text });
        match &self.phase {
            Phase::Starting(why) => tell("starting", why.clone()),
            Phase::Stopping => tell("stopping", "the daemon is stopping".to_owned()),
            Phase::Running if self.lacks_address() => {
                let waiting = self.snapshot.waiting.iter();
                let why: Vec<String> =
                    waiting.map(|wait| format!("{}: {}", wait.what, wait.why)).collect();
                tell("no_usable_address", why.join("; "));
            }
            Phase::Running => {}
        }
        if let Some(trouble) = &self.checkpoint_trouble {
            tell("checkpoint", trouble.clone());
        }
        found
    }

    /// What pods that run suffer from: what they hold is not the node's any more.
    pub(crate) fn impairments(&self) -> Vec<String> {
        let gone = self.snapshot.enis.iter().filter(|eni| eni.missing).map(|eni| {
            format!("{} was detached while {} pods hold its addresses", eni.id, eni.counts.assigned)
        });
        let lost = self.snapshot.enis.iter().flat_map(|eni| {
            eni.lost
                .iter()
                .map(|block| format!("EC2 has taken {block} from {} while a pod holds it", eni.id))
        });
        gone.chain(lost).take(IMPAIRMENTS_TOLD).collect()
    }

    /// A full node is no trouble as long as nobody waits.
    fn lacks_address(&self) -> bool {
        let Snapshot { counts, full, .. } = &self.snapshot;
        counts.usable == 0 && (counts.waiting > 0 || !full)
    }
}

/// More say no more.
const IMPAIRMENTS_TOLD: usize = 8;

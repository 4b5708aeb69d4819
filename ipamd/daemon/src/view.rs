//! The daemon's state as metrics, health and introspection show it.

use config_model::Time;
use ipamd_core::{Limits, Notice, PoolConfig, Snapshot};
use std::{collections::VecDeque, fmt, time::Duration};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// There is no address book yet; the text names the step that is not complete.
    Starting(String),
    Running,
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
    pub(crate) now: Time,
    pub(crate) phase: Phase,
    /// Empty before the start completes.
    pub(crate) snapshot: Snapshot,
    /// `None` until EC2 has answered.
    pub(crate) limits: Option<Limits>,
    /// `None` before the start completes.
    pub(crate) targets: Option<PoolConfig>,
    /// The error of the last write of the checkpoint, until a write succeeds.
    pub(crate) checkpoint_trouble: Option<String>,
    /// Requests that wait for the start to complete.
    pub(crate) queued: usize,
    /// The waiting times of the snapshot's Reserves, in its order.
    pub(crate) waited: Vec<Duration>,
    /// Oldest first.
    pub(crate) notices: VecDeque<(Time, Notice)>,
}

/// A problem that stops the pool now, or may stop it soon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// Stable: a metric label.
    pub(crate) reason: &'static str,
    pub(crate) text: String,
}

/// The kernel refuses an operation that all pods need; the repair pass reports it.
pub(crate) const HOST_NETWORKING: &str = "host_networking";

/// A mode needs the API server, and the daemon has not reached it yet.
pub(crate) const KUBERNETES: &str = "kubernetes";

/// The values of [`Trouble::reason`].
pub(crate) const REASONS: [&str; 6] =
    ["starting", "stopping", "checkpoint", "no_usable_address", KUBERNETES, HOST_NETWORKING];

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.text)
    }
}

impl View {
    /// The problems that stop the pool now.
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

    /// Running pods whose addresses or ENIs no longer belong to the node.
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

    /// A full node is not a problem as long as no ADD waits.
    fn lacks_address(&self) -> bool {
        let Snapshot { counts, full, .. } = &self.snapshot;
        counts.usable == 0 && (counts.waiting > 0 || !full)
    }
}

/// A longer list does not help.
const IMPAIRMENTS_TOLD: usize = 8;

//! What the task that owns the node is told.

use config_model::{EnforcingMode, Time};
use control_wire::proto::{Bookmark, Hello, Part};
use datapath_node::{Answer, Applied, LocalPod, Overview, PodId};
use std::{collections::BTreeMap, net::SocketAddr};
use tokio::sync::oneshot;

/// One of them.
#[derive(Debug)]
pub(crate) enum Event {
    /// What is a replica to be told first?
    Hello { take_behind: bool, reply: oneshot::Sender<Hello> },
    /// How far does a replica that has read so far lag behind?
    Lag { reached: BTreeMap<String, u64>, reply: oneshot::Sender<u64> },
    /// A stream has begun.
    Began { at: SocketAddr, epoch: Vec<u8>, behind: bool },
    /// No replica is followed, and why.
    Alone(String),
    /// Where replicas are cannot be learnt, and why.
    Unlisted(String),
    /// A part of a generation.
    Part(Part),
    /// How far the cluster was read.
    Bookmark(Bookmark),
    /// What came of a state.
    Applied { revision: u64, came: Applied },
    /// What became of a report.
    Reported { to: SocketAddr, arrived: bool },
    /// A pod starts.
    Admit { pod: LocalPod, mode: EnforcingMode, since: Time, reply: oneshot::Sender<Answer> },
    /// A pod's sandbox has ended; empty if it is not said which.
    Forget { pod: PodId, container: String, reply: oneshot::Sender<()> },
    /// How is the node?
    Overview { reply: oneshot::Sender<(Overview, Option<String>)> },
    /// The disk wants all that is held.
    WantImage,
    /// Why the disk does not have it; nothing if it has.
    Disk(Option<String>),
}

/// As many wait to be heard; who tells more waits.
pub(crate) const EVENTS: usize = 256;

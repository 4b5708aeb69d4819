//! The events of the task that owns the core.

use config_model::{EnforcingMode, HostLink, Time};
use control_wire::proto::{Bookmark, Hello, Part};
use datapath_node::{
    Answer, Applied, BackendEvent, Links, LocalPod, Looked, Observed, Overview, OwnRead, PodId,
    RuleUse,
};
use datapath_rpc::wire;
use std::{collections::BTreeMap, net::SocketAddr};
use tokio::sync::oneshot;

#[derive(Debug)]
pub(crate) enum Event {
    /// Returns the first message to a replica.
    Hello { take_behind: bool, reply: oneshot::Sender<Hello> },
    /// Returns the lag of a replica that has read so far.
    Lag { reached: BTreeMap<String, u64>, reply: oneshot::Sender<u64> },
    /// A stream has started.
    Began { at: SocketAddr, epoch: Vec<u8>, behind: bool },
    /// The agent follows no replica; why.
    Disconnected(String),
    /// The replicas cannot be listed; why.
    NotListed(String),
    /// A part of a generation.
    Part(Part),
    /// A bookmark of the stream.
    Bookmark(Bookmark),
    /// Services that the daemon has read for this node.
    ReadServices(OwnRead),
    /// The outcome of an apply.
    Applied { revision: u64, outcome: Applied },
    /// The pods' links were observed, or cannot be read and why.
    Links(Result<Links, String>),
    /// The backend's state was read, or cannot be and why.
    Observed(Result<Observed, String>),
    /// An event of the backend.
    Backend(BackendEvent),
    /// The outcome of a report.
    Reported { to: SocketAddr, arrived: bool },
    /// A pod starts.
    Admit {
        pod: LocalPod,
        links: Vec<HostLink>,
        mode: EnforcingMode,
        since: Time,
        reply: oneshot::Sender<Answer>,
    },
    /// A pod's sandbox has ended; `container` is empty if it is not known.
    Forget { pod: PodId, container: String, reply: oneshot::Sender<()> },
    /// Adds the names of policies to the use of rules.
    NameUses { uses: Vec<RuleUse>, reply: oneshot::Sender<wire::UsesReply> },
    /// Adds the names of pods and policies to lookups.
    NameLookups { looked: Vec<Looked>, reply: oneshot::Sender<wire::LookUpReply> },
    /// Returns the agent's state.
    Overview { reply: oneshot::Sender<(Overview, Option<String>)> },
    /// The store requires the whole snapshot.
    RequestImage,
    /// The reason why the snapshot is not on the disk; `None` if it is.
    Disk(Option<String>),
}

/// The number of events in the queue; a sender waits if it is full.
pub(crate) const EVENTS: usize = 256;
